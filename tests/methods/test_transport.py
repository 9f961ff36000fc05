import itertools
import math
import os

import pytest
import torch
from scipy.optimize import linear_sum_assignment
from tests.conftest import facts_for

from privset.methods import transport_kernels
from privset.methods.transport import Transport, falling, potentials, softmin

FACTS = facts_for(40, side=8)
INTERPRETED = transport_kernels.AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
RUNS = INTERPRETED or (transport_kernels.AVAILABLE and torch.cuda.is_available())
CARD = "cuda" if torch.cuda.is_available() else "cpu"
needs_kernels = pytest.mark.skipif(not RUNS, reason="neither a card nor the interpreter")


def clouds(count=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(2, count, 64, generator=generator, dtype=torch.float64) * 2 - 1
    labels = torch.randint(3, (2, count), generator=generator)
    return points[0], labels[0], points[1], labels[1]


def test_a_cost_is_squared_and_absolute_differences_of_images_with_scaled_labels():
    x, lx, y, ly = clouds()
    transport = Transport(FACTS, label_scale=15.0, l1_weight=3.0)
    found = transport.costs(x, lx, y, ly)
    a = torch.cat([x, 15 * torch.nn.functional.one_hot(lx, 3)], 1)
    b = torch.cat([y, 15 * torch.nn.functional.one_hot(ly, 3)], 1)
    difference = a[:, None] - b[None]
    assert torch.allclose(found, difference.square().sum(2) + 3 * difference.abs().sum(2))


def test_where_blur_is_small_the_cost_is_that_of_the_best_assignment():
    x, lx, y, ly = clouds()
    transport = Transport(FACTS, label_scale=1.0, l1_weight=1.0, blur=0.02, scaling=0.95)
    costs = transport.costs(x, lx, y, ly).numpy()
    rows, columns = linear_sum_assignment(costs)
    assert float(transport(x, lx, y, ly)) == pytest.approx(costs[rows, columns].mean(), rel=1e-3)


def test_the_gradient_is_that_of_the_cost_under_the_final_plan():
    x, lx, y, ly = clouds()
    transport = Transport(FACTS, label_scale=1.0, l1_weight=1.0, blur=0.5, scaling=0.97)
    x.requires_grad_()
    (slope,) = torch.autograd.grad(transport(x, lx, y, ly), x)
    with torch.no_grad():
        for index in (0, 70, 200):
            moved = x.detach().clone()
            moved.view(-1)[index] += 1e-4
            higher = transport(moved, lx, y, ly)
            moved.view(-1)[index] -= 2e-4
            assert float(slope.reshape(-1)[index]) == pytest.approx(
                float(higher - transport(moved, lx, y, ly)) / 2e-4, rel=2e-2, abs=1e-4
            )


def test_points_of_weight_zero_are_as_good_as_not_there():
    x, lx, y, ly = clouds()
    transport = Transport(FACTS, label_scale=15.0, l1_weight=1.0)
    padded, labels = torch.cat([y, torch.zeros(3, 64)]), torch.cat([ly, torch.zeros(3, dtype=torch.int64)])
    weights = torch.tensor([1 / 6] * 6 + [0.0] * 3, dtype=torch.float64)
    x.requires_grad_()
    whole, with_blanks = transport(x, lx, y, ly), transport(x, lx, padded, labels, weights)
    assert float(whole.detach()) == pytest.approx(float(with_blanks.detach()), rel=1e-12)
    (a,), (b,) = torch.autograd.grad(whole, x), torch.autograd.grad(with_blanks, x)
    assert torch.allclose(a, b)


def test_cost_and_gradient_are_the_same_whether_others_are_to_move_or_not():
    x, lx, y, ly = clouds()
    transport, found = Transport(FACTS, label_scale=2.0, l1_weight=1.0), []
    for others in (y, y.clone().requires_grad_()):
        leaf = x.clone().requires_grad_()
        cost = transport(leaf, lx, others[:5], ly[:5])
        found.append((cost.detach(), *torch.autograd.grad(cost, leaf, retain_graph=True)))
    assert bool(torch.autograd.grad(cost, others)[0].any())  # the second time
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_temperatures_fall_by_half_from_the_diameter_which_comes_twice_to_the_blur():
    found = falling(73.4, 0.05, 0.5)
    assert found[0] == found[1] == 73.4
    assert found[-1] == 0.05
    assert all(b == pytest.approx(a / 2) for a, b in itertools.pairwise(found[1:-1]))
    assert found[-2] > 0.05
    assert found[-2] / 2 <= 0.05


def test_a_smooth_minimum_of_one_cost_is_that_cost():
    assert float(softmin(torch.tensor([[7.0]]), torch.zeros(1), 0.3)) == pytest.approx(7.0)
    assert math.isinf(float(softmin(torch.tensor([[7.0]]), torch.tensor([-math.inf]), 0.3)))


@needs_kernels
@pytest.mark.parametrize(("count", "places", "drawn"), [(50, 83, 47), (16, 16, 16), (3, 40, 1), (70, 5, 5)])
def test_the_kernel_finds_the_same_potentials(count, places, drawn):
    random = torch.Generator().manual_seed(0)
    costs = 400 * torch.rand(count, places, generator=random, dtype=torch.float64) ** 2
    logs, other_logs = torch.rand(count, generator=random).log(), torch.full((places,), -math.inf)
    other_logs[:drawn] = -math.log(drawn)
    temperatures = falling(73.4, 0.05, 0.5)
    expected = potentials(costs, logs.double(), other_logs.double(), temperatures)
    strange = costs.float().T.contiguous().T.to(CARD)
    found = transport_kernels.potentials(strange, logs.to(CARD), other_logs.to(CARD), temperatures)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu().double(), theirs, rtol=1e-4, atol=1e-3)


@needs_kernels
def test_a_transport_by_the_kernel_has_the_same_cost_and_gradient(monkeypatch):
    x, lx, y, ly = (part.float() if part.is_floating_point() else part for part in clouds())
    transport, found = Transport(FACTS, label_scale=15.0, l1_weight=1.0), []
    for kernel in (False, True):
        monkeypatch.setattr(transport_kernels, "fits", lambda _, kernel=kernel: kernel)
        leaf = x.to(CARD).requires_grad_()
        cost = transport(leaf, lx.to(CARD), y.to(CARD), ly.to(CARD))
        found.append((cost.detach(), torch.autograd.grad(cost, leaf)[0]))
    for ours, theirs in zip(*found, strict=True):
        # In float32 a cost of hundreds is known to 3e-5, a thousandth of what the last temperature takes for the same.
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))


@needs_kernels
def test_only_what_one_program_can_hold_is_left_to_the_kernel():
    assert transport_kernels.small(torch.zeros(50, 83))
    assert transport_kernels.small(torch.zeros(128, 128))
    assert not transport_kernels.small(torch.zeros(128, 129))
    assert not transport_kernels.small(torch.zeros(3, 3, dtype=torch.float64))
    assert transport_kernels.fits(torch.zeros(3, 3, device=CARD)) == (CARD == "cuda")


@needs_kernels
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, in the interpreter
def test_without_any_weight_nothing_is_finite():
    found = transport_kernels.potentials(
        torch.ones(3, 4, device=CARD), torch.zeros(3, device=CARD), torch.full((4,), -math.inf, device=CARD), (2.0, 1.0)
    )
    assert not any(bool(values.isfinite().any()) for values in found)
