"""The PSG paper's own rows: its two methods, and those that have no generative rival."""

from __future__ import annotations

import math

from privset.evaluation import AS_TRAINED
from privset.studies.study import ARCHITECTURES, REAL, Cell, Study

_PUBLISHED_PSG: dict[tuple[str, str, int], float] = {
    ("mnist", "1", 20): 80.9,
    ("mnist", "10", 1): 81.4,
    ("mnist", "10", 10): 94.9,
    ("mnist", "10", 20): 95.6,
    ("mnist", "10", 50): 94.0,
    ("fashion-mnist", "1", 20): 70.2,
    ("fashion-mnist", "10", 1): 66.7,
    ("fashion-mnist", "10", 10): 75.6,
    ("fashion-mnist", "10", 20): 77.7,
    ("fashion-mnist", "10", 50): 71.3,
    ("cifar10", "10", 1): 28.9,
    ("cifar10", "10", 10): 40.3,
    ("cifar10", "10", 20): 42.6,
    ("cifar10", "inf", 1): 30.0,
    ("cifar10", "inf", 10): 48.6,
    ("cifar10", "inf", 20): 52.6,
}
"""By data, epsilon and images a class, in the PSG paper."""


def _psg(data: str, epsilon: str, per_class: int) -> Cell:
    curve = data != "cifar10" and epsilon == "10" and per_class in (10, 20)  # the paper's Figure 2
    return Cell(
        name=f"{data}-eps{epsilon}-ipc{per_class}",
        method="psg",
        preset="paper",
        data=data,
        epsilon=float(epsilon),
        accountant="rdp",  # the published noise
        per_class=per_class,
        recipes=("paper", "long"),
        counted="paper",
        snapshots=10 if curve else 0,
        published=_PUBLISHED_PSG.get((data, epsilon, per_class)),
    )


PSG = Study(
    name="psg",
    what="the PSG paper's sets, with its noise; at epsilon 10, with 10 and 20 images a class, also along the run",
    cells=(
        *(
            _psg(data, epsilon, per_class)
            for data in ("mnist", "fashion-mnist")
            for epsilon, sizes in (("1", (10, 20)), ("10", (1, 10, 20, 50)))
            for per_class in sizes
        ),
        *(_psg("cifar10", epsilon, per_class) for epsilon in ("10", "inf") for per_class in (1, 10, 20)),
    ),
)

_PUBLISHED_PSG_PRIOR = {
    ("mnist", 1): 88.2,
    ("mnist", 10): 92.2,
    ("mnist", 20): 90.6,
    ("fashion-mnist", 1): 63.0,
    ("fashion-mnist", 10): 70.2,
    ("fashion-mnist", 20): 70.7,
}
"""By data and images a class at epsilon 10, in the PSG paper."""


def _psg_prior(data: str, per_class: int, preset: str) -> Cell:
    return Cell(
        name=f"{data}-eps10-ipc{per_class}" + ("" if preset == "paper" else f"-{preset}"),
        method="psg-prior",
        preset=preset,
        data=data,
        epsilon=10.0,
        accountant="rdp",  # the published noise
        per_class=per_class,
        recipes=("paper", "long"),
        counted="paper",
        published=_PUBLISHED_PSG_PRIOR[data, per_class],
    )


PSG_PRIOR = Study(
    name="psg-prior",
    what="PSG with a generator at epsilon 10, with the loops of the paper and with those of its code",
    cells=tuple(
        _psg_prior(data, per_class, preset)
        for data in ("mnist", "fashion-mnist")
        for preset in ("paper", "code")
        for per_class in (1, 10, 20)
    ),
)

_PUBLISHED_DP_MERF: dict[tuple[str, str, int], float] = {
    ("mnist", "1", 6000): 72.7,
    ("mnist", "10", 10): 80.2,
    ("mnist", "10", 20): 83.2,
    ("mnist", "10", 6000): 85.7,
    ("fashion-mnist", "1", 6000): 61.2,
    ("fashion-mnist", "10", 10): 66.6,
    ("fashion-mnist", "10", 20): 67.9,
    ("fashion-mnist", "10", 6000): 72.4,
}
"""By data, epsilon and images a class, in the PSG paper; with the noise of the preset `paper`."""


_OTHER_NETWORKS_DP_MERF = {
    "mnist": {"mlp": 85.0, "lenet": 87.2, "alexnet": 84.4, "vgg11": 81.7, "resnet18": 81.3},
    "fashion-mnist": {"mlp": 73.1, "lenet": 67.9, "alexnet": 64.9, "vgg11": 70.1, "resnet18": 66.7},
}
"""By data and network at epsilon 10, full size, in the PSG paper."""


def _dp_merf(data: str, epsilon: str, per_class: int, kind: str, network: str = "convnet") -> Cell:
    """Of a preset; or ``drawn``, that is ``standard`` with classes drawn for each step, as published."""
    usual = network == "convnet"
    return Cell(
        name=f"{data}-eps{epsilon}-ipc{per_class}-{kind}" + ("" if usual else f"-{network}"),
        method="dp-merf",
        preset="standard" if kind == "drawn" else kind,
        settings={"even": False} if kind == "drawn" else {},
        data=data,
        epsilon=float(epsilon),
        per_class=per_class,
        classifier=network,
        networks=3 if usual else 1,
        recipes=("paper",) if per_class == 6000 else ("paper", "long"),
        counted="paper",
        published=_PUBLISHED_DP_MERF[data, epsilon, per_class] if usual else _OTHER_NETWORKS_DP_MERF[data][network],
    )


DP_MERF = Study(
    name="dp-merf",
    what="dp-merf with the published noise and with calibrated noise, 6,000 images a class and few; at epsilon 10 "
    "tested with six networks",
    cells=(
        *(
            _dp_merf(data, epsilon, per_class, preset)
            for data in ("mnist", "fashion-mnist")
            for preset in ("paper", "wide", "standard")
            for epsilon, per_class in (("1", 6000), ("10", 6000), ("10", 10), ("10", 20))
        ),
        *(_dp_merf(data, "10", per_class, "drawn") for data in ("mnist", "fashion-mnist") for per_class in (10, 20)),
        *(
            _dp_merf(data, "10", 6000, "standard", network)
            for data in ("mnist", "fashion-mnist")
            for network in ARCHITECTURES
        ),
    ),
)

_PUBLISHED_REAL: dict[tuple[str, int | None], float] = {
    ("mnist", 10): 93.6,
    ("mnist", 20): 95.9,
    ("mnist", None): 99.6,
    ("fashion-mnist", 10): 74.4,
    ("fashion-mnist", 20): 77.4,
    ("fashion-mnist", None): 93.5,
}
"""By data and images a class, in the PSG paper."""


def _real(data: str, per_class: int | None) -> Cell:
    return Cell(
        name=f"{data}-all" if per_class is None else f"{data}-ipc{per_class}",
        method=REAL,
        data=data,
        epsilon=math.inf,
        per_class=per_class,
        recipes=("paper",) if per_class is None else ("paper", "long"),
        counted="paper",
        sets=1 if per_class is None else 3,  # there is only one choice of all
        published=_PUBLISHED_REAL.get((data, per_class)),
    )


REAL_DATA = Study(
    name="real",
    what="the same evaluation on real records: all of them, and 10, 20 and 50 random ones a class",
    cells=tuple(
        _real(data, per_class) for data in ("mnist", "fashion-mnist", "cifar10") for per_class in (10, 20, 50, None)
    ),
)

_PUBLISHED_DP_SGD = {("mnist", "10"): 96.5, ("fashion-mnist", "10"): 82.9}
"""By data and epsilon, in the PSG paper."""


def _dp_sgd(data: str, epsilon: str, preset: str) -> Cell:
    return Cell(
        name=f"{data}-eps{epsilon}-{preset}",
        method="dp-sgd",
        preset=preset,
        data=data,
        epsilon=float(epsilon),
        recipes=(AS_TRAINED,),
        networks=1,
        published=_PUBLISHED_DP_SGD.get((data, epsilon)),
    )


DP_SGD = Study(
    name="dp-sgd",
    what="classifiers trained privately on the records themselves: the limit that sets are compared with",
    cells=tuple(
        _dp_sgd(data, epsilon, preset)
        for data in ("mnist", "fashion-mnist", "cifar10")
        for epsilon in ("1", "10")
        for preset in ("strong", "convnet", "paper")
    ),
)
