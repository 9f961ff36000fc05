"""Releases to export: private, seeded, of floats, in colour with names that no folder can have, with snapshots."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.release.conftest import Workshop

from privset.methods import Psg
from privset.release import SyntheticSet
from privset.release.snapshots import Snapshots

ODD = ("a/b", 'co: "lon"', "# été")


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Kind -> folder; nothing is to be written into them."""
    folder, workshop = tmp_path_factory.mktemp("releases"), Workshop()
    colour = dataclasses.replace(workshop.facts, channels=3, mean=(0.5,) * 3, std=(0.25,) * 3, classes=ODD)
    plan = workshop.plan()
    along = Psg(plan.config).with_snapshots(plan, 2)  # type: ignore[arg-type]
    return {
        "private": workshop.publish(folder / "private", plan),
        "seeded": workshop.publish(folder / "seeded", plan, noise="seeded"),
        "floats": workshop.publish(folder / "floats", plan, workshop.set(keep_floats=True)),
        "colour": workshop.publish(folder / "colour", workshop.plan(facts=colour)),
        "along": workshop.publish(folder / "along", along, _with_snapshots(workshop)),
    }


def _with_snapshots(workshop: Workshop) -> SyntheticSet:
    """Of a run of 30 answers."""
    made = workshop.set()
    return dataclasses.replace(made, snapshots=Snapshots({15: made.images.flip(0), 30: made.images}))


@pytest.fixture(params=["private", "seeded", "floats", "colour"])
def release(request: Any, releases: dict[str, Path]) -> Path:
    return releases[request.param]
