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


def half_width(device: torch.device, dtype: torch.dtype = torch.bfloat16) -> contextlib.AbstractContextManager[object]:
    """Have a graphics card convolve in 16 bits, summed in float32: half as much goes to memory.

    For networks that are trained, whose weights stay float32. Slopes in float16 may be too small for it: see
    `magnified`. On a processor nothing changes.
    """
    return torch.autocast(device.type, dtype, enabled=device.type == "cuda")


def magnified(dtype: torch.dtype | None) -> float:
    """What to multiply a loss by so that slopes of it are numbers of this type, and to divide them by afterwards.

    Numbers of float16 lie between 6e-8 and 65,504, and have fewer digits below 6e-5; slopes of a mean over a batch are
    rarely above 1. A power of 2, so that nothing is rounded by it.

    >>> magnified(torch.float16), magnified(torch.bfloat16), magnified(None)
    (1024.0, 1.0, 1.0)
    """
    return 1024.0 if dtype == torch.float16 else 1.0
