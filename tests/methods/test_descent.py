import copy
import dataclasses

import pytest
import scipy.fft
import torch
from tests.conftest import facts_for

from privset.facts import pixel_range
from privset.methods import descent
from privset.methods.descent import Adam, Descent, Spectrum, approach, cosine, step_of_adam

FACTS = facts_for(4, channels=3)


def draws(count, scale, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(count, 2, *FACTS.shape, generator=generator, dtype=torch.float64)


def walk(descent, slopes, rate=0.01):
    for slope in slopes:
        descent.set_rate(rate)
        pull(descent, slope)
        descent.step()
        yield descent.images.clone()


def pull(descent, slope):
    """Follow a loss with this gradient; its value."""
    return descent.follow(lambda images: (images * slope).sum())


@pytest.mark.parametrize("smoothness", [0.0, 1.0, 1.5])
def test_within_the_range_of_pixels_every_step_is_one_of_adam_on_waves(smoothness):
    start = draws(1, 0.05)[0]
    descent, spectrum = (
        Descent(start, FACTS, averaging=0.9, smoothness=smoothness),
        Spectrum(start, smoothness=smoothness),
    )
    theirs = torch.zeros_like(start, requires_grad=True)
    adam = torch.optim.Adam([theirs], betas=(0.9, 0.99))
    slopes = draws(12, 3.0, seed=1)
    slopes[:, 0] = 0  # an image that nothing moves
    slopes[6:] *= 1e-4
    rates = [cosine(0.02, step, 12) for step in range(12)]
    moved = start
    for slope, rate in zip(slopes, rates, strict=True):
        (moved,) = walk(descent, [slope], rate)
        theirs.grad = spectrum.waves(slope)
        adam.param_groups[0]["lr"] = rate
        adam.step()
        assert torch.allclose(moved, start + spectrum.image(theirs.detach()), rtol=0, atol=1e-12)
    assert torch.equal(moved[0], start[0])
    assert float((moved - start).abs().max()) > 0.05
    assert float(moved.abs().max()) < 0.9  # so nothing was clamped


def test_waves_are_those_of_the_cosine_transform():
    images = draws(1, 1.0)[0][..., :3]  # higher than wide
    found = Spectrum(images, smoothness=0.0).waves(images)
    expected = torch.from_numpy(scipy.fft.dctn(images.numpy(), axes=(2, 3), norm="ortho"))
    assert torch.allclose(found, expected, atol=1e-12)


def test_the_strength_of_a_wave_falls_with_its_frequency_and_is_one_in_the_mean_square():
    spectrum = Spectrum(torch.zeros(1, 1, 6, 8), smoothness=2.0)
    strength = spectrum.strength
    assert float(strength.square().mean()) == pytest.approx(1, rel=1e-6)
    assert float(strength[0, 0]) == float(strength[0, 1]) == pytest.approx(float(strength[1, 0]))
    assert float(strength[3, 4] / strength[0, 1]) == pytest.approx(1 / 25)
    assert torch.equal(Spectrum(torch.zeros(1, 1, 6, 8), smoothness=0.0).strength, torch.ones(6, 8))


def test_of_white_noise_the_spectrum_makes_smooth_images_as_strong():
    white = torch.randn(200, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    smooth = Spectrum(white, smoothness=1.0).image(white)

    def roughness(images):
        return float((images[..., 1:] - images[..., :-1]).square().mean() / images.square().mean())

    assert float(smooth.square().mean()) == pytest.approx(1, rel=0.1)
    assert roughness(white) == pytest.approx(2, rel=0.05)
    assert roughness(smooth) < 1


def test_images_stay_pixels_from_the_start_on_in_every_channel():
    facts = dataclasses.replace(FACTS, mean=(0.2, 0.5, 0.7), std=(0.5, 1.0, 0.25))
    low, high = pixel_range(facts, torch.zeros(1, dtype=torch.float64))
    start = draws(1, 10.0)[0]
    descent = Descent(start, facts, averaging=0.5, smoothness=1.0)
    assert torch.equal(descent.images, start.clamp(low, high))
    images = start
    for images in walk(descent, draws(8, 1.0, seed=1), rate=1.0):
        assert bool(((images >= low) & (images <= high)).all())
        assert bool(((descent.average >= low) & (descent.average <= high)).all())
    assert bool((images == low).any())
    assert bool((images == high).any())


@pytest.mark.parametrize("averaging", [0.0, 0.8, 0.999])
def test_the_average_is_that_of_the_past_images_and_has_nothing_of_the_noise_they_began_as(averaging):
    descent, past = Descent(draws(1, 0.1)[0], FACTS, averaging=averaging, smoothness=1.0), []
    for images in walk(descent, draws(5, 1.0, seed=1), rate=0.1):
        past.append(images.clone())
        weights = torch.tensor([averaging**age for age in reversed(range(len(past)))], dtype=torch.float64)
        expected = torch.tensordot(weights / weights.sum(), torch.stack(past), dims=1)
        assert torch.allclose(descent.average, expected, atol=1e-12)


def test_gradients_add_up_and_a_step_uses_them_up():
    start, (slope,) = draws(1, 0.1)[0], draws(1, 1.0, seed=1)
    once, twice = (Descent(start, FACTS, averaging=0.9, smoothness=1.0) for _ in range(2))
    list(walk(once, [slope, 0.5 * slope, torch.zeros_like(slope)]))
    list(walk(twice, [slope]))
    pull(twice, 0.2 * slope)
    pull(twice, 0.3 * slope)
    twice.step()
    twice.step()  # by the momentum alone: no gradient is left
    assert torch.allclose(once.images, twice.images, atol=1e-12)


def test_the_loss_is_that_of_the_images_and_nothing_keeps_its_graph():
    start = draws(1, 0.1)[0]
    descent = Descent(start, FACTS, averaging=0.9, smoothness=1.0)
    value = descent.follow(lambda images: (images**4).sum())
    assert float(value) == pytest.approx(float((start**4).sum()))
    assert not any(some.requires_grad for some in (value, *descent.tensors.values()))
    assert torch.equal(descent.images, start)  # following moves nothing yet
    descent.set_rate(0.01)
    descent.step()
    spectrum = Spectrum(start, smoothness=1.0)
    expected = start - 0.01 * spectrum.image(torch.sign(spectrum.waves(4 * start**3)))  # Adam first goes by signs
    assert torch.allclose(descent.images, expected, atol=1e-4)


def test_every_step_is_in_place_as_a_recording_needs_it():
    descent = Descent(draws(1, 0.1)[0], FACTS, averaging=0.9, smoothness=1.0)
    places = {name: some.data_ptr() for name, some in descent.tensors.items()}
    list(walk(descent, draws(3, 1.0, seed=1)))
    assert {name: some.data_ptr() for name, some in descent.tensors.items()} == places


def test_the_start_is_left_alone_and_its_tensors_are_all_there_is():
    start = draws(1, 0.1)[0]
    before, slopes = start.clone(), draws(6, 1.0, seed=1)
    whole, first, second = (Descent(start, FACTS, averaging=0.9, smoothness=1.0) for _ in range(3))
    list(walk(whole, slopes))
    assert torch.equal(start, before)
    list(walk(first, slopes[:3]))
    for name, value in second.tensors.items():
        value.copy_(first.tensors[name])
    list(walk(second, slopes[3:]))
    for name, value in whole.tensors.items():
        assert torch.equal(second.tensors[name], value), name


def test_a_cosine_falls_to_a_fiftieth():
    rates = [cosine(0.05, step, 40) for step in range(41)]
    assert rates[0] == pytest.approx(0.05)
    assert rates[20] == pytest.approx(0.05 * 0.51)
    assert rates[40] == pytest.approx(0.001)
    assert rates == sorted(rates, reverse=True)


def test_steps_on_the_weights_of_a_network_are_those_of_adam():
    torch.manual_seed(0)
    ours = torch.nn.Sequential(torch.nn.Linear(3, 4, bias=False), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    theirs = copy.deepcopy(ours)
    weights = list(ours.parameters())
    adam, reference = Adam(weights, betas=(0.9, 0.999)), torch.optim.Adam(theirs.parameters(), lr=0.01)
    adam.set_rate(0.01)
    for _ in range(20):
        batch = torch.randn(8, 3)
        followed = (ours(batch) - batch[:, :1]).square().mean()
        adam.step(torch.autograd.grad(followed, weights))
        loss = (theirs(batch) - batch[:, :1]).square().mean()
        reference.zero_grad()
        loss.backward()
        reference.step()
        assert float(followed.detach()) == pytest.approx(float(loss.detach()), rel=1e-4)
    for name, value in theirs.state_dict().items():
        assert torch.allclose(ours.state_dict()[name].float(), value.float(), atol=1e-4), name


@pytest.mark.parametrize(("piece", "pieces"), [(descent._PIECE, descent._PIECES), (7, descent._PIECES), (1, 5)])
def test_on_a_card_all_values_take_the_same_step_at_once(piece, pieces, monkeypatch):
    monkeypatch.setattr(descent, "_PIECE", piece)
    monkeypatch.setattr(descent, "_PIECES", pieces)
    random = torch.Generator().manual_seed(0)
    shapes = (3, 2, 4, 4), (5,), (6, 1)
    plain, fused = ([torch.zeros(shape, dtype=torch.float64) for shape in shapes] for _ in range(2))
    fused[0] = fused[0].contiguous(memory_format=torch.channels_last)  # as some generators have it
    one, other = (Adam(values, betas=(0.8, 0.95), weight_decay=0.3) for values in (plain, fused))
    for step in range(6):
        drawn = [10.0**-step * torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes]
        # Of two in one memory the second, which does not begin where that does.
        slopes = [torch.stack([torch.zeros_like(slope), slope])[1] for slope in drawn]
        for adam in (one, other):
            adam.set_rate(0.1 / (1 + step))
        one.step(slopes)
        other._count += 1
        other._at_once(slopes)
        for ours, theirs in zip([*fused, *other.tensors.values()], [*plain, *one.tensors.values()], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0.0)  # of a rate in float32


def test_a_large_tensor_is_moved_in_few_pieces():
    large, small = torch.zeros(descent._PIECE * 40 + 1), torch.zeros(3)
    assert len(descent._in_pieces([large, large])) == descent._PIECES
    assert len(descent._in_pieces([small, small])) == 1


def test_what_does_not_lie_in_one_piece_is_not_moved_at_once():
    values = [torch.zeros(18)[::2]]
    with pytest.raises(ValueError, match="in one piece"):
        Adam(values, betas=(0.9, 0.999))._at_once(values)


def test_weights_decay_as_by_adam():
    ours, theirs = (torch.ones(3, requires_grad=True) for _ in range(2))
    adam = Adam([ours], betas=(0.9, 0.999), weight_decay=0.2)
    reference = torch.optim.Adam([theirs], lr=0.01, weight_decay=0.2)
    adam.set_rate(0.01)
    for step in range(5):
        theirs.grad = torch.tensor([0.0, 1.0, -0.5 * step])
        adam.step([theirs.grad])
        reference.step()
    assert torch.allclose(ours, theirs, atol=1e-6)
    assert not torch.equal(ours, torch.ones(3))


@pytest.mark.parametrize("way", [approach, descent._approach_at_once])
def test_averages_go_a_share_of_the_way_in_place(way):
    averages, values = [torch.zeros(2), torch.ones(3, 1)], [torch.ones(2), 5 * torch.ones(3, 1)]
    places = [average.data_ptr() for average in averages]
    way(averages, values, torch.tensor(0.25))
    assert torch.equal(averages[0], torch.full((2,), 0.25))
    assert torch.equal(averages[1], torch.full((3, 1), 2.0))
    assert [average.data_ptr() for average in averages] == places
    assert torch.equal(values[0], torch.ones(2))


def test_averages_of_weights_that_learn_keep_nothing_of_how_they_came_about():
    average, weight = torch.zeros(2), torch.nn.Parameter(torch.ones(2))
    approach([average], [weight], torch.tensor(0.25))
    assert not average.requires_grad
    assert torch.equal(average, torch.full((2,), 0.25))


def test_networks_side_by_side_take_steps_of_adam_in_place(monkeypatch):
    def as_on_a_card(*lists, **more):  # which refuses tensors that do not lie alike
        assert all(len({tensor.stride() for tensor in some}) == 1 for some in zip(*lists[:4], strict=True))
        own(*lists, **more)

    own = descent._move
    monkeypatch.setattr(descent, "_move", as_on_a_card)
    random, rate, betas = torch.Generator().manual_seed(0), 0.1, (0.5, 0.9)
    values = [torch.randn(2, *shape, generator=random) for shape in ((3, 4), (5,), (6, 1))]
    means, squares = ([torch.zeros_like(value) for value in values] for _ in range(2))
    alone = [[value[number].clone() for value in values] for number in range(2)]
    rules = [torch.optim.Adam(some, lr=rate, betas=betas) for some in alone]

    taken = torch.zeros(())

    def step(*tensors):
        step_of_adam(*tensors, taken=taken, rate=rate, betas=betas)
        return tensors[0]

    for _ in range(4):
        # As vmap may leave them: with the networks on the last axis, or the same for all.
        slopes = [torch.randn(shape, generator=random) for shape in ((3, 4, 2), (5,), (2, 1, 6))]
        slopes[2] = slopes[2].transpose(1, 2)
        torch.func.vmap(step, in_dims=(0, 0, 0, [2, None, 0]))(values, means, squares, slopes)
        for number, rule in enumerate(rules):
            each = (slopes[0][..., number], slopes[1], slopes[2][number])
            for value, slope in zip(alone[number], each, strict=True):
                value.grad = slope
            rule.step()
        taken += 1
    for ours, *theirs in zip(values, *alone, strict=True):
        assert torch.allclose(ours, torch.stack(theirs), rtol=1e-5)


def test_networks_that_are_not_at_the_same_step_do_not_take_one_together():
    def step(value, taken):
        step_of_adam([value], [value * 0], [value * 0], [value], taken=taken, rate=0.1, betas=(0.5, 0.9))
        return value

    with pytest.raises(ValueError, match="take their steps together"):
        torch.func.vmap(step)(torch.ones(2, 3), torch.arange(2.0))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("shape", [(), (1,), (4,)])
def test_networks_side_by_side_cannot_move_what_they_share(count, shape):
    def step(own, shared):
        step_of_adam([shared], [shared * 0], [shared * 0], [own], taken=torch.zeros(()), rate=0.1, betas=(0.5, 0.9))
        return own

    shared = torch.ones(shape)
    with pytest.raises(ValueError, match="must be each network's own"):
        torch.func.vmap(step, in_dims=(0, None))(torch.ones(count, *shape), shared)
    assert torch.equal(shared, torch.ones(shape))
