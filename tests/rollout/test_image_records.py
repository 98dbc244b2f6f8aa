"""A run with images: files beside the lines, and a run that goes on."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image
from rich.console import Console

from rollbox.rollout.engines.huggingface import HuggingFaceEngine
from rollbox.rollout.job import RolloutJob, run_job
from rollbox.rollout.loop import RolloutLimits
from rollbox.schemas.errors import ConfigError
from rollbox.schemas.generation import SamplingParams
from rollbox.schemas.trajectory import Sample, Trajectory
from rollbox.tools_config import find_tools

from .vision_models import make_qwen2_vl, picture


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    make_qwen2_vl(directory)
    return directory


@pytest.fixture
def job(tmp_path: Path) -> RolloutJob:
    content = [{"type": "image"}, {"type": "text", "text": "What is it?"}]
    samples = [
        Sample(
            sample_id=f"q{i}",
            data_source="openai/gsm8k",
            messages=[{"role": "user", "content": content}],
            ground_truth="7",
            images=[picture(100, 60, i % 2)],
        )
        for i in range(3)
    ]
    return RolloutJob(
        *("a run", "m", samples, find_tools("calculator"), tmp_path / "run"),
        sampling=SamplingParams(max_tokens=8, seed=1),
        limits=RolloutLimits(max_turns=2),
    )


def console() -> Console:
    return Console(file=io.StringIO(), width=120)


def lines(job: RolloutJob) -> list[Trajectory]:
    text = (job.out_dir / "trajectories.jsonl").read_text()
    return [Trajectory.model_validate_json(line) for line in text.splitlines()]


async def test_pixels_are_in_files_and_the_run_goes_on(job: RolloutJob, model_dir: Path) -> None:
    await run_job(job, HuggingFaceEngine(model_dir), console())
    done = lines(job)
    files = sorted((job.out_dir / "images").iterdir())
    assert len(files) == 2
    assert {str(file.relative_to(job.out_dir)) for file in files} == {image.file for t in done for image in t.images}
    for trajectory in done:
        [image] = trajectory.images
        shown = picture(100, 60, int(trajectory.sample.sample_id[1:]) % 2)
        assert Image.open(job.out_dir / image.file).tobytes() == shown.tobytes()
        assert trajectory.sample.messages[0]["content"][0]["image"] == image.file
    rows: list[dict[str, Any]] = pq.read_table(job.out_dir / "trajectories.parquet").to_pylist()
    by_id = {trajectory.trajectory_id: trajectory for trajectory in done}
    for row in rows:
        assert row["images"] == [image.model_dump() for image in by_id[row["trajectory_id"]].images]
    (job.out_dir / "trajectories.jsonl").write_text(by_id["q0.0"].model_dump_json() + "\n")
    (job.out_dir / by_id["q1.0"].images[0].file).unlink()
    await run_job(job, HuggingFaceEngine(model_dir), console())
    assert {t.trajectory_id: t.response_ids for t in lines(job)} == {t.trajectory_id: t.response_ids for t in done}
    assert len(list((job.out_dir / "images").iterdir())) == 2


async def test_other_images_under_the_same_names_are_another_run(
    job: RolloutJob, model_dir: Path, tmp_path: Path
) -> None:
    files = [tmp_path / "first.bmp", tmp_path / "second.bmp"]
    for seed, file in enumerate(files):
        picture(100, 60, seed).save(file)
    named = [sample.model_copy(update={"images": [str(files[i % 2])]}) for i, sample in enumerate(job.samples)]
    job = replace(job, samples=named)
    await run_job(job, HuggingFaceEngine(model_dir), console())
    done = lines(job)
    (job.out_dir / "trajectories.jsonl").write_text(done[0].model_dump_json() + "\n")

    kept = files[1].read_bytes()
    times = os.stat(files[1])
    files[1].write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))  # one pixel, and neither size nor time
    os.utime(files[1], ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(ConfigError, match=r"other settings \(images was '[0-9a-f]+', now '[0-9a-f]+'\); .*--restart"):
        await run_job(job, HuggingFaceEngine(model_dir), console())
    assert len(lines(job)) == 1
    files[1].unlink()
    with pytest.raises(ConfigError, match=r"sample 'q1': the image .*second.bmp cannot be read: No such file"):
        await run_job(job, HuggingFaceEngine(model_dir), console())

    files[1].write_bytes(kept)  # the same again, as a copy has other times
    await run_job(job, HuggingFaceEngine(model_dir), console())
    assert sorted(trajectory.trajectory_id for trajectory in lines(job)) == ["q0.0", "q1.0", "q2.0"]


async def test_questions_with_images_need_a_model_that_sees(
    job: RolloutJob, random_model_dir: Path, tmp_path: Path
) -> None:
    blind = replace(job, out_dir=tmp_path / "blind")
    with pytest.raises(ConfigError, match="sample 'q0': it has images, and this model is shown text only"):
        await run_job(blind, HuggingFaceEngine(random_model_dir), console())
