"""Sets that take longer than one call: stopped inside, taken up by the next, and measured as if nothing had been."""

import dataclasses
import json
import time
from typing import Any

import pytest

from privset.evaluation import AS_TRAINED, RECIPES, Recipe
from privset.methods import Checkpoint
from privset.observer import Observer
from privset.studies import Cell, Results, Study, get, run, runner
from privset.studies.pieces import OutOfTime, Piece

PSG = {"runs": 2, "batches_per_step": 3, "inner_epochs": 1, "width": 4}


def study(method="psg", settings=PSG, **fields):
    makes_sets = {"per_class": 1, "recipes": ("quick",)}
    what: dict[str, Any] = makes_sets if method == "psg" else {"recipes": (AS_TRAINED,)}
    cell = Cell(
        name="long",
        method=method,
        preset="standard" if method == "dp-merf" else "small",
        data="digits",
        epsilon=10.0,
        accountant="best" if method == "dp-merf" else "rdp",
        settings=settings,
        classifier="mlp",
        sets=1,
        networks=1,
        **what | fields,
    )
    return Study(name="toy", what="a test", cells=(cell,))


@pytest.fixture(autouse=True)
def _keep_every_state(monkeypatch):
    def quick(*, channels, images_per_class):
        return Recipe(name="quick", epochs=1, full_rate_epochs=1, augment=False)

    monkeypatch.setitem(RECIPES, "quick", quick)
    monkeypatch.setattr(Checkpoint, "seconds", 0.0)


@pytest.fixture
def stop(monkeypatch):
    """Lets the time be up at the n-th look at the clock."""

    def at(number):
        looks = iter(range(1, number))

        def check(self, ahead=0.0):
            if next(looks, None) is None:
                raise OutOfTime

        monkeypatch.setattr(Piece, "check", check)

    return at


def found(folder):
    return json.loads((folder / "toy" / "long.json").read_text())


@pytest.mark.parametrize(
    "chosen", [study(), study("dp-sgd", {"epochs": 6}), study(stages=2)], ids=["psg", "dp-sgd", "course"]
)
def test_a_set_is_stopped_inside_and_goes_on_in_the_next_call(tmp_path, monkeypatch, stop, chosen):
    monkeypatch.setattr(runner, "commit", lambda: "one")
    run(chosen, results=tmp_path / "whole")
    out = tmp_path / "pieces"
    stop(PSG["batches_per_step"] + 1)  # a point is kept after each step of several questions
    assert run(chosen, results=out).left == ["long.0"]
    assert list((out / "toy" / ".parts").glob("long.0.*/**/standing-*"))
    assert not (out / "toy" / "long.json").exists()
    monkeypatch.setattr(runner, "commit", lambda: "two")
    stop(2)
    assert run(chosen, results=out).left == ["long.0"]
    stop(10**6)
    assert run(chosen, results=out).finished == ["long.0"]
    assert found(out)["accuracy"] == found(tmp_path / "whole")["accuracy"]
    assert (found(tmp_path / "whole")["commit"], found(out)["commit"]) == ("one", "one, two")
    assert list((out / "toy" / ".parts").iterdir()) == []


def test_a_set_that_is_made_and_not_measured_is_not_made_again(tmp_path, monkeypatch, stop):
    stop(PSG["runs"] * PSG["batches_per_step"] + 1)  # the last look is between the two
    assert run(study(), results=tmp_path).left == ["long.0"]
    monkeypatch.setattr(runner.pipeline, "generate", None)
    stop(10**6)
    assert run(study(), results=tmp_path).finished == ["long.0"]


def test_a_call_ends_in_its_time(tmp_path, monkeypatch):
    clock = [0.0]

    class Slow(Observer):
        def step(self, count=1, **values):
            clock[0] += 30.0

    monkeypatch.setattr("privset.studies.pieces.time.monotonic", lambda: clock[0])
    outcome = run(study(), results=tmp_path, budget_minutes=1, observer=Slow())
    assert outcome.left == ["long.0"]
    assert clock[0] == 60.0
    note = next((tmp_path / "toy" / ".parts").glob("long.0.*.pieces.json"))
    assert json.loads(note.read_text())["seconds"] == 60.0


def test_the_seconds_of_all_pieces_add_up_and_a_kill_forgets_few(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with Piece(tmp_path / "pieces.json", Observer(), until=None, commit=None) as first:
        clock[0] += 7.0
        first.step()
        clock[0] += 2.0  # and killed: the note is as the step left it
        note = (tmp_path / "pieces.json").read_bytes()
    (tmp_path / "pieces.json").write_bytes(note)
    with Piece(tmp_path / "pieces.json", Observer(), until=clock[0] + 1.0, commit="a") as second:
        second.step()
        clock[0] += 1.0
        with pytest.raises(OutOfTime):
            second.step()
    assert second.seconds == 8.0
    assert json.loads((tmp_path / "pieces.json").read_text()) == {"seconds": 8.0, "commits": ["a"]}


MERF = {"steps": 40, "waves": 50}


@pytest.mark.parametrize("looks", [1, 30])
def test_a_set_that_is_distilled_goes_on_from_the_same_statistics(tmp_path, monkeypatch, stop, looks):
    chosen = study("dp-merf", MERF, per_class=2, recipes=("quick",))
    run(chosen, results=tmp_path / "whole")
    out = tmp_path / "pieces"
    stop(looks)
    assert run(chosen, results=out).left == ["long.0"]
    left = out / "toy" / ".parts"
    asked = list(left.glob("long.0.*/statistics"))
    assert bool(asked) == (looks > 1)
    if asked:
        monkeypatch.setattr(runner.pipeline, "measure", None)
    stop(10**6)
    assert run(chosen, results=out).finished == ["long.0"]
    assert found(out)["accuracy"] == found(tmp_path / "whole")["accuracy"]
    assert list(left.iterdir()) == []


def test_what_is_measured_once_counts_for_each_set_made_of_it(tmp_path, monkeypatch):
    one = study("dp-merf", MERF, per_class=2, recipes=("quick",)).cells[0]
    several = Study(name="toy", what="a test", cells=(one, dataclasses.replace(one, name="more", per_class=3)))
    measure, seconds = runner.pipeline.measure, []

    def slowly(*args, **how):
        seconds.append(1.0)
        time.sleep(1.0)
        return measure(*args, **how)

    monkeypatch.setattr(runner.pipeline, "measure", slowly)
    assert run(several, results=tmp_path).finished == ["long.0", "more.0"]
    assert seconds == [1.0]
    for name in ("long", "more"):
        assert json.loads((tmp_path / "toy" / f"{name}.json").read_text())["seconds"]["generate"] > 1.0


def test_what_cannot_go_on_begins_anew_and_a_made_set_is_kept(tmp_path, monkeypatch):
    chosen = study("g-pate", {"steps": 2, "teachers": 10}, per_class=1, recipes=("quick",))
    assert not runner.in_pieces(chosen.cells[0])
    generate, evaluate = runner.pipeline.generate, runner.evaluate_release
    monkeypatch.setattr(runner.pipeline, "generate", lambda *args, out, **how: _die(out))
    with pytest.raises(KeyboardInterrupt):
        run(chosen, results=tmp_path)
    monkeypatch.setattr(runner.pipeline, "generate", generate)
    monkeypatch.setattr(runner, "evaluate_release", lambda *args, **how: _die())
    with pytest.raises(KeyboardInterrupt):
        run(chosen, results=tmp_path)
    monkeypatch.setattr(runner.pipeline, "generate", None)
    monkeypatch.setattr(runner, "evaluate_release", evaluate)
    assert run(chosen, results=tmp_path).finished == ["long.0"]
    assert found(tmp_path)["seconds"]["generate"] < 60.0  # not those of the call that was killed


@pytest.mark.parametrize("method", ["psg", "g-pate"])
def test_a_set_is_kept_until_every_cell_that_trains_on_it_is_finished(tmp_path, monkeypatch, method):
    settings = PSG if method == "psg" else {"steps": 2, "teachers": 10}
    one = study(method, settings, per_class=1, recipes=("quick",)).cells[0]
    other = dataclasses.replace(one, name="wide", classifier="lenet")
    several = Study(name="toy", what="a test", cells=(one, other))
    assert run(several, results=tmp_path, cells=["long"]).finished == ["long.0"]
    parts = tmp_path / "toy" / ".parts"
    assert list(parts.glob("long.0.*/release/certificate.json"))
    monkeypatch.setattr(runner.pipeline, "generate", None)
    assert run(several, results=tmp_path).finished == ["wide.0"]
    first, second = (json.loads((tmp_path / "toy" / f"{name}.json").read_text()) for name in ("long", "wide"))
    assert second["seconds"]["generate"] == pytest.approx(first["seconds"]["generate"], abs=1)
    assert list(parts.iterdir()) == []


def test_a_set_is_not_trained_on_if_that_is_known_to_take_too_long(tmp_path, monkeypatch):
    chosen = dataclasses.replace(study().cells[0], sets=2)
    chosen = Study(name="toy", what="a test", cells=(chosen,))
    run(chosen, results=tmp_path, shard=(0, 2))
    path = tmp_path / "toy" / ".parts" / "long.0.json"
    part = json.loads(path.read_text())
    part["recipes"]["quick"]["seconds"] = 700.0
    path.write_text(json.dumps(part))
    monkeypatch.setattr(runner, "evaluate_release", None)
    for _ in range(2):  # made in the first call, and there in the second
        assert run(chosen, results=tmp_path, budget_minutes=10).left == ["long.1"]
        assert list((tmp_path / "toy" / ".parts").glob("long.1.*/release/certificate.json"))


def test_half_a_set_of_one_device_does_not_go_on_on_another(tmp_path):
    cell = study().cells[0]
    folders = [Results(tmp_path, study(), device).work_folder(cell, 0) for device in ("cpu", "cuda", "cuda:1")]
    assert folders[0] != folders[1] == folders[2]


def _die(out=None):
    if out is not None:
        out.parent.mkdir(parents=True)
        out.with_name("release.ledger.jsonl").write_text("what was left by a run that was killed")
        note = next(out.parents[1].glob("long.0.*.pieces.json"))
        note.write_text(json.dumps({"seconds": 1000.0, "commits": ["old"]}))
    raise KeyboardInterrupt


def test_what_is_real_is_not_made_at_all():
    assert runner.in_pieces(study().cells[0])
    assert runner.in_pieces(get("moments").cells[0])
    assert not runner.in_pieces(get("real").cells[0])
