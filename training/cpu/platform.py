"""The CPU as one of verl's platforms."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase

NAME = "cpu"


class CpuPlatform(PlatformBase):
    """Everything lies in memory, so that what concerns devices does nothing.

    Ray is told of a GPU that does not exist (`ray_kwargs.ray_init.num_gpus`): verl places its workers by that resource.
    """

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        return _DEVICE_MODULE

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False  # never found by probing: only VERL_PLATFORM=cpu chooses it

    def current_device(self) -> Any:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None


def _device_module() -> ModuleType:
    """`torch.cpu` with what verl expects of `torch.cuda` beside it."""
    module = ModuleType("rollbox.training.cpu.device_module")
    module.__dict__.update({name: value for name, value in vars(torch.cpu).items() if not name.startswith("__")})
    for name in ("empty_cache", "ipc_collect", "set_device", "synchronize", "reset_peak_memory_stats"):
        setattr(module, name, lambda *_, **__: None)
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(module, name, lambda *_, **__: 0)
    settings: dict[str, Any] = {
        "is_available": lambda: False,  # "no accelerator": verl's helpers for its memory then do nothing
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "get_rng_state": torch.get_rng_state,
        "set_rng_state": torch.set_rng_state,
        "get_device_name": lambda *_: "CPU",
        "mem_get_info": lambda *_: (psutil.virtual_memory().available, psutil.virtual_memory().total),
    }
    module.__dict__.update(settings)
    return module


_DEVICE_MODULE = _device_module()


def is_chosen() -> bool:
    """Whether `VERL_PLATFORM` names this platform."""
    return os.environ.get("VERL_PLATFORM", "").strip().lower() == NAME


def prepare_process() -> None:
    """What verl needs in each process of a run on this platform; before verl's workers are imported."""
    # verl knows the FSDP engine under the names of accelerators only.
    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")
    _name_the_backend_once()


def _name_the_backend_once() -> None:
    """verl asks torch for `cpu:gloo` and `{device}:{backend}`; with the CPU as the device torch refuses the pair.

    The callers import the function by name, so it is replaced before they do.
    """
    from verl.utils import distributed

    original = distributed.initialize_global_process_group_ray
    if getattr(original, "_rollbox", False):
        return

    def initialize_global_process_group_ray(timeout_second: int | None = None, backend: str | None = None) -> None:
        original(timeout_second=timeout_second, backend=backend or "cpu:gloo")

    initialize_global_process_group_ray._rollbox = True  # type: ignore[attr-defined]
    distributed.initialize_global_process_group_ray = initialize_global_process_group_ray
