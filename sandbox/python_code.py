"""The program that compiles Python programs: in a jail, as compiling a stranger's may take all memory or never end."""

from __future__ import annotations

# Whose public names judges of functions put before a program, and then the modules themselves. Later ones hide earlier.
_GRANTED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "typing"),
)

COMPILE = (
    f"MODULES = {_GRANTED!r}"
    """
import builtins, marshal, sys, traceback
from importlib.util import MAGIC_NUMBER
path, driver = sys.argv[1:]
with open(path, "rb") as file:
    source = file.read()
try:
    code = compile(source, path, "exec", dont_inherit=True)
except (SyntaxError, ValueError, RecursionError) as error:
    traceback.print_exception(type(error), error, None)
    sys.exit(1)
if driver:
    def names_in(outer):
        found = set(outer.co_names)
        for const in outer.co_consts:
            if hasattr(const, "co_names"):
                found |= names_in(const)
        return found

    def filled(outer):
        return outer.replace(co_consts=tuple(map(fill, outer.co_consts)))

    def fill(const):
        return filled(const) if hasattr(const, "co_consts") else parts.get(const, const)

    known = {}
    for name in MODULES:
        module = __import__(name)
        public = getattr(module, "__all__", None) or [each for each in dir(module) if not each.startswith("_")]
        known.update((each, (each, name, each)) for each in public)
    known.update((name, (name, name, "")) for name in MODULES)
    granted = names_in(code).intersection(known).difference(dir(builtins))
    parts = {"PROGRAM": code, "PRELUDE": tuple(known[name] for name in sorted(granted))}
    code = filled(compile(driver, "<string>", "exec", dont_inherit=True))
with open("artifact", "wb") as file:
    file.write(MAGIC_NUMBER + bytes(12) + marshal.dumps(code))
"""
)
"""Makes the file `artifact` of a program's file, in the format of a .pyc file, with a driver around it if asked to."""
ARTIFACT = "artifact"
