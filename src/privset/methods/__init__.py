"""Noisy answers to a synthetic set or a classifier: one file a method, each loop reading like its pseudo-code."""

from typing import Any

from privset.errors import ConfigError, did_you_mean
from privset.methods.checkpoint import Checkpoint
from privset.methods.claim import Claim
from privset.methods.datalens import DataLens, DataLensConfig
from privset.methods.dp_cgan import DpCgan, DpCganConfig
from privset.methods.dp_merf import DpMerf, DpMerfConfig
from privset.methods.dp_sgd import DpSgd, DpSgdConfig
from privset.methods.dp_sinkhorn import DpSinkhorn, DpSinkhornConfig
from privset.methods.g_pate import GPate, GPateConfig
from privset.methods.gs_wgan import GsWgan, GsWganConfig
from privset.methods.measuring import Measured, MeasuringMethod, Statistics, require_measuring
from privset.methods.method import Execution, Method, SetMethod, Synthesis
from privset.methods.moments import Moments, MomentsConfig
from privset.methods.plan import Plan
from privset.methods.psg import Psg, PsgConfig
from privset.methods.psg_prior import PsgPrior, PsgPriorConfig
from privset.methods.settings import MethodConfig, SetConfig
from privset.methods.training import Architecture, Trained, TrainingMethod

METHODS: dict[str, type[Method[Any]]] = {
    method.name: method
    for method in (
        Moments,
        Psg,
        PsgPrior,
        DpMerf,
        DpSgd,
        DpCgan,
        GsWgan,
        DpSinkhorn,
        GPate,
        DataLens,
    )
}
"""By the name typed on the command line; the first is the default."""

DEFAULT = next(iter(METHODS))


def get(name: str) -> type[Method[Any]]:
    """The method of that name.

    >>> get("psg").summary[:17]
    'Gradient matching'
    """
    if name not in METHODS:
        raise ConfigError(f"method must be one of {', '.join(METHODS)}, not {name!r}.{did_you_mean(name, METHODS)}")
    return METHODS[name]


def require_snapshots(method: Method[Any]) -> SetMethod[Any]:
    """The method, if it can keep its set as it is along the run; otherwise a `ConfigError` says which can."""
    if not (isinstance(method, SetMethod) and method.keeps_snapshots):
        able = " or ".join(name for name, kind in METHODS.items() if kind.keeps_snapshots)
        raise ConfigError(
            f"{method.name} has no set that could be kept as it is after some of its answers; leave snapshots out, or "
            f"use {able}"
        )
    return method


__all__ = [
    "DEFAULT",
    "METHODS",
    "Architecture",
    "Checkpoint",
    "Claim",
    "DataLens",
    "DataLensConfig",
    "DpCgan",
    "DpCganConfig",
    "DpMerf",
    "DpMerfConfig",
    "DpSgd",
    "DpSgdConfig",
    "DpSinkhorn",
    "DpSinkhornConfig",
    "Execution",
    "GPate",
    "GPateConfig",
    "GsWgan",
    "GsWganConfig",
    "Measured",
    "MeasuringMethod",
    "Method",
    "MethodConfig",
    "Moments",
    "MomentsConfig",
    "Plan",
    "Psg",
    "PsgConfig",
    "PsgPrior",
    "PsgPriorConfig",
    "SetConfig",
    "SetMethod",
    "Statistics",
    "Synthesis",
    "Trained",
    "TrainingMethod",
    "get",
    "require_measuring",
    "require_snapshots",
]
