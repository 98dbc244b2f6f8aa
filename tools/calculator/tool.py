"""CalculatorTool: exact arithmetic for a model, without eval."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from ...schemas.errors import ErrorKind, ToolError
from ...schemas.tool import ToolResponse
from ..base import BaseTool, ToolConfig, ToolReturn
from .evaluate import MAX_BITS, MAX_DEPTH, evaluate
from .format_number import format_number


class CalculatorConfig(ToolConfig):
    """Settings of the calculator.

    Attributes:
        precision: significant decimal digits of inexact answers.
        max_expression_chars: longest expression, in characters.
        max_depth: deepest nesting of brackets, signs and powers.
        max_result_bits: longest number on the way, in bits; the default is about 19,700 decimal digits.
    """

    # The upper bounds keep the worst expression within about a second of CPU time.
    precision: int = Field(default=10, ge=1, le=100)
    max_expression_chars: int = Field(default=1_000, ge=1, le=4_000)
    max_depth: int = Field(default=MAX_DEPTH, ge=1, le=100)
    max_result_bits: int = Field(default=MAX_BITS, ge=1_024, le=2 * MAX_BITS)


class CalculatorTool(BaseTool):
    """Evaluates one expression per call; keeps no state between calls."""

    config_model: ClassVar[type[ToolConfig]] = CalculatorConfig
    config: CalculatorConfig
    default_schema: ClassVar[dict[str, Any] | None] = {
        "type": "function",
        "function": {
            "name": "calculator",
            "description": (
                "Works out an arithmetic expression exactly. Operators: + - * / // ^ (power) mod ! and % (percent, or "
                "modulo between two numbers). Functions such as sqrt, cbrt, log (natural), log10, exp, sin (radians), "
                "floor, round, max, gcd, comb, factorial, mean. Constants pi, e, tau. No variables."
            ),
            "parameters": {
                "type": "object",
                "properties": {
                    "expression": {
                        "type": "string",
                        "description": "The expression, for example: (17 * 23 + 15% of 200) / sqrt(144)",
                    }
                },
                "required": ["expression"],
            },
        },
    }

    example: ClassVar[dict[str, Any] | None] = {"expression": "17 * 23"}

    async def execute(self, instance_id: str, parameters: dict[str, Any] | str, **kwargs: Any) -> ToolReturn:
        """Work out `parameters["expression"]`.

        Under verl's own loop the parameters can be a bare string; it is taken as the expression.

        Raises:
            ToolError: (arguments) no expression, or one that cannot be read; (user_code) it has no real value of
                reasonable size.
        """
        expression = self._expression_of(parameters)
        value = evaluate(expression, self.config.precision, self.config.max_result_bits, self.config.max_depth)
        return ToolResponse(text=format_number(value, self.config.precision)), 0.0, {}

    def _expression_of(self, parameters: Any) -> str:
        given = parameters.get("expression") if isinstance(parameters, dict) else parameters
        if isinstance(given, int | float) and not isinstance(given, bool):
            given = _number_text(given)
        if not isinstance(given, str) or not given.strip():
            raise ToolError(
                'the calculator needs one argument "expression", a string such as "17 * 23"', ErrorKind.ARGUMENTS
            )
        if len(given) > self.config.max_expression_chars:
            raise ToolError(
                f"the expression has {len(given)} characters; at most {self.config.max_expression_chars} are read",
                ErrorKind.ARGUMENTS,
            )
        return given


def _number_text(number: int | float) -> str:
    try:
        return str(number)
    except ValueError:  # Python refuses to print integers of more than 4300 digits.
        raise ToolError("the number given as expression is too long", ErrorKind.ARGUMENTS) from None
