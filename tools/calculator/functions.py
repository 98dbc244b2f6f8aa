"""The table of operations, functions and constants: name -> how many operands, and what to do with them.

`log` is the natural logarithm, as in Python; `round` rounds halves away from zero, as in school.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cmp_to_key, reduce

from .arithmetic import Arithmetic, MathError, Value, is_exact, whole
from .counting import combinations, factorial, greatest_divisor, integers, least_multiple, permutations
from .trigonometry import (
    arccosine,
    arcsine,
    cosine,
    hyperbolic,
    hyperbolic_arccosine,
    hyperbolic_arctangent,
    one_degree,
    sine,
    tangent,
)

_ROUND_DECIMALS = 1_000


@dataclass(frozen=True, slots=True)
class Function:
    """One function. `most` operands is None for any number; `run` gets the arithmetic and the operands."""

    least: int
    most: int | None
    run: Callable[..., Value]

    def takes(self, count: int) -> bool:
        return self.least <= count and (self.most is None or count <= self.most)

    def arity_text(self) -> str:
        if self.most is None:
            return f"at least {self.least} argument{'s' * (self.least != 1)}"
        span = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
        return f"{span} argument{'s' * (self.most != 1)}"


def _sum(a: Arithmetic, *values: Value) -> Value:
    return reduce(a.add, values)


def _mean(a: Arithmetic, *values: Value) -> Value:
    return a.divide(_sum(a, *values), len(values))


def _median(a: Arithmetic, *values: Value) -> Value:
    ordered = sorted(values, key=cmp_to_key(a.compare))
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else _mean(a, *ordered[middle - 1 : middle + 1])


def _extreme(a: Arithmetic, values: Sequence[Value], sign: int) -> Value:
    return reduce(lambda x, y: y if sign * a.compare(y, x) > 0 else x, values)


def _absolute(a: Arithmetic, x: Value) -> Value:
    return abs(x)


def _ceil(a: Arithmetic, x: Value) -> Value:
    return -a.floor(-x)


def _truncate(a: Arithmetic, x: Value) -> Value:
    return a.floor(x) if x >= 0 else _ceil(a, x)


def _round(a: Arithmetic, x: Value, decimals: Value = 0) -> Value:
    (places,) = integers("round", [decimals])
    if abs(places) > _ROUND_DECIMALS:
        raise MathError(f"round takes between -{_ROUND_DECIMALS} and {_ROUND_DECIMALS} decimals")
    scale = Fraction(10) ** places
    away = a.floor(a.add(a.multiply(abs(x), whole(scale)), Fraction(1, 2)))
    return a.divide(away if x >= 0 else -away, whole(scale))


def _root(a: Arithmetic, x: Value, degree: Value = 2) -> Value:
    (n,) = integers("root", [degree], least=1)
    if x >= 0:
        return a.power(x, whole(Fraction(1, n)))
    if n % 2 == 0:
        raise MathError("an even root of a negative number is a complex number; only real numbers are supported")
    return -a.power(-x, whole(Fraction(1, n)))


def _exp(a: Arithmetic, x: Value) -> Value:
    return a.exp(x)


def _log(a: Arithmetic, x: Value, base: Value | None = None) -> Value:
    if base is None:
        return a.ln(x)
    if base <= 0 or not a.compare(base, 1):
        raise MathError("the base of a logarithm must be positive and not 1")
    quotient = a.divide(a.ln(x), a.ln(base))
    exponent = round(quotient)
    near = abs(exponent) < a.max_bits and abs(quotient - exponent) < 1e-9
    if near and is_exact(x) and is_exact(base) and a.power(base, exponent) == x:
        return exponent
    return quotient


FUNCTIONS: dict[str, Function] = {
    "abs": Function(1, 1, _absolute),
    "acos": Function(1, 1, arccosine),
    "acosh": Function(1, 1, hyperbolic_arccosine),
    "asin": Function(1, 1, arcsine),
    "asinh": Function(1, 1, lambda a, x: a.mp.asinh(a.real(x))),
    "atan": Function(1, 1, lambda a, x: a.mp.atan(a.real(x))),
    "atan2": Function(2, 2, lambda a, y, x: a.mp.atan2(a.real(y), a.real(x))),
    "atanh": Function(1, 1, hyperbolic_arctangent),
    "cbrt": Function(1, 1, lambda a, x: _root(a, x, 3)),
    "ceil": Function(1, 1, _ceil),
    "comb": Function(2, 2, combinations),
    "cos": Function(1, 1, cosine),
    "cosh": Function(1, 1, hyperbolic("cosh")),
    "degrees": Function(1, 1, lambda a, x: a.divide(x, one_degree(a))),
    "exp": Function(1, 1, _exp),
    "factorial": Function(1, 1, factorial),
    "floor": Function(1, 1, lambda a, x: a.floor(x)),
    "gcd": Function(1, None, greatest_divisor),
    "hypot": Function(2, 2, lambda a, x, y: _root(a, a.add(a.multiply(x, x), a.multiply(y, y)))),
    "lcm": Function(1, None, least_multiple),
    "ln": Function(1, 1, _log),
    "log": Function(1, 2, _log),
    "log10": Function(1, 1, lambda a, x: _log(a, x, 10)),
    "log2": Function(1, 1, lambda a, x: _log(a, x, 2)),
    "max": Function(1, None, lambda a, *values: _extreme(a, values, 1)),
    "mean": Function(1, None, _mean),
    "median": Function(1, None, _median),
    "min": Function(1, None, lambda a, *values: _extreme(a, values, -1)),
    "mod": Function(2, 2, Arithmetic.modulo),
    "perm": Function(1, 2, permutations),
    "pow": Function(2, 2, Arithmetic.power),
    "prod": Function(1, None, lambda a, *values: reduce(a.multiply, values)),
    "radians": Function(1, 1, lambda a, x: a.multiply(x, one_degree(a))),
    "root": Function(2, 2, _root),
    "round": Function(1, 2, _round),
    "sin": Function(1, 1, sine),
    "sinh": Function(1, 1, hyperbolic("sinh")),
    "sqrt": Function(1, 1, _root),
    "sum": Function(1, None, _sum),
    "tan": Function(1, 1, tangent),
    "tanh": Function(1, 1, hyperbolic("tanh")),
    "trunc": Function(1, 1, _truncate),
}
FUNCTIONS |= {
    "arccos": FUNCTIONS["acos"],
    "arcsin": FUNCTIONS["asin"],
    "arctan": FUNCTIONS["atan"],
    "average": FUNCTIONS["mean"],
    "avg": FUNCTIONS["mean"],
    "binomial": FUNCTIONS["comb"],
    "fact": FUNCTIONS["factorial"],
    "int": FUNCTIONS["trunc"],
    "ncr": FUNCTIONS["comb"],
    "npr": FUNCTIONS["perm"],
}

CONSTANTS: dict[str, Callable[[Arithmetic], Value]] = {
    "e": lambda a: +a.mp.e,
    "pi": lambda a: +a.mp.pi,
    "tau": lambda a: 2 * a.mp.pi,
}

OPERATORS: dict[str, Callable[..., Value]] = {
    "+": Arithmetic.add,
    "-": Arithmetic.subtract,
    "*": Arithmetic.multiply,
    "/": Arithmetic.divide,
    "//": lambda a, x, y: a.floor(a.divide(x, y)),
    "^": Arithmetic.power,
    "mod": Arithmetic.modulo,
    "negate": Arithmetic.negate,
    "percent": lambda a, x: a.divide(x, 100),
    "degree": lambda a, x: a.multiply(x, one_degree(a)),
    "!": factorial,
}

COMPARISONS: dict[str, Callable[[int], bool]] = {
    "=": lambda sign: sign == 0,
    "!=": lambda sign: sign != 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}
