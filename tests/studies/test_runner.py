import dataclasses
import json
import os
import statistics
import types

import pytest
import torch

from privset import data, pipeline
from privset.errors import BudgetError, ConfigError
from privset.evaluation import evaluate_release
from privset.methods import METHODS
from privset.observer import Observer
from privset.privacy import seeded_noise
from privset.release.software import versions
from privset.studies import Cell, Outcome, Results, Study, get, run, runner
from privset.studies.pieces import Piece

ALL = [f"{cell}.{number}" for cell in ("first", "second") for number in range(3)]


def read(folder, cell):
    return json.loads((folder / "toy" / f"{cell}.json").read_text())


def test_the_smoke_study_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "commit", lambda: "a commit")
    outcome = run(get("smoke"), results=tmp_path, command="privset study run smoke")
    assert outcome == Outcome(finished=["digits-eps10-ipc1.0", "digits-eps10-ipc1.1"])
    found = json.loads((tmp_path / "smoke" / "digits-eps10-ipc1.json").read_text())
    expected = {
        "study": "smoke",
        "cell": "digits-eps10-ipc1",
        "method": "psg",
        "data": "digits",
        "epsilon": 10.0,
        "delta": 1e-5,
        "accountant": "rdp",
        "per_class": 1,
        "classifier": "mlp",
        "recipe": "quick",
        "published": None,
        "device": "cpu",
        "command": "privset study run smoke",
        "commit": "a commit",
        "versions": versions(),
        "noise": "seeded",
    }
    assert {name: found[name] for name in expected} == expected
    assert found["settings"]["runs"] == 2
    assert found["seeds"]["sets"] == [0, 1]
    assert "not private" in found["note"]
    accuracy = found["accuracy"]
    assert accuracy == found["recipes"]["quick"]["accuracy"]
    assert len(set(accuracy["runs"])) == 2  # two sets, which differ
    assert accuracy["mean"] == pytest.approx(statistics.fmean(accuracy["runs"]))
    assert accuracy["std"] == pytest.approx(statistics.stdev(accuracy["runs"]))
    assert found["seconds"]["generate"] > 0
    assert found["seconds"]["evaluate"] == pytest.approx(found["recipes"]["quick"]["seconds"])
    assert (tmp_path / "smoke" / "digits-eps10-ipc1.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "smoke" / ".parts").iterdir()) == []


def test_all_runs_count_and_the_better_recipe_is_the_cells(tmp_path, study, work):
    run(study, results=tmp_path)
    found = read(tmp_path, "first")
    assert found["epsilon"] == "inf"
    assert found["recipe"] == "paper"
    assert found["accuracy"]["runs"] == [60, 61, 70, 71, 80, 81]  # set by set
    assert found["recipes"]["quick"]["accuracy"]["mean"] == 50.5
    assert found["seconds"]["evaluate"] == 4
    assert found["published"] == 50
    assert (tmp_path / "toy" / "first.png").read_bytes() == b"png of 0"


def test_a_recipe_that_is_to_count_does_so_even_if_another_is_better(tmp_path, study, work):
    cells = [dataclasses.replace(cell, counted="quick") for cell in study.cells]
    run(dataclasses.replace(study, cells=tuple(cells)), results=tmp_path)
    found = read(tmp_path, "first")
    assert found["recipe"] == "quick"
    assert found["accuracy"] == found["recipes"]["quick"]["accuracy"]
    assert found["accuracy"]["mean"] < found["recipes"]["paper"]["accuracy"]["mean"]
    counting = dataclasses.replace(cells[0], counted="paper")
    shelf = Results(tmp_path, study)
    assert not shelf.is_outdated(counting)
    assert shelf.cell(counting) == found | {"recipe": "paper", "accuracy": found["recipes"]["paper"]["accuracy"]}
    with pytest.raises(ConfigError, match="the recipe long counts, so it must be measured"):
        dataclasses.replace(cells[0], counted="long")


def test_sets_of_the_same_seed_are_distilled_from_one_measurement(tmp_path, monkeypatch):
    settings = {"networks": 2, "width": 8, "waves": 16, "steps": 3, "pool": 0}
    cells = [
        Cell(
            name=f"{epsilon}-{size}",
            method="moments",
            preset="light",
            data="digits",
            epsilon=epsilon,
            per_class=size,
            settings=settings,
            classifier="mlp",
            recipes=("quick",),
            sets=2,
            networks=1,
        )
        for epsilon in (1.0, 10.0)
        for size in (1, 2)
    ]
    asked, sets = [], {}

    def measure(*arguments, **options):
        asked.append((options["budget"].epsilon, options["noise"].seed))
        return pipeline.measure(*arguments, **options)

    def evaluate(release, dataset, **options):
        sets[len(sets)] = release.set.images.clone()
        return evaluate_release(release, dataset, **options)

    monkeypatch.setattr(runner, "pipeline", types.SimpleNamespace(measure=measure))
    monkeypatch.setattr(runner, "evaluate_release", evaluate)
    outcome = run(Study(name="toy", what="a test", cells=tuple(cells)), results=tmp_path)
    assert len(outcome.finished) == 8
    assert asked == [(1.0, 0), (1.0, 1), (10.0, 0), (10.0, 1)]
    # The same set as `generate` makes, which asks and distils in one.
    last = pipeline.generate(
        "digits", method=cells[3].make_method(1), budget=cells[3].budget, out=tmp_path / "set", noise=seeded_noise(1)
    )
    assert torch.equal(sets[7], last.set.images)
    assert not torch.equal(sets[7], sets[3])
    assert not torch.equal(sets[7], sets[6])


def test_networks_that_are_trained_on_the_same_set_do_not_have_it_made_again(tmp_path, study, work):
    networks = ("convnet", "mlp", "lenet")
    cells = [
        dataclasses.replace(cell, name=f"{cell.name}-{network}", classifier=network, networks=1 + (network == "mlp"))
        for network in networks
        for cell in study.cells
    ]
    outcome = run(dataclasses.replace(study, cells=tuple(cells)), results=tmp_path)
    assert len(outcome.finished) == 18
    assert outcome.finished[:4] == ["first-convnet.0", "first-mlp.0", "first-lenet.0", "first-convnet.1"]
    assert sorted(work.made) == [(runs, seed) for runs in (1, 2) for seed in range(3)]
    for network in networks:
        found = read(tmp_path, f"first-{network}")
        assert found["classifier"] == network
        assert found["seeds"]["sets"] == [0, 1, 2]
    assert {path.stem for path in (tmp_path / "toy").glob("*.png")} == {"first-convnet", "second-convnet"}
    run(dataclasses.replace(study, cells=tuple(cells)), cells=["first-lenet"], results=tmp_path / "later")
    (picture,) = (tmp_path / "later" / "toy").glob("*.png")
    assert picture.stem == "first-convnet"  # of the set, whoever asks
    (tmp_path / "toy" / "first-lenet.json").unlink()
    (tmp_path / "toy" / "first-convnet.png").write_bytes(b"that of the set which is on file")
    run(dataclasses.replace(study, cells=tuple(cells)), cells=["first-lenet"], results=tmp_path)
    assert (tmp_path / "toy" / "first-convnet.png").read_bytes() == b"that of the set which is on file"


@pytest.mark.parametrize("count", [1, 2, 5])
def test_shards_share_out_sets_and_leave_none(study, count):
    cells = [
        dataclasses.replace(cell, name=f"{cell.name}-{network}", classifier=network)
        for network in ("mlp", "lenet")
        for cell in study.cells
    ]
    shards = [runner.jobs(cells, (index, count)) for index in range(count)]
    names = [{(cell.name, number) for cell, number in shard} for shard in shards]
    assert sum(map(len, names)) == len(set().union(*names)) == 12
    keys = [{cell.set_key(number) for cell, number in shard} for shard in shards]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 6  # no set is made in two of them


def test_a_set_is_known_by_all_that_it_was_made_with(study):
    first = study.cells[0]
    for change in ({"settings": {"runs": 9}}, {"epsilon": 3.0}, {"per_class": 2}, {"delta": 1e-6}, {"data": "mnist"}):
        assert dataclasses.replace(first, **change).set_key(0) != first.set_key(0)
    assert first.set_key(1) != first.set_key(0)
    assert dataclasses.replace(first, classifier="mlp", networks=7, name="other").set_key(0) == first.set_key(0)


def test_both_epsilons_are_put_on_file_where_the_original_analysis_claims_another(tmp_path, study, work):
    settings = {"waves": 4, "width": 4, "steps": 2, "batch_size": 4}
    cell = dataclasses.replace(
        study.cells[0], name="claimed", method="dp-merf", preset="paper", epsilon=1.0, settings=settings, sets=1
    )
    planned = cell.make_method(0).plan(data.facts_of("digits"), cell.budget)
    run(dataclasses.replace(study, cells=(cell, study.cells[0])), results=tmp_path)
    found = read(tmp_path, "claimed")
    assert found["proven"] == planned.epsilon < 0.35
    assert found["claim"]["epsilon"] == planned.claim.epsilon > 0.9
    assert "claim" not in read(tmp_path, "first")


def test_what_votes_cost_by_looking_at_them_is_put_on_file_for_each_set(tmp_path, study, request, monkeypatch):
    real = pipeline.generate
    request.getfixturevalue("work")
    settings = {"teachers": 40, "batch_size": 4, "images": 3, "steps": 2, "projections": 2, "check": 2.0, "code": 3}
    sizes = {"generator_width": 5, "generator_maps": 2, "teacher_width": 4, "teacher_maps": 2}
    cell = dataclasses.replace(
        study.cells[0], name="seen", method="g-pate", preset="standard", epsilon=5.0, settings=settings | sizes, sets=2
    )
    monkeypatch.setattr(runner.pipeline, "generate", real)  # the work stands in for the rest
    without = dataclasses.replace(cell, name="blind", settings=settings | sizes | {"check": None}, sets=1)
    run(dataclasses.replace(study, cells=(cell, without)), results=tmp_path)
    first, second = read(tmp_path, "seen")["by_votes"]
    assert 0 < first < 8
    assert second > 0
    assert "by_votes" not in read(tmp_path, "blind")


def test_what_is_on_file_is_never_run_again(tmp_path, study, work):
    assert run(study, results=tmp_path).finished == ALL
    before = (tmp_path / "toy" / "first.json").read_bytes()
    outcome = run(study, results=tmp_path)
    assert outcome.skipped == ALL
    assert not outcome.finished
    assert len(work.made) == 6
    assert (tmp_path / "toy" / "first.json").read_bytes() == before


def test_a_killed_run_loses_the_set_it_was_at_and_no_other(tmp_path, study, work):
    work.errors[1, 2] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run(study, results=tmp_path)
    parts = sorted(path.name for path in (tmp_path / "toy" / ".parts").glob("first.?.json"))
    assert parts == ["first.0.json", "first.1.json"]
    assert not (tmp_path / "toy" / "first.json").exists()
    work.errors.clear()
    outcome = run(study, results=tmp_path)
    assert outcome.skipped == ALL[:2]
    assert outcome.finished == ALL[2:]
    assert sorted(work.made) == [(runs, seed) for runs in (1, 2) for seed in range(3)]  # each once
    assert read(tmp_path, "first")["accuracy"]["runs"] == [60, 61, 70, 71, 80, 81]


def test_killed_before_or_while_a_cell_was_assembled(tmp_path, study, work, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Results, "assemble", lambda self, cell: None)
        run(study, results=tmp_path)
    assert not (tmp_path / "toy" / "first.json").exists()
    stray = (tmp_path / "toy" / ".parts" / "first.1.json").read_bytes()
    assert run(study, results=tmp_path).skipped == ALL
    assert read(tmp_path, "second")["cell"] == "second"
    (tmp_path / "toy" / ".parts" / "first.1.json").write_bytes(stray)
    assert run(study, results=tmp_path).skipped == ALL
    assert list((tmp_path / "toy" / ".parts").iterdir()) == []
    assert len(work.made) == 6


def test_a_failed_set_is_recorded_the_others_go_on_and_it_is_tried_again(tmp_path, study, work):
    work.errors[1, 0] = RuntimeError("out of memory")
    outcome = run(study, results=tmp_path)
    assert outcome.failed == {"first.0": "RuntimeError: out of memory"}
    assert outcome.finished == ALL[1:]
    error = tmp_path / "toy" / ".parts" / "first.0.error.txt"
    assert "Traceback" in error.read_text()
    assert not (tmp_path / "toy" / "first.json").exists()
    assert (tmp_path / "toy" / "second.json").exists()
    work.errors.clear()
    assert run(study, results=tmp_path).finished == ["first.0"]
    assert not error.exists()
    assert read(tmp_path, "first")["seeds"]["sets"] == [0, 1, 2]


def test_a_cell_that_is_wrong_in_itself_fails_alone(tmp_path, study, work):
    wrong = dataclasses.replace(study.cells[0], settings={"nosuch": 1})
    outcome = run(dataclasses.replace(study, cells=(wrong, study.cells[1])), results=tmp_path)
    assert list(outcome.failed) == ALL[:3]
    assert outcome.finished == ALL[3:]


def test_sets_made_with_other_settings_are_not_mixed_in(tmp_path, study, work):
    work.errors[1, 2] = RuntimeError()
    run(study, results=tmp_path)
    changed = dataclasses.replace(study.cells[0], settings={"runs": 3})
    other = dataclasses.replace(study, cells=(changed, study.cells[1]))
    assert run(other, results=tmp_path).finished == ALL[:3]
    assert read(tmp_path, "first")["settings"]["runs"] == 3
    assert Results(tmp_path, study).is_outdated(study.cells[0])
    assert not Results(tmp_path, other).is_outdated(changed)


def test_files_from_before_a_setting_are_those_of_what_was_done_then(tmp_path, study, work, monkeypatch):
    run(study, results=tmp_path)
    path = tmp_path / study.name / "first.json"
    found = json.loads(path.read_bytes())
    runs = found["settings"].pop("runs")
    path.write_text(json.dumps(found), encoding="utf-8")
    shelf, config = Results(tmp_path, study), METHODS["psg"].config_type
    assert shelf.is_outdated(study.cells[0])
    monkeypatch.setattr(config, "earlier", {"runs": runs})
    assert not shelf.is_outdated(study.cells[0])
    monkeypatch.setattr(config, "earlier", {"runs": runs + 1})
    assert shelf.is_outdated(study.cells[0])


def test_nothing_starts_without_time(tmp_path, study, work):
    outcome = run(study, results=tmp_path, budget_minutes=0)
    assert outcome.left == ALL
    assert work.made == []
    assert not (tmp_path / "toy").exists()


def test_a_set_that_is_known_not_to_fit_is_not_started(tmp_path, study, work, monkeypatch):
    monkeypatch.setattr(runner, "in_pieces", lambda cell: False)
    run(study, results=tmp_path, cells=["first"], shard=(0, 3))
    path = tmp_path / "toy" / ".parts" / "first.0.json"
    part = json.loads(path.read_text())
    path.write_text(json.dumps(part | {"job_seconds": 601.0}))
    outcome = run(study, results=tmp_path, budget_minutes=10)
    assert outcome.left == ALL[1:3]
    assert outcome.finished == ALL[3:]
    path.write_text(json.dumps(part | {"job_seconds": 601.0, "device_asked": "cuda"}))
    assert run(study, results=tmp_path, budget_minutes=10).finished == ALL[1:3]


def test_shards_share_the_jobs_and_the_last_one_assembles(tmp_path, study, work):
    shards = [runner.jobs(study.cells, (index, 4)) for index in range(4)]
    names = [f"{cell.name}.{number}" for shard in shards for cell, number in shard]
    assert sorted(names) == ALL
    for index in range(4):
        assert not (tmp_path / "toy" / "second.json").exists()
        assert run(study, results=tmp_path, shard=(index, 4)).skipped == []
    assert read(tmp_path, "first")["accuracy"]["runs"] == read(tmp_path, "second")["accuracy"]["runs"]
    for wrong in ((4, 4), (-1, 4), (0, 0)):
        with pytest.raises(ConfigError, match="there is no shard"):
            run(study, results=tmp_path, shard=wrong)


def test_a_wrong_device_or_cell_is_refused_at_once(tmp_path, study, work):
    with pytest.raises(ConfigError, match="device must be"):
        run(study, results=tmp_path, device="tpu")
    with pytest.raises(ConfigError, match="no cell 'third'"):
        run(study, results=tmp_path, cells=["third"])
    assert list(tmp_path.iterdir()) == []


def test_sets_of_different_origin_name_all_of_them(tmp_path, study, work):
    for index, command in enumerate(["one", "one", "two"]):
        run(study, results=tmp_path, cells=["first"], shard=(index, 3), command=command)
    assert read(tmp_path, "first")["command"] == "one, two"


def toy(**fields):
    shared = {"name": "toy", "data": "digits", "classifier": "mlp", "networks": 1, "sets": 2}
    return Study(name="toy", what="a test", cells=(Cell(**(shared | fields)),))


def test_real_records_need_neither_method_nor_release(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "pipeline", None)
    study = toy(method="real", epsilon=float("inf"), per_class=2, recipes=("quick",))
    assert run(study, results=tmp_path).finished == ["toy.0", "toy.1"]
    found = read(tmp_path, "toy")
    assert (found["method"], found["epsilon"], found["per_class"]) == ("real", "inf", 2)
    assert (found["noise"], found["settings"]) == ("none", {})
    assert "not private" in found["note"]
    assert found["seconds"]["generate"] == 0
    assert len(set(found["accuracy"]["runs"])) == 2  # another choice for each set
    assert found["accuracy"]["mean"] > 40
    assert not list(tmp_path.glob("**/*.png"))  # no picture of real records


def test_a_classifier_is_trained_and_tested_as_it_is(tmp_path):
    study = toy(method="dp-sgd", preset="small", epsilon=10.0, accountant="rdp", recipes=("as trained",))
    assert run(study, results=tmp_path).finished == ["toy.0", "toy.1"]
    found = read(tmp_path, "toy")
    assert (found["recipe"], found["classifier"], found["per_class"]) == ("as trained", "scattering", None)
    assert (found["noise"], found["seeds"]["networks"]) == ("seeded", [[], []])
    assert min(found["accuracy"]["runs"]) > 80
    assert run(study, results=tmp_path).skipped == ["toy.0", "toy.1"]


def test_a_read_only_results_folder_is_refused_before_anything_is_made(tmp_path, study, work, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ConfigError, match="cannot be written to; give another folder"):
        run(study, results=tmp_path)
    assert work.made == []


def test_a_set_whose_run_cannot_go_on_says_what_to_delete(tmp_path, study, work):
    work.errors[1, 0] = BudgetError("where the run stood was changed")
    failed = run(study, results=tmp_path).failed["first.0"]
    assert "(in a study: delete " in failed
    assert str(Results(tmp_path, study).work_folder(study.cells[0], 0)) in failed


def test_a_damaged_note_of_pieces_is_named(tmp_path):
    note = tmp_path / "set.pieces.json"
    note.write_text("{")
    with pytest.raises(ConfigError, match=r"is damaged .*delete it, and the seconds of earlier calls"):
        Piece(note, Observer(), until=None, commit=None)
