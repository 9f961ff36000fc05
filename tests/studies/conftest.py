"""A study of two cells whose sets cost nothing: the runner is tested, not what it runs."""

import types

import pytest

from privset.studies import Cell, Study, runner


@pytest.fixture
def study() -> Study:
    def cell(name: str, runs: int) -> Cell:
        return Cell(
            name=name,
            method="psg",
            preset="small",
            data="digits",
            epsilon=float("inf"),
            per_class=1,
            settings={"runs": runs},
            sets=3,
            networks=2,
            published=50.0,
        )

    return Study(name="toy", what="a test", cells=(cell("first", 1), cell("second", 2)))


class Work:
    """Stands in for generation and evaluation, and counts what was asked of it."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []
        """(runs, seed) of every set; ``runs`` tells the cells apart."""
        self.errors: dict[tuple[int, int], BaseException] = {}

    def generate(self, _dataset, *, method, noise, out, **_rest):
        made = (method.config.runs, method.config.seed)
        if made in self.errors:
            raise self.errors[made]
        assert noise.kind == "seeded"
        self.made.append(made)
        out.mkdir(parents=True)
        (out / "preview.png").write_bytes(b"png of %d" % method.config.seed)
        return types.SimpleNamespace(path=out)

    def evaluate(self, _release, _dataset, *, recipe, runs, seed, **_rest):
        best = 60.0 if recipe == "paper" else 40.0
        accuracies = tuple(best + 10 * seed + network for network in range(runs))
        return types.SimpleNamespace(accuracies=accuracies, seconds=2.0, seeds=(seed, 99), device="cpu")


@pytest.fixture
def work(monkeypatch) -> Work:
    work = Work()
    monkeypatch.setattr(runner.pipeline, "generate", work.generate)
    monkeypatch.setattr(runner, "evaluate_release", work.evaluate)
    return work
