"""Draws one problem: its text, its numbers, and the tool calls that solve it.

Held-out problems use other names and things, and no combination of numbers is in both splits: a combination belongs to
the split that the parity of its digest names.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from .wordings import CODE, ITEMS, NAMES, ONE_STEP, OPERATOR_VERBS, PLAIN, TWO_STEP, CodeWording, Operator, Split

Kind = Literal["arithmetic", "one_step", "two_step", "python"]


@dataclass(frozen=True)
class Step:
    """One tool call of the ideal solution and the exact text the tool answers."""

    thought: str
    tool: Literal["calculator", "python"]
    arguments: dict[str, str]
    output: str


@dataclass(frozen=True)
class Problem:
    """A question and its ideal solution; `operands` are the numbers in the order of the text."""

    kind: Kind
    text: str
    operands: tuple[int, ...]
    steps: tuple[Step, ...]

    @property
    def answer(self) -> str:
        return self.steps[-1].output


def split_of(operands: tuple[int, ...]) -> Split:
    """The split a combination of numbers belongs to, whatever their order."""
    digest = hashlib.sha256(repr(sorted(operands)).encode()).digest()
    return "train" if digest[0] % 2 == 0 else "heldout"


def draw_problem(rng: random.Random, split: Split, kind: Kind) -> Problem:
    """A problem of `kind` whose words and numbers belong to `split`."""
    draw = _DRAWERS[kind]
    while True:
        problem = draw(rng, split)
        if problem is not None and split_of(problem.operands) == split:
            return problem


def _with_digits(rng: random.Random, least: int, most: int) -> int:
    """A number of `least` to `most` digits, each length as likely as the others; never 0 or 1."""
    digits = rng.randint(least, most)
    return rng.randint(max(2, 10 ** (digits - 1)), 10**digits - 1)


def _first_pair(rng: random.Random, operator: Operator) -> tuple[int, int]:
    """Two operands whose result is a positive integer of at most five digits."""
    if operator == "*":
        return _with_digits(rng, 1, 3), _with_digits(rng, 1, 2)
    if operator == "/":
        divisor, quotient = _with_digits(rng, 1, 2), _with_digits(rng, 1, 2)
        return divisor * quotient, divisor
    a, b = _with_digits(rng, 1, 4), _with_digits(rng, 1, 4)
    return (max(a, b) + 1, min(a, b)) if operator == "-" else (a, b)


def _next_operand(rng: random.Random, operator: Operator, so_far: int) -> int | None:
    """An operand for the second step, or None where no small one keeps the result a positive integer."""
    if operator == "+":
        return _with_digits(rng, 1, 3)
    if operator == "*":
        return rng.randint(2, 30)
    if operator == "-":
        return rng.randint(2, min(so_far - 1, 999)) if so_far > 3 else None
    divisors = [divisor for divisor in range(2, 31) if so_far % divisor == 0 and divisor < so_far]
    return rng.choice(divisors) if divisors else None


def _evaluate(a: int, operator: Operator, b: int) -> int:
    """Exact value of `a operator b`; the operands are drawn so that it is an integer."""
    value = {"+": Fraction(a + b), "-": Fraction(a - b), "*": Fraction(a * b), "/": Fraction(a, b)}[operator]
    return int(value)


def _calculator(thought: str, expression: str, value: int) -> Step:
    return Step(thought, "calculator", {"expression": expression}, str(value))


def _words(rng: random.Random, split: Split) -> dict[str, str]:
    name, other = rng.sample(NAMES[split], 2)
    return {"name": name, "other": other, "items": rng.choice(ITEMS[split])}


def _draw_arithmetic(rng: random.Random, split: Split) -> Problem:
    operator = rng.choice(tuple(OPERATOR_VERBS))
    a, b = _first_pair(rng, operator)
    expression = f"{a} {operator} {b}"
    text = rng.choice(PLAIN).format(expression=expression)
    return Problem("arithmetic", text, (a, b), (_calculator("", expression, _evaluate(a, operator, b)),))


def _draw_one_step(rng: random.Random, split: Split) -> Problem:
    operator, wording = rng.choice(ONE_STEP)
    a, b = _first_pair(rng, operator)
    thought = f"I {OPERATOR_VERBS[operator]}."
    step = _calculator(thought, f"{a} {operator} {b}", _evaluate(a, operator, b))
    return Problem("one_step", wording.format(a=a, b=b, **_words(rng, split)), (a, b), (step,))


def _draw_two_step(rng: random.Random, split: Split) -> Problem | None:
    first, second, wording = rng.choice(TWO_STEP)
    a, b = _first_pair(rng, first)
    between = _evaluate(a, first, b)
    c = _next_operand(rng, second, between)
    if c is None:
        return None
    steps = (
        _calculator(f"First {OPERATOR_VERBS[first]}.", f"{a} {first} {b}", between),
        _calculator(f"Then {OPERATOR_VERBS[second]}.", f"{between} {second} {c}", _evaluate(between, second, c)),
    )
    return Problem("two_step", wording.format(a=a, b=b, c=c, **_words(rng, split)), (a, b, c), steps)


def _draw_python(rng: random.Random, split: Split) -> Problem:
    wording: CodeWording = rng.choice(CODE)
    operands = tuple(_between(rng, low, high) for low, high in wording.bounds)
    numbers = dict(zip("abc", operands, strict=False))
    code = wording.code.format(**numbers)
    step = Step("I run code.", "python", {"code": code}, str(wording.answer(*operands)))
    return Problem("python", wording.text.format(**numbers), operands, (step,))


def _between(rng: random.Random, low: int, high: int) -> int:
    """A number in `[low, high]`, each count of digits as likely as the others."""
    digits = rng.randint(len(str(low)), len(str(high)))
    return rng.randint(max(low, 10 ** (digits - 1)), min(high, 10**digits - 1))


_DRAWERS: dict[Kind, Callable[[random.Random, Split], Problem | None]] = {
    "arithmetic": _draw_arithmetic,
    "one_step": _draw_one_step,
    "two_step": _draw_two_step,
    "python": _draw_python,
}
