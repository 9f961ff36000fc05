"""Parties with disjoint classes that publish one after the other."""

from __future__ import annotations

from typing import Any

from privset.evaluation import AS_TRAINED
from privset.studies.study import Cell, Study

_CONTINUAL: dict[str, dict[str, Any]] = {
    "moments": {"preset": "standard", "per_class": 10, "recipes": ("paper", "long")},
    "psg": {"preset": "paper", "per_class": 10, "settings": {"runs": 200}, "recipes": ("paper", "long")},
    "dp-merf": {"preset": "standard", "per_class": 6000, "recipes": ("paper",)},
    "dp-sgd": {"preset": "paper", "recipes": (AS_TRAINED,), "networks": 1},
}
"""How each method takes part, as far as that is published; see docs/guide/continual-learning.md."""


def _continual(method: str, data: str, epsilon: str, stages: int) -> Cell:
    return Cell(
        name=f"{data}-eps{epsilon}-{method}" + ("" if stages > 1 else "-at-once"),
        method=method,
        data=data,
        epsilon=float(epsilon),
        stages=stages,
        **_CONTINUAL[method],
    )


CONTINUAL = Study(
    name="continual",
    what="five parties with two classes each publish one after the other; moments also with all classes at once",
    cells=tuple(
        _continual(method, data, epsilon, stages)
        for data in ("mnist", "fashion-mnist")
        for epsilon in ("1", "10")
        for method, stages in (*((method, 5) for method in _CONTINUAL), ("moments", 1))
    ),
)
