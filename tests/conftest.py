"""What many tests need: small records with known public facts, and methods with settings of a second."""

import contextlib
import dataclasses
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from privset.data import PublicFacts, Records
from privset.methods import (
    METHODS,
    DataLensConfig,
    DpCganConfig,
    DpMerfConfig,
    DpSgdConfig,
    DpSinkhornConfig,
    GPateConfig,
    GsWganConfig,
    MomentsConfig,
    PsgConfig,
    PsgPriorConfig,
)
from privset.recording import _Recorded

# Threads of several test processes wait for each other on two cores; one each is faster by far.
torch.set_num_threads(1)


class _Stream:
    """Does all at once, and notes whom it was to wait for."""

    device = torch.device("cpu")

    def __init__(self):
        self.waited = []

    def wait_stream(self, other):
        if other is not self:
            self.waited.append(other)


class _Graph:
    """Plays back by taking the step again: with what its slots hold now, and from where its streams are to begin."""

    recording: Any
    step: Any
    stand_in: Any

    def replay(self):
        with contextlib.ExitStack() as stack:
            for stream, place, _ in self.recording.draws:
                stack.enter_context(stream.numbered_from(place))
            self.recording.result.copy_(self.step(*self.recording.slots))
        self.stand_in.replays += 1


class StandIn:
    """`privset.recording.recorded` as on a graphics card, with a processor in the place of the card."""

    def __init__(self):
        self.replays, self.stream = 0, _Stream()
        self.unmoved = ()  # what a card would leave as it is when it records a step; a processor has to put it back

    def __call__(self, step, device, generators=()):
        stand_in = self

        class OnProcessor(_Recorded):
            def _record(self, arguments):
                before = [value.clone() for value in stand_in.unmoved]
                recording = super()._record(arguments)
                for value, kept in zip(stand_in.unmoved, before, strict=True):
                    value.copy_(kept)
                graph: Any = recording.graph
                graph.recording, graph.step, graph.stand_in = recording, step, stand_in
                return recording

        stream: Any = self.stream
        return OnProcessor(step, stream, generators)


@pytest.fixture
def stand_in(monkeypatch):
    """The code that records and plays back, without a card."""
    found = StandIn()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", _Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: found.stream)
    return found


@pytest.fixture
def benchmark_named(monkeypatch):
    """A script of benchmarks/, read as if it were run."""

    def read(name):
        folder = Path(__file__).parents[1] / "benchmarks"
        monkeypatch.syspath_prepend(folder)
        spec = importlib.util.spec_from_file_location(f"{name}_benchmark", folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look for it there
        spec.loader.exec_module(module)
        return module

    return read


def facts_for(size: int, *, classes: int = 3, side: int = 8, channels: int = 1, name: str = "toy") -> PublicFacts:
    return PublicFacts(
        name=name,
        channels=channels,
        height=side,
        width=side,
        classes=tuple(f"class{k}" for k in range(classes)),
        size=size,
        mean=(0.5,) * channels,
        std=(0.5,) * channels,
    )


def records_for(facts: PublicFacts, seed: int = 0) -> Records:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (facts.size, *facts.shape), generator=generator, dtype=torch.uint8)
    return Records(images, torch.randint(0, len(facts.classes), (facts.size,), generator=generator))


TINY = {
    "psg": PsgConfig(
        per_class=2,
        runs=2,
        outer_steps=2,
        batches_per_step=2,
        inner_epochs=2,
        batch_size=16,
        width=4,
        keep_floats=False,
    ),
    "psg-prior": PsgPriorConfig(
        per_class=2,
        runs=2,
        outer_steps=2,
        batches_per_step=2,
        inner_epochs=2,
        batch_size=16,
        width=4,
        code=3,
        generator_width=4,
        keep_floats=False,
    ),
    "moments": MomentsConfig(
        per_class=2,
        networks=2,
        width=4,
        depth=2,
        resolution=2,
        waves=6,
        steps=3,
        networks_per_step=1,
        pool=3,
        pool_networks=1,
        pool_training=4,
        refining_steps=3,
    ),
    "dp-merf": DpMerfConfig(per_class=2, waves=6, width=5, steps=3, batch_size=8),
    "dp-cgan": DpCganConfig(per_class=2, steps=4, batch_size=16, code=4, width=8, decay_steps=2),
    "dp-sgd": DpSgdConfig(epochs=3, batch_size=16, averaging=0.5),
    "g-pate": GPateConfig(
        per_class=2,
        teachers=40,
        batch_size=4,
        images=3,
        steps=3,
        projections=2,
        bins=3,
        check=2.0,
        threshold=0.0,
        code=3,
        generator_width=5,
        generator_maps=2,
        teacher_width=4,
        teacher_maps=2,
    ),
    "datalens": DataLensConfig(
        per_class=2,
        teachers=40,
        batch_size=4,
        pretraining=1,
        images=3,
        steps=3,
        top=4,
        threshold=0.0,
        code=3,
        generator_width=5,
        generator_maps=2,
        teacher_width=4,
        teacher_maps=2,
    ),
    "dp-sinkhorn": DpSinkhornConfig(per_class=2, steps=32, batch_size=8, width=4, code=3, rate=0.01, averaging=0.5),
    "gs-wgan": GsWganConfig(
        per_class=2,
        critics=4,
        steps=2,
        taught=2,
        critic_steps=1,
        warm_up=1,
        critic_batch_size=4,
        batch_size=4,
        width=4,
        critic_width=2,
    ),
}
"""Settings of every method that take about a second; a new method adds its own here."""


@pytest.fixture(params=METHODS)
def tiny_method(request):
    """Every registered method, with tiny settings."""
    return METHODS[request.param](TINY[request.param])


@pytest.fixture
def facts() -> PublicFacts:
    return facts_for(40)


@pytest.fixture
def records(facts) -> Records:
    return records_for(facts)


def without(records: Records, index: int) -> Records:
    keep = torch.arange(len(records)) != index
    return Records(records.images[keep], records.labels[keep])


def resized(facts: PublicFacts, size: int) -> PublicFacts:
    return dataclasses.replace(facts, size=size)
