"""What lies in a stage beside its release: a note that says what the certificate says, and nothing else."""

import functools
import json
import shutil
from pathlib import Path

import pytest
from tests.continual.conftest import BUDGET, CLASSES, method_named, stage

from privset import files, pipeline
from privset.continual import receive
from privset.continual.finding import find
from privset.continual.notes import check_note, read_note
from privset.errors import ReleaseError

LOOKS = (
    check_note,
    lambda folder: list(map(check_note, find([folder]))),
    lambda folder: receive([folder], BUDGET, private=False),
)
"""As `verify`, `merge` and `--received` look at a folder."""


@pytest.mark.parametrize("left", ["nested", "patient.png", ".hidden", "Thumbs.db"])
def test_what_lies_beside_a_release_and_its_note_is_not_handed_on_unseen(tmp_path, dataset, left):
    stage(dataset, ("ant", "bee"), tmp_path / "all" / "one")
    one = tmp_path / "all" / "one"
    (one / ".DS_Store").write_bytes(b"of a file manager")
    for look in LOOKS:
        look(one)
    (one / left).mkdir() if left in ("nested", "Thumbs.db") else (one / left).write_bytes(b"whose?")
    places = [(look, place) for look in LOOKS for place in (one, one / "release")]
    for look, place in [*places, *((look, tmp_path / "all") for look in LOOKS[1:])]:
        with pytest.raises(ReleaseError, match=f"has {left} beside its release and its note"):
            look(place)
    (one / "stage.json").unlink()  # then it is one if it is given as one
    for look in LOOKS:
        with pytest.raises(ReleaseError, match=f"one has {left}[ ,]"):
            look(one)
        look(one / "release")


def test_a_stage_may_be_reached_by_links_and_so_may_its_release(tmp_path, dataset):
    stage(dataset, ("ant", "bee"), tmp_path / "one")
    (tmp_path / "one" / "patient.png").touch()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "release").symlink_to(tmp_path / "one" / "release")
    (tmp_path / "linked" / "stage.json").write_text("{")
    (tmp_path / "link").symlink_to(tmp_path / "one")
    for look in LOOKS:
        with pytest.raises(ReleaseError, match=r"linked/stage.json cannot be read"):
            look(tmp_path / "linked")
        with pytest.raises(ReleaseError, match=r"link has patient.png"):
            look(tmp_path / "link")


def test_work_that_a_killed_run_left_is_not_handed_on(tmp_path, dataset):
    """The key of the noise: with it, and the release, the noise is known."""
    one = functools.partial(stage, dataset, ("ant", "bee"), tmp_path / "one")
    one()
    work = tmp_path / "one" / "release.unfinished"
    work.mkdir()
    (work / "noise.secret").write_bytes(bytes(32))
    for look in (
        lambda: receive([tmp_path / "one"], BUDGET, private=False),
        lambda: check_note(work.with_name("release")),
    ):
        with pytest.raises(
            ReleaseError, match=r"one has release.unfinished beside its release: .* as secret as its rec"
        ):
            look()
    one()  # again, as after a kill
    assert not work.exists()
    assert len(receive([tmp_path / "one"], BUDGET, private=False)) == 1


class Killed(BaseException):
    """What no `except Exception` catches."""


def kill(*_, **__):
    raise Killed


def test_nor_is_it_before_there_is_a_note(tmp_path, dataset, monkeypatch):
    """What a kill right after the release leaves: the key, and no note that would say that this is a stage."""
    one = functools.partial(stage, dataset, ("ant", "bee"), tmp_path / "one", method="psg", seed=None)
    with monkeypatch.context() as patched:
        patched.setattr("privset.release.unfinished._remove", lambda folder: None)
        patched.setattr("privset.continual.stage.write_json", kill)
        with pytest.raises(Killed):
            one()
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["release", "release.unfinished"]
    assert (tmp_path / "one" / "release.unfinished" / "noise.secret").exists()
    (tmp_path / "one" / "README.txt").touch()
    for look in LOOKS:
        with pytest.raises(ReleaseError, match=r"one has release.unfinished beside its release: .* as secret as"):
            look(tmp_path / "one")
    with pytest.raises(ReleaseError, match=r"one has release.unfinished beside its release"):
        check_note(tmp_path / "one" / "release")
    (tmp_path / "one" / "README.txt").unlink()
    one()
    for look in LOOKS:
        look(tmp_path / "one")


def test_charges_that_a_kill_left_beside_a_release_go_with_a_repetition(tmp_path, dataset, monkeypatch):
    """With a method that is not taken up again there is no folder of work; and charges of another run stay."""
    one = functools.partial(stage, dataset, ("ant", "bee"), tmp_path / "one", method="gs-wgan", seed=None)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", kill)
        with pytest.raises(Killed):
            one()
    ledger = tmp_path / "one" / "release.ledger.jsonl"
    assert ledger.exists()
    with pytest.raises(ReleaseError, match=r"one has release.ledger.jsonl beside its release"):
        receive([tmp_path / "one"], BUDGET, private=True)
    one()
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["release", "stage.json"]
    assert len(receive([tmp_path / "one"], BUDGET, private=True)) == 1
    ledger.write_text("charges of another run")
    with pytest.raises(ReleaseError, match=r"the stage is done, but \S*one has release.ledger.jsonl in it as well"):
        one()
    assert ledger.exists()


def test_a_release_that_is_given_by_itself_may_have_anything_beside_it_but_work(tmp_path, dataset):
    """`privset generate --out release` writes where stages have theirs, and is none."""
    pipeline.generate(dataset, method=method_named("dp-merf"), budget=BUDGET, out=tmp_path / "release")
    (tmp_path / "results").mkdir()
    (tmp_path / "notes.txt").touch()
    assert not check_note(tmp_path / "release")
    assert len(receive([tmp_path / "release"], BUDGET, private=True)) == 1
    with pytest.raises(ReleaseError, match=r"has notes.txt, results beside .* this is no stage, give \S*release$"):
        check_note(tmp_path)
    (tmp_path / ".release.partial-0123abcd").mkdir()
    with pytest.raises(ReleaseError, match=r"has .release.partial-0123abcd beside its release"):
        check_note(tmp_path / "release")


@pytest.mark.parametrize("text", ["[" * 100_000, "7", "{}"])
def test_a_note_that_is_none_is_said_to_be(tmp_path, text):
    (tmp_path / "stage.json").write_text(text)
    with pytest.raises(ReleaseError, match=r"stage.json cannot be read"):
        read_note(tmp_path)


@pytest.mark.parametrize(
    ("change", "odd"),
    [
        ({"classes": ["ant", "cat"]}, "classes"),
        ({"epsilon": 0.1, "records": 3}, "records, epsilon"),
        ({"seal": "0" * 64}, "seal"),
        ({"stage": 77}, "stage"),
        ({"received": []}, "received"),
        ({"received": [7]}, "received"),
        ({"statement": "perfectly private", "patients": ["Ann"]}, "statement, patients"),
        ({"version": 2}, "version"),
        ({"patients": None}, "its spelling"),
    ],
)
def test_a_note_that_says_something_else_than_the_certificate_is_refused(tmp_path, dataset, change, odd):
    stage(dataset, ("cat", "dog"), tmp_path / "before")
    stage(dataset, ("ant", "bee"), tmp_path / "one", 2, received=[tmp_path / "before"])
    note = tmp_path / "one" / "stage.json"
    assert len(receive([tmp_path / "one"], BUDGET, private=False)) == 1
    note.write_text(json.dumps(json.loads(note.read_text()) | change))
    with pytest.raises(ReleaseError, match=rf"stage.json says something else than the certificate of .* \({odd}\)"):
        receive([tmp_path / "one"], BUDGET, private=False)


@pytest.mark.parametrize(
    ("old", "new", "odd"),
    [
        ('"stage": 2', '"stage": 1, "stage": 2', "its spelling"),
        ('"version": 1', '"version": true', "its spelling"),
        ("}\n  ]", ', "patients": ["Ann"]}\n  ]', "received"),
        ('      "delta": 1e-05,\n', "", "received"),
    ],
)
def test_a_note_says_nothing_more_nor_anything_twice(tmp_path, dataset, old, new, odd):
    """Nor less of what was received, which is then compared with nothing."""
    line = [tmp_path / "before", tmp_path / "one"]
    stage(dataset, ("cat", "dog"), line[0])
    stage(dataset, ("ant", "bee"), line[1], 2, received=line[:1])
    note = line[1] / "stage.json"
    assert old in note.read_text()
    note.write_text(note.read_text().replace(old, new))
    with pytest.raises(ReleaseError, match=rf"one/stage.json says something else .* \({odd}\)"):
        check_note(line[1])


@pytest.mark.parametrize(
    ("change", "odd"),
    [
        ({"epsilon": 0.1}, "epsilon"),
        ({"classes": ["ant", "bee"], "records": 3}, "classes, records"),
        ({"private": True, "delta": 0.0, "relation": "none", "digest": ""}, "private, delta, relation, digest"),
    ],
)
def test_a_note_that_says_something_else_of_what_was_received_is_refused(tmp_path, dataset, change, odd):
    """Its certificate has the seal of that alone, but the release itself is at hand."""
    line = [tmp_path / name for name in ("before", "one")]
    stage(dataset, ("cat", "dog"), line[0])
    stage(dataset, ("ant", "bee"), line[1], 2, received=line[:1])
    assert len(receive(line, BUDGET, private=False)) == 2
    note = line[1] / "stage.json"
    words = json.loads(note.read_text())
    words["received"][0] |= change
    note.write_bytes(files.as_json(words))
    releases = [folder / "release" for folder in line]
    for look in (
        lambda: receive(line, BUDGET, private=False),
        lambda: receive(line[::-1], BUDGET, private=False),
        lambda: check_note(releases[1], releases),
    ):
        with pytest.raises(ReleaseError, match=rf"one/stage.json .* of \S+before/release \({odd}\)"):
            look()
    assert check_note(releases[1])  # alone there is nothing to compare it with


def test_a_release_under_another_stages_note_is_refused_and_so_is_a_note_that_is_none(tmp_path, dataset):
    for name, party in (("one", CLASSES[:2]), ("two", CLASSES[2:4])):
        stage(dataset, party, tmp_path / name)
    shutil.rmtree(tmp_path / "one" / "release")
    shutil.copytree(tmp_path / "two" / "release", tmp_path / "one" / "release")
    with pytest.raises(ReleaseError, match="lies in the wrong place"):
        receive([tmp_path / "one"], BUDGET, private=False)
    (tmp_path / "two" / "stage.json").write_text("{")
    with pytest.raises(ReleaseError, match="cannot be read"):
        receive([tmp_path / "two"], BUDGET, private=False)
