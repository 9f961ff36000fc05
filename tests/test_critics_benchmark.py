"""What benchmarks/critics.py times gives the same both ways, and leaves the way that is used as it was."""

import pytest
import torch
from tests.networks.test_patch_kernels import CARD, INTERPRETED, needs_kernels  # which looks for TRITON_INTERPRET

from privset import convolutions
from privset.networks import direct, patch_kernels, patches


@pytest.fixture
def critics(monkeypatch, benchmark_named):
    module = benchmark_named("critics")
    monkeypatch.setattr(module, "median", lambda work, turns: float(work().numel() * turns > 0))
    return module


@needs_kernels
def test_both_ways_are_near_float64_and_one_of_them_is_direct(critics, monkeypatch):
    if INTERPRETED:
        for module in (patch_kernels, convolutions):
            monkeypatch.setattr(module, "fits", lambda _: True)
        monkeypatch.setattr(direct, "fits", lambda *_: True)
    monkeypatch.setattr(direct, "FEWEST_NETWORKS", 1)
    used = []
    for name in ("convolve", "spread", "by_kernel"):
        work = getattr(direct, name)
        monkeypatch.setattr(direct, name, lambda *given, name=name, work=work: used.append(name) or work(*given))
    before = patches.DIRECT

    found = list(critics.measure((2, 2, 5, 8, 9), torch.device(CARD), 1))

    assert [one["operation"] for one in found] == ["convolved", "by kernel", "by maps"]
    assert list(dict.fromkeys(used)) == ["convolve", "by_kernel", "spread"]
    assert all(0 <= apart < 5e-3 for one in found for apart in one["apart"].values())
    assert before == patches.DIRECT


def test_without_a_card_it_says_so(critics, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["critics.py"])

    with pytest.raises(SystemExit):
        critics.main()
    assert "no graphics card" in capsys.readouterr().err
