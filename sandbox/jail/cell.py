"""One cell, run in the namespace of its session as a notebook would: value of the last expression, await, figures."""

from __future__ import annotations

import ast
import base64
import io
import linecache
import os
import sys
import traceback
from contextlib import suppress

from . import policy, work_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, TracebackType
    from typing import Any

_MOST_CHARS = 65_536
_MOST_TRACEBACK_LINES = 200
_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_COROUTINE = 0x80
# Those of `__future__` imports: they hold for the cells after as well.
_FUTURE_FLAGS = 0x1FE_0000
_NAME_START = "<cell "


class Cells:
    """The cells of one session.

    Attributes:
        names: the namespace that they share.
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self._flags = 0
        self._loop: Any = None
        self._left_loops: list[Any] = []

    def run(self, source: str, number: int) -> dict[str, Any]:
        """Run a cell; what becomes of it is told as plain data. An error is printed, as the interpreter would."""
        name = f"{_NAME_START}{number}>"
        # Without a time of change, so that it is never looked for on disk.
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        report: dict[str, Any] = {"exit_code": 0, "value": None, "error": None, "error_line": None}
        try:
            value = self._evaluated(source, name)
            if value is not None:
                report["value"] = _unicode(repr(value)[:_MOST_CHARS])
        except SystemExit as leaving:
            report.update(_left(leaving))
        except BaseException as error:  # noqa: BLE001 - whatever a cell raises ends the cell, not the session
            report.update(_failed(error))
        return report

    def _evaluated(self, source: str, name: str) -> Any:
        value = None
        for part in self._compiled(source, name):
            value = eval(part, self.names)  # noqa: S307 - this is what a session is for
            if part.co_flags & _COROUTINE:
                value = self._awaited(value)
        return value

    def _compiled(self, source: str, name: str) -> list[CodeType]:
        """The code of a cell, and apart from it that of its last statement if this is a bare expression."""
        flags = _AWAIT | self._flags
        tree = compile(source, name, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        assert isinstance(tree, ast.Module)
        final = tree.body[-1] if tree.body else None
        try:
            if not isinstance(final, ast.Expr):
                parts = [compile(tree, name, "exec", flags, dont_inherit=True)]
            else:
                tree.body.pop()
                first = compile(tree, name, "exec", flags, dont_inherit=True)
                flags |= first.co_flags & _FUTURE_FLAGS
                parts = [first, compile(ast.Expression(final.value), name, "eval", flags, dont_inherit=True)]
        except SyntaxError as error:
            if error.text is None and error.lineno is not None:
                error.text = linecache.getline(name, error.lineno)  # the compiler looks for a file
            raise
        self._flags |= parts[0].co_flags & _FUTURE_FLAGS
        return parts

    def loop_fds(self) -> set[int]:
        """Descriptors of our event loops."""
        found = set()
        for loop in (*self._left_loops, self._loop):
            for name in ("_selector", "_ssock", "_csock"):
                with suppress(Exception):  # they are what they are in this version of the interpreter
                    found.add(getattr(loop, name).fileno())
        return found

    def has_tasks(self) -> bool:
        """Whether something waits in the event loop."""
        asyncio = sys.modules.get("asyncio")
        return self._loop is not None and asyncio is not None and bool(asyncio.all_tasks(self._loop))

    def leave_loop(self) -> None:
        """In a copy, whose loop is also that of the session it was forked from. The next await makes a new one."""
        if self._loop is not None:
            self._left_loops.append(self._loop)  # its end would take the other's apart
            self._loop = None

    def _awaited(self, coroutine: Any) -> Any:
        import asyncio

        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        task = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            task.cancel()  # an interrupt leaves it pending
            raise


def _left(leaving: SystemExit) -> dict[str, Any]:
    code = leaving.code
    if not isinstance(code, int) and code is not None:
        with suppress(Exception):
            print(code, file=sys.stderr)  # noqa: T201 - as the interpreter does
        code = 1
    found = _described(leaving)
    return {"exit_code": (code or 0) & 0xFF, "error": found["error"]}


def _failed(error: BaseException) -> dict[str, Any]:
    found = _described(error)
    with suppress(Exception):
        sys.stderr.write("".join(found["error"]["traceback"]))
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    return {"exit_code": 1, **found}


def _described(error: BaseException) -> dict[str, Any]:
    trace = _without_our_frames(error.__traceback__)
    name = type(error).__name__
    try:
        lines = traceback.format_exception(type(error), error, trace)[-_MOST_TRACEBACK_LINES:]
        lines = [_unicode(line) for line in lines]
    except BaseException:  # noqa: BLE001 - an exception class can do anything when it is shown
        lines = [f"{name}\n"]
    try:
        text = _unicode(str(error)[:_MOST_CHARS])
    except BaseException:  # noqa: BLE001
        text = ""
    return {"error": {"name": name, "text": text, "traceback": lines}, "error_line": _own_line(error, trace)}


def _unicode(text: str) -> str:
    """Without lone surrogates, which JSON has no room for."""
    return text.encode(errors="backslashreplace").decode()


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith(_NAME_START):
        trace = trace.tb_next
    each = trace
    while each is not None:
        if each.tb_next is not None and each.tb_next.tb_frame.f_code.co_filename == no_input.__code__.co_filename:
            each.tb_next = None  # where `input` without stdin fails
        each = each.tb_next
    return trace


def _own_line(error: BaseException, trace: TracebackType | None) -> int | None:
    """The innermost line of the cell itself."""
    if isinstance(error, SyntaxError) and str(error.filename).startswith(_NAME_START):
        return error.lineno
    line, cell = None, trace.tb_frame.f_code.co_filename if trace is not None else ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == cell:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def figures() -> list[str]:
    """The figures that are open, the first ones if they are many, as PNG in base64. They are closed."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    images: list[str] = []
    if pyplot is not None:
        with suppress(Exception):  # whatever the cell did to its figures, its own end goes on
            for number, _ in zip(list(pyplot.get_fignums()), policy.FIGURE_FILES, strict=False):
                image = io.BytesIO()
                pyplot.figure(number).savefig(image, format="png")
                images.append(base64.b64encode(image.getvalue()).decode())
            pyplot.close("all")
    return images


def fetched(names: list[str]) -> dict[str, Any]:
    files, unfetched = work_dir.fetch(names)
    return {"files": files, "unfetched": unfetched}


def no_input(prompt: object = "", /) -> str:
    """What `input` is for a cell without stdin."""
    raise EOFError("no stdin is attached, so input() has nothing to read: put the data in the code, or pass `stdin`")


def flush() -> None:
    """Any object may have taken a stream's place."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def leave_forked_child(report: dict[str, Any]) -> None:
    """End a process that a cell forked and that came to the cell's end."""
    flush()
    os._exit(report["exit_code"])
