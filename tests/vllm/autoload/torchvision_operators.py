"""Declare torchvision's operators where its own library of them does not load.

PyPI's wheel of torchvision is built for CUDA, so beside a CPU build of torch its library finds no libtorch_cuda.so.
torchvision passes over that, and then fails on import, as it registers shapes for two operators that nothing declared.
What vLLM and transformers use of it for images, resizing and normalizing, is plain torch and needs none of them.

torch calls `declare` at the end of its own import, in every process that has this folder on its PYTHONPATH: it is an
entry point of the group `torch.backends` (https://docs.pytorch.org/docs/stable/accelerator/autoload.html).
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")  # those of torchvision/_meta_registrations.py that it does not ask `_has_ops()` for
_declared: list[torch.library.Library] = []  # a declaration ends with its object


def declare() -> None:
    """For torch alone to call. Does nothing where torchvision is not installed, or its own library loads."""
    found = find_spec("torchvision")
    if found is None or found.origin is None:
        return
    try:
        torch.ops.load_library(Path(found.origin).with_name("_C.so"))
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for name in _OPERATORS:
            library.define(name + _SIGNATURE)
        _declared.append(library)
