"""What a user gets wrong: it is named in a sentence, and costs nothing."""

import numpy as np
import pytest
import torch
from PIL import Image
from tests.cli.test_commands import TINY

from privset import processor
from privset.cli.main import COMMANDS, main


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("plan mnist --epsilon 0", "epsilon must be above 0"),
        ("plan mnist --epsilon -1", "epsilon must be above 0"),
        ("plan mnist --epsilon 1 --delta 1", "delta must lie strictly between 0 and 1"),
        ("plan mnist --epsilon 1 --delta 0.001", "publishing one record in the clear"),
        ("plan mnist --epsilon 1 --per-class 0", "per-class must be at least 1"),
        ("plan mnist --method psg --epsilon 1 --runs 0", "runs must be at least 1"),
        ("plan mnist --method psg --epsilon 1 --noise-multiplier 0.5 --accountant rdp", "more than the budget 1"),
        ("plan digits --method psg --epsilon 0.1", "question(s) cannot be paid for with epsilon 0.1"),
        ("plan digits --method psg --epsilon 0.1", "more records at a time; --preset small asks fewer."),
        ("plan digits --method psg --preset small --epsilon 0.01", "at a time; no preset of psg asks fewer."),
        ("plan digits --method dp-sgd --epochs 9 --epsilon 0.001", "(--epochs); no preset of dp-sgd asks fewer."),
        ("plan digits --method dp-merf --epsilon 0.01", "give more records. Fewer classes would help, too."),
        ("plan digits --method g-pate --steps 9 --epsilon 0.001", "(--images); no preset of g-pate asks fewer."),
        ("plan digits --epsilon 0.01", "give more records. Fewer classes would help, too."),
        ("plan mnist", "Missing"),
        ("plan mnist --epsilon many", "could not convert string to float"),
        ("plan mnist --epsilon 1 --sigma 3", "--sigma"),
        ("plan mnist --epsilon 1 --method nosuch", "method must be one of moments, psg"),
        ("plan mnist --epsilon 1 --method gswgan", "not 'gswgan'. Did you mean gs-wgan?"),
        ("plan mnist --epsilon 1 --preset standrd", "not 'standrd'. Did you mean standard?"),
        ("study show momnts", "Did you mean moments?"),
        ("generte mnist", "Did you mean generate?"),
        ("plan mnist --epsilon 1 --preset nosuch", "moments has the presets standard, light"),
        ("plan mnist --method psg --epsilon 1 --preset nosuch", "psg has the presets paper, small"),
        ("plan mnits --epsilon 1", "Did you mean mnist?"),
        ("plan digits --epsilon 1 --size 4", "size must be at least 8"),
        ("generate digits --epsilon 1", "Missing"),
        ("generate digits --epsilon 1 --out x --device tpu", "device must be cpu, cuda or cuda:N"),
        (
            "generate digits --method psg --epsilon 1 --out x --network lenet --width 4",
            "the width of lenet cannot be chosen",
        ),
        ("generate digits --epsilon 1 --out x --preset light --noise-seed -1", "a noise seed must be 0 or more"),
        (
            "generate digits --method psg --epsilon inf --out x --noise-multiplier 1",
            "without privacy there is no noise",
        ),
        ("generate digits --epsilon 1 --out .", "exists already, and nothing is ever replaced"),
        ("generate digits --method dp-sgd --epsilon 1 --out /", "exists already, and nothing is ever replaced"),
        ("generate digits --method dp-merf --epsilon 1 --per-class 999999999 --out x", "ask for fewer (--per-class)"),
        ("generate digits --method psg-prior --epsilon 1 --per-class 999999999 --out x", "GiB of memory"),
        ("generate digits --method dp-sgd --epsilon 1 --per-class 9 --out x", "generate --method dp-sgd --help"),
        ("measure digits --epsilon 1 --out ./", "exists already, and nothing is ever replaced"),
        ("measure digits --epsilon 1", "Missing"),
        ("measure digits --epsilon 1 --out x --method psg", "psg asks as it goes"),
        ("measure digits --epsilon 1 --out x --device tpu", "device must be cpu, cuda or cuda:N"),
        ("distil nowhere --out x", "nowhere is not a folder"),
        ("distil", "Missing"),
        ("verify nowhere", "nowhere is not a folder"),
        ("evaluate nowhere --data digits", "nowhere is not a folder"),
        ("export nowhere --to png", "nowhere is not a folder"),
        ("export nowhere --to jpeg", "jpeg"),
        ("export nowhere", "Missing"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(call, monkeypatch, tmp_path, words, sentence):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*words.split())
    assert code == 2
    assert out == ""
    assert sentence in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "not enough memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB"), "not enough memory"),
        (MemoryError(), "not enough memory (MemoryError)"),
    ],
)
def test_want_of_memory_is_said_in_a_sentence(call, monkeypatch, error, sentence):
    def fail(_):
        raise error

    monkeypatch.setitem(COMMANDS, "plan", fail)
    code, _, err = call("plan")
    assert code == 2
    assert sentence in " ".join(err.split())


@pytest.mark.parametrize("command", ["generate digits --out x", "plan digits --time"])
@pytest.mark.parametrize("method", ["g-pate", "datalens", "gs-wgan"])
def test_networks_without_room_are_refused_before_the_system_ends_the_run(call, monkeypatch, tmp_path, command, method):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processor, "free_memory", lambda: 1e6)
    code, _, err = call(*command.split(), "--method", method, "--preset", "small", "--epsilon", "10")
    assert code == 2
    assert "appoint fewer (--critics, --teachers)" in " ".join(err.split())
    assert list(tmp_path.iterdir()) == []


def test_other_errors_are_not_taken_for_want_of_memory(monkeypatch):
    def fail(_):
        raise RuntimeError("something else")

    monkeypatch.setitem(COMMANDS, "plan", fail)
    with pytest.raises(RuntimeError, match="something else"):
        main(["plan"])


def folder(path, *, odd=None, classes=("cat", "dog")):
    """A folder of two classes of grey 12x12 images, with an ``odd`` file or image beside them."""
    for label in classes:
        (path / label).mkdir(parents=True)
        for number in range(3):
            Image.new("L", (12, 12), number).save(path / label / f"{number}.png")
    if isinstance(odd, bytes):
        (path / classes[-1] / "odd.png").write_bytes(odd)
    elif odd is not None:
        odd.save(path / classes[-1] / "odd.png")
    return path


def archive(path, **arrays):
    np.savez(path, **arrays)
    return path


IMAGES = np.arange(6 * 64, dtype=np.uint8).reshape(6, 8, 8)
LABELS = np.array([0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda at: folder(at / "own", odd=b"not a picture"), "odd.png"),
        (lambda at: folder(at / "own", odd=b""), "odd.png"),
        (lambda at: folder(at / "own", odd=Image.new("L", (13, 12))), "--size"),
        (lambda at: folder(at / "own", odd=Image.new("RGB", (12, 12))), "--channels"),
        (lambda at: folder(at / "own", classes=("cat",)), "class"),
        (lambda at: (at / "own").mkdir() or at / "own", "own"),
        (lambda at: archive(at / "own.npz", x=IMAGES), "own.npz"),
        (lambda at: archive(at / "own.npz", x=IMAGES, y=LABELS - 1), "own.npz"),
        (lambda at: archive(at / "own.npz", x=IMAGES / 255 * np.nan, y=LABELS), "own.npz"),
        (lambda at: archive(at / "own.npz", x=IMAGES, y=LABELS[:4]), "own.npz"),
        (lambda at: archive(at / "own.npz", x=IMAGES, y=LABELS * 0), "own.npz"),
        (lambda at: (at / "own.npz").write_bytes(b"PK") and at / "own.npz", "own.npz"),
    ],
    ids=[
        *("broken", "empty", "mixed-sizes", "mixed-channels", "one-class", "no-classes", "no-labels", "negative"),
        *("nan", "short", "single", "cut"),
    ],
)
def test_bad_data_is_named_and_costs_nothing(call, tmp_path, make, words):
    path = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = call("generate", path, "--epsilon", "8", "--out", tmp_path / "set", *TINY)
    assert code == 2
    assert words in err
    assert out == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_a_truncated_idx_file_is_named_and_costs_nothing(call, tmp_path):
    (tmp_path / "mnist").mkdir()
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / "mnist" / f"{name}-ubyte").write_bytes(b"\0\0\x08\x03\0\0")
    words = ["--data-dir", tmp_path, "--epsilon", "8", "--accountant", "rdp", "--out", tmp_path / "set", *TINY]
    code, _, err = call("generate", "mnist", *words)
    assert code == 2
    assert "idx" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mnist"]


def test_a_release_is_not_written_among_the_records(call, tmp_path):
    (tmp_path / "own").mkdir()
    for words in (("generate",), ("measure",), ("continual",), ("continual", "stage")):
        code, _, err = call(*words, tmp_path / "own", "--epsilon", "8", "--out", tmp_path / "own" / "set")
        assert code == 2
        assert "where the records are; choose a place outside of it" in err
        assert not list((tmp_path / "own").iterdir())
