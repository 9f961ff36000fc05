"""What the data holder is told of votes, and nobody else."""

import numpy as np
import pytest

from privset.privacy import Tally
from privset.privacy.agreement import Agreement

TINY = """--per-class 2 --epsilon 5 --teachers 60 --batch-size 4 --images 3 --steps 2 --projections 2 --code 3
--generator-width 5 --generator-maps 2 --teacher-width 4 --teacher-maps 2"""


@pytest.fixture
def own(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=rng.integers(0, 255, (60, 8, 8), dtype=np.uint8), y=np.arange(60) % 3)
    return tmp_path / "own.npz"


def test_the_data_holder_is_told_if_asked_what_an_accountant_says_that_looks_at_votes(call, own, tmp_path, monkeypatch):
    """And no file of the release, of the ledger or of the output for programs has it."""
    monkeypatch.setattr(Agreement, "epsilon", lambda self, delta: 7.71234)
    out = tmp_path / "release"
    words = ["generate", own, "--method", "g-pate", "--check", 2, *TINY.split(), "--tell-votes", "--json", "--out", out]
    code, said, told = call(*words)
    assert code == 0, told
    assert "would be counted as epsilon 7.71 (delta 1e-05). That is no guarantee" in " ".join(told.split())
    assert "7.71" not in said
    released = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert b"7.71234" not in released
    assert b"counted as epsilon" not in released


def test_nothing_is_told_unless_asked_or_where_noisy_counts_themselves_are_used(call, own, tmp_path):
    code, _, told = call("generate", own, "--method", "g-pate", "--check", 2, *TINY.split(), "--out", tmp_path / "one")
    assert code == 0, told
    assert "looks at the votes, those" not in told
    words = ["generate", own, "--method", "g-pate", *TINY.split(), "--tell-votes", "--out", tmp_path / "two"]
    code, _, told = call(*words)
    assert code == 2
    assert "leave --tell-votes out" in " ".join(told.split())
    assert not list(tmp_path.glob("two*"))


def test_the_data_holder_alone_is_told_how_many_records_of_a_large_class_are_in_no_shard(call, tmp_path, monkeypatch):
    rng, labels = np.random.default_rng(0), np.array([0] * 40 + [1] * 10 + [2] * 10)
    np.savez(tmp_path / "own.npz", x=rng.integers(0, 255, (60, 8, 8), dtype=np.uint8), y=labels)
    words = ["generate", tmp_path / "own.npz", "--method", "g-pate", *TINY.replace("60", "5").split()]
    for more, count in ((["--by-class"], 1), ([], 0)):
        out = tmp_path / f"release{count}"
        code, said, told = call(*words, *more, "--json", "--out", out)
        assert code == 0, told
        assert " ".join(told.split()).count("20 record(s) of classes that are larger than others") == count
        assert "larger than others" not in said
        released = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
        assert b"larger than others" not in released
        assert call("verify", out)[0] == 0
    monkeypatch.setattr(Tally, "left_out", property(lambda _: 7712345, lambda *_: None), raising=False)
    code, said, told = call(*words, "--by-class", "--json", "--out", out := tmp_path / "unmistakable")
    assert code == 0, told
    assert "7,712,345 record(s)" in " ".join(told.split())
    ledger = out.with_name("unmistakable.ledger.jsonl")
    written = b"".join(path.read_bytes() for path in (*out.rglob("*"), ledger) if path.is_file())
    assert "7712345" not in said
    assert b"7712345" not in written
