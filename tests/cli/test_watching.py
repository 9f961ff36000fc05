"""The picture of the set as it forms."""

import stat

import pytest
import torch
from PIL import Image
from tests.conftest import facts_for

from privset.cli import console, watching
from privset.cli.watching import Pace, PreviewFile, draw, watched
from privset.observer import Glimpse
from privset.release import preview

FACTS = facts_for(40)
TINY = "--networks 3 --width 4 --depth 2 --resolution 2 --waves 8 --steps 4 --networks-per-step 2 --pool 0"
RUN = ["generate", "digits", "--epsilon", "5", "--accountant", "rdp", "--per-class", "2", *TINY.split()]


def glimpse(per_class=2, fill=0.0):
    labels = torch.arange(3).repeat_interleave(per_class)
    return Glimpse(torch.full((len(labels), 1, 8, 8), fill), labels)


def test_a_run_draws_its_set_and_leaves_no_picture_behind(call, tmp_path, monkeypatch):
    seen = []

    def encode(sheet):
        seen.append([path.name for path in tmp_path.iterdir()])
        return original(sheet)

    original = preview.encode
    monkeypatch.setattr(watching, "PREVIEW_SECONDS", 0.0)
    monkeypatch.setattr(preview, "encode", encode)
    code, _, err = call(*RUN, "--out", tmp_path / "set")
    assert code == 0, err
    drawn = [names for names in seen if "set.preview.png" in names]
    assert len(drawn) >= 3  # replaced in place, after the first of four
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_an_interrupted_run_leaves_no_picture_either(call, tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "PREVIEW_SECONDS", 0.0)
    monkeypatch.setattr(console.Bars, "note", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    monkeypatch.setattr(console.Bars, "spent", lambda *_: None)
    assert call(*RUN, "--out", tmp_path / "set")[0] == 130
    assert not (tmp_path / "set.preview.png").exists()


def test_the_picture_is_for_its_owner_and_shows_the_set(tmp_path):
    path, bars = tmp_path / "set.preview.png", console.Bars()
    with PreviewFile(path, FACTS, bars) as watcher:
        watcher.show(lambda: glimpse(fill=1.0))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with Image.open(path) as picture:
            assert picture.getpixel((10, 10)) == 255
        assert str(path) in bars._bars.notes["preview"]
        assert "counts" not in bars._bars.notes["preview"]
    assert list(tmp_path.iterdir()) == []


def test_of_a_run_that_cannot_go_on_it_is_said_what_looking_costs(tmp_path):
    bars = console.Bars()
    with watched(bars, tmp_path / "set", FACTS, None) as watcher, watcher.irrevocable(1.0, tmp_path / "ledger"):
        watcher.show(lambda: glimpse(fill=1.0))
        assert "once it is looked at, this run counts, even if it is stopped" in bars._bars.notes["preview"]


def test_it_is_looked_at_now_and_then_only(tmp_path, monkeypatch):
    clock, looks = [0.0], []
    monkeypatch.setattr("privset.cli.watching.time.monotonic", lambda: clock[0])
    with PreviewFile(tmp_path / "p.png", FACTS, console.Bars()) as watcher:
        for _ in range(100):
            watcher.show(lambda: looks.append(clock[0]) or glimpse())
            clock[0] += 0.25
    assert looks == [0.0, 5.0, 10.0, 15.0, 20.0]


def test_what_takes_long_is_done_more_rarely(monkeypatch):
    clock, done = [0.0], []
    monkeypatch.setattr("privset.cli.watching.time.monotonic", lambda: clock[0])
    pace = Pace(5.0)
    for _ in range(100):
        if pace.due():
            done.append(clock[0])
            clock[0] += 1.0
            pace.rest()
        clock[0] += 1.0
    assert done == [0.0, 21.0, 42.0, 63.0, 84.0]


def test_a_picture_that_cannot_be_written_does_not_end_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(watching, "PREVIEW_SECONDS", 0.0)
    with PreviewFile(tmp_path / "nowhere" / "p.png", FACTS, console.Bars()) as watcher:
        for _ in range(3):
            watcher.show(glimpse)
    assert capsys.readouterr().err.count("No preview") == 1


@pytest.mark.parametrize("part", ["look", "draw", "encode"])
def test_a_picture_that_cannot_be_drawn_does_not_end_a_run_either(tmp_path, capsys, monkeypatch, part):
    tried = []

    def fail(*_):
        tried.append(part)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(watching, "PREVIEW_SECONDS", 0.0)
    if part != "look":
        monkeypatch.setattr(preview, part, fail)
    with PreviewFile(tmp_path / "p.png", FACTS, console.Bars()) as watcher:
        for _ in range(3):
            watcher.show(fail if part == "look" else glimpse)
    assert capsys.readouterr().err.count("out of memory") == 1
    assert len(tried) == 1


def test_images_that_are_not_finite_are_not_drawn():
    assert draw(glimpse(fill=float("nan")), FACTS) is None
    assert draw(glimpse(per_class=50), FACTS) is not None


def test_only_the_first_images_of_a_large_set_are_taken(monkeypatch):
    taken = []
    monkeypatch.setattr(preview, "draw", lambda synthetic: taken.append(synthetic.per_class))
    draw(glimpse(per_class=500), FACTS)
    assert taken == [(20, 20, 20)]


def test_a_run_that_fails_is_no_longer_watched(tmp_path):
    def fail():
        with watched(console.Bars(), tmp_path / "set", FACTS, None) as observer:
            observer.show(glimpse)
            assert [path.name for path in tmp_path.iterdir()] == ["set.preview.png"]
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        fail()
    assert list(tmp_path.iterdir()) == []
