"""DP-SGD against Opacus, which shares no code with us, and against what its guarantee says of noise and sensitivity."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from scipy.stats import kstest, norm
from tests.conftest import facts_for, records_for, resized, without
from torch import nn

from privset.facts import normalise
from privset.methods import DpSgd, DpSgdConfig
from privset.privacy import Curator, Ledger, PrivacyBudget, seeded_noise

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own imports warn of deprecations
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

FREE = PrivacyBudget(epsilon=math.inf)


def trained(config, facts, records, *, budget=FREE, noise_seed=0):
    method = DpSgd(config)
    plan = method.plan(facts, budget)
    found = method.train(Curator(records, facts, Ledger(budget), seeded_noise(noise_seed)), plan)
    return found.weights, plan


def flat(weights):
    return torch.cat([value.flatten() for value in weights.values()]).double()


@pytest.mark.parametrize("network", ["convnet", "scattering"])
@pytest.mark.parametrize("clip_norm", [0.1, 100.0])
@pytest.mark.filterwarnings("ignore")
def test_without_noise_it_takes_the_steps_of_opacus(network, clip_norm):
    facts = facts_for(12, side=12)
    records = records_for(facts)
    width = {"width": 6} if network == "convnet" else {}
    config = DpSgdConfig(network=network, epochs=4, clip_norm=clip_norm, rate=0.5, momentum=0.6, decay=False, **width)
    ours, _ = trained(config, facts, records)

    plain = DpSgd(config).architecture.build(facts, seed=config.seed)
    inputs = normalise(records.images, facts)
    if network == "scattering":
        with torch.no_grad():
            inputs = plain.get_submodule("features")(inputs)
        plain = nn.Sequential()
        plain.head = DpSgd(config).architecture.build(facts, seed=config.seed).get_submodule("head")
    theirs = GradSampleModule(plain, loss_reduction="sum")
    optimiser = DPOptimizer(
        torch.optim.SGD(theirs.parameters(), lr=0.5, momentum=0.6),
        noise_multiplier=0.0,
        max_grad_norm=clip_norm,
        expected_batch_size=12,
        loss_reduction="mean",  # it divides the sum by the expected size
    )
    for _ in range(4):
        optimiser.zero_grad()
        F.cross_entropy(theirs(inputs), records.labels, reduction="sum").backward()
        optimiser.step()
    for name, value in theirs.named_parameters():
        assert torch.allclose(ours[name.removeprefix("_module.")], value, rtol=1e-3, atol=2e-5), name


def test_one_step_carries_noise_of_the_planned_deviation_on_every_weight():
    facts = facts_for(30, classes=10, side=28)
    records, budget = records_for(facts), PrivacyBudget(epsilon=2.0)
    config = DpSgdConfig(epochs=1, clip_norm=0.25, rate=3.0, momentum=0.0)
    clean, _ = trained(config, facts, records)
    noisy, plan = trained(config, facts, records, budget=budget)
    unit = 3.0 * plan.noise_multiplier * 0.25 / 30
    for name, value in clean.items():
        residue = (noisy[name] - value).double().flatten() / unit
        assert residue.abs().max() < 6, name
        if len(residue) > 1000:
            assert kstest(residue.numpy(), norm.cdf).pvalue > 1e-3  # pyright: ignore[reportAttributeAccessIssue]
            assert float(residue.std()) == pytest.approx(1.0, abs=0.03)
    again, _ = trained(config, facts, records, budget=budget, noise_seed=1)
    assert float(torch.corrcoef(torch.stack([flat(noisy) - flat(clean), flat(again) - flat(clean)]))[0, 1]) < 0.05


@pytest.mark.parametrize("network", ["mlp", "scattering"])
def test_one_record_moves_a_step_by_the_clip_norm_and_no_more(network):
    facts, clip_norm = facts_for(20), 0.125
    config = DpSgdConfig(network=network, epochs=1, clip_norm=clip_norm, rate=1.0, momentum=0.0)
    start = flat({n: v.detach() for n, v in DpSgd(config).architecture.build(facts, seed=0).named_parameters()})
    records = records_for(facts)
    total = (start - flat(trained(config, facts, records)[0])) * 20
    for index in range(20):
        fewer = resized(facts, 19)
        less = (start - flat(trained(config, fewer, without(records, index))[0])) * 19
        # Steps are divided by the public number of records; in float32 that leaves a few parts in ten thousand.
        assert float((total - less).norm()) == pytest.approx(clip_norm, rel=5e-3)  # every gradient here is longer


@pytest.mark.parametrize(("epsilon", "epochs"), [(1.0, 80), (3.0, 7)])
def test_the_noise_of_full_batches_is_that_of_one_gaussian_mechanism(epsilon, epochs):
    budget = PrivacyBudget(epsilon=epsilon)
    plan = DpSgd(DpSgdConfig(epochs=epochs)).plan(facts_for(60_000), budget)
    mu = math.sqrt(epochs) / plan.noise_multiplier
    # Balle, Wang 2018: the exact delta of a Gaussian mechanism.
    delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(1e-5, rel=1e-4)
    assert delta <= 1e-5
