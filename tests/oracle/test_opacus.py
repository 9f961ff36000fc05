"""Against Opacus, which shares no code with us: clipped gradient sums, and accounting."""

import warnings

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tests.conftest import facts_for
from torch.func import functional_call

from privset import networks
from privset.privacy import GaussianEvent, PrivacyBudget, calibrate, spend
from privset.privacy.clipping import clipped_gradient_sum

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own imports warn of deprecations
    from opacus import GradSampleModule
    from opacus.accountants import RDPAccountant
    from opacus.accountants.utils import get_noise_multiplier


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

    theirs = GradSampleModule(networks.build(name, facts, seed=0).double(), loss_reduction="sum")
    F.cross_entropy(theirs(images), labels, reduction="sum").backward()
    samples = {
        key.removeprefix("_module."): value.grad_sample  # pyright: ignore[reportAttributeAccessIssue]
        for key, value in theirs.named_parameters()
    }
    norms = torch.stack([g.flatten(1).square().sum(1) for g in samples.values()]).sum(0).sqrt()
    factors = (clip_norm / norms).clamp(max=1)
    assert int(bad) == 0
    assert bool((factors < 1).all()) == (clip_norm == 0.1)  # everything is clipped in one case, nothing in the other
    for key, value in ours.items():
        expected = torch.einsum("n,n...->...", factors, samples[key])
        assert torch.allclose(value, expected, rtol=1e-9, atol=1e-11), key


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
