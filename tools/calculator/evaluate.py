"""From an expression to its value, in bounded time and memory.

The tree is walked with a stack of our own, because a sum of a thousand terms is a tree a thousand levels deep.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from ...schemas.errors import ErrorKind, ToolError
from .arithmetic import (
    FIRST_GUARD_DIGITS,
    LAST_GUARD_DIGITS,
    Arithmetic,
    MathError,
    PrecisionLostError,
    Value,
)
from .functions import COMPARISONS, CONSTANTS, FUNCTIONS, OPERATORS
from .parser import Literal, Node, parse

MAX_BITS = 65_536
"""Integers up to 2^65536, about 19,700 digits."""
MAX_DEPTH = 64

# An mpmath context changes its own precision while it computes: one evaluation at a time.
_CONTEXT_LOCK = threading.Lock()

_RUN = {name: function.run for name, function in FUNCTIONS.items()} | OPERATORS | CONSTANTS


@cache
def _mp_context() -> Any:
    # Imported on first use: most expressions are rational, and mpmath takes longer to load than they take to run.
    from mpmath.ctx_mp import MPContext

    return MPContext()


def evaluate(
    expression: str, precision: int = 10, max_bits: int = MAX_BITS, max_depth: int = MAX_DEPTH
) -> Value | bool:
    """Work out an expression.

    Args:
        expression: the text; the time is bounded for a given length.
        precision: significant decimal digits that must be right.
        max_bits: the longest result, in bits.
        max_depth: the deepest nesting.

    Returns:
        An int or Fraction where the value is known exactly, else an mpmath number; a bool for a comparison.

    Raises:
        ToolError: (arguments) the text cannot be read; (user_code) it has no real value, or one that is too large.
    """
    tree = parse(expression, max_depth)
    with _CONTEXT_LOCK:
        try:
            return _walk(tree, Arithmetic(precision, FIRST_GUARD_DIGITS, max_bits, _mp_context))
        except PrecisionLostError:
            return _walk(tree, Arithmetic(precision, LAST_GUARD_DIGITS, max_bits, _mp_context))


def _walk(tree: Node, arithmetic: Arithmetic) -> Value | bool:
    pending: list[tuple[Node, bool]] = [(tree, False)]
    values: list[Value] = []
    while pending:
        node, operands_ready = pending.pop()
        if isinstance(node, Literal):
            values.append(_apply(node, [], arithmetic))
        elif operands_ready:
            first = len(values) - len(node.operands)
            values[first:] = [_apply(node, values[first:], arithmetic)]
        else:
            pending.append((node, True))
            pending.extend((operand, False) for operand in reversed(node.operands))
    return values[0]


def _apply(node: Node, operands: list[Value], arithmetic: Arithmetic) -> Value | bool:
    try:
        if isinstance(node, Literal):
            return arithmetic.checked(node.value)
        if node.operation in COMPARISONS:
            return COMPARISONS[node.operation](arithmetic.compare(*operands))
        return arithmetic.checked(_RUN[node.operation](arithmetic, *operands))
    except MathError as fault:
        raise ToolError(f"{fault} ({node.token.shown()})", ErrorKind.USER_CODE) from None
    except (ArithmeticError, ValueError):
        # mpmath's own words for a pole or a failed series mean nothing to a model.
        raise ToolError(f"no value could be worked out ({node.token.shown()})", ErrorKind.USER_CODE) from None
