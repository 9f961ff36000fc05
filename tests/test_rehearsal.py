"""How long a run would take, by its beginning on random images."""

import dataclasses
import math

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for

from privset import rehearsal
from privset.errors import ConfigError, DataError
from privset.methods import METHODS, Execution, MeasuringMethod, SetMethod, TrainingMethod
from privset.observer import Observer
from privset.privacy import Curator, Ledger, PrivacyBudget, seeded_noise
from privset.rehearsal import random_records, rehearse

AS_THEY_GO = [name for name, kind in METHODS.items() if not issubclass(kind, MeasuringMethod)]
BUDGET = PrivacyBudget(epsilon=math.inf)


class Totals(Observer):
    def __init__(self):
        self.found = {}

    def phase(self, name, total):
        self.found[name] = total


@pytest.mark.parametrize("name", AS_THEY_GO)
def test_a_run_is_counted_in_full_by_its_beginning(name):
    facts, method, totals = facts_for(120), METHODS[name](TINY[name]), Totals()
    curator = Curator(records_for(facts), facts, Ledger(BUDGET), seeded_noise(0))
    plan = method.plan(facts, BUDGET)
    if isinstance(method, TrainingMethod):
        method.train(curator, plan, observer=totals)
    else:
        assert isinstance(method, SetMethod)
        method.run(curator, plan, observer=totals)
    found = rehearse(facts, method=method, budget=BUDGET, seconds=1e-9)
    longest = list(found.phases)[-1]
    assert found.phases[longest].steps == totals.found[longest]
    for phase, timed in found.phases.items():
        assert timed.steps == totals.found[phase]
        assert 1 <= timed.timed <= timed.steps
        assert timed.step_seconds > 0


def test_phases_before_the_longest_are_cut_and_counted_in_full():
    config = dataclasses.replace(TINY["gs-wgan"], warm_up=50)
    found = rehearse(facts_for(120), method=METHODS["gs-wgan"](config), budget=BUDGET, seconds=1e-9)
    warming = found.phases["warming up critics"]
    assert (warming.steps, warming.timed) == (50, 1)


@pytest.mark.parametrize("steps", [1, 3, 4, 6, 7])
def test_a_run_in_few_rounds_is_counted_in_full(steps):
    config = dataclasses.replace(TINY["gs-wgan"], between=3, steps=steps)
    found = rehearse(facts_for(120), method=METHODS["gs-wgan"](config), budget=BUDGET, seconds=1e-9)
    assert found.phases["training a generator"].steps == steps
    assert found.phases["training a generator"].step_seconds > 0


def test_what_measures_first_is_refused():
    with pytest.raises(ConfigError, match="moments pays for a few answers at once"):
        rehearse(facts_for(40), method=METHODS["moments"](TINY["moments"]), budget=BUDGET)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_is_none_is_refused(seconds):
    with pytest.raises(ConfigError, match="seconds to time a run for must be a positive number"):
        rehearse(facts_for(40), method=METHODS["psg"](TINY["psg"]), budget=BUDGET, seconds=seconds)


def test_data_may_be_named():
    method = METHODS["dp-cgan"](dataclasses.replace(TINY["dp-cgan"], width=2))
    found = rehearse("digits", method=method, budget=BUDGET, seconds=1e-9)
    assert found.phases["training a generator"].steps == 4
    with pytest.raises(DataError, match="neither a named data set"):
        rehearse("nowhere", method=method, budget=BUDGET)


def test_images_are_as_many_and_as_large_as_the_real_ones():
    facts = facts_for(7, classes=3, channels=3)
    records = random_records(facts)
    assert records.images.shape == (7, *facts.shape)
    assert 0 < records.labels.max() < 3


def test_a_run_is_rehearsed_where_it_would_run_with_its_noise_and_charged_to_no_one(monkeypatch):
    given = {}

    def curator(records, facts, ledger, noise, **options):
        given.update(ledger=ledger, noise=noise, **options)
        raise InterruptedError

    monkeypatch.setattr(rehearsal, "Curator", curator)
    with pytest.raises(InterruptedError):
        rehearse(
            facts_for(40),
            method=METHODS["psg"](TINY["psg"]),
            budget=PrivacyBudget(epsilon=100),
            execution=Execution(chunk=7),
        )
    assert (given["device"], given["chunk"], given["noise"].kind) == ("cpu", 7, "system")
    assert given["ledger"].budget.epsilon == math.inf
    assert given["ledger"].path is None


def test_seconds_are_those_of_all_steps_of_all_phases(monkeypatch):
    class Stopped(rehearsal._Clock):
        def halt(self):
            self.before = 3.0
            self.phases = {
                "warming up critics": rehearsal._Phase(1, counted=1, seconds=0.5),
                "training a generator": rehearsal._Phase(100, counted=8, seconds=2.0),
            }

    monkeypatch.setattr(rehearsal, "_Clock", Stopped)
    config = dataclasses.replace(TINY["gs-wgan"], warm_up=20)
    found = rehearse(facts_for(120), method=METHODS["gs-wgan"](config), budget=BUDGET, seconds=1e-9)
    assert found.seconds == 3.0 + 20 * 0.5 + 100 * 0.25


@pytest.fixture
def now(monkeypatch):
    """What the clock says, in seconds; it stands still unless it is put forward."""
    hand = [0.0]
    monkeypatch.setattr(rehearsal.time, "perf_counter", lambda: hand[0])
    return hand


def clock_of(seconds, **options):
    return rehearsal._Clock(torch.device("cpu"), seconds, **options)


def test_a_clock_leaves_the_first_steps_out(now):
    clock = clock_of(1000)
    now[0] = 2.0
    clock.phase("training a generator", 10)
    for seconds in (50, 50, 50, 3, 4):
        now[0] += seconds
        clock.step()
    clock.halt()
    (phase,) = clock.phases.values()
    assert (phase.taken, phase.counted) == (5, 2)
    assert (clock.before, phase.seconds) == (2.0, 7.0)


def test_a_clock_counts_rounds_when_they_are_done_and_leaves_out_the_first(now):
    clock = clock_of(11.5)
    clock.phase("matching gradients", 100)
    clock.lap()

    def rounds():
        for seconds in (0.5, 1.0, 1.0):
            now[0] += 2.0  # before its first step
            for _ in range(10):
                now[0] += seconds
                clock.step()
            clock.lap()

    with pytest.raises(rehearsal._Enough):
        rounds()
    clock.halt()
    (phase,) = clock.phases.values()
    assert (phase.counted, phase.seconds) == (10, 12.0)


def test_a_run_of_a_single_round_is_counted_all_the_same(now):
    clock = clock_of(1000)
    clock.phase("matching gradients", 10)
    clock.lap()
    now[0] += 5
    clock.step(10)
    clock.lap()
    clock.halt()
    (phase,) = clock.phases.values()
    assert (phase.counted, phase.seconds) == (10, 5.0)


@pytest.mark.parametrize(("seconds", "rounds"), [(3, 2), (13, 1)])
def test_a_first_round_that_takes_too_long_is_counted_when_it_is_done(now, seconds, rounds):
    """Its answers are computed together, before the first of its steps: cut short, it would seem longer by far."""
    clock = clock_of(10)
    clock.phase("matching gradients", 100)
    clock.lap()

    def steps():
        while True:
            now[0] += 10 * seconds - 9
            for _ in range(10):
                now[0] += 0.9
                clock.step()
            clock.lap()

    with pytest.raises(rehearsal._Enough):
        steps()
    clock.halt()
    (phase,) = clock.phases.values()
    assert (phase.counted, phase.seconds) == (10, pytest.approx(10 * seconds))
    assert now[0] == pytest.approx(10 * seconds * rounds)


def test_first_steps_that_take_too_long_are_not_waited_for(now):
    clock = clock_of(10)
    clock.phase("training a generator", 100)
    now[0] += 61
    clock.step()
    now[0] += 61
    with pytest.raises(rehearsal._Enough):
        clock.step()
    clock.halt()
    (phase,) = clock.phases.values()
    assert (phase.counted, phase.seconds) == (2, 122.0)


def test_a_clock_ends_the_longest_phase_and_no_other(now):
    clock = clock_of(15, earlier=frozenset({"warming up critics"}))
    clock.phase("warming up critics", 2)
    for seconds in (50, 20):
        now[0] += seconds
        clock.step()
    now[0] += 3
    clock.phase("training a generator", 5)
    assert (clock.phases["warming up critics"].counted, clock.phases["warming up critics"].seconds) == (1, 23.0)
    assert clock.before == 0.0  # until the first phase, and not until this one
    for _ in range(rehearsal.UNCOUNTED):
        now[0] += 10
        clock.step()
    now[0] += 16
    with pytest.raises(rehearsal._Enough):
        clock.step()
