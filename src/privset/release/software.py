"""Which versions of what made a release."""

from __future__ import annotations

import platform
from importlib.metadata import version

from privset.version import __version__

_PACKAGES = ("torch", "numpy", "scipy", "dp-accounting", "randomgen")


def versions() -> dict[str, str]:
    """Of Python, privset, and the libraries that a guarantee or a set depends on.

    >>> sorted(versions())
    ['dp-accounting', 'numpy', 'privset', 'python', 'randomgen', 'scipy', 'torch']
    """
    return {"python": platform.python_version(), "privset": __version__} | {name: version(name) for name in _PACKAGES}


def deciding_versions(*also: str) -> dict[str, str]:
    """Of what a seed's networks depend on: half a run with one of them, and half with another, would not fit.

    Args:
        also: Other packages that this run depends on in the same way.
    """
    return {name: found for name, found in versions().items() if name in ("privset", "torch", *also)}
