import pytest
import torch

from privset.methods.matching import row_cosine_distance


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
    assert float(row_cosine_distance([weight, bias], [weight, -bias])) == pytest.approx(0.0, abs=1e-5)


def test_rows_of_zeros_are_harmless():
    assert float(row_cosine_distance([torch.zeros(2, 3)], [torch.ones(2, 3)])) == 2.0
    images = torch.zeros(2, 3, requires_grad=True)
    row_cosine_distance([images * 0], [torch.ones(2, 3)]).backward()
    assert images.grad is not None
    assert bool(images.grad.isfinite().all())


def test_gradients_of_different_networks_are_refused():
    with pytest.raises(ValueError, match="zip"):
        row_cosine_distance([torch.eye(2)], [])
