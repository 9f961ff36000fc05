"""Parties with disjoint classes that publish one after the other."""

from __future__ import annotations

from typing import Any

from privset.evaluation import AS_TRAINED
from privset.studies.study import Cell, Study

_COURSES: dict[str, dict[str, Any]] = {
    "moments": {"method": "moments", "preset": "standard", "per_class": 10, "recipes": ("paper",)},
    "psg": {
        "method": "psg",
        "preset": "paper",
        "per_class": 10,
        "settings": {"runs": 200},
        "accountant": "rdp",
        "recipes": ("paper",),
    },
    "dp-merf": {
        "method": "dp-merf",
        "preset": "standard",
        "per_class": 6000,
        "settings": {"even": False},
        "recipes": ("paper",),
        "networks": 1,
    },
    "dp-sgd": {"method": "dp-sgd", "preset": "convnet", "recipes": (AS_TRAINED,), "networks": 1},
    "dp-sgd-paper": {"method": "dp-sgd", "preset": "paper", "recipes": (AS_TRAINED,), "networks": 1},
}
"""How each method takes part, as far as that is published; see docs/guide/continual-learning.md. What it makes of all
classes at once, with the same settings, is in the study of the method; of psg at epsilon 1 only."""

CONTINUAL = Study(
    name="continual",
    what="five parties with two classes each publish one after the other",
    cells=tuple(
        Cell(
            name=f"{data}-eps{epsilon}-{name}",
            data=data,
            epsilon=float(epsilon),
            stages=5,
            **how,
        )
        for data in ("mnist", "fashion-mnist")
        for epsilon in ("1", "10")
        for name, how in _COURSES.items()
    ),
)
