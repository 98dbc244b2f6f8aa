"""Copy drills: short exercises of random tokens and numbers that the assistant has to say again.

A transformer calls tools well only if it copies digits well, and from conversations alone the moment at which copying
forms is a matter of luck: without drills the share of right answers was 49 % to 97 %, depending on the seed. A drill is
mostly copy, so a few seconds of drills first make that moment come early and surely.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .exercises import NOT_TAUGHT, Exercise
from .tokenizer import digit_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_DRILL_TOKENS = 24
_MAX_NUMBER_DIGITS = 7
# Numbers of few different digits, such as 7747, are the hard ones: which 7 comes next depends on where one stands.
_DIFFERENT_DIGITS = (2, 3, 10, 10)


@dataclass(frozen=True)
class _Alphabet:
    digits: list[int]
    space: int
    words: list[int]
    user_opening: list[int]
    assistant_opening: list[int]
    end_of_turn: int


def drill_batches(tokenizer: PreTrainedTokenizerFast, batch_tokens: int, seed: int) -> Iterator[list[Exercise]]:
    """Endless batches of drills, about `batch_tokens` ids each."""
    rng = random.Random(seed)
    alphabet = _alphabet(tokenizer)
    size = max(1, batch_tokens // (2 * _DRILL_TOKENS + 8))
    while True:
        yield [_drill(rng, alphabet) for _ in range(size)]


def _drill(rng: random.Random, alphabet: _Alphabet) -> Exercise:
    shown, wanted = _any_tokens(rng, alphabet) if rng.random() < 0.5 else _numbers_among_words(rng, alphabet)
    given = [*alphabet.user_opening, *shown, alphabet.end_of_turn, *alphabet.assistant_opening]
    said = [*wanted, alphabet.end_of_turn]
    return Exercise(given + said, [NOT_TAUGHT] * len(given) + said)


def _any_tokens(rng: random.Random, alphabet: _Alphabet) -> tuple[list[int], list[int]]:
    """All of it is to be repeated."""
    choices = [*alphabet.words, *alphabet.digits, alphabet.space]
    shown = rng.choices(choices, k=rng.randint(_DRILL_TOKENS // 2, _DRILL_TOKENS))
    return shown, shown


def _numbers_among_words(rng: random.Random, alphabet: _Alphabet) -> tuple[list[int], list[int]]:
    """Only the numbers are to be repeated, in order."""
    shown: list[int] = []
    wanted: list[int] = []
    most_words = rng.randint(0, 3)
    while len(shown) < _DRILL_TOKENS:
        digits = rng.sample(alphabet.digits, rng.choice(_DIFFERENT_DIGITS))
        number = [alphabet.space, *rng.choices(digits, k=rng.randint(1, _MAX_NUMBER_DIGITS))]
        shown += [*number, *rng.choices(alphabet.words, k=rng.randint(0, most_words))]
        wanted += number
    return shown, wanted


def _alphabet(tokenizer: PreTrainedTokenizerFast) -> _Alphabet:
    digits = digit_ids(tokenizer)
    (space,) = tokenizer.encode(" ", add_special_tokens=False)
    apart = {*digits, space, tokenizer.eos_token_id, tokenizer.pad_token_id}
    return _Alphabet(
        digits=digits,
        space=space,
        words=[token_id for token_id in range(len(tokenizer)) if token_id not in apart],
        user_opening=tokenizer.encode("<|im_start|>user\n", add_special_tokens=False),
        assistant_opening=tokenizer.encode("\n<|im_start|>assistant\n", add_special_tokens=False),
        end_of_turn=tokenizer.eos_token_id,
    )
