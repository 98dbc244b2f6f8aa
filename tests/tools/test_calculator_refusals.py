"""What the calculator refuses: unreadable text, faults of mathematics, and anything huge."""

import subprocess
import sys

import pytest

from rollbox.schemas.errors import ConfigError, ErrorKind, ToolError
from rollbox.tools.calculator import CalculatorTool


async def refusal(expression: object, **config: object) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await CalculatorTool(dict(config)).execute("i", {"expression": expression})
    return caught.value


UNREADABLE = {
    "1 + * 2": ("'*' at position 5", "expected a number"),
    "(1+2": ("end of the expression", "')' to close '(' at position 1"),
    "1+2)": ("')' at position 4", "expected an operator"),
    "2 3": ("'3' at position 3", "expected an operator"),
    "foo(2)": ("'foo' at position 1", "known names are: abs, acos"),
    "x+1": ("'x' at position 1", "no variables"),
    "3x": ("end of the expression", "expected a number"),
    "sin 30": ("'30' at position 5", "expected '(' after 'sin' at position 1"),
    "3,14": ("',' at position 2", "groups of three digits"),
    "1,23,456": ("',' at position 2", "groups of three digits"),
    "[1,2]": ("',' at position 3", "separates the arguments"),
    "sqrt(1,234)": ("'sqrt' at position 1 takes 1 argument, got 2", "write 1234"),
    "comb(5)": ("'comb' at position 1 takes 2 arguments, got 1", ""),
    "max()": ("')' at position 5", "expected a number"),
    "3!!": ("'!' at position 3", "(3!)!"),
    "1<2<3": ("'<' at position 4", "expected an operator"),
    "= 5": ("'=' at position 1", "expected a number"),
    "1 & 2": ("'&' at position 3", "allowed are"),
    '"3+4"': ("'\"' at position 1", "allowed are"),
    "__import__('os').system('id')": ("position", "allowed are"),
    "1e999999": ("'1e999999' at position 1", "5000"),
    "1.2.3": ("'.3' at position 4", "expected an operator"),
}


@pytest.mark.parametrize(("expression", "parts"), UNREADABLE.items())
async def test_unreadable_text_names_the_token_and_what_is_allowed(expression: str, parts: tuple[str, str]) -> None:
    error = await refusal(expression)
    assert error.kind is ErrorKind.ARGUMENTS
    for part in parts:
        assert part in str(error)


FAULTS = {
    "1/0": "division by zero ('/' at position 2)",
    "1/(2-2)": "division by zero",
    "5 // 0": "division by zero",
    "0^-1": "division by zero",
    "10 mod 0": "modulo by zero",
    "sqrt(-1)": "complex",
    "(-8)^(1/3)": "root(x, n)",
    "root(-4, 2)": "complex",
    "ln(0)": "positive number ('ln' at position 1)",
    "log(-1)": "positive number",
    "log(2, 1)": "base",
    "tan(pi/2)": "tan has no value",
    "asin(2)": "from -1 to 1",
    "acosh(0)": "from 1 up",
    "atanh(1)": "between -1 and 1",
    "2.5!": "whole numbers",
    "(-3)!": "from 0 up",
    "gcd(2.5, 5)": "gcd needs whole numbers",
    "1/(sqrt(2)^2-2)": "division by zero",
}


@pytest.mark.parametrize(("expression", "part"), FAULTS.items())
async def test_faults_of_mathematics(expression: str, part: str) -> None:
    error = await refusal(expression)
    assert error.kind is ErrorKind.USER_CODE
    assert part in str(error)
    assert len(str(error)) < 200


HUGE = [
    "9**9**9",
    "9^9^9^9^9",
    "(9**64)**64**64",
    "((9^99)^99)^99",
    "((((((9^9)^9)^9)^9)^9)^9)^9",
    "1.5^(9^20000)",
    "2^(10^30)",
    "2^-(10^30)",
    "100000!",
    "(10^18)!",
    "(20!)!",
    "comb(10^6, 5*10^5)",
    "comb(10^18, 10^17)",
    "perm(10^9, 10^9)",
    "perm(10^30, 10^6)",
    "exp(10^9)",
    "exp(-10^9)",
    "exp(exp(100))",
    "cosh(10^9)",
    "sin(exp(10000))",
    "*".join(["9^20000"] * 100),
    "+".join(["5000!"] * 150),
    "lcm(" + ",".join(f"{n}!" for n in range(4000, 4120)) + ")",
    "+".join(f"sin(2^{60000 + i})" for i in range(60)),
]


@pytest.mark.parametrize("expression", HUGE, ids=lambda text: text[:30])
async def test_huge_results_are_refused(expression: str) -> None:
    error = await refusal(expression)
    assert error.kind is ErrorKind.USER_CODE
    assert any(part in str(error) for part in ("too large", "too close to zero", "too much work"))


@pytest.mark.parametrize("expression", ["(" * 65 + "1" + ")" * 65, "-" * 65 + "1", "^".join(["1"] * 66), "abs(" * 70])
async def test_deep_nesting_is_refused(expression: str) -> None:
    error = await refusal(expression)
    assert error.kind is ErrorKind.ARGUMENTS
    assert "nested too deep" in str(error)


async def test_the_length_is_bounded() -> None:
    assert "at most 10 are read" in str(await refusal("1+1+1+1+1+1", max_expression_chars=10))


@pytest.mark.parametrize(
    "parameters", [{}, {"expression": None}, {"expression": "  "}, {"expression": ["1"]}, [], None]
)
async def test_a_missing_expression_says_what_is_needed(parameters: object) -> None:
    with pytest.raises(ToolError, match='needs one argument "expression"') as caught:
        await CalculatorTool().execute("i", parameters)  # type: ignore[arg-type]
    assert caught.value.kind is ErrorKind.ARGUMENTS


@pytest.mark.parametrize(
    ("parameters", "answer"), [("17*23", "391"), ({"expression": 17}, "17"), ({"expression": 0.1}, "0.1")]
)
async def test_bare_strings_and_numbers_are_taken(parameters: object, answer: str) -> None:
    response, _, _ = await CalculatorTool().execute("i", parameters)  # type: ignore[arg-type]
    assert response.text == answer


async def test_an_unprintable_number_is_an_argument_error() -> None:
    assert (await refusal(10**5000)).kind is ErrorKind.ARGUMENTS


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(ConfigError, match="precision"):
        CalculatorTool({"precision": 0})


def test_importing_the_calculator_does_not_load_mpmath() -> None:
    program = "import rollbox.tools.calculator, sys; sys.exit('mpmath' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
