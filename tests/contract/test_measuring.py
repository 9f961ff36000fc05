"""What every method that measures promises, checked for every one that is registered."""

import dataclasses

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for

from privset.errors import ConfigError
from privset.methods import METHODS, Execution, MeasuringMethod, Synthesis
from privset.privacy import Curator, KeptAnswers, Ledger, PrivacyBudget, seeded_noise, take_up
from privset.privacy.accounting import merge

MEASURING = [name for name, method in METHODS.items() if issubclass(method, MeasuringMethod)]
BUDGET = PrivacyBudget(epsilon=5.0, accountant="rdp")
FACTS = facts_for(40)


@pytest.fixture(params=MEASURING)
def method(request) -> MeasuringMethod:
    return METHODS[request.param](TINY[request.param])  # type: ignore[return-value]


def measure(method, *, noise_seed=0, records_seed=0, facts=FACTS):
    ledger = Ledger(BUDGET)
    curator = Curator(records_for(facts, records_seed), facts, ledger, seeded_noise(noise_seed))
    return method.measure(curator, method.plan(facts, BUDGET)), ledger


def other(method, name):
    """The method with another value of one setting."""
    value = getattr(method.config, name)
    changed = (not value) if isinstance(value, bool) else value + 1 if isinstance(value, int) else (value or 10) * 0.9
    return type(method)(dataclasses.replace(method.config, **{name: changed}))


def free_settings(method):
    return [field.name for field in dataclasses.fields(method.config) if field.name not in method.measured_with]


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_moments_is_one_of_them_and_every_measured_setting_exists(method):
    assert "moments" in MEASURING
    assert method.measured_with < {field.name for field in dataclasses.fields(method.config)}
    assert not method.measured_with & {"seed", "per_class"}


def test_totals_over_everyone_are_all_it_asks_and_exactly_the_planned_ones(method):
    plan = method.plan(FACTS, BUDGET)
    assert {(event.question, event.sampling_rate) for event in plan.events} == {("total", 1.0)}
    _, ledger = measure(method)
    assert ledger.events == merge(plan.events)


def test_statistics_have_the_form_that_was_announced(method):
    measured, _ = measure(method)
    assert {name: tuple(value.shape) for name, value in measured.statistics.items()} == method.shapes(FACTS)
    assert all(value.dtype == torch.float32 for value in measured.statistics.values())


def test_what_is_only_distilled_with_changes_neither_plan_nor_answers(method):
    plan, (measured, _) = method.plan(FACTS, BUDGET), measure(method)
    for name in free_settings(method):
        changed = other(method, name)
        assert changed.plan(FACTS, BUDGET).events == plan.events, name
        if name != "seed":  # it makes other networks, but asks as much
            assert same(measure(changed)[0].statistics, measured.statistics), name


def test_what_is_measured_with_cannot_be_distilled_otherwise(method):
    measured, _ = measure(method)
    for name in method.measured_with:
        with pytest.raises(ConfigError, match=f"measured with {name.replace('_', '-')} .* measure again"):
            other(method, name).distil(measured)


def test_statistics_of_another_form_are_refused(method):
    measured, _ = measure(method)
    name = min(measured.statistics)
    for change in ({}, {name: torch.zeros(1)}, measured.statistics | {"more": torch.zeros(1)}):
        with pytest.raises(ConfigError, match="with these settings measures"):
            method.distil(dataclasses.replace(measured, statistics=change))
    broken = measured.statistics | {name: measured.statistics[name] * torch.nan}
    with pytest.raises(ConfigError, match="not finite"):
        method.distil(dataclasses.replace(measured, statistics=broken))


def test_measuring_and_distilling_apart_is_running(method):
    plan = method.plan(FACTS, BUDGET)
    ran = method.run(Curator(records_for(FACTS), FACTS, Ledger(BUDGET), seeded_noise(0)), plan)
    made = method.distil(measure(method)[0])
    assert torch.equal(ran.images, made.images)
    assert torch.equal(ran.labels, made.labels)


def test_another_seed_or_size_gives_another_set_from_the_same_statistics(method):
    measured, _ = measure(method)
    first = method.distil(measured)
    seeded = other(method, "seed").distil(measured)
    larger = other(method, "per_class").distil(measured)
    assert first.images.shape == seeded.images.shape
    assert not torch.equal(first.images, seeded.images)
    assert len(larger.labels) == len(first.labels) + len(FACTS.classes)
    assert isinstance(larger, Synthesis)


def test_fewer_records_are_looked_at_together_where_memory_is_short(method, monkeypatch):
    blocks, ask = [], Curator.total

    def noted(self, question, statistic, *, block=None):
        blocks.append(block)
        return ask(self, question, statistic, block=block)

    monkeypatch.setattr(Curator, "total", noted)
    plan, curator = method.plan(FACTS, BUDGET), Curator(records_for(FACTS), FACTS, Ledger(BUDGET), seeded_noise(0))
    found = method.measure(curator, plan, execution=Execution(chunk=7))
    assert blocks == [7] * plan.questions
    for name, value in measure(method)[0].statistics.items():
        assert torch.allclose(found.statistics[name], value, atol=1e-3), name


class Stopped(BaseException):
    """In place of a kill."""


@pytest.mark.parametrize("stop", [0, 1, 2, 4])
def test_measuring_can_be_stopped_at_any_answer(method, tmp_path, monkeypatch, stop):
    plan, (whole, _) = method.plan(FACTS, BUDGET), measure(method)
    if stop >= plan.questions:
        pytest.skip("it asks less than that")

    def process():
        ledger, kept = take_up(BUDGET, tmp_path / "ledger", tmp_path)
        curator = Curator(records_for(FACTS), FACTS, ledger, seeded_noise(0), kept=kept)
        return method.measure(curator, plan), ledger

    keep = KeptAnswers.keep

    def keep_some(self, question, answer):
        if len(self) == stop:
            raise Stopped
        return keep(self, question, answer)

    monkeypatch.setattr(KeptAnswers, "keep", keep_some)
    with pytest.raises(Stopped):
        process()
    monkeypatch.undo()
    resumed, ledger = process()
    assert same(resumed.statistics, whole.statistics)
    assert ledger.events == merge(plan.events)
