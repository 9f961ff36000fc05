"""Noisy answers to synthetic set: one file a method, each loop reading like its paper's pseudo-code."""

from typing import Any

from privset.errors import ConfigError
from privset.methods.checkpoint import Checkpoint
from privset.methods.dp_merf import DpMerf, DpMerfConfig
from privset.methods.measuring import Measured, MeasuringMethod, Statistics, require_measuring
from privset.methods.method import Execution, Method, MethodConfig, Plan, Synthesis
from privset.methods.moments import Moments, MomentsConfig
from privset.methods.psg import Psg, PsgConfig

METHODS: dict[str, type[Method[Any]]] = {method.name: method for method in (Moments, Psg, DpMerf)}
"""By the name typed on the command line; the first is the default."""

DEFAULT = next(iter(METHODS))


def get(name: str) -> type[Method[Any]]:
    """The method of that name.

    >>> get("psg").summary[:17]
    'Gradient matching'
    """
    if name not in METHODS:
        raise ConfigError(f"method must be one of {', '.join(METHODS)}, not {name!r}")
    return METHODS[name]


__all__ = [
    "DEFAULT",
    "METHODS",
    "Checkpoint",
    "DpMerf",
    "DpMerfConfig",
    "Execution",
    "Measured",
    "MeasuringMethod",
    "Method",
    "MethodConfig",
    "Moments",
    "MomentsConfig",
    "Plan",
    "Psg",
    "PsgConfig",
    "Statistics",
    "Synthesis",
    "get",
    "require_measuring",
]
