"""Questions that are answered by searching: Search-R1's files and FlashRAG's (Jin et al., 2024 and 2025).

Search-R1's Parquet files (`nq_hotpotqa_train`) name each row's data set. FlashRAG has one folder for each, whose rows
are `{"id", "question", "golden_answers"}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...schemas.errors import ConfigError
from .question import DataSet, LeftOutError, Question, name_of, text_of, verl_truth

PREFIX = "searchR1_"
INSTRUCTION = (
    "Answer the question. Think first; search as often as you need to, for one thing at a time. When you know enough, "
    "end with the answer alone, in as few words as it takes, between <answer> and </answer>."
)


def search_qa(data_source: str | None) -> DataSet:
    """
    Args:
        data_source: what the rows are from, such as `nq`, where they do not say so themselves.
    """
    return DataSet(
        columns=frozenset({"id", "question", "golden_answers", "reward_model", "data_source"}),
        instruction=INSTRUCTION,
        question=_reader(data_source),
    )


def _reader(data_source: str | None) -> Callable[[Mapping[str, Any], str], Question]:
    def question(row: Mapping[str, Any], where: str) -> Question:
        source = row.get("data_source") or data_source
        if not isinstance(source, str):
            raise ConfigError(f"{where}: names no data_source; give --data-source, such as nq or hotpotqa")
        if not source.startswith(PREFIX):
            source = PREFIX + source
        truth = {"target": _golds(row, where)}
        return Question(text_of(row, where, "question"), source, truth, name_of(row, "id"))

    return question


def _golds(row: Mapping[str, Any], where: str) -> list[str]:
    truth = verl_truth(row)
    golds = truth.get("target") if isinstance(truth, Mapping) else truth
    if golds is None:
        golds = row.get("golden_answers")
    golds = [golds] if isinstance(golds, str) else golds
    if not isinstance(golds, list) or not all(isinstance(gold, str) for gold in golds):
        raise ConfigError(
            f"{where}: has no 'golden_answers' and no 'reward_model.ground_truth.target' (a list of texts)"
        )
    if not (golds := [gold for gold in golds if gold.strip()]):
        raise LeftOutError("without an answer")
    return golds
