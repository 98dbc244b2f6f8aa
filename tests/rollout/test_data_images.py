"""Rows with images, as verl's data sets and others hold them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rollbox.rollout.data import load_samples
from rollbox.schemas.errors import ConfigError
from rollbox.schemas.trajectory import Sample


def load(tmp_path: Path, **row: Any) -> Sample:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"ground_truth": "7", **row}) + "\n")
    return load_samples(file)[0]


def test_verls_layout_in_parquet(tmp_path: Path) -> None:
    row = {
        "prompt": [{"role": "user", "content": "<image>What is <image>this?"}],
        "images": [{"bytes": b"one", "path": None}, {"bytes": b"two", "path": None}],
        "reward_model": {"ground_truth": "7"},
        "data_source": "x",
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "rows.parquet")
    [sample] = load_samples(tmp_path / "rows.parquet")
    assert sample.images == [b"one", b"two"]
    content = sample.messages[0]["content"]
    assert [part["type"] for part in content] == ["image", "text", "image", "text"]
    assert [part["text"] for part in content if part["type"] == "text"] == ["What is ", "this?"]
    assert content[0]["image"] != content[2]["image"]
    assert content[0]["image"].startswith("sha256:")
    assert "one" not in sample.model_dump_json()


def test_paths_are_of_the_files_folder(tmp_path: Path) -> None:
    sample = load(tmp_path, question="<image> What?", images=["a/b.png"])
    assert sample.images == [str(tmp_path / "a/b.png")]
    assert load(tmp_path, question="<image>", image="/c.png").images == ["/c.png"]


def test_parts_of_messages(tmp_path: Path) -> None:
    uri = "data:image/png;base64,AAAA"
    parts = [
        {"type": "image_url", "image_url": {"url": uri}},
        {"type": "text", "text": "?"},
        {"type": "image", "image": "x.png"},
    ]
    sample = load(tmp_path, messages=[{"role": "user", "content": parts}])
    assert sample.images == [uri, str(tmp_path / "x.png")]
    assert [part["type"] for part in sample.messages[0]["content"]] == ["image", "text", "image"]


def test_without_images_a_marker_is_text(tmp_path: Path) -> None:
    sample = load(tmp_path, question="What does <image> mean in HTML?")
    assert (sample.messages[0]["content"], sample.images) == ("What does <image> mean in HTML?", [])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "<image>", "images": ["a", "b"]}, "'images' has 2, and the prompt 1"),
        ({"question": "What?", "images": ["a"]}, "'images' has 1, and the prompt 0"),
        ({"question": "<image><image>", "images": ["a"]}, r"more '<image>' than 'images' has images \(1\)"),
        ({"question": "<image>", "images": [7]}, "got int"),
        ({"question": "<image>", "images": [{"x": 1}]}, "got NoneType"),
        ({"question": "<image>", "images": ["https://example.org/a.png"]}, "read from files only"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=rf"rows\.jsonl:1: .*{said}"):
        load(tmp_path, **row)
