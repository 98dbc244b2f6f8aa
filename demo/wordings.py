"""The words of the demo's questions: names, things and sentence templates. Pure data.

Numbers appear in every sentence in the order in which the expression or the program uses them, because a model of one
million parameters copies reliably and reorders badly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Literal

Split = Literal["train", "heldout"]
Operator = Literal["+", "-", "*", "/"]

NAMES: dict[Split, tuple[str, ...]] = {
    "train": (
        *("Alice", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Hugo", "Iris", "Jonas", "Karin", "Leo"),
        *("Maria", "Nils", "Olga", "Peter", "Rosa", "Simon", "Tina", "Victor", "Wanda", "Yusuf", "Adam", "Berta"),
        *("Conrad", "Doris", "Erik", "Frida", "Gustav", "Helen", "Ivan", "Julia", "Kurt", "Laura", "Max", "Nadia"),
        *("Oscar", "Petra", "Robert", "Sara", "Thomas", "Ursula", "Vera", "Walter", "Zora", "Daniel", "Mona", "Paul"),
    ),
    "heldout": ("Anton", "Bella", "Clara", "Dario", "Elena", "Martin", "Nora", "Paula", "Roland", "Sonja"),
}
ITEMS: dict[Split, tuple[str, ...]] = {
    "train": (
        *("apples", "books", "candles", "cards", "cookies", "eggs", "flowers", "letters", "marbles", "pears"),
        *("pencils", "plates", "shells", "stamps", "stones", "tickets", "toys", "bottles", "chairs", "cups"),
        *("forks", "glasses", "hats", "keys", "lamps", "maps", "nails", "onions", "pens", "plums"),
        *("ropes", "seeds", "socks", "spools", "sticks", "tiles", "tools", "towels"),
    ),
    "heldout": ("beads", "buttons", "lemons", "oranges", "photos", "roses", "spoons", "stickers"),
}

PLAIN = (
    "What is {expression}?",
    "Compute {expression}.",
    "Calculate {expression}.",
    "{expression} = ?",
)

ONE_STEP: tuple[tuple[Operator, str], ...] = (
    ("+", "{name} has {a} {items} and buys {b} more. How many {items} does {name} have now?"),
    ("+", "There are {a} {items} in one box and {b} in another. How many {items} are there in all?"),
    ("+", "{name} counted {a} {items} on Monday and {b} on Tuesday. How many is that in total?"),
    ("-", "{name} had {a} {items} and gave away {b}. How many {items} are left?"),
    ("-", "A shop had {a} {items} and sold {b}. How many {items} remain?"),
    ("-", "How many more {items} does {name} have with {a} than {other} with {b}?"),
    ("*", "{name} packs {a} boxes with {b} {items} each. How many {items} is that?"),
    ("*", "Each of {a} children brings {b} {items}. How many {items} do they bring?"),
    ("*", "{name} collects {a} {items} a day. How many {items} is that in {b} days?"),
    ("/", "{name} shares {a} {items} equally among {b} friends. How many does each friend get?"),
    ("/", "A farmer puts {a} {items} into bags of {b}. How many bags are there?"),
)

TWO_STEP: tuple[tuple[Operator, Operator, str], ...] = (
    ("*", "-", "First {name} buys {a} boxes of {b} {items}, then loses {c}. How many {items} are left?"),
    ("*", "+", "First {name} fills {a} shelves with {b} {items} each, then adds {c}. How many {items} are there?"),
    ("+", "*", "First {name} finds {a} {items}, then {b} more, every day. How many are found in {c} days?"),
    (
        "-",
        "*",
        "First {name} sells a box for {a} coins that cost {b}, then {c} in all. How many coins are earned?",
    ),
    ("+", "-", "First {name} gets {a} {items} and {b} more, then sells {c}. How many {items} are left?"),
    ("-", "+", "First {name} had {a} {items} and used {b}, then found {c}. How many {items} are there now?"),
    ("*", "/", "First {name} opens {a} bags of {b} {items}, then {c} friends share them. How many does each get?"),
    ("/", "-", "First {a} {items} are shared by {b} teams, then each loses {c}. How many does each team keep?"),
)

OPERATOR_VERBS: dict[Operator, str] = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}


@dataclass(frozen=True)
class CodeWording:
    """A question that is answered by running a short program.

    Attributes:
        bounds: for each operand the least and the greatest value; operands named "a" and "b" rise.
        answer: what the program prints, as an integer.
    """

    text: str
    code: str
    bounds: tuple[tuple[int, int], ...]
    answer: Callable[..., int]


def _fibonacci_above(a: int) -> int:
    low, high = 0, 1
    while low <= a:
        low, high = high, low + high
    return low


CODE: tuple[CodeWording, ...] = (
    CodeWording(
        "What is the sum of the squares of the integers from {a} to {b}?",
        "print(sum(i * i for i in range({a}, {b} + 1)))",
        ((1, 40), (41, 120)),
        lambda a, b: sum(i * i for i in range(a, b + 1)),
    ),
    CodeWording(
        "What is the sum of the integers from {a} to {b}?",
        "print(sum(range({a}, {b} + 1)))",
        ((1, 99), (100, 999)),
        lambda a, b: sum(range(a, b + 1)),
    ),
    CodeWording(
        "How many multiples of {a} are there from {b} to {c}?",
        "print(sum(i % {a} == 0 for i in range({b}, {c} + 1)))",
        ((2, 19), (20, 99), (100, 999)),
        lambda a, b, c: sum(i % a == 0 for i in range(b, c + 1)),
    ),
    CodeWording(
        "What is the largest digit of {a}?",
        "print(max(str({a})))",
        ((100, 9999),),
        lambda a: max(int(digit) for digit in str(a)),
    ),
    CodeWording(
        "What is the sum of the digits of {a}?",
        "print(sum(map(int, str({a}))))",
        ((100, 9999),),
        lambda a: sum(int(digit) for digit in str(a)),
    ),
    CodeWording(
        "What is the first Fibonacci number above {a}?",
        "a, b = 0, 1\nwhile a <= {a}:\n    a, b = b, a + b\nprint(a)",
        ((10, 9999),),
        _fibonacci_above,
    ),
    CodeWording(
        "What is the greatest common divisor of {a} and {b}?",
        "import math\nprint(math.gcd({a}, {b}))",
        ((10, 999), (10, 999)),
        gcd,
    ),
)
