"""The calculator against fractions and mpmath, and against arbitrary text."""

import contextlib
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbox.schemas.errors import ToolError
from rollbox.tools.calculator.evaluate import evaluate
from rollbox.tools.calculator.format_number import format_number

several = settings(deadline=None, max_examples=150)
many = settings(deadline=None, max_examples=800)
small = st.integers(-99, 99)


@st.composite
def rational_expressions(draw: st.DrawFn, depth: int = 4) -> tuple[str, Fraction]:
    """A text with all brackets written, and its value."""
    if depth == 0 or draw(st.booleans()):
        number = draw(small)
        return f"({number})", Fraction(number)
    left, a = draw(rational_expressions(depth=depth - 1))
    right, b = draw(rational_expressions(depth=depth - 1))
    operator = draw(st.sampled_from("+-*/" if b else "+-*"))
    value = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else a}[operator]
    return f"({left}{operator}{right})", value


@several
@given(rational_expressions())
def test_rationals_are_exact(case: tuple[str, Fraction]) -> None:
    text, value = case
    assert evaluate(text, max_depth=100) == value


@several
@given(st.lists(st.tuples(st.sampled_from(["+", "-", "*", "//"]), st.integers(1, 999)), min_size=1, max_size=12))
def test_precedence_is_that_of_python(steps: list[tuple[str, int]]) -> None:
    text = "7" + "".join(f"{operator}{number}" for operator, number in steps)
    assert evaluate(text) == eval(text)


@several
@given(small, small.filter(bool))
def test_modulo_is_that_of_python(a: int, b: int) -> None:
    assert evaluate(f"({a}) mod ({b})") == a % b


@several
@given(st.fractions(0, 10**6, max_denominator=10**6), st.integers(1, 9))
def test_roots_undo_powers_exactly(value: Fraction, degree: int) -> None:
    assert evaluate(f"(({value})^{degree})^(1/{degree})") == value


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "exp", "sinh", "atan", "ln", "sqrt", "cbrt", "asinh"])
@several
@given(x=st.fractions(Fraction(1, 10**6), 300, max_denominator=10**9))
def test_functions_agree_with_mpmath(name: str, x: Fraction) -> None:
    with mpmath.workdps(60):
        true = getattr(mpmath, name)(mpmath.mpf(x.numerator) / x.denominator)
        ours = evaluate(f"{name}({x})", precision=12)
        ours = mpmath.mpf(ours.numerator) / ours.denominator if isinstance(ours, int | Fraction) else mpmath.mpf(ours)
        assert abs(ours - true) <= abs(true) * mpmath.mpf(10) ** -13


@several
@given(st.fractions(0, 50, max_denominator=1000), st.fractions(-30, 30, max_denominator=1000))
def test_real_powers_agree_with_mpmath(base: Fraction, exponent: Fraction) -> None:
    if not base:
        return
    with mpmath.workdps(60):
        true = mpmath.power(
            mpmath.mpf(base.numerator) / base.denominator, mpmath.mpf(exponent.numerator) / exponent.denominator
        )
        ours = evaluate(f"({base})^({exponent})")
        ours = mpmath.mpf(ours.numerator) / ours.denominator if isinstance(ours, int | Fraction) else mpmath.mpf(ours)
        assert abs(ours - true) <= abs(true) * mpmath.mpf(10) ** -13


@several
@given(st.fractions(-(10**9), 10**9, max_denominator=10**9), st.integers(1, 30))
def test_printed_fractions_are_within_half_a_unit_of_the_last_digit(value: Fraction, precision: int) -> None:
    shown = Fraction(format_number(value, precision))
    assert abs(shown - value) * 2 * 10 ** (precision - 1) <= abs(value)


@several
@given(st.integers(1, 10**30), st.integers(990, 1500), st.integers(1, 20))
def test_long_integers_print_rounded(lead: int, zeros: int, precision: int) -> None:
    value = lead * 10**zeros
    shown = Fraction(format_number(value, precision))
    assert abs(shown - value) * 2 * 10 ** (precision - 1) <= value


PIECES = [
    *"0123456789+-*/^%!()[],.=<>|√∛π°²⁻x $",
    "**", "//", "!=", "<=", "mod", "of", "pi", "e", "1e9", "1e-9", "99999999999", "0.0001", "sqrt(", "sin(", "tan(",
    "ln(", "log(", "exp(", "comb(", "perm(", "gcd(", "lcm(", "max(", "mean(", "round(", "floor(", "factorial(",
    "acos(", "atanh(", "tanh(", "hypot(", "root(", "mod(", "degrees(",
]  # fmt: skip


@many
@given(st.lists(st.sampled_from(PIECES), max_size=24).map("".join))
def test_arithmetic_soup_is_answered_or_refused(text: str) -> None:
    with contextlib.suppress(ToolError):
        assert format_number(evaluate(text), 10)


@many
@given(st.text(max_size=60))
def test_any_text_is_answered_or_refused(text: str) -> None:
    with contextlib.suppress(ToolError):
        assert format_number(evaluate(text), 10)


def test_trees_of_powers_are_answered_or_refused() -> None:
    """Brackets over powers, factorials and exponentials of nines: the classic way to hang a calculator."""

    @many
    @given(
        st.recursive(
            st.sampled_from(["9", "99", "1.1", "0.5", "pi", "1e300", "1e-300"]),
            lambda inner: st.one_of(
                st.tuples(inner, st.sampled_from(["^", "*", "/", "-", " mod "]), inner).map(
                    lambda t: f"({t[0]}){t[1]}({t[2]})"
                ),
                st.tuples(st.sampled_from(["floor", "exp", "factorial", "sin", "sqrt", "ln", "lcm"]), inner).map(
                    lambda t: f"{t[0]}({t[1]})"
                ),
            ),
            max_leaves=20,
        )
    )
    def answered_or_refused(text: str) -> None:
        with contextlib.suppress(ToolError):
            assert format_number(evaluate(text), 10)

    answered_or_refused()
