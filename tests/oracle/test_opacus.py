"""Against Opacus, which shares no code with us: clipped gradient sums, and both accountants."""

import warnings

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tests.conftest import facts_for
from torch.func import functional_call

from privset import networks
from privset.methods.record_loss import record_loss
from privset.privacy import GaussianEvent, PrivacyBudget, calibrate, spend
from privset.privacy.clipping import clipped_gradient_sum
from privset.privacy.gradients import clipped_gradient_sums

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own imports warn of deprecations
    from opacus import GradSampleModule
    from opacus.accountants import PRVAccountant, RDPAccountant
    from opacus.accountants.utils import get_noise_multiplier
    from opacus.optimizers import DPOptimizer


@pytest.mark.parametrize(("name", "channels"), [("convnet", 1), ("convnet", 3), ("lenet", 1), ("mlp", 1)])
@pytest.mark.parametrize("clip_norm", [0.1, 1e4])
@pytest.mark.filterwarnings("ignore")
def test_clipped_gradient_sums_agree_in_float64(name, channels, clip_norm):
    facts = facts_for(12, side=12, channels=channels)
    network = networks.build(name, facts, seed=0).double()
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(12, *facts.shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (12,), generator=generator)

    def loss(parameters, image, label):
        return F.cross_entropy(functional_call(network, parameters, (image[None],)), label[None])

    parameters = {key: value.detach() for key, value in network.named_parameters()}
    chunks = zip(images.split(5), labels.split(5), strict=True)
    ours, bad = clipped_gradient_sum(loss, parameters, chunks, clip_norm=clip_norm)
    everyone = [(images, labels, torch.ones(1, 12, dtype=torch.bool))]
    layered, _ = clipped_gradient_sums(record_loss(network), parameters, everyone, samples=1, clip_norm=clip_norm)

    theirs = GradSampleModule(networks.build(name, facts, seed=0).double(), loss_reduction="sum")
    F.cross_entropy(theirs(images), labels, reduction="sum").backward()
    optimiser = DPOptimizer(
        torch.optim.SGD(theirs.parameters(), lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=clip_norm,
        expected_batch_size=1,
        loss_reduction="sum",
    )
    optimiser.clip_and_accumulate()
    assert int(bad) == 0
    for key, value in theirs.named_parameters():
        summed = value.summed_grad  # pyright: ignore[reportAttributeAccessIssue]
        # They divide by the length plus 1e-6, which is all that may differ.
        for found in (ours, layered.each()[0]):
            assert torch.allclose(found[key.removeprefix("_module.")], summed, rtol=1e-5, atol=1e-9), key


@pytest.mark.parametrize(
    ("rate", "noise", "steps"), [(256 / 60_000, 0.9657, 100_000), (0.01, 1.5, 500), (0.2, 3.0, 50)]
)
@pytest.mark.filterwarnings("ignore")
def test_rdp_epsilon_agrees(rate, noise, steps):
    theirs = RDPAccountant()
    theirs.history = [(noise, rate, steps)]
    event = GaussianEvent(question="gradient", sampling_rate=rate, noise_multiplier=noise, count=steps)
    # They look at fewer orders than dp-accounting, so theirs may be slightly larger.
    assert spend([event], 1e-5).rdp == pytest.approx(theirs.get_epsilon(1e-5), rel=0.01)


@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.01, 1.5, 500), (0.2, 3.0, 50), (256 / 60_000, 2.4, 20_000)])
@pytest.mark.filterwarnings("ignore")
def test_pld_epsilon_agrees_with_their_numerical_accountant(rate, noise, steps):
    theirs = PRVAccountant()
    theirs.history = [(noise, rate, steps)]
    event = GaussianEvent(question="gradient", sampling_rate=rate, noise_multiplier=noise, count=steps)
    assert spend([event], 1e-5).pld == pytest.approx(theirs.get_epsilon(1e-5), rel=0.03)


@pytest.mark.filterwarnings("ignore")
def test_calibrated_noise_agrees():
    ours = calibrate(
        lambda z: [GaussianEvent(question="gradient", sampling_rate=256 / 60_000, noise_multiplier=z, count=20_000)],
        PrivacyBudget(epsilon=1.0, accountant="rdp"),
    )
    theirs = get_noise_multiplier(
        target_epsilon=1.0, target_delta=1e-5, sample_rate=256 / 60_000, steps=20_000, accountant="rdp"
    )
    assert ours == pytest.approx(theirs, rel=0.005)
