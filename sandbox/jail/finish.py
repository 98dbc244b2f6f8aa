"""The end of a program, as the interpreter's own: exit code, exit handlers, what open files still hold."""

from __future__ import annotations

import atexit
import gc
import itertools
import os
import signal
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType

from . import policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_FLUSH_FAILED = 120


def new_main(path: str) -> dict[str, Any]:
    """Put a fresh `__main__` in place, as for a file that is being run, and return its namespace."""
    module = ModuleType("__main__")
    names = module.__dict__
    names["__loader__"] = SourceFileLoader("__main__", path)
    names["__builtins__"] = sys.modules["builtins"]
    names["__annotations__"] = {}
    names["__file__"] = path
    names["__cached__"] = None
    sys.modules["__main__"] = module
    return names


class Finish:
    """Holds what it needs from before the program: that may have replaced any of it."""

    def __init__(self) -> None:
        self._known_modules = len(sys.modules)
        self._exit = os._exit
        self._streams = (sys.stdout, sys.stderr)

    def end(self, error: BaseException | None) -> NoReturn:
        """Report `error`, let threads and exit handlers finish, flush, and end the process."""
        code, interrupted = 1, issubclass(type(error), KeyboardInterrupt)
        try:
            code = self._reported(error)
            del error
            self._wait_for_threads()
            atexit._run_exitfuncs()
            if not self._flushed():
                code = code or _FLUSH_FAILED
            self._drop_objects()
            if not self._flushed():
                code = code or _FLUSH_FAILED
            if interrupted:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
        finally:
            self._exit(code & 0xFF)

    def _reported(self, error: BaseException | None) -> int:
        """The exit code; an error that has not to do with leaving is printed."""
        if error is None:
            return 0
        # By its type, as the interpreter does it: an instance may lie about its class.
        if isinstance(error, SystemExit) and issubclass(type(error), SystemExit):
            return self._exit_code(error.code)
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        except SystemExit as leaving:
            return self._exit_code(leaving.code)
        except BaseException as second:  # noqa: BLE001 - as the interpreter does
            self._print("Error in sys.excepthook:\n")
            sys.__excepthook__(type(second), second, second.__traceback__)
            self._print("\nOriginal exception was:\n")
            sys.__excepthook__(type(error), error, error.__traceback__)
        return 1

    def _exit_code(self, code: object) -> int:
        if code is None:
            return 0
        if isinstance(code, int):
            return code
        self._print(f"{code}\n")
        return 1

    def _print(self, text: str) -> None:
        try:
            sys.stderr.write(text)
        except (AttributeError, OSError, ValueError):  # replaced or closed by the program
            return

    def _wait_for_threads(self) -> None:
        threading = sys.modules.get("threading")
        try:
            # Without threads there is nothing to wait for, and the way to find that out is long.
            if threading is not None and (len(threading._active) > 1 or threading._threading_atexits):
                threading._shutdown()
        except BaseException as error:  # noqa: BLE001 - as the interpreter does
            sys.__excepthook__(type(error), error, error.__traceback__)

    def _flushed(self) -> bool:
        done = True
        for stream in {id(each): each for each in (sys.stdout, sys.stderr, *self._streams)}.values():
            try:
                if stream is not None and not stream.closed:
                    stream.flush()
            except Exception:  # noqa: BLE001 - any object may have taken the stream's place
                done = stream is sys.stderr and done
        return done

    def _drop_objects(self) -> None:
        """Let go of what the program made, in the interpreter's order: files are closed, `__del__` runs."""
        # The newest last: the names before, if touched, would be a page each.
        new = len(sys.modules) - self._known_modules
        for name in list(itertools.islice(reversed(sys.modules), new)) if new > 0 else ():
            if str(getattr(sys.modules[name], "__file__", "")).startswith(f"{policy.WORK_DIR}/"):
                del sys.modules[name]
        main = sys.modules.get("__main__")
        names = getattr(main, "__dict__", {})
        for name in [name for name in names if name.startswith("_") and not name.startswith("__")]:
            names[name] = None
        for name in [name for name in names if not name.startswith("_") or name.startswith("__")]:
            if name != "__builtins__":
                names[name] = None
        gc.collect()
