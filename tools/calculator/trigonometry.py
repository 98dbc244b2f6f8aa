"""Circular and hyperbolic functions. Angles are radians."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from .arithmetic import Arithmetic, MathError, Value, is_exact


def one_degree(a: Arithmetic) -> Value:
    return a.mp.pi / 180


def sine(a: Arithmetic, x: Value) -> Value:
    result = a.mp.sin(a.angle(x))
    return result if is_exact(x) else a.settled(result, a.magnitude(x))


def cosine(a: Arithmetic, x: Value) -> Value:
    result = a.mp.cos(a.angle(x))
    return result if is_exact(x) else a.settled(result, a.magnitude(x))


def tangent(a: Arithmetic, x: Value) -> Value:
    below = cosine(a, x)
    if not below:
        raise MathError("tan has no value at odd multiples of pi/2")
    return a.divide(sine(a, x), below)


def _within_one(a: Arithmetic, name: str, x: Value) -> Value:
    """`x` in [-1, 1], where rounding just outside counts as the bound."""
    for bound in (1, -1):
        side = a.compare(x, bound)
        if not side:
            return bound
        if side == bound:
            raise MathError(f"{name} needs a number from -1 to 1")
    return x


def arcsine(a: Arithmetic, x: Value) -> Value:
    x = _within_one(a, "asin", x)
    # Products keep the digits of 1 - x for x near 1, which x² would lose.
    across = a.power(a.multiply(a.subtract(1, x), a.add(1, x)), Fraction(1, 2))
    return a.mp.atan2(a.real(x), a.real(across))


def arccosine(a: Arithmetic, x: Value) -> Value:
    x = _within_one(a, "acos", x)
    opposite = a.power(a.multiply(a.subtract(1, x), a.add(1, x)), Fraction(1, 2))
    return a.mp.atan2(a.real(opposite), a.real(x))


def hyperbolic(name: str) -> Callable[..., Value]:
    def run(a: Arithmetic, x: Value) -> Value:
        if abs(x) > a.max_bits:
            if name == "tanh":
                return 1 if x > 0 else -1
            raise a.too_large()
        return getattr(a.mp, name)(a.real(x))

    return run


def hyperbolic_arccosine(a: Arithmetic, x: Value) -> Value:
    if a.compare(x, 1) < 0:
        raise MathError("acosh needs a number from 1 up")
    # 2·asinh(√((x-1)/2)) keeps the digits of x near 1.
    return 2 * a.mp.asinh(a.real(a.power(a.divide(a.subtract(x, 1), 2), Fraction(1, 2))))


def hyperbolic_arctangent(a: Arithmetic, x: Value) -> Value:
    if a.compare(x, 1) >= 0 or a.compare(x, -1) <= 0:
        raise MathError("atanh needs a number between -1 and 1")
    return a.mp.atanh(a.real(x))
