"""Exact arithmetic on int and Fraction, mpmath for the rest, every result bounded.

Three rules keep any expression cheap and right:

- The *bit length of results* is bounded, foreseen before a power or factorial is worked out. Caps on exponents do not
  help: brackets get around them, (9^64)^64 and so on. A sum of all bit lengths bounds the work of the expression.
- A fraction whose terms grow past `_FRACTION_BITS` becomes an mpmath number; an integer never does.
- An mpmath number carries `guard_bits` more than will be printed. An operation that cancels more of them than there are
  (sin(π), √2·√2 - 2) asks for a second run at `LAST_GUARD_DIGITS`; what cancels even there is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Any

FIRST_GUARD_DIGITS = 15
LAST_GUARD_DIGITS = 150
_FRACTION_BITS = 8_192
_WORK_FACTOR = 48
_EXACT_ROOT_DEGREE = 64
_BITS_PER_DIGIT = math.log2(10)

Mpf = Any
"""An mpmath number of the private context; mpmath has no types."""
Value = int | Fraction | Mpf


class MathError(Exception):
    """The expression is readable, but has no (real, reasonably sized) value. `str()` says why."""


class PrecisionLostError(Exception):
    """Too many digits cancelled: evaluate again with `LAST_GUARD_DIGITS`."""


def is_exact(value: Value) -> bool:
    return isinstance(value, int | Fraction)


def whole(value: Value) -> Value:
    """Fractions with denominator 1 as int."""
    return value.numerator if isinstance(value, Fraction) and value.denominator == 1 else value


class Arithmetic:
    """The operations of one evaluation.

    Args:
        precision: significant decimal digits that the answer will show.
        guard_digits: decimal digits carried beyond those.
        max_bits: the longest integer, in bits, and the largest binary exponent of other numbers.
        context: makes the mpmath context; called only when something irrational turns up.
    """

    def __init__(self, precision: int, guard_digits: int, max_bits: int, context: Callable[[], Any]) -> None:
        self.max_bits = max_bits
        self._digits = precision + guard_digits
        self._guard_bits = int((guard_digits - 3) * _BITS_PER_DIGIT)
        self._last_try = guard_digits >= LAST_GUARD_DIGITS
        self._make_context = context
        self._work_bits = 0

    @cached_property
    def mp(self) -> Any:
        context = self._make_context()
        context.dps = self._digits
        return context

    def checked(self, value: Value) -> Value:
        """Bound a result and the work so far; bring it into its simplest type.

        Raises:
            MathError: out of range, complex, or too much work altogether.
        """
        value = whole(value)
        if isinstance(value, int):
            bits = value.bit_length()
            if bits > self.max_bits:
                raise self.too_large()
        elif isinstance(value, Fraction):
            bits = value.numerator.bit_length() + value.denominator.bit_length()
            if bits > _FRACTION_BITS:
                return self.checked(self.real(value))
        else:
            self._check_real(value)
            if not value:
                return 0
            bits = self._digits * 4
        self.spend(bits)
        return value

    def _check_real(self, value: Mpf) -> None:
        if isinstance(value, self.mp.mpc):
            raise MathError("the result is a complex number; only real numbers are supported")
        if not self.mp.isfinite(value):
            raise MathError("the result is not a finite number")
        if value and self.mp.mag(value) > self.max_bits:
            raise self.too_large()
        if value and self.mp.mag(value) < -self.max_bits:
            raise self.too_small()

    def spend(self, bits: int) -> None:
        """Count work. The bound lets a few dozen results of the largest size through."""
        self._work_bits += bits
        if self._work_bits > _WORK_FACTOR * self.max_bits:
            raise MathError("the expression takes too much work: too many steps with huge numbers")

    def too_large(self) -> MathError:
        digits = int(self.max_bits / _BITS_PER_DIGIT)
        return MathError(f"the result is too large: at most {digits} digits are worked out")

    def too_small(self) -> MathError:
        return MathError("the result is too close to zero to be worked out")

    def real(self, value: Value) -> Mpf:
        """As an mpmath number. Integers convert without rounding."""
        if isinstance(value, Fraction):
            return self.mp.mpf(value.numerator) / value.denominator
        return self.mp.convert(value)

    def magnitude(self, value: Value) -> int:
        """The binary exponent: 2^(m-2) < |value| < 2^(m+1)."""
        if isinstance(value, int):
            return value.bit_length()
        if isinstance(value, Fraction):
            return value.numerator.bit_length() - value.denominator.bit_length()
        return int(self.mp.mag(value)) if value else 0

    def settled(self, result: Mpf, scale: int) -> Value:
        """Judge an inexact `result` whose absolute error is that of a number of magnitude `scale`.

        Raises:
            PrecisionLostError: too few good digits are left, and this is the first run.
        """
        if result and scale - self.magnitude(result) <= self._guard_bits:
            return result
        if self._last_try:
            return 0
        raise PrecisionLostError

    def add(self, a: Value, b: Value) -> Value:
        if is_exact(a) and is_exact(b):
            return self.checked(a + b)
        if not a or not b:
            return a or b
        total = self.real(a) + self.real(b)
        return self.checked(self.settled(total, max(self.magnitude(a), self.magnitude(b))))

    def negate(self, a: Value) -> Value:
        return -a

    def subtract(self, a: Value, b: Value) -> Value:
        return self.add(a, -b)

    def multiply(self, a: Value, b: Value) -> Value:
        if is_exact(a) and is_exact(b):
            self.foresee(self.magnitude(a) + self.magnitude(b) - 2)
            return self.checked(a * b)
        if not a or not b:
            return 0
        return self.checked(self.real(a) * self.real(b))

    def divide(self, a: Value, b: Value) -> Value:
        if not b:
            raise MathError("division by zero")
        if is_exact(a) and is_exact(b):
            return self.checked(Fraction(a) / Fraction(b))
        return self.checked(self.real(a) / self.real(b))

    def floor(self, a: Value) -> Value:
        """The largest integer not above `a`; an inexact number of more digits than are known stays as it is."""
        if is_exact(a):
            return math.floor(a)
        nearest = self._nearest(a)
        if nearest is None:
            return a
        rest = self.compare(a, nearest)
        return nearest if rest >= 0 else nearest - 1

    def _nearest(self, a: Mpf) -> int | None:
        if self.magnitude(a) > self._guard_bits - 8:
            if not self._last_try:
                raise PrecisionLostError
            return None
        return int(self.mp.nint(a))

    def modulo(self, a: Value, b: Value) -> Value:
        """a - b·floor(a/b): the sign is that of `b`, as in Python."""
        if not b:
            raise MathError("modulo by zero")
        if is_exact(a) and is_exact(b):
            return self.checked(a % b)
        quotient = self.floor(self.divide(a, b))
        if not is_exact(quotient):
            raise MathError("the quotient is too large for a remainder of inexact numbers")
        return self.subtract(a, self.multiply(b, quotient))

    def compare(self, a: Value, b: Value) -> int:
        """-1, 0 or 1. Numbers that agree in some 150 digits beyond the shown ones count as equal."""
        difference = a - b if is_exact(a) and is_exact(b) else self.add(a, -b)
        return (difference > 0) - (difference < 0)

    def power(self, base: Value, exponent: Value) -> Value:
        """`base` to the `exponent`; exact where the result is rational and of sane size.

        Raises:
            MathError: 0 to a negative power, a complex result, a result that is too large.
        """
        if not base:
            if exponent < 0:
                raise MathError("division by zero: 0 to a negative power")
            return 0 if exponent else 1
        if is_exact(base) and isinstance(exponent, int):
            return self._integer_power(base, exponent)
        if is_exact(base) and isinstance(exponent, Fraction):
            root = self.exact_root(base, exponent.denominator)
            if root is not None:
                return self._integer_power(root, exponent.numerator)
        return self._real_power(base, exponent)

    def _integer_power(self, base: int | Fraction, exponent: int) -> Value:
        if base in (1, -1):
            return 1 if base == 1 or exponent % 2 == 0 else -1
        term = max(abs(base.numerator), base.denominator)
        # At least one bit short of log2, so what passes is at most twice the bound; `checked` sees to the rest.
        least_bits = (term.bit_length() - 1) * abs(exponent)
        if isinstance(base, int) and exponent > 0:
            self.foresee(least_bits)
            return self.checked(base**exponent)
        if least_bits > _FRACTION_BITS:
            return self._real_power(base, exponent)
        return self.checked(Fraction(base) ** exponent)

    def _real_power(self, base: Value, exponent: Value) -> Value:
        if base < 0 and not isinstance(exponent, int):
            raise MathError(
                "a negative number to a fractional power is a complex number (for a real odd root use root(x, n))"
            )
        # The error of the logarithm grows by the result's exponent, which has at most as many bits as max_bits.
        with self.mp.extraprec(self.max_bits.bit_length() + 8):
            logarithm = self.ln(abs(base)) * self.real(exponent)
            result = self.exp(logarithm)
        return self.checked(-result if base < 0 and exponent % 2 else +result)

    def exact_root(self, value: int | Fraction, degree: int) -> int | Fraction | None:
        """The rational `degree`-th root of a positive number, if there is one (and looking for it is cheap)."""
        if value < 0:
            return None
        terms = (value.numerator, value.denominator)
        if degree > 2 and (degree > _EXACT_ROOT_DEGREE or max(terms).bit_length() > _FRACTION_BITS):
            return None
        self.spend(4 * max(terms).bit_length())
        top, bottom = (_integer_root(term, degree) for term in terms)
        if top**degree != terms[0] or bottom**degree != terms[1]:
            return None
        return Fraction(top, bottom)

    def ln(self, value: Value) -> Mpf:
        if value <= 0:
            raise MathError("logarithms need a positive number")
        if is_exact(value):
            # log1p keeps the digits of numbers close to 1, which rounding to an mpmath number would lose.
            near_one = abs(value - 1) < Fraction(1, 2)
            return self.mp.log1p(self.real(value - 1)) if near_one else self.mp.log(self.real(value))
        return self.mp.log(value) if self.add(value, -1) else 0

    def exp(self, value: Value) -> Mpf:
        if value > self.max_bits:
            raise self.too_large()
        if value < -self.max_bits:
            raise self.too_small()
        return self.mp.exp(self.real(value))

    def angle(self, value: Value) -> Mpf:
        """The argument of a periodic function, with digits enough behind the point."""
        if isinstance(value, Fraction):
            with self.mp.extraprec(max(0, self.magnitude(value))):
                return self.real(value)
        magnitude = self.magnitude(value)
        if isinstance(value, int):
            self.spend(4 * magnitude)
        elif magnitude > self._guard_bits:
            if not self._last_try:
                raise PrecisionLostError
            raise MathError("the angle is too large to be known within one turn")
        return self.real(value)

    def foresee(self, bits: int) -> None:
        """Refuse a result of at least `bits` bits before working it out."""
        if bits > self.max_bits:
            raise self.too_large()


def _integer_root(value: int, degree: int) -> int:
    """floor(value^(1/degree)) for value >= 0, by Newton's method from above."""
    if degree == 1 or value < 2:
        return value
    if degree == 2:
        return math.isqrt(value)
    guess = 1 << -(-value.bit_length() // degree)
    while True:
        closer = ((degree - 1) * guess + value // guess ** (degree - 1)) // degree
        if closer >= guess:
            return guess
        guess = closer
