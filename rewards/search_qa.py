"""Question answering as in Search-R1 (Jin et al., 2025): exact match and F1 of the last `<answer>`.

The normalisation is that of SQuAD, which Search-R1 and verl use. It knows no signs and no decimal points: `-5` equals
`5` and `3.14` equals `314`. `rollbox/search_strict` keeps them. In verl, an answer of which nothing is left, such as
`the`, also equals the gold answer `A`: `rollbox/search_r1` follows it there, for results to compare.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ..schemas.errors import ConfigError
from . import registry
from .answers import tagged
from .score import Score

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_NOT_IN_A_NUMBER = re.compile(r"(?<!\d)[.,](?!\d)|[.,](?=\s|$)|-(?!\d)|[^\w\s.,-]|_")
_MAX_TAGS = 10


def gold_answers(ground_truth: str) -> list[str]:
    """The accepted answers: JSON `{"target": …}` or a list, or the text itself.

    Raises:
        ConfigError: there is none.
    """
    try:  # numbers as they are written: 1.50 is not 1.5
        value = json.loads(ground_truth, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        value = ground_truth
    if value is None or isinstance(value, bool):
        value = ground_truth  # the words null, true and false
    if isinstance(value, dict):
        value = value.get("target")
    answers = [str(item) for item in (value if isinstance(value, list) else [value]) if item is not None]
    if not answers or not all(answer.strip() for answer in answers):
        raise ConfigError('ground_truth: must hold an answer, such as {"target": ["Lima"]}')
    return answers


def last_answer(solution_str: str) -> str | None:
    """What the last `<answer>` holds."""
    found = tagged(solution_str, "answer")
    return found[-1].strip() if found else None


def normalised(text: str) -> str:
    """Lower case, without punctuation, articles and repeated white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def strictly_normalised(text: str) -> str:
    """As `normalised`, but signs and decimal points of numbers stay, and accents and dashes have one form."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = "".join("-" if unicodedata.category(letter) == "Pd" or letter == "−" else letter for letter in text)
    text = unicodedata.normalize("NFKD", text)
    text = "".join(letter for letter in text if not unicodedata.combining(letter))
    return " ".join(_ARTICLES.sub(" ", _NOT_IN_A_NUMBER.sub("", text)).split())


def _matches(answer: str, golds: list[str], form: Callable[[str], str]) -> bool:
    found = form(answer)
    if not found:  # "the" is no answer, though it has the form of the gold answer "A"
        return answer.strip().lower() in {gold.strip().lower() for gold in golds} and bool(answer.strip())
    return any(form(gold) == found for gold in golds)


_LIMA = '{"target": ["Lima", "the city of Lima"]}'


@registry.score(
    "searchR1_*",
    "rollbox/search_em",
    inline=True,
    check=gold_answers,
    fixtures=(
        registry.Fixture("<think>It is Lima.</think><answer> The  City of LIMA! </answer>", _LIMA, 1.0),
        registry.Fixture("<answer>Cusco</answer> no: <answer>Lima</answer>", _LIMA, 1.0),
        registry.Fixture("<answer>Lima</answer> no: <answer>Cusco</answer>", _LIMA, 0.0),
        registry.Fixture("Lima", _LIMA, 0.0),
        registry.Fixture("<answer>Lima", _LIMA, 0.0),
    ),
)
def exact_match(solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None) -> Score:
    """1.0 when the last `<answer>` is one of the gold answers after normalisation, else 0.0.

    As in verl, more than ten opening or closing tags make it 0.25: a text full of answers is no answer.

    Raises:
        ConfigError: the ground truth holds no answer.
    """
    golds, answer = gold_answers(ground_truth), last_answer(solution_str)
    if answer is None or not _matches(answer, golds, normalised):
        return Score(0.0)
    return _unless_spammed(solution_str)


@registry.score(
    "rollbox/search_r1",
    inline=True,
    check=gold_answers,
    fixtures=(
        registry.Fixture("<answer>The city, of Lima!</answer>", _LIMA, 1.0),
        registry.Fixture("<answer>the</answer>", "A", 1.0),
        registry.Fixture("<answer>5</answer>", "-5", 1.0),
        registry.Fixture("<answer>Perú</answer>", "Peru", 0.0),
    ),
)
def search_r1_match(solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None) -> Score:
    """What verl's `search_r1_like_qa_em.compute_score` gives; only that gold answers may be numbers.

    Raises:
        ConfigError: the ground truth holds no answer.
    """
    golds, answer = gold_answers(ground_truth), last_answer(solution_str)
    if answer is None or normalised(answer) not in map(normalised, golds):
        return Score(0.0)
    return _unless_spammed(solution_str)


@registry.score(
    "rollbox/search_strict",
    inline=True,
    check=gold_answers,
    fixtures=(
        registry.Fixture("<answer>-5</answer>", "-5", 1.0),
        registry.Fixture("<answer>5</answer>", "-5", 0.0),
        registry.Fixture("<answer>314</answer>", "3.14", 0.0),
    ),
)
def strict_match(solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None) -> Score:
    """As `exact_match`, by the strict normalisation, and without a reward for more than ten tags.

    Raises:
        ConfigError: the ground truth holds no answer.
    """
    golds, answer = gold_answers(ground_truth), last_answer(solution_str)
    right = answer is not None and not _is_spam(solution_str) and _matches(answer, golds, strictly_normalised)
    return Score(float(right))


@registry.score(
    "rollbox/search_f1",
    inline=True,
    check=gold_answers,
    fixtures=(
        registry.Fixture("<answer>the capital Lima</answer>", _LIMA, 2 / 3),
        registry.Fixture("<answer>Cusco</answer>", _LIMA, 0.0),
        registry.Fixture("<answer>Lima</answer>", _LIMA, 1.0),
    ),
)
def f1(solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None) -> Score:
    """The best F1 of words against a gold answer, as in SQuAD (Rajpurkar et al., 2016). `correct` is an exact match.

    Raises:
        ConfigError: the ground truth holds no answer.
    """
    golds, answer = gold_answers(ground_truth), last_answer(solution_str)
    if answer is None:
        return Score(0.0, correct=False)
    words = normalised(answer).split()
    best = max(_f1(words, normalised(gold).split()) for gold in golds)
    return Score(best, correct=_matches(answer, golds, normalised))


def _is_spam(solution_str: str) -> bool:
    return max(solution_str.count("<answer>"), solution_str.count("</answer>")) > _MAX_TAGS


def _unless_spammed(solution_str: str) -> Score:
    return Score(0.25, correct=True) if _is_spam(solution_str) else Score(1.0)


def _f1(words: list[str], gold: list[str]) -> float:
    shared = sum((Counter(words) & Counter(gold)).values())
    return 2 * shared / (len(words) + len(gold)) if shared else 0.0
