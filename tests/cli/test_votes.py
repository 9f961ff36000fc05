"""What the data holder is told of votes, and nobody else."""

import re

import numpy as np
import pytest

TINY = """--per-class 2 --epsilon 5 --teachers 60 --batch-size 4 --images 3 --steps 2 --projections 2 --code 3
--generator-width 5 --generator-maps 2 --teacher-width 4 --teacher-maps 2"""


@pytest.fixture
def own(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=rng.integers(0, 255, (60, 8, 8), dtype=np.uint8), y=np.arange(60) % 3)
    return tmp_path / "own.npz"


def test_the_data_holder_is_told_what_an_accountant_says_that_looks_at_votes(call, own, tmp_path):
    out = tmp_path / "release"
    code, said, told = call("generate", own, "--method", "g-pate", "--check", 2, *TINY.split(), "--out", out)
    assert code == 0, told
    (epsilon,) = re.findall(r"they cost epsilon ([0-9.]+) for these records", " ".join(told.split()))
    assert 0 < float(epsilon) <= 6  # by RDP alone, so it may be a little above
    assert "no guarantee" in told
    assert "for these records" not in said
    released = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert b"for these records" not in released


def test_where_noisy_counts_themselves_are_used_there_is_nothing_to_tell(call, own, tmp_path):
    code, _, told = call("generate", own, "--method", "g-pate", *TINY.split(), "--out", tmp_path / "release")
    assert code == 0, told
    assert "for these records" not in told
