"""Values to text.

- integers in full up to 1000 digits, beyond that like 1.234567891e5000;
- decimals that end within `precision` places in full (1234567890.25);
- everything else rounded to `precision` significant digits, trailing zeros dropped; in scientific form below 1e-6 and
  from five digits beyond the precision on.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from .arithmetic import Value

MAX_INTEGER_DIGITS = 1_000
_SMALLEST_FIXED_EXPONENT = -6
_LARGEST_FIXED_BEYOND_PRECISION = 5
_LOG10_OF_2 = Fraction(30103, 100_000)


def format_number(value: Value | bool, precision: int) -> str:
    """The text of a value.

    Args:
        value: int, Fraction, mpmath number, or the bool of a comparison.
        precision: significant decimal digits, from 1.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if not value:
        return "0"
    sign = "-" if value < 0 else ""
    if isinstance(value, int | Fraction):
        return sign + _exact_text(abs(Fraction(value)), precision)
    return sign + _rounded_text(_as_fraction(abs(value)), precision)


def _as_fraction(value: Any) -> Fraction:
    mantissa, exponent = int(value.man_exp[0]), int(value.man_exp[1])
    return Fraction(mantissa) * Fraction(2) ** exponent


def _exact_text(value: Fraction, precision: int) -> str:
    # The bound on digits comes first: Python refuses to print very long integers.
    exponent = _decimal_exponent(value)
    if exponent < MAX_INTEGER_DIGITS:
        if value.denominator == 1:
            return str(value.numerator)
        shifted = value * 10**precision
        if shifted.denominator == 1:
            return _fixed(shifted.numerator, precision)
    return _rounded_text(value, precision)


def _rounded_text(value: Fraction, precision: int) -> str:
    exponent = _decimal_exponent(value)
    digits = _round_half_up(value * Fraction(10) ** (precision - 1 - exponent))
    if digits == 10**precision:
        digits, exponent = digits // 10, exponent + 1
    if _SMALLEST_FIXED_EXPONENT <= exponent < precision:
        return _fixed(digits, precision - 1 - exponent)
    if precision <= exponent < precision + _LARGEST_FIXED_BEYOND_PRECISION:
        return str(_round_half_up(value))
    first, rest = str(digits)[0], str(digits)[1:].rstrip("0")
    return f"{first}{'.' * bool(rest)}{rest}e{exponent}"


def _round_half_up(value: Fraction) -> int:
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


def _fixed(digits: int, decimals: int) -> str:
    """`digits` with the point `decimals` places from the right, without trailing zeros."""
    text = str(digits).rjust(decimals + 1, "0")
    whole, fraction = (text[:-decimals], text[-decimals:].rstrip("0")) if decimals else (text, "")
    return f"{whole}.{fraction}" if fraction else whole


def _decimal_exponent(value: Fraction) -> int:
    """floor(log10(value)) for value > 0."""
    bits = value.numerator.bit_length() - value.denominator.bit_length()
    exponent = int((bits - 1) * _LOG10_OF_2) - 1
    while Fraction(10) ** (exponent + 1) <= value:
        exponent += 1
    while Fraction(10) ** exponent > value:
        exponent -= 1
    return exponent
