"""Local files of questions in, Parquet files for verl out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ...rewards.registry import check_samples
from ...rollout.table_rows import table_rows
from ...schemas.errors import ConfigError
from ...schemas.trajectory import Sample
from ..verl_data import verl_row, write_rows
from ..verl_rows import sample_of
from .question import DataSet, LeftOutError, Question


def prepare(data_set: DataSet, train: Sequence[Path], test: Sequence[Path], out: Path, instruction: str) -> list[str]:
    """Write `train.parquet` and `test.parquet`, each question once, and none that is tested in both.

    Args:
        train, test: files in a layout of the data set's, JSON lines or Parquet.
        instruction: the system message; empty for none.

    Returns:
        For each file written a line: how many questions it has, and how many rows were left out for what reason.

    Raises:
        ConfigError: a file cannot be read or written, a row is of another layout or cannot be scored, or nothing is
            left; or what is to be trained on is the file that is written for the tests.
    """
    if (tests := out / "test.parquet").exists():
        for file in train:
            if file.exists() and file.samefile(tests):
                raise ConfigError(f"--train: {file} is written anew before it is read; give another --out")
    seen: dict[bytes, str] = {}
    # The tests first: what is asked in both is not trained on.
    tested = _Split("test", data_set, instruction, seen).written(test, out)
    return [_Split("train", data_set, instruction, seen).written(train, out), tested]


@dataclass
class _Split:
    """One file to write.

    Attributes:
        seen: what was asked so far, and in which split. left_out: how many rows, by reason.
    """

    name: str
    data_set: DataSet
    instruction: str
    seen: dict[bytes, str]
    left_out: Counter[str] = field(default_factory=Counter)

    def written(self, files: Sequence[Path], out: Path) -> str:
        path = out / f"{self.name}.parquet"
        count = write_rows(self._rows(files), path, self.data_set.rows_at_a_time)
        reasons = ", ".join(f"{number} {reason}" for reason, number in self.left_out.items())
        if not count:
            read = ", ".join(map(str, files))
            raise ConfigError(f"--{self.name}: no question in {read}; left out: {reasons or 'nothing'}")
        return f"{path}: {count} questions" + (f"; left out: {reasons}" if reasons else "")

    def _rows(self, files: Sequence[Path]) -> Iterator[dict[str, Any]]:
        index = 0
        for file in files:
            rows = table_rows(file, columns=self.data_set.columns, rows_at_a_time=self.data_set.rows_at_a_time)
            for row, where in rows:
                if not isinstance(row, Mapping):
                    raise ConfigError(f"{where}: must be an object (got {type(row).__name__})")
                try:
                    question = self.data_set.question(row, where)
                    self._ask_once(question)
                except LeftOutError as reason:
                    self.left_out[str(reason)] += 1
                    continue
                yield self._checked(question, index, where)
                index += 1

    def _ask_once(self, question: Question) -> None:
        """
        Raises:
            LeftOutError: it was asked before.
        """
        key = blake2b(question.text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if (asked_in := self.seen.get(key)) is not None:
            raise LeftOutError("asked before" if asked_in == self.name else f"that {asked_in}.parquet asks")
        self.seen[key] = self.name

    def _checked(self, question: Question, index: int, where: str) -> dict[str, Any]:
        """The row for verl, which is found to be one that the trainer can read and score."""
        messages = [{"role": "user", "content": question.text}]
        if self.instruction:
            messages.insert(0, {"role": "system", "content": self.instruction})
        name = question.name or str(index + 1)
        sample = Sample(sample_id=name, data_source=question.data_source, messages=messages)
        row = verl_row(sample, self.name, index)
        row["reward_model"]["ground_truth"] = question.ground_truth
        try:
            check_samples([sample_of({**row, "raw_prompt": messages})])
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        return row
