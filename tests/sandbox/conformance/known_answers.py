"""Small programs with the output that they must have, over the breadth of what models write."""

from __future__ import annotations

ANSWERS: dict[str, tuple[str, str]] = {
    "arithmetic": (
        "print(7 // 2, -7 // 2, -7 % 3, 2**10, 7 / 2)",
        "3 -4 2 1024 3.5",
    ),
    "big integers": (
        "print(2**200 % 1_000_007, len(str(3**1000)))",
        "446616 478",
    ),
    "float formatting": (
        "print(f'{3.14159:.2f}|{1e6:,.0f}|{0.1 + 0.2}')",
        "3.14|1,000,000|0.30000000000000004",
    ),
    "strings": (
        "s = 'Hello'; print(s[::-1], s.upper(), s.find('l'), s * 2)",
        "olleH HELLO 2 HelloHello",
    ),
    "string split": (
        "print('-'.join('a b  c'.split()))",
        "a-b-c",
    ),
    "unicode": (
        "print('naïve café 😀'.title(), len('😀'))",
        "Naïve Café 😀 1",
    ),
    "bytes": (
        r"""print(bytes(range(65, 70)).decode(), b'\x00\xff'.hex())""",
        "ABCDE 00ff",
    ),
    "list comprehension": (
        "print([x * x for x in range(6) if x % 2])",
        "[1, 9, 25]",
    ),
    "sorting": (
        "print(sorted(['bb', 'a', 'ccc'], key=len, reverse=True))",
        "['ccc', 'bb', 'a']",
    ),
    "dictionaries": (
        "d = {'a': 1}; d |= {'b': 2}; print(d, d.get('c', 0), sum(d.values()))",
        "{'a': 1, 'b': 2} 0 3",
    ),
    "sets": (
        "print(sorted({1, 2, 3} & {2, 3, 4}), {1} <= {1, 2})",
        "[2, 3] True",
    ),
    "tuples": (
        "a, *b, c = 1, 2, 3, 4; print(a, b, c)",
        "1 [2, 3] 4",
    ),
    "closure": (
        """def f(n):
    return lambda x: x + n
print(f(2)(3))""",
        "5",
    ),
    "recursion": (
        """def h(n): return 0 if n == 0 else 2 * h(n - 1) + 1
print(h(20))""",
        "1048575",
    ),
    "memoized recursion": (
        """from functools import cache
@cache
def f(n): return n if n < 2 else f(n - 1) + f(n - 2)
print(f(90))""",
        "2880067194370816120",
    ),
    "generators": (
        """def g():
    x = yield 1
    yield x * 2
i = g(); print(next(i), i.send(21))""",
        "1 42",
    ),
    "class": (
        """class P:
    def __init__(self, x): self.x = x
    def __add__(self, o): return P(self.x + o.x)
    def __repr__(self): return f'P({self.x})'
print(P(1) + P(2))""",
        "P(3)",
    ),
    "inheritance": (
        """class A:
    def f(self): return 'A'
class B(A):
    def f(self): return 'B' + super().f()
print(B().f())""",
        "BA",
    ),
    "dataclass": (
        """from dataclasses import dataclass
@dataclass(order=True)
class P:
    x: int
    y: int = 0
print(P(1), P(1) < P(2))""",
        "P(x=1, y=0) True",
    ),
    "enum": (
        """from enum import Enum
E = Enum('E', 'A B')
print(E.B.value, list(E)[0].name)""",
        "2 A",
    ),
    "match": (
        """match [1, 2, 3]:
    case [a, *rest]:
        print(a, rest)""",
        "1 [2, 3]",
    ),
    "walrus": (
        "print([y for x in range(4) if (y := x * 3) > 3])",
        "[6, 9]",
    ),
    "exceptions": (
        """try:
    int('x')
except ValueError as e:
    print(e)
finally:
    print('end')""",
        """invalid literal for int() with base 10: 'x'
end""",
    ),
    "custom exception": (
        """class E(Exception): pass
try:
    try: 1 / 0
    except ZeroDivisionError as z: raise E('e') from z
except E as e:
    print(repr(e.__cause__))""",
        "ZeroDivisionError('division by zero')",
    ),
    "context manager": (
        """from contextlib import contextmanager
@contextmanager
def c():
    print('in'); yield 1; print('out')
with c() as x: print(x)""",
        """in
1
out""",
    ),
    "decorator": (
        """def twice(f):
    return lambda *a: f(f(*a))
@twice
def g(x): return x * 3
print(g(2))""",
        "18",
    ),
    "itertools": (
        """from itertools import combinations, accumulate
print(len(list(combinations(range(10), 3))), list(accumulate([1, 2, 3])))""",
        "120 [1, 3, 6]",
    ),
    "collections": (
        """from collections import Counter, deque
print(Counter('banana').most_common(1), deque([1, 2, 3], 2))""",
        "[('a', 3)] deque([2, 3], maxlen=2)",
    ),
    "heap": (
        """import heapq
h = [5, 1, 4]; heapq.heapify(h); print(heapq.heappop(h), heapq.nlargest(1, h))""",
        "1 [5]",
    ),
    "bisect": (
        "import bisect; print(bisect.bisect_left([1, 3, 5], 4))",
        "2",
    ),
    "json": (
        "import json; print(json.dumps({'b': [1, None, True], 'a': 'ä'}, sort_keys=True))",
        r"""{"a": "\u00e4", "b": [1, null, true]}""",
    ),
    "regular expressions": (
        r"""import re; print(re.findall(r'(\d+)-(\w)', '12-a 3-b'), re.sub('a+', 'x', 'baac'))""",
        "[('12', 'a'), ('3', 'b')] bxc",
    ),
    "datetime": (
        """from datetime import date, timedelta
print(date(2024, 2, 28) + timedelta(2), date(2000, 1, 1).strftime('%A'))""",
        "2024-03-01 Saturday",
    ),
    "time zone": (
        """from datetime import datetime
from zoneinfo import ZoneInfo
print(datetime(2024, 7, 1, 12, tzinfo=ZoneInfo('UTC')).isoformat())""",
        "2024-07-01T12:00:00+00:00",
    ),
    "decimal": (
        """from decimal import Decimal, getcontext
getcontext().prec = 30
print(Decimal(1) / 7, Decimal('0.1') * 3)""",
        "0.142857142857142857142857142857 0.3",
    ),
    "fractions": (
        "from fractions import Fraction as F; print(F(1, 3) + F(1, 6), F('0.125'))",
        "1/2 1/8",
    ),
    "math": (
        "import math; print(math.comb(52, 5), math.gcd(84, 36), math.isqrt(10**20))",
        "2598960 12 10000000000",
    ),
    "statistics": (
        "import statistics as s; print(s.mean([1, 2, 4, 5]), s.median([3, 1, 2]))",
        "3 2",
    ),
    "seeded random": (
        """import random; random.seed(1); a = random.random()
random.seed(1); print(a == random.random())""",
        "True",
    ),
    "hashing": (
        "import hashlib; print(hashlib.sha256(b'abc').hexdigest()[:16])",
        "ba7816bf8f01cfea",
    ),
    "sieve": (
        """n = 100
s = [True] * n
for i in range(2, 10):
    for j in range(i * i, n, i): s[j] = False
print(sum(s[2:]))""",
        "25",
    ),
    "shortest path": (
        """from collections import deque
g = {1: [2, 3], 2: [4], 3: [4], 4: [5], 5: []}
d = {1: 0}; q = deque([1])
while q:
    u = q.popleft()
    for v in g[u]:
        if v not in d: d[v] = d[u] + 1; q.append(v)
print(d[5])""",
        "3",
    ),
    "knapsack": (
        """w, v, c = [1, 3, 4], [15, 20, 30], 4
b = [0] * (c + 1)
for x, y in zip(w, v):
    for i in range(c, x - 1, -1): b[i] = max(b[i], b[i - x] + y)
print(b[c])""",
        "35",
    ),
    "asyncio": (
        """import asyncio
async def f(x):
    await asyncio.sleep(0)
    return x * 2
async def main(): print(await asyncio.gather(*map(f, range(3))))
asyncio.run(main())""",
        "[0, 2, 4]",
    ),
    "threads": (
        """from concurrent.futures import ThreadPoolExecutor as T
with T(4) as t: print(sum(t.map(lambda x: x * x, range(10))))""",
        "285",
    ),
    "processes": (
        """from multiprocessing import Pool
def f(x): return x + 1
if __name__ == '__main__':
    with Pool(2) as p: print(p.map(f, [1, 2, 3]))""",
        "[2, 3, 4]",
    ),
    "subprocess": (
        "import subprocess; print(subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout.strip())",
        "hi",
    ),
    "files": (
        r"""from pathlib import Path
p = Path('d/x.txt'); p.parent.mkdir(); p.write_text('a\nb')
print(len(p.read_text()), p.exists())""",
        "3 True",
    ),
    "temporary file": (
        """import tempfile
with tempfile.NamedTemporaryFile() as f: print(f.write(b'abc'))""",
        "3",
    ),
    "sqlite": (
        """import sqlite3; c = sqlite3.connect(':memory:'); c.execute('create table t(x)')
c.executemany('insert into t values(?)', [(1,), (2,)]); print(c.execute('select sum(x) from t').fetchone())""",
        "(3,)",
    ),
    "csv": (
        r"""import csv, io; print(list(csv.reader(io.StringIO('a,"b,c"\n1,2'))))""",
        "[['a', 'b,c'], ['1', '2']]",
    ),
    "numpy": (
        "import numpy as np; a = np.arange(6).reshape(2, 3); print(a.sum(axis=0), (a @ a.T).tolist())",
        "[3 5 7] [[5, 14], [14, 50]]",
    ),
    "numpy linear algebra": (
        "import numpy as np; print(round(float(np.linalg.det(np.array([[2.0, 1], [1, 3]]))), 6))",
        "5.0",
    ),
    "sympy": (
        "import sympy as sp; x = sp.symbols('x'); print(sp.solve(x**2 - 2), sp.diff(sp.sin(x) * x))",
        "[-sqrt(2), sqrt(2)] x*cos(x) + sin(x)",
    ),
    "pandas": (
        """import pandas as pd; d = pd.DataFrame({'k': list('aab'), 'v': [1, 2, 3]})
print(d.groupby('k').v.sum().to_dict())""",
        "{'a': 3, 'b': 3}",
    ),
    "scipy": (
        "from scipy.optimize import brentq; print(round(brentq(lambda x: x**3 - 2, 0, 2), 6))",
        "1.259921",
    ),
    "exit in the middle": (
        "import sys; print('a'); sys.exit(0); print('b')",
        "a",
    ),
    "no output": (
        "x = 1",
        "",
    ),
}
