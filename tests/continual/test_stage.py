"""One party at a time: what it reads, what it refuses, what it leaves behind."""

import dataclasses
import json
import shutil
from collections import Counter
from typing import Any, cast

import numpy as np
import pytest
from tests.continual.conftest import BUDGET, CLASSES, dataset_of, forged, method_named, stage

from privset import load_data, pipeline
from privset.continual import Stage, receive
from privset.data import Records, of_classes, of_labels
from privset.data.partitions import split
from privset.errors import ConfigError, DataError, ReleaseError
from privset.observer import Observer
from privset.release import verify
from privset.release.sections import Party


def write_part(dataset, classes, folder):
    """The records of some classes in a file of their own, as their party has them."""
    part = of_classes(dataset, classes)
    assert part.test is not None
    folder.mkdir()
    np.savez(
        folder / "zoo.npz",
        x=part.train.images[:, 0].numpy(), y=part.train.labels.numpy(),
        x_test=part.test.images[:, 0].numpy(), y_test=part.test.labels.numpy(),
        classes=np.array(classes),
    )  # fmt: skip
    return folder / "zoo.npz"


@pytest.mark.parametrize("method", ["moments", "psg", "dp-merf", "dp-sgd"])
def test_a_party_needs_its_own_records_and_what_it_received_and_nothing_else(tmp_path, dataset, method):
    """The same sets and classifiers, to the last bit, with all data at hand or every other party's deleted."""
    parties, whole = (CLASSES[:2], CLASSES[2:4], CLASSES[4:]), tmp_path / "whole"
    named = dataclasses.replace(dataset, facts=dataclasses.replace(dataset.facts, name="zoo.npz"))
    for number, party in enumerate(parties, 1):
        received = [whole / f"stage-{n}" for n in range(1, number)]
        stage(named, party, whole / f"stage-{number}", number, method, received)
    sent = []
    for number, party in enumerate(parties, 1):
        machine = tmp_path / f"machine{number}"
        machine.mkdir()
        for other in parties:
            write_part(dataset, other, machine / other[0])
        for other in parties:
            if other != party:
                shutil.rmtree(machine / other[0])  # no other party's records are on this machine
        received = [shutil.copytree(one, machine / one.parent.name) for one in sent]
        assert {path.name for path in machine.rglob("*.npz")} <= {"zoo.npz", "synthetic.npz"}
        assert len(list(machine.rglob("zoo.npz"))) == 1
        stage(
            load_data(machine / party[0] / "zoo.npz"), party, machine / "stage", number, method, received, known=CLASSES
        )
        sent.append(machine / "stage")
        here, there = (json.loads((one / "stage.json").read_text()) for one in (sent[-1], whole / f"stage-{number}"))
        assert here["digest"] == there["digest"]
        assert here["records"] == sum(dataset_of().train.labels.eq(CLASSES.index(name)).sum() for name in party)
    assert verify(sent[-1] / "release").ok


def test_the_noise_is_calibrated_to_the_partys_own_number_of_records(tmp_path, dataset):
    first = stage(dataset, ("ant", "bee"), tmp_path / "a", method="psg")
    second = stage(dataset, ("cat", "dog"), tmp_path / "b", method="psg")
    for one, size in ((first, 50), (second, 65)):
        assert one.certificate.facts.size == size
        assert one.certificate.events[0].sampling_rate == 16 / size
    assert first.certificate.events[0].noise_multiplier > second.certificate.events[0].noise_multiplier


def test_each_stage_has_noise_of_its_own(tmp_path, dataset):
    stage(dataset, ("cat", "dog"), tmp_path / "other")
    twice = [
        stage(dataset, ("ant", "bee"), tmp_path / str(number), number, received=[tmp_path / "other"][: number - 1])
        for number in (1, 2)
    ]
    assert twice[0].certificate.contents.digest != twice[1].certificate.contents.digest


def test_a_party_too_many_for_the_delta_of_all_is_refused_before_anything_is_charged(tmp_path, dataset):
    budget = dataclasses.replace(BUDGET, delta=0.01)  # 50 and 65 records: below 1 over each, and not over both
    stage(dataset, ("ant", "bee"), tmp_path / "one", budget=budget, seed=None)
    with pytest.raises(ReleaseError, match=r"is not below 1/115"):
        stage(dataset, ("cat", "dog"), tmp_path / "two", 2, received=[tmp_path / "one"], budget=budget, seed=None)
    assert not (tmp_path / "two").exists()


def test_of_data_that_was_split_first_one_record_more_changes_one_part_by_one_but_perhaps_another_partys():
    """Why only the maximum is stated: docs/proofs/parallel.md, parts of data that was split for testing first."""
    whole, elsewhere = dataset_of().train, 0
    parties = (CLASSES[:2], CLASSES[2:4], CLASSES[4:])

    def kept(records):
        train, test = split(records, len(whole) // 2 / len(records))
        assert len(test) == len(whole) // 2
        parts = [of_labels(train, CLASSES, party) for party in parties]
        return [Counter(image.numpy().tobytes() for image in part.images) for part in parts]

    for more in range(20):
        fewer = [index for index in range(len(whole)) if index != more]
        before, after = kept(Records(whole.images[fewer], whole.labels[fewer])), kept(whole)
        grown = [place for place in range(3) if before[place] != after[place]]
        assert len(grown) == 1
        assert (after[grown[0]] - before[grown[0]]).total() == 1
        assert not before[grown[0]] - after[grown[0]]
        elsewhere += grown[0] != int(whole.labels[more]) // 2
    assert elsewhere


@pytest.mark.parametrize(
    ("classes", "words", "error"),
    [
        (("ant",), "ant only, and needs two or more", ConfigError),
        (("ant", "gnu"), "no class 'gnu'", DataError),
        (("ant", "ant"), "the class ant is named twice", DataError),
    ],
)
def test_impossible_parties_are_refused(tmp_path, dataset, classes, words, error):
    with pytest.raises(error, match=words):
        stage(dataset, classes, tmp_path / "one")
    assert not (tmp_path / "one").exists()


def test_a_finished_stage_is_not_run_again_and_not_taken_for_another(tmp_path, dataset, monkeypatch):
    stage(dataset, ("ant", "bee"), tmp_path / "one", seed=None)
    before = (tmp_path / "one" / "release" / "certificate.json").read_bytes()
    monkeypatch.setattr(pipeline, "generate", lambda *_, **__: pytest.fail("it was made again"))
    stage(dataset, ("ant", "bee"), tmp_path / "one", seed=None)
    assert (tmp_path / "one" / "release" / "certificate.json").read_bytes() == before
    for change, words in (
        ({"method": "moments"}, "other method, other settings"),
        ({"budget": dataclasses.replace(BUDGET, epsilon=3.0)}, "other budget"),
        ({"seed": 1}, "other noise"),
    ):
        with pytest.raises(ReleaseError, match=words):
            stage(dataset, ("ant", "bee"), tmp_path / "one", **({"seed": None} | change))
    with pytest.raises(ReleaseError, match="other data"):
        stage(dataset, ("ant", "cat"), tmp_path / "one", seed=None)


def test_a_classifier_goes_on_from_the_last_one_and_its_certificate_says_whose_it_is(tmp_path, dataset):
    for folder, received in (("one", []), ("two", ["one"])):
        party = ("ant", "bee") if folder == "one" else ("cat", "dog")
        stage(dataset, party, tmp_path / folder, 1 + len(received), "dp-sgd", [tmp_path / name for name in received])
    stage(dataset, ("eel", "fox"), tmp_path / "another", 1, "dp-sgd")
    fresh = stage(dataset, ("cat", "dog"), tmp_path / "fresh", 2, "dp-sgd", [tmp_path / "another"])
    note = json.loads((tmp_path / "two" / "stage.json").read_text())
    assert note["digest"] != fresh.certificate.contents.digest  # same records and noise, other start
    assert [one["classes"] for one in note["received"]] == [["ant", "bee"]]
    shutil.copytree(tmp_path / "two" / "release", tmp_path / "bare")
    with pytest.raises(
        ReleaseError, match=r"bare goes on from a classifier that was not received, with the seal [0-9a-f]+"
    ):
        receive([tmp_path / "bare"], BUDGET, private=False)
    (_, bare) = receive([tmp_path / "one", tmp_path / "bare"], BUDGET, private=False)
    assert bare.classes == ("cat", "dog")
    assert bare.certificate.party is not None
    assert bare.certificate.party.received == (note["received"][0]["seal"],)
    alone = of_classes(dataset, ("ant", "bee"), among=CLASSES)
    method: Any = method_named("dp-sgd")
    pipeline.train(alone, method=method, budget=BUDGET, out=tmp_path / "nobodys")
    with pytest.raises(ReleaseError, match="does not say what classes its party has"):
        receive([tmp_path / "nobodys"], BUDGET, private=False)
    with pytest.raises(ReleaseError, match="holds something else than the sets that dp-merf makes"):
        stage(dataset, ("cat", "dog"), tmp_path / "three", 2, "dp-merf", [tmp_path / "one"])
    with pytest.raises(ReleaseError, match=r"has outputs for ant, .*, not for fox, .* \(--known\); do as"):
        stage(dataset, ("eel", "fox"), tmp_path / "four", 2, "dp-sgd", [tmp_path / "one"], known=CLASSES[::-1])


def test_the_number_of_a_stage_is_that_of_what_it_received_and_classifiers_are_in_line(tmp_path, dataset):
    with pytest.raises(ConfigError, match=r"this is stage 1, after 0 release\(s\), not 2"):
        stage(dataset, CLASSES[:2], tmp_path / "one", 2)
    assert not (tmp_path / "one").exists()
    line = [tmp_path / "1", tmp_path / "2"]
    for number, folder in enumerate(line, 1):
        party = CLASSES[2 * number - 2 : 2 * number]
        stage(dataset, party, folder, number, "dp-sgd", line[: number - 1], known=CLASSES)
    last = Stage.prepare(
        dataset, CLASSES[4:], number=3, method=method_named("dp-sgd"), budget=BUDGET, out=tmp_path / "3", noise_seed=7
    )
    with pytest.raises(ReleaseError, match="from the first to the last"):
        last.run(receive(line, BUDGET, private=False)[::-1])


def test_a_party_names_what_its_classifier_goes_on_from_and_nothing_else(tmp_path, dataset):
    """Or the records of the other would be in the weights, and in no guarantee."""
    first = stage(dataset, CLASSES[:2], tmp_path / "one", method="dp-sgd", known=CLASSES, seed=None)
    own, method = of_classes(dataset, CLASSES[2:4], among=CLASSES), cast(Any, method_named("dp-sgd"))
    silent, false = Party(classes=CLASSES[2:4], received=()), Party(classes=CLASSES[2:4], received=("0" * 64,))
    theirs = cast(Any, first.release)
    for start, party in ((theirs, silent), (theirs, false), (None, false)):
        with pytest.raises(ConfigError, match="goes on from the last one that it received, and from no other"):
            pipeline.train(own, method=method, budget=BUDGET, out=tmp_path / "two", start=start, party=party)
    assert not list(tmp_path.glob("two*"))
    path = stage(dataset, CLASSES[2:4], tmp_path / "two", 2, "dp-sgd", [tmp_path / "one"], seed=None).release.path
    forged(path, lambda document: document["party"].update(received=[]))
    assert {check.name for check in verify(path).failures} == {"party"}


@pytest.mark.parametrize("left", [".DS_Store", ".stage.json.deadbeef.partial"])
def test_a_stage_that_was_begun_is_taken_up_and_leaves_nothing_of_its_own_beside_it(tmp_path, dataset, left):
    own = stage(dataset, CLASSES[:2], tmp_path / "one")
    (tmp_path / "one" / "stage.json").unlink()
    (tmp_path / "one" / left).write_text("")
    assert stage(dataset, CLASSES[:2], tmp_path / "one").certificate == own.certificate
    assert (tmp_path / "one" / "stage.json").exists()
    assert not list((tmp_path / "one").glob("*.partial"))


@pytest.mark.parametrize("left", ["README.txt", ".hidden"])
def test_a_party_is_told_what_others_would_refuse_its_stage_for(tmp_path, dataset, left):
    """After all is done: what was begun is paid for."""
    own = stage(dataset, CLASSES[:2], tmp_path / "one")
    (tmp_path / "one" / "stage.json").unlink()
    (tmp_path / "one" / left).write_text("")
    with pytest.raises(ReleaseError, match=rf"the stage is done, but \S*one has {left} in it as well: .* Move it out"):
        stage(dataset, CLASSES[:2], tmp_path / "one")
    assert (tmp_path / "one" / "stage.json").exists()
    (tmp_path / "one" / left).unlink()
    assert stage(dataset, CLASSES[:2], tmp_path / "one").certificate == own.certificate


def test_a_stage_that_was_killed_while_its_release_was_written_leaves_no_half_of_it(tmp_path, dataset, monkeypatch):
    def killed(*_):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("privset.release.folder._write", killed)
        patched.setattr("shutil.rmtree", lambda *_, **__: None)  # no killed process tidies up
        with pytest.raises(Killed):
            stage(dataset, CLASSES[:2], tmp_path / "one")
    assert list((tmp_path / "one").glob(".release.partial-*"))
    stage(dataset, CLASSES[:2], tmp_path / "one")
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["release", "stage.json"]


def test_outputs_are_named_once_and_folders_hold_nothing_else(tmp_path, dataset):
    with pytest.raises(ConfigError, match="known must name each class once"):
        stage(dataset, CLASSES[:2], tmp_path / "one", method="dp-sgd", known=(*CLASSES, "ant"))
    (tmp_path / "mine").mkdir()
    for name in ("press-release.txt", ".hidden"):
        (tmp_path / "mine" / name).write_text("")
        with pytest.raises(ReleaseError, match=rf"holds something else \({name}\)"):
            stage(dataset, CLASSES[:2], tmp_path / "mine")
        (tmp_path / "mine" / name).unlink()


@pytest.mark.parametrize("method", ["dp-merf", "dp-sgd"])
def test_a_stage_that_died_before_its_note_names_what_it_had_received_and_nothing_else(tmp_path, dataset, method):
    both = [tmp_path / "1", tmp_path / "2"]
    for number, party in enumerate((CLASSES[:2], CLASSES[2:4]), 1):
        stage(dataset, party, tmp_path / str(number), number, method, both[: number - 1], known=CLASSES)
    last = {"number": 3, "method": method, "known": CLASSES}
    own = stage(dataset, CLASSES[4:], tmp_path / "3", received=both, **last)
    note = tmp_path / "3" / "stage.json"
    written = note.read_bytes()
    note.unlink()  # as if it had died just then
    for others in ([], both[:1], *([both[::-1]] if method == "dp-merf" else [])):  # classifiers have one order
        with pytest.raises(ReleaseError, match="other releases received"):
            stage(dataset, CLASSES[4:], tmp_path / "3", received=others, **(last | {"number": len(others) + 1}))
        assert not note.exists()
    assert stage(dataset, CLASSES[4:], tmp_path / "3", received=both, **last).certificate == own.certificate
    assert note.read_bytes() == written
    note.write_bytes(written.replace(b'"stage": 3', b'"stage": 4'))
    with pytest.raises(ReleaseError, match=r"another stage\.json"):
        stage(dataset, CLASSES[4:], tmp_path / "3", received=both, **last)


class Killed(BaseException):
    """What no `except Exception` catches."""


class Killer(Observer):
    """Kills at the n-th step of the first phase of a method."""

    def __init__(self, step):
        self.left = step

    def step(self, count=1, **values):
        self.left -= count
        if self.left <= 0:
            raise Killed


@pytest.mark.parametrize("method", ["psg", "dp-sgd"])
def test_a_stage_that_was_killed_while_it_learned_goes_on_with_what_it_had_received(tmp_path, dataset, method):
    stage(dataset, CLASSES[:2], tmp_path / "1", 1, method)
    stage(dataset, CLASSES[2:4], tmp_path / "other", 1, method)
    received = receive([tmp_path / "1"], BUDGET, private=False)

    def prepare(name):
        one = Stage.prepare(
            dataset,
            CLASSES[4:],
            number=2,
            method=method_named(method),
            budget=BUDGET,
            out=tmp_path / name,
            noise_seed=7,
        )
        one.check_free()
        return one

    whole = prepare("whole").run(received)
    with pytest.raises(Killed):
        prepare("killed").run(received, observer=Killer(3))
    others = receive([tmp_path / "other"], BUDGET, private=False)
    with pytest.raises(ReleaseError, match=r"this is another: .*other releases are named as received"):
        prepare("killed").run(others)
    again = prepare("killed").run(received)
    assert again.certificate.contents.digest == whole.certificate.contents.digest
    assert again.certificate.party == whole.certificate.party
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == ["release", "stage.json"]


@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("dp-merf", lambda d: d["party"].update(classes=["ant"])),
        ("dp-merf", lambda d: d["party"].update(classes=["ant", "bee", "cat"])),
        ("dp-sgd", lambda d: d["party"].update(classes=["ant", "yak"])),
        ("dp-sgd", lambda d: d["party"].update(classes=["ant", "ant"])),
        ("dp-sgd", lambda d: d["party"].update(received=["0" * 64])),
        ("dp-merf", lambda d: d["party"].update(received=["0" * 64] * 2)),
    ],
)
def test_what_is_said_of_the_party_is_verified(tmp_path, dataset, method, change):
    path = stage(dataset, ("ant", "bee"), tmp_path / "one", method=method).release.path
    assert "party" in {check.name for check in verify(path).checks}
    forged(path, change)
    assert {check.name for check in verify(path).failures} == {"party"}
