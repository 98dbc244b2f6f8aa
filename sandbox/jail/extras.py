"""What a program leaves besides its output, when asked for: the value of its last expression, its open figures."""

from __future__ import annotations

import ast
import os
import sys
from contextlib import suppress

from . import policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

_MOST_CHARS = 65_536


def split(source: bytes, path: str) -> tuple[CodeType, CodeType | None]:
    """The code of a program, and apart from it that of its last statement if this is a bare expression.

    Raises:
        SyntaxError: as compiling the whole would.
    """
    whole = compile(source, path, "exec", dont_inherit=True)
    tree = compile(source, path, "exec", flags=ast.PyCF_ONLY_AST, dont_inherit=True)
    final = tree.body[-1] if isinstance(tree, ast.Module) and tree.body else None
    if not isinstance(tree, ast.Module) or not isinstance(final, ast.Expr):
        return whole, None
    tree.body.pop()
    last = ast.Expression(final.value)
    flags = whole.co_flags & _FUTURE_FLAGS
    first: CodeType = compile(tree, path, "exec", flags, dont_inherit=True)
    return first, compile(last, path, "eval", flags, dont_inherit=True)


# Those of `__future__` imports: a module's flags that its parts must be compiled with.
_FUTURE_FLAGS = 0x1FE_0000


def keep_value(value: object) -> None:
    """Write the `repr` of a value other than None, cut at 65,536 characters."""
    if value is not None:
        _write(policy.VALUE_FILE, repr(value)[:_MOST_CHARS].encode(errors="backslashreplace"))


def _write(name: str, content: bytes) -> None:
    with suppress(OSError):  # a full work dir, or something of the program's in the way
        _make_folder()
        with open(f"{policy.WORK_DIR}/{name}", "wb") as file:
            file.write(content)


def _make_folder() -> None:
    os.makedirs(f"{policy.WORK_DIR}/{policy.EXTRAS_DIR}", exist_ok=True)


def keep_figures() -> None:
    """Write the figures that are open, the first ones if they are many."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    with suppress(Exception):  # whatever the program did to its figures, its own end goes on
        _make_folder()
        for number, name in zip(pyplot.get_fignums(), policy.FIGURE_FILES, strict=False):
            pyplot.figure(number).savefig(f"{policy.WORK_DIR}/{name}", format="png")
