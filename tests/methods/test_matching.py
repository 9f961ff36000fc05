import os

import pytest
import torch

from privset.methods import matching_kernels
from privset.methods.matching import distance_and_slopes, row_cosine_distance

INTERPRETED = matching_kernels.AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
RUNS = INTERPRETED or (matching_kernels.AVAILABLE and torch.cuda.is_available())
CARD = "cuda" if torch.cuda.is_available() else "cpu"


def test_rows_count_one_by_one_and_scale_does_not_matter():
    a = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    b = torch.tensor([[5.0, 0.0], [3.0, 0.0]])
    assert float(row_cosine_distance([a], [b])) == pytest.approx(1.0, abs=1e-5)  # 0 for the first row, 1 for the second
    assert float(row_cosine_distance([a], [a * 7])) == pytest.approx(0.0, abs=1e-5)
    assert float(row_cosine_distance([a], [-a])) == pytest.approx(4.0, abs=1e-5)


def test_a_convolution_has_one_row_for_each_output_channel():
    weight = torch.randn(6, 3, 5, 5)
    assert float(row_cosine_distance([weight], [-weight])) == pytest.approx(12.0, abs=1e-4)


def test_biases_and_norm_scales_do_not_count():
    weight, bias = torch.eye(3), torch.ones(3)
    for given in (bias, None):
        assert float(row_cosine_distance([weight, given], [weight, -bias])) == pytest.approx(0.0, abs=1e-5)


def test_rows_of_zeros_are_harmless():
    assert float(row_cosine_distance([torch.zeros(2, 3)], [torch.ones(2, 3)])) == 2.0
    images = torch.zeros(2, 3, requires_grad=True)
    row_cosine_distance([images * 0], [torch.ones(2, 3)]).backward()
    assert images.grad is not None
    assert bool(images.grad.isfinite().all())


def test_gradients_of_different_networks_are_refused():
    with pytest.raises(ValueError, match="zip"):
        row_cosine_distance([torch.eye(2)], [])


@pytest.mark.parametrize(
    "kernel",
    [False, pytest.param(True, marks=pytest.mark.skipif(not RUNS, reason="neither a card nor the interpreter"))],
)
def test_slopes_are_those_of_the_distance_in_float64(kernel, monkeypatch):
    monkeypatch.setattr(matching_kernels, "fits", lambda _: kernel)
    generator = torch.Generator().manual_seed(0)
    shapes = [(5, 1, 3, 3), (5,), (4, 7, 3, 3), (3, 5000), (3,)]  # one row is longer than a program looks at at once
    first, second = ([torch.randn(shape, generator=generator) for shape in shapes] for _ in range(2))
    first[2][1], second[2][2] = 0, 0
    counted = [number for number, shape in enumerate(shapes) if len(shape) > 1]
    exact = [first[number].double().requires_grad_() for number in counted]
    expected = row_cosine_distance(exact, [second[number].double() for number in counted])
    wanted = dict(zip(counted, torch.autograd.grad(expected, exact), strict=True))
    strange = [values.to(CARD).transpose(0, -1).contiguous().transpose(0, -1) for values in second]
    given = [values.to(CARD) for values in first[:-1]] + [None]  # of what has one dimension, or none at all
    distance, slopes = distance_and_slopes(given, strange)
    assert float(distance) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert [number for number, found in enumerate(slopes) if found is not None] == counted
    for number, theirs in wanted.items():
        found = slopes[number]
        assert found is not None
        assert found.shape == theirs.shape
        # A row of zeros has a slope of a million, the stabiliser's inverse: each row by its own length.
        error = (found.cpu().double() - theirs).flatten(1).norm(dim=1)
        assert bool((error <= 1e-4 * theirs.flatten(1).norm(dim=1) + 1e-12).all())
