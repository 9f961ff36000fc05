"""What is asked of a processor so that it computes as fast as it can: how it multiplies, and what becomes of memory.

And how much memory there is, for whatever would be killed halfway for want of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

KEPT = 2**29
"""Bytes of free memory that a process keeps for itself."""
LARGE = 2**27
"""Bytes from which on a tensor gets memory of its own, which is given back when it is no longer needed."""


@functools.cache
def multiplies_bfloat16() -> bool:
    """Whether matrix products are faster in bfloat16 than in float32: if the processor has instructions for them.

    One that has none takes many times as long. An older torch does not say, which counts as no; so does a limit on what
    its library may use (``ONEDNN_MAX_CPU_ISA``).
    """
    found = capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16")) and "ONEDNN_MAX_CPU_ISA" not in os.environ


def capabilities() -> Mapping[str, object]:
    """What torch knows about this processor; an older one knows nothing."""
    known: Callable[[], Mapping[str, object]] = getattr(torch.cpu, "get_capabilities", dict)
    return known()


def free_memory() -> float:
    """Bytes that this process may still have: of the machine, with what it swaps to, or of its container.

    Where a system does not tell what is free, all that there is; infinite if that is not known either. What is kept of
    files that were read counts as free. Linux gives more than it has and ends who uses it: whoever needs much should
    look here first.
    """
    found = math.inf
    with contextlib.suppress(AttributeError, OSError, ValueError):  # not every system has it
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError, KeyError):
        known = dict(line.split(":") for line in _MACHINE.read_text(encoding="ascii").splitlines())
        found = sum(1024 * int(known[name].split()[0]) for name in ("MemAvailable", "SwapFree"))
    with contextlib.suppress(OSError, ValueError):  # no limit is a word there
        limit = int((_CONTAINER / "memory.max").read_text(encoding="ascii"))
        found = min(found, limit)
        used = int((_CONTAINER / "memory.current").read_text(encoding="ascii"))
        kinds = dict(line.split() for line in (_CONTAINER / "memory.stat").read_text(encoding="ascii").splitlines())
        files = sum(int(kinds.get(kind, 0)) for kind in ("active_file", "inactive_file"))
        found = min(found, max(0, limit - used + files))
    return found


_MACHINE, _CONTAINER = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def keep_memory() -> None:
    """Have this process keep some of the memory that it has no more use for, for what it will need next.

    The C library would give tensors of a few megabytes back at once and ask for them again, and the system clears what
    it gives: that takes longer than to compute them. Linux with glibc only; whoever has set such things by
    variables (``MALLOC_...``, ``GLIBC_TUNABLES``) is left alone.
    """
    chosen = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    if chosen or not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(AttributeError, OSError):  # another C library
        library = ctypes.CDLL(None)
        # Older ones refuse what is above 32 MiB; where neither is taken, the other option would make it worse.
        if any(library.mallopt(_MMAP_THRESHOLD, size) for size in (LARGE, LARGE // 4)):
            library.mallopt(_TRIM_THRESHOLD, KEPT)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""As malloc.h has them."""
