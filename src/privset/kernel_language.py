"""Triton, which kernels for graphics cards are written in, where it is installed; elsewhere nothing asks for them."""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:  # it comes with the builds of torch for graphics cards
    triton: Any = None
    tl: Any = None

AVAILABLE = triton is not None


def jit(function: Any) -> Any:
    """A kernel, to be compiled when it is first started."""
    return triton.jit(function) if AVAILABLE else function
