"""Which versions of what made a release."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("privset", "torch", "numpy", "dp-accounting", "randomgen")


def versions() -> dict[str, str]:
    """Of Python, privset, and the libraries that a guarantee or a set depends on.

    >>> sorted(versions())
    ['dp-accounting', 'numpy', 'privset', 'python', 'randomgen', 'torch']
    """
    return {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"  # run from a source tree; a release is not refused for it
