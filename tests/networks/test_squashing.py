import pytest
import torch

from privset.networks.squashing import squashed


@pytest.mark.parametrize("least_slope", [0.0, 1e-6, 1e-2])
def test_it_is_the_sigmoid_and_its_slope_is_at_least_so_much(least_slope):
    given = torch.linspace(-60, 60, 101, dtype=torch.float64, requires_grad=True)
    found = squashed(given, least_slope)
    assert torch.equal(found, torch.sigmoid(given))
    (slopes,) = torch.autograd.grad(found, given, 3 * torch.ones_like(given))
    exact = 3 * (found * (1 - found)).detach()
    torch.testing.assert_close(slopes, exact.clamp_min(3 * least_slope))


def test_the_slope_keeps_the_sign_of_what_comes_back():
    given = torch.tensor([-500.0, 500.0], requires_grad=True)
    (slopes,) = torch.autograd.grad(squashed(given, 1e-6), given, torch.tensor([-2.0, 3.0]))
    torch.testing.assert_close(slopes, torch.tensor([-2e-6, 3e-6]))
