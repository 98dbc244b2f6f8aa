"""The program that compiles Python programs: in a jail, as compiling a stranger's may take all memory or never end."""

from __future__ import annotations

COMPILE = """
import marshal, sys, traceback
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
    def with_program(outer):
        return outer.replace(co_consts=tuple(
            code if const == "PROGRAM" else with_program(const) if hasattr(const, "co_consts") else const
            for const in outer.co_consts
        ))
    code = with_program(compile(driver, "<string>", "exec", dont_inherit=True))
with open("artifact", "wb") as file:
    file.write(MAGIC_NUMBER + bytes(12) + marshal.dumps(code))
"""
"""Makes the file `artifact` of a program's file, in the format of a .pyc file, with a driver around it if asked to."""
ARTIFACT = "artifact"
