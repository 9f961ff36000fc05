"""Where fewer bits than those of float32 are enough."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def tensor_cores(device: torch.device) -> Iterator[None]:
    """Have a graphics card multiply matrices as it convolves: from float32 rounded to TF32, summed in float32.

    For features, whose random weights mean nothing to the last digit, and for networks that learn; not for a kernel
    that is to be inverted. On a processor nothing changes.
    """
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def half_width(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Have a graphics card convolve in bfloat16, summed in float32: half as much goes to memory.

    For networks that are trained, whose weights stay float32. On a processor nothing changes.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
