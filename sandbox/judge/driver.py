"""The driver: the program around a Python program of which one function is called.

It reads function and arguments as JSON from stdin, and writes the value as JSON to what was stdout. What the program
itself prints goes to stderr. It knows nothing of what is expected.
"""

from __future__ import annotations

# "PROGRAM" is replaced by the program's compiled code, and "PRELUDE" by the names that it takes for granted. Frames of
# <string> are left out of tracebacks.
DRIVER = """
def _call():
    import json, os, sys
    from types import ModuleType

    def plain(value):
        if hasattr(value, "tolist"):
            return value.tolist()
        return list(value)

    write, dumps, dup2, open_file = os.write, json.dumps, os.dup2, os.open
    answer = os.dup(1)
    dup2(2, 1)
    with open(0, "rb", closefd=False) as stdin:
        function, arguments, keyword_arguments = json.load(stdin)
    nothing = open_file(os.devnull, os.O_RDONLY)
    dup2(nothing, 0)
    os.close(nothing)
    solution = sys.modules["solution"] = ModuleType("solution")
    names = solution.__dict__
    names["__file__"] = sys.argv[0]
    granted = {}
    for name, module, attribute in "PRELUDE":
        found = __import__(module)
        granted[name] = getattr(found, attribute) if attribute else found
    names.update(granted)
    exec("PROGRAM", names)
    called = names.get(function)
    if called is granted.get(function):  # not the program's own
        called = None
    if called is None and "Solution" in names:
        called = getattr(names["Solution"](), function, None)
    if called is None:
        raise NameError(f"the program has neither a function {function!r} nor a class Solution with such a method")
    value = called(*arguments, **keyword_arguments)
    try:
        text = dumps(value, default=plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{function} returned what JSON cannot hold: {error}") from None
    while text:
        text = text[write(answer, text):]

_call()
"""
