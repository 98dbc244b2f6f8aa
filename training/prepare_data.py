"""`rollbox data`: local files of questions in, parquet files for verl out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..rewards.registry import check_samples
from ..rollout.data import load_samples
from ..schemas.errors import ConfigError
from ..schemas.trajectory import Sample
from .verl_data import read_rows, write_parquet

GSM8K = "openai/gsm8k"
INSTRUCTION = (
    "Solve the problem. Think first; use the tools for every calculation. "
    "End with the final number on a line of its own: #### <number>"
)


def prepare_gsm8k(files: dict[str, Path], out: Path, instruction: str = INSTRUCTION) -> list[str]:
    """Write `{split}.parquet` for each split.

    Args:
        files: split -> a file in GSM8K's own layout (`question`, `answer`), JSONL or parquet.
        instruction: the system message; empty for none.

    Returns:
        One line for each file written.

    Raises:
        ConfigError: a file cannot be read, or an answer is no number.
    """
    lines = []
    for split, file in files.items():
        samples = [_instructed(sample, instruction) for sample in read_questions(file)]
        check_samples(samples)
        write_parquet(samples, out / f"{split}.parquet", split)
        lines.append(f"{out / f'{split}.parquet'}: {len(samples)} questions")
    return lines


def read_questions(file: Path) -> Sequence[Sample]:
    """GSM8K's questions of a JSONL or parquet file.

    Raises:
        ConfigError: the file cannot be read, or a row is not as GSM8K's are.
    """
    if file.suffix != ".parquet":
        return load_samples(file, data_source=GSM8K)
    samples = []
    for number, row in enumerate(read_rows(file, "--train or --test", limit=10_000_000), start=1):
        if not isinstance(row.get("question"), str) or not isinstance(row.get("answer"), str):
            raise ConfigError(f"{file}: row {number} has no text 'question' and 'answer'")
        messages = [{"role": "user", "content": row["question"]}]
        samples.append(Sample(sample_id=str(number), data_source=GSM8K, messages=messages, ground_truth=row["answer"]))
    return samples


def _instructed(sample: Sample, instruction: str) -> Sample:
    if not instruction:
        return sample
    return sample.model_copy(update={"messages": [{"role": "system", "content": instruction}, *sample.messages]})
