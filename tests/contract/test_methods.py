"""What every method promises, checked for every one that is registered."""

import dataclasses
import math

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for

from privset.errors import ConfigError
from privset.methods import METHODS, MethodConfig, SetConfig, SetMethod, Synthesis, Trained, TrainingMethod
from privset.privacy import Curator, Ledger, PrivacyBudget, seeded_noise
from privset.privacy.accounting import merge, spend
from privset.release import Classifier, SyntheticSet

BUDGET = PrivacyBudget(epsilon=5.0, accountant="rdp")  # pld would take longer than the method


class SilencedCurator(Curator):
    """Looks at its records, charges, and answers with zeros."""

    def gradient(self, question, loss, parameters, *, draws=1, transform=None):
        answers = super().gradient(question, loss, parameters, draws=draws, transform=transform)
        return [{name: torch.zeros_like(value) for name, value in answer.items()} for answer in answers]

    def pullback(self, question, pull, generated, *public):
        return torch.zeros_like(super().pullback(question, pull, generated, *public))

    def train_by_pullback(self, question, pull, make, learn, *, steps):
        super().train_by_pullback(question, pull, make, lambda answer: learn(torch.zeros_like(answer)), steps=steps)

    def pullback_by(self, question, wards, say, public):
        return torch.zeros_like(super().pullback_by(question, wards, say, public))

    def total(self, question, statistic, *, block=None):
        return torch.zeros_like(super().total(question, statistic, block=block))

    def votes_together(self, questions, wards, say, public):  # and so, since it is one of them, `votes`
        return tuple(torch.zeros_like(answer) for answer in super().votes_together(questions, wards, say, public))


def run(method, facts, *, records_seed=0, noise_seed=0, curator_type=Curator, budget=BUDGET):
    plan = method.plan(facts, budget)
    ledger = Ledger(budget)
    curator = curator_type(records_for(facts, records_seed), facts, ledger, seeded_noise(noise_seed))
    return perform(method, curator, plan), plan, ledger


def perform(method, curator, plan):
    return method.train(curator, plan) if isinstance(method, TrainingMethod) else method.run(curator, plan)


def content(made):
    """The bytes of all that a method made."""
    if isinstance(made, Synthesis):
        state = [] if made.generator is None else made.generator.state.values()
        tensors = [made.images, made.labels, *state]
    else:
        tensors = made.weights.values()
    return b"".join(tensor.numpy().tobytes() for tensor in tensors)


def test_every_method_has_tiny_settings_for_these_tests():
    assert set(TINY) == set(METHODS)


def test_every_method_makes_a_set_or_a_classifier():
    for method in METHODS.values():
        assert issubclass(method, SetMethod) != issubclass(method, TrainingMethod)
        assert issubclass(method, SetMethod) == issubclass(method.config_type, SetConfig)


def test_the_records_reach_what_is_made_through_the_answers_alone(tiny_method, facts):
    silenced = [run(tiny_method, facts, records_seed=seed, curator_type=SilencedCurator)[0] for seed in (0, 1)]
    assert content(silenced[0]) == content(silenced[1])
    heard = [run(tiny_method, facts, records_seed=seed)[0] for seed in (0, 1)]
    assert content(heard[0]) != content(heard[1])


def test_exactly_the_planned_questions_are_charged(tiny_method, facts):
    _, plan, ledger = run(tiny_method, facts)
    assert ledger.events == merge(plan.events)


def test_a_plan_for_other_settings_or_other_data_is_refused(tiny_method, facts):
    budget = PrivacyBudget(epsilon=math.inf)
    curator = Curator(records_for(facts), facts, Ledger(budget), seeded_noise(0))
    other = type(tiny_method)(dataclasses.replace(tiny_method.config, seed=7))
    with pytest.raises(ConfigError, match="made for other settings"):
        perform(tiny_method, curator, other.plan(facts, budget))
    with pytest.raises(ConfigError, match="this plan was made for"):
        perform(tiny_method, curator, tiny_method.plan(facts_for(41), budget))


def test_a_plan_stays_within_the_budget_and_needs_no_data(tiny_method):
    for epsilon in (1.0, 5.0):
        plan = tiny_method.plan(facts_for(5000), PrivacyBudget(epsilon=epsilon, accountant="rdp"))
        assert plan.epsilon <= epsilon
        assert plan.epsilon > 0.99 * epsilon
    tighter = tiny_method.plan(facts_for(5000), PrivacyBudget(epsilon=1.0, accountant="rdp")).noise_multiplier
    assert tighter > tiny_method.plan(facts_for(5000), PrivacyBudget(epsilon=5.0, accountant="rdp")).noise_multiplier


def test_what_is_claimed_elsewhere_is_named_beside_the_guarantee_and_called_so(tiny_method):
    plan = tiny_method.plan(facts_for(5000), BUDGET)
    assert (plan.claim is None) == (tiny_method.claims == "")
    assert plan.epsilon == spend(plan.events, BUDGET.delta).rdp  # what counts, whatever is claimed
    assert plan.claim == tiny_method.claim(facts_for(5000), plan.events, BUDGET.delta)
    if plan.claim is not None:
        assert plan.claim.epsilon > 0
        assert plan.claim.delta == BUDGET.delta
        assert "not the guarantee" in plan.claim.sentence()
        assert plan.to_json()["claim"]["by"] == plan.claim.by


def test_without_privacy_there_is_no_noise_and_the_plan_says_so(tiny_method, facts):
    plan = tiny_method.plan(facts, PrivacyBudget(epsilon=math.inf))
    assert plan.claim is None
    assert plan.noise_multiplier == 0
    assert plan.epsilon == math.inf
    assert plan.to_json()["epsilon"] == "inf"


def test_what_is_made_is_finite_and_can_be_published_and_a_set_is_balanced(tiny_method):
    for facts in (facts_for(40), facts_for(40, classes=2, channels=3, side=12)):
        made, _, _ = run(tiny_method, facts)
        if isinstance(made, Trained):
            trained = Classifier.from_training(made, facts)  # refuses what is not finite, or not of its shape
            assert trained.architecture == tiny_method.architecture
            assert trained.predict(records_for(facts).images).shape == (40,)
            continue
        published = SyntheticSet.from_synthesis(made, facts)
        assert published.per_class == (tiny_method.config.per_class,) * len(facts.classes)
        assert bool(made.images.isfinite().all())
        form = None if made.generator is None else made.generator.form
        assert form == tiny_method.generator_form


def test_the_same_seeds_give_the_same_bytes_and_global_seeds_do_not_matter(tiny_method, facts):
    torch.manual_seed(1)
    first, _, _ = run(tiny_method, facts)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second, _, _ = run(tiny_method, facts)
    assert content(first) == content(second)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", METHODS)
def test_every_preset_plans_and_every_setting_is_explained(name):
    method = METHODS[name]
    for preset in method.presets:
        config = method.preset(preset, per_class=10, epsilon=10.0)
        assert isinstance(config, MethodConfig)
        assert not isinstance(config, SetConfig) or config.per_class == 10
        # To search for noise by PLD takes long; what noise that is given costs is one number.
        accountant = "rdp" if getattr(config, "noise_multiplier", None) is None else "best"
        method(config).plan(facts_for(60_000, classes=10, side=28), PrivacyBudget(epsilon=10, accountant=accountant))
    source = "".join(_source(kind) for kind in method.config_type.__mro__ if dataclasses.is_dataclass(kind))
    for field in dataclasses.fields(method.config_type):
        assert f"    {field.name}: " in source
        after = source.split(f"    {field.name}: ", 1)[1].split("\n", 1)[1]
        assert after.lstrip().startswith('"""'), f"{field.name} has no line that the command line can show"


def _source(kind):
    import inspect

    return inspect.getsource(kind)
