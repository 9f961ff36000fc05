"""Every study by name; a new one is added here, as data."""

from __future__ import annotations

import math
from typing import Any

from privset.errors import ConfigError
from privset.evaluation import AS_TRAINED
from privset.studies.study import REAL, Cell, Study


def _moments(data: str, epsilon: str, per_class: int) -> Cell:
    return Cell(
        name=f"{data}-eps{epsilon}-ipc{per_class}",
        method="moments",
        preset="standard",
        data=data,
        epsilon=float(epsilon),
        per_class=per_class,
        recipes=("paper", "long"),
    )


MOMENTS = Study(
    name="moments",
    what="moments at epsilon 1 and 10 with 10 and 50 images a class; on Fashion-MNIST, trends with epsilon and size",
    cells=(
        *(
            _moments(data, epsilon, per_class)
            for data in ("mnist", "fashion-mnist", "cifar10")
            for epsilon in ("1", "10")
            for per_class in (10, 50)
        ),
        *(_moments("fashion-mnist", "0.1", per_class) for per_class in (10, 50)),
        *(_moments("fashion-mnist", "1", per_class) for per_class in (1, 100, 500)),
    ),
)

_SETTINGS: dict[str, tuple[float, ...]] = {
    "resolution": (2, 8),
    "warp": (0.0, 2.0),
    "centre_share": (0.05, 0.2),
    "networks": (20, 80),
    "image_rate": (0.02, 0.1),
    "averaging": (0.9, 0.999),
}
"""By name: other values of settings of moments."""


def _settings(changed: dict[str, float]) -> Cell:
    return Cell(
        name="-".join(["standard", *(f"{name}-{value:g}" for name, value in changed.items())]),
        method="moments",
        preset="standard",
        data="fashion-mnist",
        epsilon=1.0,
        per_class=10,
        settings=changed,
        recipes=("paper",),
        sets=2,
        held_out=True,
    )


SETTINGS = Study(
    name="settings",
    what="settings of moments, one changed at a time, at epsilon 1 with 10 images a class, on training records of "
    "Fashion-MNIST that are held out: never on its test split",
    cells=tuple(
        _settings(changed)
        for changed in ({}, *({name: value} for name, values in _SETTINGS.items() for value in values))
    ),
)

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


def _dp_merf(data: str, epsilon: str, per_class: int, preset: str) -> Cell:
    return Cell(
        name=f"{data}-eps{epsilon}-ipc{per_class}-{preset}",
        method="dp-merf",
        preset=preset,
        data=data,
        epsilon=float(epsilon),
        per_class=per_class,
        recipes=("paper",) if per_class == 6000 else ("paper", "long"),
        published=_PUBLISHED_DP_MERF[data, epsilon, per_class],
    )


DP_MERF = Study(
    name="dp-merf",
    what="dp-merf with the published noise and with calibrated noise, 6,000 images a class and few",
    cells=tuple(
        _dp_merf(data, epsilon, per_class, preset)
        for data in ("mnist", "fashion-mnist")
        for preset in ("paper", "standard")
        for epsilon, per_class in (("1", 6000), ("10", 6000), ("10", 10), ("10", 20))
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

_TABLE_1: dict[str, dict[str, dict[str, float]]] = {
    "dp-cgan": {"mnist": {"10": 52.5}, "fashion-mnist": {"10": 50.2}},
    "dp-merf": {"mnist": {"1": 72.7, "10": 85.7}, "fashion-mnist": {"1": 61.2, "10": 72.4}},
    "gs-wgan": {"mnist": {"10": 84.9}, "fashion-mnist": {"10": 63.1}},
    "dp-sinkhorn": {"mnist": {"10": 83.2}, "fashion-mnist": {"10": 71.1}},
    "g-pate": {"mnist": {"1": 58.8, "10": 80.9}, "fashion-mnist": {"1": 58.1, "10": 69.3}},
    "datalens": {"mnist": {"1": 71.2, "10": 80.7}, "fashion-mnist": {"1": 64.8, "10": 70.6}},
}
"""By method, data and the epsilon that was claimed: accuracy of sets of 6,000 images a class, in the PSG paper."""

_PUBLISHED_NOISE = {
    "dp-cgan": {"10": 10.0},
    "dp-merf": {"1": 1.0, "10": 10.0},
    "gs-wgan": {"10": 386.0},
    "dp-sinkhorn": {"10": 10.0},
    "g-pate": {"1": 1.0, "10": 10.0},  # with fewer steps than published, which looked at the records
    "datalens": {"1": 1.0, "10": 10.0},
}
"""By method and claimed epsilon: a budget that covers what the published noise is proven to cost."""

_PUBLISHED_SETTINGS: dict[tuple[str, str, str], dict[str, Any]] = {
    ("dp-sinkhorn", "fashion-mnist", "10"): {"noise_multiplier": 0.9, "steps": 1_812_000},
    ("datalens", "fashion-mnist", "10"): {"top": 350, "sigma": 1000.0, "threshold": 0.27, "steps": 146, "code": 64},
}
"""By method, data and claimed epsilon: what was published that is not the preset's, which is for MNIST."""

_ARCHITECTURES = ("mlp", "lenet", "alexnet", "vgg11", "resnet18")
"""What sets are also tested with, beside the ConvNet; each on the very sets that it is trained on."""


def _baseline(method: str, data: str, named: str, **more: Any) -> Cell:
    """A set of full size, of the epsilon that it is named after: proven, or, of preset ``paper``, claimed."""
    fields = {"preset": "standard", "epsilon": float(named), "published": _TABLE_1[method][data].get(named)} | more
    kind = "published" if fields["preset"] == "paper" else "eps"
    network = "" if "classifier" not in more else f"-{more['classifier']}"
    return Cell(
        name=f"{data}-{kind}{named}-{method}{network}",
        method=method,
        data=data,
        per_class=6000,
        recipes=("paper",),
        **fields,
    )


def _as_published(method: str, data: str, named: str, cost: float) -> Cell:
    settings = _PUBLISHED_SETTINGS.get((method, data, named), {})
    return _baseline(method, data, named, preset="paper", epsilon=cost, settings=settings)


def _baselines(method: str) -> list[Cell]:
    images, noise = ("mnist", "fashion-mnist"), _PUBLISHED_NOISE[method].items()
    return [
        *(_baseline(method, data, named) for data in images for named in ("1", "10")),
        *(_as_published(method, data, named, cost) for data in images for named, cost in noise),
        *(
            _baseline(method, data, "10", classifier=network, networks=1, published=None)
            for data in images
            for network in _ARCHITECTURES
        ),
    ]


BASELINES = Study(
    name="baselines",
    what="sets of 6,000 images a class by other methods, with noise for a proven epsilon (`eps`) and with the noise "
    "that was published (`published`, by the epsilon that was claimed for it); at epsilon 10 tested with six networks",
    cells=(
        *(cell for method in _TABLE_1 for cell in _baselines(method)),
        Cell(
            name="digits-eps10-dp-cgan-small",
            method="dp-cgan",
            preset="small",
            data="digits",
            epsilon=10.0,
            per_class=50,
            classifier="mlp",
            recipes=("quick",),
        ),
    ),
)

SMOKE = Study(
    name="smoke",
    what="two tiny sets in seconds, to see that the runner works; their accuracy means nothing",
    cells=(
        Cell(
            name="digits-eps10-ipc1",
            method="psg",
            preset="small",
            data="digits",
            epsilon=10.0,
            accountant="rdp",
            per_class=1,
            settings={"runs": 2, "inner_epochs": 2, "width": 8},
            classifier="mlp",
            recipes=("quick",),
            sets=2,
            networks=1,
        ),
    ),
)

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (MOMENTS, SETTINGS, PSG, PSG_PRIOR, DP_MERF, REAL_DATA, DP_SGD, CONTINUAL, BASELINES, SMOKE)
}
"""By the name typed on the command line."""


def get(name: str) -> Study:
    """The study of that name.

    >>> len(get("moments").cells)
    17
    """
    if name not in STUDIES:
        raise ConfigError(f"there is no study {name!r}; there are {', '.join(STUDIES)}")
    return STUDIES[name]
