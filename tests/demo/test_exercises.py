"""Labels, drills and batches."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any

from rollbox.demo.drills import drill_batches
from rollbox.demo.exercises import NOT_TAUGHT, encode_lesson, lesson_batches
from rollbox.demo.questions import guess_of, lessons, tool_list
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


def test_guesses_call_no_tool_and_have_as_many_digits(tokenizer: Any) -> None:
    rng = random.Random(1)
    for lesson in lessons("train", 40, seed=1):
        question, answer = guess_of(lesson, rng).messages
        assert question == lesson.messages[0]
        assert len(answer["content"]) == len(f"#### {lesson.sample.ground_truth}")


def test_the_share_of_guesses_is_as_asked(tokenizer: Any) -> None:
    def share(guess_share: float) -> float:
        batches = islice(lesson_batches(tokenizer, 1000, 1, guess_share), 60)
        texts = [_taught_text(tokenizer, exercise.labels) for batch in batches for exercise in batch]
        return sum("<tool_call>" not in text for text in texts) / len(texts)

    assert share(0.0) == 0
    assert 0.3 < share(0.5) < 0.7


def test_a_drill_asks_for_the_numbers_it_shows(tokenizer: Any) -> None:
    digits = set(digit_ids(tokenizer))
    for exercise in (exercise for batch in islice(drill_batches(tokenizer, 1000, seed=1), 5) for exercise in batch):
        taught = [label for label in exercise.labels if label != NOT_TAUGHT]
        shown = exercise.token_ids[: -len(taught)]
        assert taught[-1] == tokenizer.eos_token_id
        assert [i for i in taught if i in digits] == [i for i in shown if i in digits]


def test_digits_are_ten_ids(tokenizer: Any) -> None:
    assert len(set(digit_ids(tokenizer))) == 10
