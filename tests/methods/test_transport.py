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


def weighted(count, places, drawn, *, pixels=100):
    """Labelled images and others, of which only the first few have a weight, in float64."""
    random = torch.Generator().manual_seed(0)
    images, others = (torch.rand(size, pixels, generator=random).double() * 2 - 1 for size in (count, places))
    others[: min(3, places)] = images[: min(3, places)]  # where the slope of a length jumps
    labels, other_labels = (torch.randint(3, (size,), generator=random) for size in (count, places))
    weights = torch.zeros(places, dtype=torch.float64)
    weights[:drawn] = 1 / drawn
    return images, labels, others, other_labels, weights


SIZES = [(50, 83, 47), (16, 16, 16), (3, 40, 1), (70, 5, 5)]


@needs_kernels
@pytest.mark.parametrize(("count", "places", "drawn"), SIZES)
@pytest.mark.parametrize("pixels", [100, 300])
def test_the_kernels_find_the_same_costs_and_slopes(count, places, drawn, pixels):
    images, labels, others, other_labels, _ = weighted(count, places, drawn, pixels=pixels)
    transport = Transport(FACTS, label_scale=15.0, l1_weight=3.0)
    strange = images.float().T.contiguous().T.to(CARD)
    ours, turned = transport_kernels.costs(
        strange,
        labels.to(CARD),
        others.float().to(CARD),
        other_labels.to(CARD),
        l1_weight=3.0,
        other_label=transport.other_label,
    )
    leaf = images.clone().requires_grad_()
    theirs = transport.costs(leaf, labels, others, other_labels)
    torch.testing.assert_close(ours.cpu().double(), theirs.detach(), rtol=1e-5, atol=1e-4)
    assert torch.equal(turned, ours.T)
    plan = torch.rand(places, count, dtype=torch.float64).T
    (expected,) = torch.autograd.grad((plan * theirs).sum(), leaf)
    found = transport_kernels.slopes(strange, others.float().to(CARD), plan.float().to(CARD), l1_weight=3.0)
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-4, atol=1e-4)


@needs_kernels
@pytest.mark.parametrize(("count", "places", "drawn"), SIZES)
@pytest.mark.parametrize("alike", [True, False])
def test_the_kernel_finds_the_same_plan(count, places, drawn, alike):
    random = torch.Generator().manual_seed(0)
    costs = (400 * torch.rand(count, places, generator=random, dtype=torch.float64) ** 2).requires_grad_()
    *_, weights = weighted(count, places, drawn)
    weights = torch.full((places,), 1 / places, dtype=torch.float64) if alike else weights
    logs, other_logs = torch.full((count,), -math.log(count), dtype=torch.float64), weights.log()
    blur, temperatures = 2.0, falling(73.4, 2.0, 0.5)
    potential, other = potentials(costs, logs, other_logs, temperatures)
    last = softmin(costs, other_logs + other / blur, blur).mean()
    back = (weights * softmin(costs.T, logs + potential / blur, blur)).sum()
    expected = [torch.autograd.grad(one, costs)[0] for one in (last, back)]
    strange = costs.detach().float().T.contiguous().T.to(CARD)
    found = transport_kernels.plans(strange, strange.T, None if alike else weights.float().to(CARD), temperatures)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu().double(), theirs, rtol=1e-3, atol=1e-6)


@needs_kernels
@pytest.mark.parametrize("places", [65, 128])
def test_where_all_weight_lies_in_the_second_half_a_plan_is_finite_and_goes_there(places):
    random = torch.Generator().manual_seed(0)
    costs, weights = 400 * torch.rand(5, places, generator=random).to(CARD), torch.zeros(places, device=CARD)
    weights[-1] = 1
    for plan in transport_kernels.plans(costs, costs.T, weights, falling(73.4, 0.05, 0.5)):
        assert bool(plan.isfinite().all())
        torch.testing.assert_close(plan[:, -1].sum().cpu(), torch.tensor(1.0))
        assert not plan[:, :-1].any()


@needs_kernels
def test_more_than_one_program_holds_is_refused():
    costs = torch.zeros(3, 129, device=CARD)
    with pytest.raises(ValueError, match="holds the costs of 128 images"):
        transport_kernels.plans(costs, costs.T, None, (1.0,))


@needs_kernels
@pytest.mark.parametrize("by_others", [False, True])
@pytest.mark.parametrize("alike", [False, True])
def test_the_gradients_by_the_kernels_are_those_of_the_cost(monkeypatch, by_others, alike):
    images, labels, others, other_labels, weights = weighted(12, 20, 13, pixels=64)
    transport, found = Transport(FACTS, label_scale=15.0, l1_weight=1.0), []
    for kernel in (False, True):
        monkeypatch.setattr(transport_kernels, "fits", lambda *_, kernel=kernel: kernel)
        first, other, weight = (
            part.to(CARD, torch.float32 if kernel else torch.float64) for part in (images, others, weights)
        )
        slopes = transport.slopes(
            first, labels.to(CARD), other, other_labels.to(CARD), None if alike else weight, by_others=by_others
        )
        assert len(slopes) == 1 + by_others
        found.append([slope.double() for slope in slopes])
    for theirs, ours in zip(*found, strict=True):
        # In float32 a cost of hundreds is known to 3e-5, a thousandth of what the last temperature takes for the same.
        torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-3 * float(theirs.abs().max()))


def test_the_gradients_of_a_transport_are_those_of_its_cost():
    images, labels, others, other_labels, weights = weighted(5, 8, 6, pixels=9)
    transport = Transport(FACTS, label_scale=15.0, l1_weight=1.0)
    leaf, other = images.clone().requires_grad_(), others.clone().requires_grad_()
    expected = torch.autograd.grad(transport(leaf, labels, other, other_labels, weights), (leaf, other))
    found = transport.slopes(images, labels, others, other_labels, weights)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)
    (alone,) = transport.slopes(images, labels, others, other_labels, weights, by_others=False)
    assert torch.equal(alone, expected[0])


@needs_kernels
def test_only_what_one_program_can_hold_is_left_to_the_kernels():
    def images(count, dtype=torch.float32):
        return torch.zeros(count, 4, dtype=dtype)

    assert transport_kernels.small(images(50), images(83))
    assert transport_kernels.small(images(128), images(128))
    assert not transport_kernels.small(images(128), images(129))
    assert not transport_kernels.small(images(3, torch.float64), images(3, torch.float64))
    assert not transport_kernels.small(images(3), images(3, torch.float64))
    assert transport_kernels.fits(images(3).to(CARD), images(3).to(CARD)) == (CARD == "cuda")


@needs_kernels
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, in the interpreter
def test_without_any_weight_nothing_is_finite():
    costs = torch.ones(3, 4, device=CARD)
    found = transport_kernels.plans(costs, costs.T, torch.zeros(4, device=CARD), (2.0, 1.0))
    assert not any(bool(values.isfinite().any()) for values in found)
