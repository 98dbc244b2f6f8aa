"""Labels, drills and batches."""

from __future__ import annotations

from itertools import islice
from typing import Any

from rollbox.demo.drills import drill_batches
from rollbox.demo.exercises import NOT_TAUGHT, encode_lesson, lesson_batches
from rollbox.demo.questions import lessons, tool_list
from rollbox.demo.tokenizer import digit_ids


def _taught_text(tokenizer: Any, labels: list[int]) -> str:
    return str(tokenizer.decode([label for label in labels if label != NOT_TAUGHT]))


def test_labels_cover_what_the_assistant_says_and_nothing_else(tokenizer: Any) -> None:
    for lesson in lessons("train", 40, seed=1):
        exercise = encode_lesson(tokenizer, lesson)
        text = tokenizer.apply_chat_template(lesson.messages, tools=tool_list(), tokenize=False)
        turns = [part.split("<|im_end|>")[0] for part in text.split("<|im_start|>assistant\n")[1:]]
        assert _taught_text(tokenizer, exercise.labels) == "".join(f"{turn}<|im_end|>" for turn in turns)
        pairs = zip(exercise.token_ids, exercise.labels, strict=True)
        assert all(label in (NOT_TAUGHT, token_id) for token_id, label in pairs)


def test_batches_keep_to_their_size_and_repeat_by_seed(tokenizer: Any) -> None:
    batches = list(islice(lesson_batches(tokenizer, 1000, seed=1), 60))
    assert all(len(batch) * max(len(exercise.token_ids) for exercise in batch) <= 1000 for batch in batches)
    assert batches == list(islice(lesson_batches(tokenizer, 1000, seed=1), 60))


def test_a_drill_asks_for_the_numbers_it_shows(tokenizer: Any) -> None:
    digits = set(digit_ids(tokenizer))
    for exercise in (exercise for batch in islice(drill_batches(tokenizer, 1000, seed=1), 5) for exercise in batch):
        taught = [label for label in exercise.labels if label != NOT_TAUGHT]
        shown = exercise.token_ids[: -len(taught)]
        assert taught[-1] == tokenizer.eos_token_id
        assert [i for i in taught if i in digits] == [i for i in shown if i in digits]


def test_digits_are_ten_ids(tokenizer: Any) -> None:
    assert len(set(digit_ids(tokenizer))) == 10
