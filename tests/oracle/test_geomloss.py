"""Against geomloss, which the published code of DP-Sinkhorn calls."""

import geomloss
import pytest
import torch
from tests.conftest import facts_for

from privset.methods.transport import Transport


@pytest.mark.parametrize("l1_weight", [1.0, 3.0])
@pytest.mark.parametrize(("others", "dtype"), [(12, torch.float64), (17, torch.float32)])
def test_cost_and_gradient_are_those_of_geomloss(l1_weight, others, dtype):
    facts = facts_for(40, side=8)
    generator = torch.Generator().manual_seed(1)
    x = (torch.rand(12, 64, generator=generator, dtype=dtype) * 2 - 1).requires_grad_()
    y = torch.rand(others, 64, generator=generator, dtype=dtype) * 2 - 1
    lx, ly = torch.randint(3, (12,), generator=generator), torch.randint(3, (others,), generator=generator)
    transport = Transport(facts, label_scale=15.0, l1_weight=l1_weight)

    def joint(points, labels):
        return torch.cat([points, 15.0 * torch.nn.functional.one_hot(labels, 3).to(dtype)], 1)

    def cost(a, b):
        difference = a.unsqueeze(-2) - b.unsqueeze(-3)
        return difference.square().sum(-1) + l1_weight * difference.abs().sum(-1)

    theirs = geomloss.SamplesLoss(
        "sinkhorn", p=1, blur=0.05, cost=cost, debias=False, backend="tensorized", diameter=transport.temperatures[0]
    )(joint(x, lx), joint(y, ly))
    ours = transport(x, lx, y, ly)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    (expected,), (found,) = torch.autograd.grad(theirs, x), torch.autograd.grad(ours, x)
    assert torch.allclose(found, expected, atol=1e-5 if dtype == torch.float64 else 1e-2)
