"""Text to tokens. Knows spellings (×, ^, **, x, ², $1,234.50), not grammar.

Commas: inside a call's brackets a comma separates arguments; anywhere else `1,234,567` is one number. Currency signs
are skipped like spaces. Positions count characters of the expression from 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from ...schemas.errors import ErrorKind, ToolError

MAX_EXPONENT = 5_000
"""Largest power of ten that a literal may carry. Literals are made before any work is counted, so they stay cheap."""

_SPELLINGS = {
    "**": "^",
    "×": "*",
    "·": "*",
    "⋅": "*",
    "∙": "*",
    "÷": "/",
    "∕": "/",
    "⁄": "/",
    "−": "-",
    "–": "-",
    "==": "=",
    "≠": "!=",
    "≤": "<=",
    "≥": ">=",
    "π": "pi",
    "τ": "tau",
}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
# Full-width forms stand one to one for ASCII, so positions survive the translation.
_FULL_WIDTH = {0xFF01 + offset: 0x21 + offset for offset in range(94)}

_SKIPPED = re.compile(r"[\s$€£¥₹\u200b\ufeff]+")
_GROUPED = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?!\d)(?:\.\d+)?", re.ASCII)
_PREFIXED = re.compile(r"0(?:x[0-9a-f]+|b[01]+|o[0-7]+)(?![\w.])", re.ASCII | re.IGNORECASE)
_PLAIN = re.compile(r"(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_TIMES = re.compile(r"[xX](?![A-Za-z_])")
# Models write Python's module prefix; it says nothing here.
_NAME = re.compile(r"(?:(?:math|np|numpy)\.)?([A-Za-z_][A-Za-z0-9_]*)|[πτ]", re.IGNORECASE)
_SUPERSCRIPT = re.compile(r"[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_SYMBOL = re.compile(r"\*\*|//|==|!=|<=|>=|[-+*/^%!°√∛|,()\[\]=<>?×·⋅∙÷∕⁄−–≠≤≥]")

_ENDS_OPERAND = frozenset({"number", "name", ")", "]", "!", "°", "%"})
_SHOWN_CHARS = 40


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Attributes:
        kind: "number", "name", "end", or the canonical symbol itself ("^" also for "**").
        text: as it was written.
        start, end: offsets into the expression, from 0.
        value: of a number.
        name: of a name, in lower case and without `math.`.
    """

    kind: str
    text: str
    start: int
    end: int
    value: int | Fraction = 0
    name: str = ""

    def shown(self) -> str:
        """The token and its place, for an error text."""
        if self.kind == "end":
            return "end of the expression"
        text = self.text if len(self.text) <= _SHOWN_CHARS else self.text[:_SHOWN_CHARS] + "…"
        return f"'{text}' at position {self.start + 1}"


def tokenize(expression: str) -> list[Token]:
    """Split an expression; the last token has kind "end".

    Raises:
        ToolError: (arguments) a character that is no part of arithmetic, or a literal beyond 1e±5000.
    """
    return _Lexer(expression.translate(_FULL_WIDTH)).run()


class _Lexer:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tokens: list[Token] = []
        self._in_call: list[bool] = []

    def run(self) -> list[Token]:
        while self._skip_blanks() < len(self._text):
            if not (self._number() or self._word() or self._superscript() or self._symbol()):
                raise ToolError(
                    f"cannot read '{self._text[self._at]}' at position {self._at + 1}: allowed are numbers, "
                    "+ - * / // ^ % mod ! √, brackets, and functions such as sqrt(2)",
                    ErrorKind.ARGUMENTS,
                )
        self._tokens.append(Token("end", "", self._at, self._at))
        return self._tokens

    def _skip_blanks(self) -> int:
        if match := _SKIPPED.match(self._text, self._at):
            self._at = match.end()
        return self._at

    def _push(self, kind: str, end: int, value: int | Fraction = 0, name: str = "") -> bool:
        self._tokens.append(Token(kind, self._text[self._at : end], self._at, end, value, name))
        self._at = end
        return True

    def _after_operand(self) -> bool:
        return bool(self._tokens) and self._tokens[-1].kind in _ENDS_OPERAND

    def _number(self) -> bool:
        if match := _PREFIXED.match(self._text, self._at):
            return self._push("number", match.end(), int(match[0], 0))
        commas_group = not (self._in_call and self._in_call[-1])
        match = (_GROUPED.match(self._text, self._at) if commas_group else None) or _PLAIN.match(self._text, self._at)
        if match is None:
            return False
        return self._push("number", match.end(), _literal(match[0], self._at))

    def _word(self) -> bool:
        if self._after_operand() and (match := _TIMES.match(self._text, self._at)):
            return self._push("*", match.end())
        if (match := _NAME.match(self._text, self._at)) is None:
            return False
        name = (match[1] or _SPELLINGS[match[0]]).lower()
        if self._after_operand() and name in ("mod", "of"):
            return self._push(name, match.end())
        return self._push("name", match.end(), name=name)

    def _superscript(self) -> bool:
        if (match := _SUPERSCRIPT.match(self._text, self._at)) is None:
            return False
        power = match[0].translate(_SUPERSCRIPTS)
        self._tokens.append(Token("^", match[0], self._at, self._at))
        if power[0] in "+-":
            self._push(power[0], self._at + 1)
        return self._push("number", match.end(), int(power.lstrip("+-")))

    def _symbol(self) -> bool:
        if (match := _SYMBOL.match(self._text, self._at)) is None:
            return False
        symbol, end = match[0], match.end()
        if symbol == "!=" and not self._text[end:].strip(" ?"):
            symbol, end = "!", end - 1  # "5!=" asks for 5!
        if symbol in "([":
            self._in_call.append(symbol == "[" or (bool(self._tokens) and self._tokens[-1].kind == "name"))
        elif symbol in ")]" and self._in_call:
            self._in_call.pop()
        return self._push(_SPELLINGS.get(symbol, symbol), end)


def _literal(text: str, at: int) -> int | Fraction:
    digits, _, exponent_text = text.lower().replace(",", "").replace("_", "").partition("e")
    whole, _, decimals = digits.partition(".")
    exponent = int(exponent_text or "0")
    if abs(exponent) > MAX_EXPONENT:
        shown = text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
        raise ToolError(
            f"the number '{shown}' at position {at + 1} is out of range: exponents reach from "
            f"-{MAX_EXPONENT} to {MAX_EXPONENT}",
            ErrorKind.ARGUMENTS,
        )
    scale = exponent - len(decimals)
    mantissa = int(whole + decimals)
    if scale >= 0:
        return mantissa * int(10**scale)
    value = Fraction(mantissa, 10**-scale)
    return value.numerator if value.denominator == 1 else value
