"""The stages of distilling: a set, a pool, networks trained on it, a set refined against it."""

import dataclasses

import pytest
import torch
from tests.conftest import TINY, facts_for

from privset.methods import Checkpoint, Measured, Moments
from privset.observer import Observer

TINY_MOMENTS = TINY["moments"]


class Watch(Observer):
    """Notes the steps of every phase; stops, if asked to, as by a kill, at one of them."""

    def __init__(self, phase="", step=0):
        self.steps, self._stop = {}, (phase, step)

    def phase(self, name, total):
        self.now = name
        self.steps[name] = []

    def step(self, count=1, **values):
        self.steps[self.now].append(count)
        if self._stop == (self.now, sum(self.steps[self.now])):
            raise Killed


class Killed(BaseException):
    """What no `except Exception` catches."""


class Memory(Checkpoint):
    """Keeps every state."""

    seconds = 0.0

    def __init__(self):
        self.state = None

    def load(self):
        return self.state

    def save(self, state):
        self.state = state


LOOPS = ["distilling", "distilling a pool", "refining"]


@pytest.fixture(scope="module")
def found():
    """Statistics that nobody measured: noise of the right form."""
    facts, generator = facts_for(40), torch.Generator().manual_seed(0)
    shapes = Moments(TINY_MOMENTS).shapes(facts)
    statistics = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    statistics["class_sizes"] += 13
    return Measured(config=TINY_MOMENTS, facts=facts, statistics=statistics)


@pytest.fixture(scope="module")
def whole(found):
    """The set of a run that was never stopped."""
    return Moments(TINY_MOMENTS).distil(found)


def test_a_small_set_is_refined_against_a_pool_and_a_large_one_is_not(found):
    def distilled(**fields):
        watch = Watch()
        config = dataclasses.replace(TINY_MOMENTS, averaging=0.0, **fields)
        made = Moments(config).distil(found, observer=watch)
        return made, {name: sum(steps) for name, steps in watch.steps.items()}

    refined, steps = distilled()
    assert steps == {"distilling": 3, "distilling a pool": 3, "training on the pool": 4, "refining": 3}
    plain, steps = distilled(pool=0)
    assert steps == {"distilling": 3}
    for pool in (1, 2):  # as large as the set, or smaller: nothing to learn from it
        same, steps = distilled(pool=pool)
        assert steps == {"distilling": 3}
        assert torch.equal(same.images, plain.images)
    assert refined.images.shape == plain.images.shape
    assert torch.equal(refined.labels, plain.labels)
    assert float((refined.images - plain.images).abs().max()) > 1e-2
    assert float(refined.images.abs().max()) <= 1  # pixels still, with a mean and a deviation of a half


@pytest.mark.parametrize("fields", [{"pool": 4}, {"pool_networks": 2}, {"pool_training": 5}, {"refining_steps": 4}])
def test_every_setting_of_the_pool_changes_the_refined_set(found, whole, fields):
    changed = Moments(dataclasses.replace(TINY_MOMENTS, **fields)).distil(found)
    assert not torch.equal(whole.images, changed.images)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("step", [1, 2])
def test_killed_in_any_loop_it_goes_on_to_the_same_bits(found, whole, loop, step):
    method, checkpoint = Moments(TINY_MOMENTS), Memory()
    with pytest.raises(Killed):
        method.distil(found, observer=Watch(loop, step), checkpoint=checkpoint)
    watch = Watch()
    resumed = method.distil(found, observer=watch, checkpoint=checkpoint)
    assert torch.equal(resumed.images, whole.images)
    for name in LOOPS[: LOOPS.index(loop)]:
        assert len(watch.steps[name]) == 1  # all of its steps at once: done before
    assert watch.steps[loop][0] == step


def test_killed_while_networks_are_trained_they_are_trained_anew(found, whole):
    method, checkpoint = Moments(TINY_MOMENTS), Memory()
    with pytest.raises(Killed):
        method.distil(found, observer=Watch("training on the pool", 3), checkpoint=checkpoint)
    watch = Watch()
    assert torch.equal(method.distil(found, observer=watch, checkpoint=checkpoint).images, whole.images)
    assert watch.steps["distilling a pool"] == [3]
    assert sum(watch.steps["training on the pool"]) == 4


def test_light_leaves_the_pool_out():
    assert Moments.preset("light", per_class=10, epsilon=1.0).pool == 0
    assert Moments.preset("standard", per_class=10, epsilon=1.0).pool > 10
