"""Turns lessons into token ids and labels, and groups these into batches of like length."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .questions import Lesson, guess_of, lessons, tool_list

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

NOT_TAUGHT = -100
_WINDOW_LESSONS = 400


@dataclass(frozen=True)
class Exercise:
    """One conversation as ids; `labels` has the same length and is `NOT_TAUGHT` where nothing is to be learnt."""

    token_ids: list[int]
    labels: list[int]


def encode_lesson(tokenizer: PreTrainedTokenizerFast, lesson: Lesson) -> Exercise:
    """Labels cover what the assistant says, `<|im_end|>` included, and nothing else."""
    text = tokenizer.apply_chat_template(lesson.messages, tools=[*tool_list()], tokenize=False)
    token_ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return Exercise(token_ids, _assistant_labels(tokenizer, token_ids))


def lesson_batches(
    tokenizer: PreTrainedTokenizerFast, batch_tokens: int, seed: int, guess_share: float = 0.0
) -> Iterator[list[Exercise]]:
    """Endless batches of at most `batch_tokens` ids, padding included; always new questions.

    Lessons of one batch are alike in length, so that little is spent on padding; batches come in random order.

    Args:
        guess_share: of the lessons, how many in 1 guess instead of calling a tool.
    """
    rng = random.Random(seed)
    guesses = random.Random(f"guesses/{seed}")
    window = 0
    while True:
        drawn = lessons("train", _WINDOW_LESSONS, seed=seed * 1_000_003 + window)
        shown = [guess_of(lesson, guesses) if guesses.random() < guess_share else lesson for lesson in drawn]
        batches = _grouped([encode_lesson(tokenizer, lesson) for lesson in shown], batch_tokens)
        rng.shuffle(batches)
        yield from batches
        window += 1


def _grouped(exercises: list[Exercise], batch_tokens: int) -> list[list[Exercise]]:
    batches: list[list[Exercise]] = [[]]
    for exercise in sorted(exercises, key=lambda exercise: len(exercise.token_ids)):
        if (len(batches[-1]) + 1) * len(exercise.token_ids) > batch_tokens and batches[-1]:
            batches.append([])
        batches[-1].append(exercise)
    return batches


def _assistant_labels(tokenizer: PreTrainedTokenizerFast, token_ids: list[int]) -> list[int]:
    opening: list[int] = tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
    labels = [NOT_TAUGHT] * len(token_ids)
    speaking = False
    for index, token_id in enumerate(token_ids):
        speaking = speaking or token_ids[index - len(opening) : index] == opening
        if speaking:
            labels[index] = token_id
            speaking = token_id != tokenizer.eos_token_id
    return labels
