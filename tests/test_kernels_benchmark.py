"""What benchmarks/kernels.py times gives the same by our kernels as by torch."""

import pytest
import torch
from tests.test_convolutions import (  # noqa: F401 - a fixture
    CARD,
    needs_kernels,  # which looks for TRITON_INTERPRET
    whole_interpreter,
)

from privset import convolutions
from privset.methods import matching_kernels
from privset.privacy import clipping_kernels


@pytest.fixture
def kernels(monkeypatch, benchmark_named):
    module = benchmark_named("kernels")
    monkeypatch.setattr(module, "WIDTH", 8)
    monkeypatch.setattr(module, "NETWORKS", 2)
    return module


@needs_kernels
def test_both_give_the_same(kernels, monkeypatch):
    for module in (convolutions, clipping_kernels, matching_kernels):
        monkeypatch.setattr(module, "fits", lambda _: True)
    names = []
    for name, ours, theirs in kernels.pairs(3, torch.device(CARD)):
        found, expected = ours().double(), theirs().double()
        assert found.shape == expected.shape
        assert float((found - expected).norm() / expected.norm()) < 0.01
        names.append(name)
    assert len(set(names)) == len(names) == 19


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_without_a_card_it_says_so(kernels, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.argv", ["kernels.py", "--results", str(tmp_path)])
    with pytest.raises(SystemExit):
        kernels.main()
    assert "there is no graphics card here" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
