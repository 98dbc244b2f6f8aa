"""`rollbox data`: each layout that is read, what is left out, and what stops it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rollbox.cli.main import app
from rollbox.rollout.data import load_samples
from rollbox.schemas.errors import ConfigError
from rollbox.training.data_sets.dapo_math import DAPO_MATH
from rollbox.training.data_sets.gsm8k import GSM8K as GSM8K_SET
from rollbox.training.data_sets.prepare import prepare
from rollbox.training.verl_data import write_rows

from ..data_set_rows import (
    AIME,
    APPS,
    APPS_FUNCTION,
    CODE_CONTESTS,
    DAPO,
    DAPO_PROMPT,
    EURUS,
    EURUS_MATH,
    FLASHRAG,
    GSM8K,
    HELD_OUT,
    SEARCH_R1,
    TACO,
)

Row = Mapping[str, Any]


def write(path: Path, *rows: Any) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prepared(folder: Path, name: str, *rows: Any, ending: str = ".jsonl", options: tuple[str, ...] = ()) -> str:
    """What the command said of the files that it wrote to FOLDER/out."""
    train, test = write(folder / f"train{ending}", *rows), write(folder / "test.jsonl", HELD_OUT[name])
    given = ["data", name, "--train", str(train), "--test", str(test), "--out", str(folder / "out"), *options]
    result = CliRunner().invoke(app, given, catch_exceptions=True)
    if isinstance(result.exception, ConfigError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def written(folder: Path, split: str = "train") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / "out" / f"{split}.parquet").to_pylist()
    return rows


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("name", "row", "data_source", "text", "truth"),
    [
        ("gsm8k", GSM8K, "openai/gsm8k", GSM8K["question"], "1007"),
        ("dapo-math", DAPO, "math_dapo", DAPO_PROMPT, "42"),
        (
            "dapo-math",
            AIME,
            "math_dapo",
            "Find 11 + 13.\n\nEnd with a line that says only: Answer: <the answer>",
            "024",
        ),
        ("search-qa", SEARCH_R1, "searchR1_nq", SEARCH_R1["question"], {"target": ["Lima", "Lima, Peru"]}),
        ("code", EURUS, "taco", EURUS["prompt"][1]["content"], EURUS["reward_model"]["ground_truth"]),
    ],
)
def test_a_row_of_each_layout(
    name: str, row: Row, data_source: str, text: str, truth: Any, ending: str, tmp_path: Path
) -> None:
    assert prepared(tmp_path, name, row, ending=ending).splitlines() == [
        f"{tmp_path}/out/train.parquet: 1 questions",
        f"{tmp_path}/out/test.parquet: 1 questions",
    ]
    [found] = written(tmp_path)
    assert found["data_source"] == data_source
    assert [message["role"] for message in found["prompt"]] == ["system", "user"]
    assert found["prompt"][1]["content"] == text
    assert found["reward_model"] == {"style": "rule", "ground_truth": truth}
    assert found["extra_info"]["split"] == "train"
    # What is trained on is what a rollout evaluates on.
    [sample] = load_samples(tmp_path / "out" / "train.parquet")
    assert sample.messages == found["prompt"]


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_code_contests_has_the_tests_of_the_statement_first(ending: str, tmp_path: Path) -> None:
    prepared(tmp_path, "code", CODE_CONTESTS, ending=ending, options=("--max-tests", "3"))
    [found] = written(tmp_path)
    assert found["data_source"] == "codecontests"
    assert found["extra_info"]["sample_id"] == "4_A. Watermelon"
    tests = json.loads(found["reward_model"]["ground_truth"])
    assert tests == {"inputs": ["8\n", "3\n", "2\n"], "outputs": ["YES\n", "NO\n", "NO\n"]}
    assert "standard input" in found["prompt"][1]["content"]


def test_programs_of_apps_and_taco(tmp_path: Path) -> None:
    prepared(tmp_path, "code", APPS, APPS_FUNCTION, TACO)
    sum_of, function, twice = written(tmp_path)
    assert [row["data_source"] for row in (sum_of, function, twice)] == ["apps", "apps", "taco"]
    assert sum_of["prompt"][1]["content"].endswith("reads standard input and writes standard output.")
    assert "the function add, which is called" in function["prompt"][1]["content"]
    assert "```python\ndef add(a, b):\n```" in function["prompt"][1]["content"]
    assert json.loads(function["reward_model"]["ground_truth"])["fn_name"] == "add"


def test_a_data_source_for_rows_that_name_none(tmp_path: Path) -> None:
    prepared(tmp_path, "search-qa", FLASHRAG, SEARCH_R1, options=("--data-source", "bamboogle"))
    assert [row["data_source"] for row in written(tmp_path)] == ["searchR1_bamboogle", "searchR1_nq"]
    with pytest.raises(ConfigError, match=r"train.jsonl:1: names no data_source; give --data-source, such as nq"):
        prepared(tmp_path, "search-qa", FLASHRAG)


def test_a_question_is_there_once_and_not_in_both_files(tmp_path: Path) -> None:
    tested = {**HELD_OUT["dapo-math"], "answer": 3}  # even with another answer
    said = prepared(tmp_path, "dapo-math", DAPO, AIME, DAPO, tested, DAPO)
    assert said.startswith(
        f"{tmp_path}/out/train.parquet: 2 questions; left out: 2 asked before, 1 that test.parquet asks\n"
    )
    assert len(written(tmp_path)) == 2
    assert [row["reward_model"]["ground_truth"] for row in written(tmp_path, "test")] == ["2"]


def test_what_is_no_program_to_judge_is_counted(tmp_path: Path) -> None:
    rows = [
        EURUS,
        EURUS_MATH,
        {**CODE_CONTESTS, "input_file": "in.txt"},
        {**CODE_CONTESTS, "description": "See <image>."},
        {"problem_id": 1, "question": "No tests?", "input_output": ""},
        {**TACO, "question": "No tests in it?", "input_output": '{"inputs": [], "outputs": []}'},
        {**TACO, "question": "Unequal?", "input_output": '{"inputs": ["1"], "outputs": []}'},
        {**TACO, "question": "Broken?", "input_output": "{"},
        {**TACO, "question": "A list?", "input_output": "[1]"},
        {**APPS_FUNCTION, "input_output": json.dumps({"fn_name": "f", "inputs": ["{"], "outputs": ["1"]})},
    ]
    said = prepared(tmp_path, "code", *rows).splitlines()[0]
    assert said.endswith(
        "train.parquet: 1 questions; left out: 1 not programs (numina_olympiads), 1 that read a file, "
        "1 that show an image, 2 without tests, 4 with tests that cannot be read"
    )


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        (
            "gsm8k",
            {"question": "Why?"},
            r"train.jsonl:2: has no 'answer'; of the columns that are read it has: question",
        ),
        (
            "gsm8k",
            {"question": "Why?", "answer": None},
            r"has no 'answer'; of the columns that are read it has: question$",
        ),
        ("gsm8k", {"question": 5, "answer": "#### 1"}, r"train.jsonl:2: question: must be a text .got int"),
        ("gsm8k", {"question": "Why?", "answer": "none"}, r"train.jsonl:2: .*must hold one number"),
        ("gsm8k", {"question": "\ud800?", "answer": "#### 1"}, r"train.jsonl:2: question: holds half a surrogate pair"),
        (
            "search-qa",
            {**FLASHRAG, "data_source": "nq", "golden_answers": ["\ud800"]},
            r"train.parquet: cannot be written",
        ),
        ("gsm8k", [1], r"train.jsonl:2: must be an object .got list"),
        ("dapo-math", {"problem": "x?"}, r"train.jsonl:2: has no 'reward_model.ground_truth' and no 'answer'"),
        ("dapo-math", {"problem": "x?", "answer": True}, r"train.jsonl:2: has no 'reward_model.ground_truth' and"),
        ("dapo-math", {"prompt": [{"role": "system", "content": "x"}]}, r"prompt: holds no text of a user's"),
        ("search-qa", {**SEARCH_R1, "reward_model": None, "golden_answers": 5}, r"train.jsonl:2: has no 'golden"),
        (
            "code",
            {"statement": "x"},
            r"train.jsonl:2: has no 'question'; of the columns that are read it has: statement",
        ),
        (
            "code",
            {**CODE_CONTESTS, "public_tests": [{"input": "1", "output": "2"}]},
            r"public_tests: must be an object",
        ),
        # Neither is a list of tests: its letters are none.
        ("code", {**CODE_CONTESTS, "private_tests": {"input": "1\n", "output": "2\n"}}, r"private_tests: must be an"),
        ("code", {**APPS, "starter_code": ["def f():"]}, r"train.jsonl:2: starter_code: must be a text .got list"),
    ],
)
def test_a_row_of_another_layout_is_named(name: str, row: Any, message: str, tmp_path: Path) -> None:
    good = {"gsm8k": GSM8K, "dapo-math": DAPO, "search-qa": SEARCH_R1, "code": TACO}[name]
    with pytest.raises(ConfigError, match=message):
        prepared(tmp_path, name, good, row)
    assert not list((tmp_path / "out").glob("*train*"))  # nor what was written of it


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--train: no question in .*; left out: 1 not programs .numina_olympiads."):
        prepared(tmp_path, "code", EURUS_MATH)


def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    prepared(tmp_path, "gsm8k", GSM8K)
    with pytest.raises(ConfigError):
        prepared(tmp_path, "gsm8k", {**GSM8K, "question": "Another?"}, [1])
    assert [row["prompt"][1]["content"] for row in written(tmp_path)] == [GSM8K["question"]]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["test.parquet", "train.parquet"]


def test_several_files_and_more_rows_than_are_held_at_a_time(tmp_path: Path) -> None:
    rows = [{"question": f"What is {number} + 1?", "answer": f"#### {number + 1}"} for number in range(700)]
    first, second = write(tmp_path / "a.parquet", *rows[:400]), write(tmp_path / "b.jsonl", *rows[400:])
    test = write(tmp_path / "test.jsonl", GSM8K)
    said = prepare(GSM8K_SET, [first, second], [test], tmp_path / "out", "")
    assert said[0].endswith("train.parquet: 700 questions")
    found = written(tmp_path)
    assert [row["extra_info"]["index"] for row in found] == list(range(700))
    assert [row["prompt"] for row in found] == [[{"role": "user", "content": row["question"]}] for row in rows]


def test_a_row_of_another_shape_than_the_first_is_an_error(tmp_path: Path) -> None:
    rows = [{"a": number} for number in range(256)] + [{"a": "text"}]
    with pytest.raises(ConfigError, match=r"a.parquet: cannot be written"):
        write_rows(iter(rows), tmp_path / "a.parquet")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ConfigError, match=r"out/test.parquet: cannot be written"):
        prepared(tmp_path, "gsm8k", GSM8K)


def test_a_parquet_file_of_other_columns_is_told_which_it_has(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"train.parquet: has none of the columns .*; its columns are: problem, solut"
    ):
        prepared(tmp_path, "gsm8k", {"problem": "Why?", "solution": "So."}, ending=".parquet")


def test_a_file_that_is_replaced_before_it_is_read_is_refused(tmp_path: Path) -> None:
    prepared(tmp_path, "dapo-math", DAPO)
    tested = written(tmp_path, "test")
    files = [tmp_path / "out" / f"{split}.parquet" for split in ("train", "test")]
    with pytest.raises(ConfigError, match=r"--train: .*out/test.parquet is written anew before it is read"):
        prepare(DAPO_MATH, [files[1]], [files[0]], tmp_path / "out", "")
    assert written(tmp_path, "test") == tested
