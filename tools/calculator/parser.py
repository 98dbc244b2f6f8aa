"""Tokens to a small tree, by binding powers (Pratt).

From loose to tight: one comparison at the top; + -; * / // mod % and multiplication that is not written (2π, 3(4+1));
unary minus; ^ (from the right: 2^3^2 = 2^9, -2^2 = -4); postfix ! % ° and prefix √. Unwritten multiplication binds like
a written one: 6/2(1+2) = 9.

`%` is modulo before an operand (10 % 3) and in `10 % -3`, where it stands free and the sign sticks to its number;
everywhere else it is percent (50%, 15% of 200, 10% - 3, 10%-3).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

from ...schemas.errors import ErrorKind, ToolError
from .functions import CONSTANTS, FUNCTIONS
from .lexer import Token, tokenize


@dataclass(frozen=True, slots=True)
class Literal:
    """A number as written, and where."""

    value: int | Fraction
    token: Token


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator, function or constant applied to its operands; `token` is where it stands."""

    operation: str
    operands: tuple[Node, ...]
    token: Token


Node = Literal | Apply

_SUM, _PRODUCT, _UNARY, _POWER, _POSTFIX = 10, 20, 30, 40, 50
_INFIX = {
    "+": _SUM,
    "-": _SUM,
    "*": _PRODUCT,
    "/": _PRODUCT,
    "//": _PRODUCT,
    "mod": _PRODUCT,
    "of": _PRODUCT,
    "^": _POWER,
}
_OPERATIONS = {"of": "*", "%": "percent", "°": "degree"}
_COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
_BEGINS_OPERAND = frozenset({"number", "name", "(", "[", "√", "∛"})
_OPERAND = "expected a number, a function, a constant or '('"
_CLOSING = {"(": ")", "[": "]"}


def parse(expression: str, max_depth: int) -> Node:
    """Read an expression.

    Args:
        expression: the text, of any length that the caller accepts.
        max_depth: how many brackets, signs and powers may nest.

    Raises:
        ToolError: (arguments) naming the token, its position and what may stand there.
    """
    return _Parser(tokenize(expression), max_depth).run()


def _refuse(message: str) -> NoReturn:
    raise ToolError(message, ErrorKind.ARGUMENTS)


class _Parser:
    def __init__(self, tokens: list[Token], max_depth: int) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0
        self._max_depth = max_depth

    def run(self) -> Node:
        left = self._expression(0)
        token = self._peek()
        if token.kind in _COMPARISONS:
            self._take()
            if token.kind == "=" and self._only_questions_left():
                return left
            left = Apply(token.kind, (left, self._expression(0)), token)
            token = self._peek()
        if not self._only_questions_left():
            self._unexpected(token)
        return left

    def _only_questions_left(self) -> bool:
        return all(token.kind in ("?", "end") for token in self._tokens[self._next :])

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _expression(self, power: int) -> Node:
        self._depth += 1
        if self._depth > self._max_depth:
            _refuse(f"nested too deep: {self._peek().shown()} is more than {self._max_depth} levels down")
        node = self._continued(self._operand(), power)
        self._depth -= 1
        return node

    def _continued(self, left: Node, power: int) -> Node:
        """Extend `left` by every operator that binds at least as tightly as `power`."""
        while True:
            token = self._peek()
            if token.kind in ("!", "°") or (token.kind == "%" and not self._percent_is_modulo()):
                self._take()
                if token.kind == "!" and self._peek().kind == "!":
                    _refuse(
                        f"unexpected {self._peek().shown()}: there is no double factorial; write (3!)! to repeat one"
                    )
                left = Apply(_OPERATIONS.get(token.kind, token.kind), (left,), token)
                continue
            operation, binds = self._infix(token)
            if binds < max(power, 1):
                return left
            if operation != "implied":
                self._take()
            right = self._expression(binds if operation == "^" else binds + 1)
            left = Apply("*" if operation == "implied" else operation, (left, right), token)

    def _infix(self, token: Token) -> tuple[str, int]:
        """The operation that `token` begins after an operand, and its binding power (0: none)."""
        if token.kind == "%":
            return "mod", _PRODUCT
        if token.kind in _INFIX:
            return _OPERATIONS.get(token.kind, token.kind), _INFIX[token.kind]
        after_bracket = self._tokens[self._next - 1].kind in (")", "]")
        if token.kind in _BEGINS_OPERAND and (token.kind != "number" or after_bracket):
            return "implied", _PRODUCT
        return "", 0

    def _percent_is_modulo(self) -> bool:
        before, percent, follower = self._tokens[self._next - 1 : self._next + 2]
        if follower.kind not in ("-", "+"):
            return follower.kind in _BEGINS_OPERAND
        stands_free = percent.start > before.end
        beyond_sign = self._tokens[self._next + 2]
        return stands_free and beyond_sign.start == follower.end and beyond_sign.kind in _BEGINS_OPERAND

    def _operand(self) -> Node:
        token = self._take()
        if token.kind == "number":
            return Literal(token.value, token)
        if token.kind == "name":
            return self._named(token)
        if token.kind in ("-", "+"):
            operand = self._expression(_UNARY)
            return Apply("negate", (operand,), token) if token.kind == "-" else operand
        if token.kind in ("√", "∛"):
            return Apply("sqrt" if token.kind == "√" else "cbrt", (self._expression(_POSTFIX),), token)
        if token.kind == "|":
            operand = self._expression(0)
            self._close("|", token)
            return Apply("abs", (operand,), token)
        if token.kind in _CLOSING:
            operand = self._expression(0)
            self._close(_CLOSING[token.kind], token)
            return operand
        self._next -= 1
        _refuse(f"unexpected {token.shown()}: {_OPERAND}")

    def _named(self, token: Token) -> Node:
        if token.name in CONSTANTS:
            return Apply(token.name, (), token)
        function = FUNCTIONS.get(token.name)
        if function is None:
            known = ", ".join(sorted({*FUNCTIONS, *CONSTANTS}))
            _refuse(f"unknown name {token.shown()}; there are no variables, and the known names are: {known}")
        if self._peek().kind != "(":
            _refuse(f"unexpected {self._peek().shown()}: expected '(' after {token.shown()}")
        operands = self._arguments(self._take())
        if not function.takes(len(operands)):
            _refuse(
                f"{token.shown()} takes {function.arity_text()}, got {len(operands)}; "
                "inside a function commas separate arguments (write 1234, not 1,234)"
            )
        return Apply(token.name, tuple(operands), token)

    def _arguments(self, opening: Token) -> list[Node]:
        operands = self._argument()
        while self._peek().kind == ",":
            self._take()
            operands += self._argument()
        self._close(_CLOSING[opening.kind], opening)
        return operands

    def _argument(self) -> list[Node]:
        """One argument, or the several of a Python list: mean([1, 2, 3])."""
        if self._peek().kind != "[":
            return [self._expression(0)]
        self._depth += 1
        if self._depth > self._max_depth:
            _refuse(f"nested too deep: {self._peek().shown()} is more than {self._max_depth} levels down")
        items = self._arguments(self._take())
        self._depth -= 1
        return items if len(items) > 1 else [self._continued(items[0], 0)]

    def _close(self, wanted: str, opening: Token) -> None:
        token = self._peek()
        if token.kind != wanted:
            self._unexpected(token, f"an operator or '{wanted}' to close {opening.shown()}")
        self._take()

    def _unexpected(self, token: Token, expected: str = "an operator such as + - * / ^, or the end") -> NoReturn:
        if token.kind == ",":
            _refuse(
                f"unexpected {token.shown()}: a comma separates the arguments of a function or groups of three digits "
                "(1,234); decimals take a point"
            )
        _refuse(f"unexpected {token.shown()}: expected {expected}")
