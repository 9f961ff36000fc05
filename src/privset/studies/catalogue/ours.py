"""Our own method, what its settings are chosen by, and two tiny sets that show that the runner works."""

from __future__ import annotations

from collections.abc import Mapping

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

_SETTINGS: dict[str, tuple[float, ...]] = {
    "resolution": (2, 8),
    "warp": (0.0, 2.0),
    "centre_share": (0.05, 0.2),
    "networks": (20, 80),
    "image_rate": (0.02, 0.1),
    "averaging": (0.9, 0.999),
}
"""By name: other values of settings of moments."""


def _settings(changed: Mapping[str, float], data: str = "fashion-mnist", stages: int | None = None) -> Cell:
    words = ([] if data == "fashion-mnist" else [data]) + ([] if stages is None else ["parties"])
    return Cell(
        name="-".join([*words, "standard", *(f"{name}-{value:g}" for name, value in changed.items())]),
        method="moments",
        preset="standard",
        data=data,
        epsilon=1.0,
        per_class=10,
        settings=changed,
        recipes=("paper",),
        sets=2,
        stages=stages,
        held_out=True,
    )


SETTINGS = Study(
    name="settings",
    what="settings of moments, one changed at a time, at epsilon 1 with 10 images a class, on training records that "
    "are held out, most on Fashion-MNIST: never on a test split",
    cells=(
        _settings({}),
        *(_settings({name: value}) for name, values in _SETTINGS.items() for value in values),
        # What was better there, on other data.
        *(_settings(changed, data) for data in ("mnist", "cifar10") for changed in ({}, {"warp": 0.0})),
        # Whether a party of two classes does well to refine its set, which it can for these two alone.
        *(_settings(changed, stages=5) for changed in ({}, {"pool": 0})),
    ),
)

DP_MERF_SETTINGS = Study(
    name="dp-merf-settings",
    what="how dp-merf's generator is trained, changed step by step, at epsilon 10 with 20 images a class, on training "
    "records that are held out: never on a test split",
    cells=tuple(
        Cell(
            name=f"{data}-{name}",
            method="dp-merf",
            preset="standard",
            data=data,
            epsilon=10.0,
            per_class=20,
            settings=settings,
            classifier="mlp",
            recipes=("quick",),
            held_out=True,
        )
        for name, settings in (
            ("drawn", {"even": False}),
            ("even", {}),
            ("even-batch-500", {"batch_size": 500}),
            ("drawn-settled", {"even": False, "settle": True}),
            ("even-settled", {"settle": True}),
        )
        for data in ("mnist", "fashion-mnist")
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
