"""Tiers: what each zygote has imported and warmed before it forks. Data only, read by the server and by zygotes.

The warm-up programs do what calls do: a forked page is copied at its first write, and lazy imports, caches and
compiled patterns that a program would make anew in each call are there already when they were made once before.
"""

from __future__ import annotations

BARE = "bare"

COMMON_MODULES = (
    *("abc", "ast", "bisect", "collections", "collections.abc", "contextlib", "copy", "dataclasses", "datetime"),
    *("decimal", "enum", "fractions", "functools", "heapq", "io", "itertools", "json", "linecache", "math", "operator"),
    *(
        "queue",
        "random",
        "re",
        "statistics",
        "string",
        "struct",
        "textwrap",
        "threading",
        "time",
        "traceback",
        "typing",
    ),
)
"""Of the standard library: what short programs import, and what the end of a program needs."""

_COMMON = """
import sys, json, re, collections, itertools, functools, math, random
def main():
    data = " 3 1 2 3 ".split()
    values = list(map(int, data[1:]))
    counts = collections.Counter(values)
    for index, value in enumerate(values):
        counts[value] = counts.get(value, 0) + index
    text = f"{sum(values)} {max(values):>5} {1.5:.2f}"
    return sorted(counts.items(), key=lambda item: -item[1]), text, "%d" % 3, [x * x for x in values if x % 2]
class Point:
    def __init__(self, x): self.x = x
    def __repr__(self): return f"Point({self.x!r})"
try:
    main(); repr(Point(1)); json.loads(json.dumps({"a": [1, 2.5, None]})); 2 ** 200; (1 / 3, 10 ** 30 % 7)
    [1][2]
except (IndexError, ValueError) as error:
    str(error)
"""

_NUMPY = """
import numpy as np
a = np.arange(12.0).reshape(3, 4); b = np.eye(50) + 1.0
np.linalg.inv(b).sum(); np.linalg.solve(b, np.ones(50)); np.linalg.eigvals(b[:4, :4]); np.linalg.det(b); a @ a.T
str(a); repr(a.mean(axis=0)); a[a > 2].std(); np.sort(a.ravel())[::-1]; np.dot(a[0], a[1]); np.cumsum(a)
np.random.seed(1); np.random.rand(3); np.random.default_rng(1).normal(size=3); np.array([1, 2, 3]).tolist()
"""

_SYMPY = """
import sympy as sp
from sympy import symbols, solve, simplify, integrate, diff, sqrt, Rational, expand, factor, pi, sin, cos, exp, limit
x, y = symbols("x y"); n = symbols("n", integer=True, positive=True)
solve(x**2 - 5*x + 6); solve(x**2 + y - 3, y); solve([x + y - 3, x - y - 1], [x, y]); solve(x**3 - 3*x + 2, x)
simplify((x**2 - 1) / (x - 1)); expand((x + 1)**3); factor(x**2 - 1); diff(sin(x) * exp(x), x); sqrt(8) + Rational(1, 3)
integrate(x**2, (x, 0, 1)); integrate(sin(x), x); limit(sin(x) / x, x, 0); sp.nsolve(x**2 - 2, x, 1)
str(solve(x**2 - 2, x)); sp.latex(x**2 / 2); sp.Matrix([[1, 2], [3, 4]]).det(); sp.N(pi, 10); sp.factorint(360)
sp.isprime(97); sp.gcd(12, 18); sp.summation(n, (n, 1, 10)); sp.Eq(x, 1); (x > 1); sp.sympify("x + 1").subs(x, 2)
"""

_PANDAS = """
import pandas as pd, numpy as np
frame = pd.DataFrame({"a": range(10), "b": [float(n) for n in range(10)], "c": list("ababababab")})
frame.a.sum(); frame["b"].mean(); frame.groupby("c")["a"].sum(); frame[frame.a > 3]; str(frame); repr(frame.describe())
frame.sort_values("a").head(2); frame.merge(frame, on="a"); pd.Series([1, 2, None]).fillna(0); frame.to_csv(index=False)
pd.to_datetime(["2024-01-01"]).year; pd.concat([frame, frame]); frame.apply(lambda row: row["a"] * 2, axis=1)
"""

_SCIPY = """
import numpy as np
from scipy import optimize, stats, integrate, linalg
optimize.minimize(lambda v: (v ** 2).sum(), np.ones(2)); stats.norm.cdf(0.5); integrate.quad(lambda v: v * v, 0, 1)
linalg.inv(np.eye(3) + 1.0); optimize.brentq(lambda v: v - 1, 0, 3)
"""

MODULES: dict[str, tuple[str, ...]] = {
    BARE: (),
    "math": ("numpy", "sympy", "mpmath"),
    "data": ("numpy", "pandas", "scipy"),
}
"""Tier -> the packages that choose it. A zygote does without those that are not installed."""

WARM_UP: dict[str, tuple[str, ...]] = {
    BARE: (),
    "math": (_NUMPY, _SYMPY),
    "data": (_NUMPY, _PANDAS, _SCIPY),
}
COMMON_WARM_UP = _COMMON
