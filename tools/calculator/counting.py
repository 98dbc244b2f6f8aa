"""Functions of whole numbers. Each foresees the size of its result before working it out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .arithmetic import Arithmetic, MathError, Value


def integers(name: str, values: Sequence[Value], least: int | None = None) -> list[int]:
    """The operands of `name` as a list of int.

    Raises:
        MathError: one is not a whole number, or lies below `least`.
    """
    numbers: list[int] = []
    for value in values:
        if not isinstance(value, int):
            raise MathError(f"{name} needs whole numbers")
        if least is not None and value < least:
            raise MathError(f"{name} needs whole numbers from {least} up")
        numbers.append(value)
    return numbers


def factorial(a: Arithmetic, x: Value) -> Value:
    (n,) = integers("factorial", [x], least=0)
    # n! > (n/e)^n >= 2^(n·(bits - 3)).
    a.foresee(n * max(1, n.bit_length() - 3))
    a.spend(n.bit_length() * n)
    return math.factorial(n)


def combinations(a: Arithmetic, of: Value, taken: Value) -> Value:
    n, k = integers("comb", [of, taken], least=0)
    if k > n:
        return 0
    k = min(k, n - k)
    # C(n, k) >= (n/k)^k >= 2^k for k <= n/2: this bounds k too.
    a.foresee(k * max(1, n.bit_length() - k.bit_length() - 1))
    a.spend(k * n.bit_length())
    return math.comb(n, k)


def permutations(a: Arithmetic, of: Value, taken: Value | None = None) -> Value:
    n, k = integers("perm", [of, of if taken is None else taken], least=0)
    if k > n:
        return 0
    # n·(n-1)···(n-k+1) >= (n-k+1)^k, and >= k!.
    a.foresee(max(k * ((n - k + 1).bit_length() - 1), k * (k.bit_length() - 3)))
    a.spend(k * n.bit_length())
    return math.perm(n, k)


def greatest_divisor(a: Arithmetic, *values: Value) -> Value:
    numbers = integers("gcd", values)
    a.spend(sum(number.bit_length() for number in numbers))
    return math.gcd(*numbers)


def least_multiple(a: Arithmetic, *values: Value) -> Value:
    multiple = 1
    for number in integers("lcm", values):
        multiple = math.lcm(multiple, number)
        a.checked(multiple)
    return multiple
