"""The gradients of WGAN-GP that are written out, against automatic differentiation."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from tests.conftest import TINY, facts_for
from torch.func import grad, vmap

from privset.methods.lessons import Lessons
from privset.networks import patches


@pytest.fixture(params=["as on a processor", "as on a card"])
def way(request, monkeypatch):
    """How critics convolve."""
    if request.param == "as on a card":
        for name in ("convolved", "by_maps", "by_kernel"):
            monkeypatch.setattr(patches, name, getattr(patches, f"{name}_by_products"))


def by_autograd(critic, state, images, labels):
    """Scores, by nothing but differentiable operations of torch."""
    normed = {
        name: state[name] / stretch_of(state, name) if state[name].ndim > 1 else state[name] for name in critic.shapes
    }
    maps = images
    for name in ("conv 0", "conv 1", "conv 2"):
        if name in normed:
            maps = F.relu(F.conv2d(maps, normed[name], normed[name.replace("conv", "bias")], stride=2, padding=2))
    if "dense" in normed:
        maps = F.relu(maps.flatten(1) @ normed["dense"].T + normed["bias of dense"])
    features = maps.flatten(1)
    return features @ normed["linear"][0] + normed["bias"] + (features * normed["classes"][labels]).sum(1)


def stretch_of(state, name):
    """How far a weight stretches; a bias does not, and is left as it is."""
    if state[name].ndim == 1:
        return 1
    table = state[name].flatten(1)
    back = F.normalize(state["direction of " + name] @ table.detach(), dim=0)
    return F.normalize(table.detach() @ back, dim=0) @ table @ back


def wgan_gp(critic, state, images, fakes, between, labels):
    real, fake = by_autograd(critic, state, images, labels), by_autograd(critic, state, fakes, labels)
    slopes = grad(lambda x: by_autograd(critic, state, x, labels).sum())(between)
    lengths = (slopes.flatten(1).square().sum(1) + 1e-12).sqrt()
    return fake.mean() - real.mean() + 10 * (lengths - 1).square().mean() + 1e-3 * real.square().mean()


@pytest.mark.parametrize(("dense", "size", "channels"), [(False, (8, 8), 1), (False, (11, 9), 3), (True, (8, 10), 3)])
def test_what_is_written_out_is_what_autograd_finds(dense, size, channels, way):
    """In float64, for critics side by side, after some of them have learned to have slopes of another length than 1."""
    random = torch.Generator().manual_seed(0)
    facts = dataclasses.replace(facts_for(40, channels=channels), height=size[0], width=size[1])
    config = dataclasses.replace(TINY["gs-wgan"], critic_width=3, shallow=dense)
    lessons = Lessons(config, facts)
    critic = lessons._critic
    states = {name: value.double() for name, value in critic.first_weights(range(3)).items()}
    states = {
        name: value * torch.tensor([1.0, 3.0, 0.3]).view(3, *(1,) * (value.ndim - 1)) if "bias" in name else value
        for name, value in states.items()
    }
    images, fakes, between = torch.randn(3, 3, 6, *facts.shape, generator=random, dtype=torch.float64)
    labels = torch.randint(3, (3, 6), generator=random)

    found = vmap(lessons._slopes)(states, images, fakes, between, labels)
    said = vmap(lambda state: lessons.say(state, {"fakes": fakes[0], "labels": labels[0]}))(states)

    for number in range(3):
        state = {name: value[number] for name, value in states.items()}
        given = (images[number], fakes[number], between[number], labels[number])
        own = {name: state[name] for name in critic.shapes}
        expected = grad(lambda weights, state=state, given=given: wgan_gp(critic, state | weights, *given))(own)
        assert expected.keys() == found.keys()
        for name, slope in expected.items():
            assert float(slope.abs().max()) > 0
            torch.testing.assert_close(found[name][number], slope, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(critic(state, given[0], given[3]), by_autograd(critic, state, given[0], given[3]))
        slope = grad(lambda x, state=state: -by_autograd(critic, state, x, labels[0]).sum())(fakes[0])
        torch.testing.assert_close(said[number], slope)


def test_a_lesson_takes_each_layer_four_times(monkeypatch):
    """All images forwards, slopes back, what is penalised forwards once more, and the gradient: no layer more often."""
    taken = dict.fromkeys(("convolved", "by_maps", "by_kernel"), 0)

    def counted(name, work):
        def one(*given):
            taken[name] += 1
            return work(*given)

        return one

    for name in taken:
        monkeypatch.setattr(patches, name, counted(name, getattr(patches, name)))
    lessons, (images, fakes, between) = Lessons(TINY["gs-wgan"], facts_for(40)), torch.randn(3, 4, 1, 8, 8)
    state = {name: value[0] for name, value in lessons._critic.first_weights([0]).items()}

    lessons._slopes(state, images, fakes, between, torch.tensor([0, 1, 2, 0]))

    assert taken == {"convolved": 2 * 3, "by_maps": 3, "by_kernel": 3}
