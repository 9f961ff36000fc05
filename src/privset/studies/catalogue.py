"""Every study by name; a new one is added here, as data."""

from __future__ import annotations

from privset.errors import ConfigError
from privset.studies.study import Cell, Study


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

STUDIES: dict[str, Study] = {study.name: study for study in (MOMENTS, SMOKE)}
"""By the name typed on the command line."""


def get(name: str) -> Study:
    """The study of that name.

    >>> len(get("moments").cells)
    17
    """
    if name not in STUDIES:
        raise ConfigError(f"there is no study {name!r}; there are {', '.join(STUDIES)}")
    return STUDIES[name]
