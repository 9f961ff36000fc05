"""How this process holds on to memory."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGE = 2**31 - 1


def keep_freed_memory() -> None:
    """Let glibc use freed memory again instead of giving it back to the system; elsewhere nothing changes.

    Networks free and take blocks of megabytes all the time. By default each is mapped and zeroed anew, and on a
    processor feature passes spent from a third to nearly all of their time in the kernel for it.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(_TRIM_THRESHOLD, _LARGE)
        library.mallopt(_MMAP_THRESHOLD, 2**30)
