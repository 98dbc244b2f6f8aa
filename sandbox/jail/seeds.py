"""Fresh random states in each child: a fork copies the zygote's, and all programs would draw the same numbers."""

from __future__ import annotations

import _random
import ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# numpy's Mersenne Twister: 624 words, then the index of the next one; 624 means that all have been used.
_WORDS = 624
_USED_UP = _WORDS.to_bytes(4, sys.byteorder)


class Seeds:
    """The global generators of this process."""

    def __init__(self) -> None:
        random, sympy = sys.modules.get("random"), sys.modules.get("sympy.core.random")
        self._generators: list[Any] = [
            *([random._inst] if random is not None else []),
            *([sympy.rng] if sympy is not None else []),
        ]
        numpy = sys.modules.get("numpy.random")
        # numpy's own seeding writes to 250 pages, its state lies in one or two.
        self._numpy_state = 0
        if numpy is not None:
            numpy.seed(0)  # leaves no half of a pair of normal numbers
            self._numpy_state = int(numpy.mtrand._rand._bit_generator.ctypes.state_address)

    def renew(self) -> None:
        for generator in self._generators:
            _random.Random.seed(generator)
        if self._numpy_state:
            ctypes.memmove(self._numpy_state, os.urandom(4 * _WORDS) + _USED_UP, 4 * _WORDS + 4)
