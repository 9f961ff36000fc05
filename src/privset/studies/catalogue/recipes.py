"""Rows of the PSG paper again, with networks that are trained in other ways on sets of the same seeds.

What trained the published networks is not certain: the paper's text and its code differ, and those of DP-MERF's rows
are in neither.
"""

from __future__ import annotations

import dataclasses

from privset.studies.catalogue.baselines import BASELINES
from privset.studies.catalogue.paper import DP_MERF, PSG, REAL_DATA
from privset.studies.study import Cell, Study

_AGAIN = (
    (REAL_DATA, ("*mnist-ipc10", "*mnist-ipc20", "*mnist-all")),
    (DP_MERF, ("*-paper", "fashion-mnist-*-standard")),
    (PSG, ("*-eps1-ipc20",)),
    (BASELINES, ("fashion-mnist-eps10-dp-sinkhorn",)),
)
"""Studies, and of each the cells to train on again: with published values, of which some are not met."""


def again(cell: Cell, study: Study) -> Cell:
    """The cell of a study with sets of the same seeds; of full size, by one network each, and of baselines one set."""
    large = cell.per_class in (None, 6000)
    return dataclasses.replace(
        cell,
        name=f"{study.name}-{cell.name}",
        recipes=("stated", "plain"),
        counted="stated",
        networks=1 if large and not cell.is_real else 3,
        sets=1 if study is BASELINES else cell.sets,
    )


RECIPES_AGAIN = Study(
    name="recipes",
    what="rows of the PSG paper again, by networks that are trained as its text says (`stated`: cropping and "
    "re-scaling, no rotation, 300 or 40 epochs), and without augmentation (`plain`)",
    cells=tuple(again(cell, study) for study, names in _AGAIN for cell in study.choose(names)),
)

PRECISION = Study(
    name="precision",
    what="all real records by networks whose maps a graphics card keeps in 16 bits, as it does for every set of full "
    "size (`paper`), and in float32 (`float32`)",
    cells=tuple(
        dataclasses.replace(
            cell,
            name=cell.name if network == "convnet" else f"{cell.name}-{network}",
            classifier=network,
            networks=cell.networks if network == "convnet" else 1,
            recipes=("paper", "float32"),
            published=None,
        )
        for cell in REAL_DATA.choose(("*mnist-all",))
        for network in ("convnet", "alexnet", "vgg11", "resnet18")
    ),
)
