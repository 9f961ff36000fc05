"""Gradients layer by layer against vmap, in float64, for every network, and the guarantee by itself."""

import copy
import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

from privset import processor
from privset.errors import ConfigError
from privset.methods.record_loss import record_loss
from privset.networks import MLP, AlexNet, ConvNet, LeNet, first_block, last_channels
from privset.privacy import layered
from privset.privacy.clipping import Shares
from privset.privacy.gradients import clipped_gradient_sums
from privset.privacy.held import Held
from privset.privacy.layered import LayeredLoss, Stage, record_gradients

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no card"))]


def plain(network):
    """The same loss, in a form that is taken under vmap."""

    def loss(parameters, image, label):
        return F.cross_entropy(functional_call(network, parameters, (image[None],)), label[None])

    return loss


def seeded(build, seed=0):
    """A network of the same weights each time: with others a value near the bend of a ReLU may round across it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def moved(network, seed=3):
    """With weights that are not as they begin: a norm's scales are 1 and its shifts 0 then."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in network.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return network


def batch(shape, count, classes=3, seed=1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, *shape, generator=generator, dtype=torch.float64).to(dtype)
    return images, torch.randint(0, classes, (count,), generator=generator)


def sums(loss, network, images, labels, members=None, clip_norm=0.1, chunk=5):
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    members = torch.ones(1, len(images), dtype=torch.bool) if members is None else members
    members = members.to(images.device)
    chunks = zip(images.split(chunk), labels.split(chunk), members.split(chunk, dim=1), strict=True)
    totals, bad = clipped_gradient_sums(loss, parameters, chunks, samples=len(members), clip_norm=clip_norm)
    return totals.flat, int(bad)


def without_shift(norm):
    """As ``bias=False`` makes one, where torch has that."""
    norm.register_parameter("bias", None)
    return norm


NETWORKS = [
    (ConvNet((1, 8, 8), 3, width=4, depth=1), (1, 8, 8)),
    (ConvNet((3, 8, 12), 3, width=3, depth=2), (3, 8, 12)),
    (ConvNet((1, 28, 20), 3, width=4, depth=3), (1, 28, 20)),
    (ConvNet((1, 9, 11), 3, width=2, depth=4), (1, 9, 11)),
    (MLP((1, 8, 8), 3, width=6), (1, 8, 8)),
    (LeNet((1, 12, 12), 3), (1, 12, 12)),
    (AlexNet((3, 8, 8), 3), (3, 8, 8)),
    (nn.Sequential(nn.Flatten(), nn.Linear(64, 3, bias=False)), (1, 8, 8)),
    (
        nn.Sequential(
            nn.Conv2d(1, 6, (3, 5), stride=(2, 1), padding=(1, 2)),
            nn.GroupNorm(2, 6),
            nn.ReLU(),
            nn.Conv2d(6, 4, 1, bias=False),
            nn.GroupNorm(4, 4, affine=False),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * 2 * 4, 3),
        ),
        (1, 8, 8),
    ),
    (  # what has parameters, and what works in place, after a first block that may be taken at once
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.GroupNorm(4, 4),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.GroupNorm(2, 4),
            nn.Flatten(),
            nn.Linear(64, 3),
        ),
        (1, 8, 8),
    ),
    (
        nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.GroupNorm(4, 4),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(36, 3),
        ),
        (1, 8, 8),
    ),
    (
        nn.Sequential(
            nn.Conv2d(1, 4, 3), without_shift(nn.GroupNorm(4, 4)), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)
        ),
        (1, 8, 8),
    ),
    (  # rows so short that they might be added up by one product, whose channels lie last
        nn.Sequential(nn.Conv2d(1, 9, 3), nn.ReLU(), nn.Conv2d(9, 3, (2, 3)), nn.Flatten(), nn.Linear(60, 3)),
        (1, 8, 8),
    ),
]


def numbers_of(part):
    return part.rows[0].numel() if isinstance(part, Held) else part.slopes.shape[1] * part.given.shape[1]


@pytest.mark.parametrize("number", range(len(NETWORKS)))
@pytest.mark.parametrize(("count", "fused"), [(1, False), (7, False), (5, True)])
def test_gradients_of_each_record_and_clipped_sums_are_those_of_vmap(number, count, fused):
    network, shape = NETWORKS[number]
    network = moved(network.double())
    images, labels = batch(shape, count)
    loss = record_loss(network, fused=fused)
    assert isinstance(loss, LayeredLoss)

    for clip_norm in (1e-3, 1.0, 1e6):
        ours, _ = sums(loss, network, images, labels, clip_norm=clip_norm)
        theirs, _ = sums(plain(network), network, images, labels, clip_norm=clip_norm)
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12 * clip_norm)
    for index in range(count):  # one by one, so that no two errors cancel
        one = slice(index, index + 1)
        ours, _ = sums(loss, network, images[one], labels[one], clip_norm=1e6)
        theirs, _ = sums(plain(network), network, images[one], labels[one], clip_norm=1e6)
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("number", range(len(NETWORKS)))
def test_lengths_are_those_of_what_is_added(number):
    network, shape = NETWORKS[number]
    network = moved(network.double())
    images, labels = batch(shape, 6)
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    loss = record_loss(network)
    assert isinstance(loss, LayeredLoss)

    for part in record_gradients(loss, parameters, images, labels).values():
        for index, square in enumerate(part.squares()):
            weights = torch.zeros(1, 6, dtype=torch.float64)
            weights[0, index] = 1
            total = torch.zeros(1, numbers_of(part), dtype=torch.float64)
            part.add(Shares(weights), total)
            assert float(total.square().sum()) == pytest.approx(float(square), rel=1e-10)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 50),
    clip_norm=st.sampled_from([1e-3, 0.1, 10.0]),
    scale=st.sampled_from([0.0, 1.0, 1e3]),
    double=st.booleans(),
)
def test_one_record_moves_every_sum_it_is_in_by_at_most_the_clip_norm_and_no_other(seed, clip_norm, scale, double):
    dtype, slack = (torch.float64, 1e-9) if double else (torch.float32, 1e-5)
    network = moved(ConvNet((1, 8, 8), 3, width=4, depth=2).to(dtype), seed)
    images, labels = batch((1, 8, 8), 7, seed=seed, dtype=dtype)
    images *= scale
    members = torch.rand(3, 7, generator=torch.Generator().manual_seed(seed)) < 0.5
    loss = record_loss(network)
    every, _ = sums(loss, network, images, labels, members, clip_norm)
    for index in range(7):
        keep = torch.arange(7) != index
        fewer, _ = sums(loss, network, images[keep], labels[keep], members[:, keep], clip_norm)
        lengths = (every - fewer).norm(dim=1)
        assert bool((lengths <= clip_norm * (1 + slack)).all())
        assert bool((lengths[~members[:, index]] <= clip_norm * slack).all())


def test_the_bound_is_reached_so_noise_for_less_would_be_too_little():
    network = moved(ConvNet((1, 8, 8), 3, width=4, depth=2))
    images, labels = batch((1, 8, 8), 1, dtype=torch.float32)
    alone, _ = sums(record_loss(network), network, images, labels, clip_norm=1e-3)
    assert float(alone.norm()) == pytest.approx(1e-3, rel=1e-5)


@pytest.mark.parametrize("network", [ConvNet((1, 8, 8), 3, width=4, depth=2), MLP((1, 8, 8), 3, width=5)])
@pytest.mark.parametrize("broken", [math.nan, math.inf, 1e300])
def test_a_record_with_a_broken_gradient_leaves_the_others_alone(network, broken):
    network = moved(network.double())
    images, labels = batch((1, 8, 8), 7)
    images[2, 0, 0, 0] = broken
    keep = torch.arange(7) != 2
    members = torch.tensor([[True] * 7, [True] * 2 + [False] * 5])
    expected, _ = sums(record_loss(network), network, images[keep], labels[keep], members[:, keep])
    found, bad = sums(record_loss(network), network, images, labels, members)
    assert bool(found.isfinite().all())
    if math.isfinite(broken):  # a norm makes it short again, and a length may still be a number
        assert bool(((found - expected).norm(dim=1) <= 0.1 * (1 + 1e-9)).all())
    else:
        assert bad == 1
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-14)


def test_samples_share_the_gradients_of_their_records_and_an_empty_one_gives_zeros():
    network = moved(ConvNet((1, 8, 8), 3, width=4, depth=2).double())
    images, labels = batch((1, 8, 8), 9)
    members = torch.tensor([[1, 1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1, 0, 0, 0], [0] * 9, [1] * 9]).bool()
    for loss in (record_loss(network), plain(network)):
        found, _ = sums(loss, network, images, labels, members, chunk=4)
        for row, member in zip(found, members, strict=True):
            alone, _ = sums(loss, network, images[member], labels[member])
            torch.testing.assert_close(row[None], alone, rtol=1e-10, atol=1e-14)
        assert not found[2].any()


def test_single_precision_stays_near_double():
    network = moved(seeded(lambda: ConvNet((1, 28, 28), 10, width=16)))
    images, labels = batch((1, 28, 28), 40, classes=10, dtype=torch.float32)
    single, _ = sums(record_loss(network), network, images, labels, chunk=16)
    double = network.double()
    exact, _ = sums(plain(double), double, images.double(), labels, chunk=16)
    assert float((single - exact).norm() / exact.norm()) < 1e-4


def test_other_parameters_than_the_loss_has_are_refused():
    network = MLP((1, 8, 8), 3, width=5)
    loss = record_loss(network)
    assert isinstance(loss, LayeredLoss)
    loss.check(dict(network.named_parameters()))
    with pytest.raises(ConfigError, match="this loss has the weights features"):
        loss.check({"weight": torch.zeros(3)})


def test_a_weight_of_two_layers_is_refused():
    with pytest.raises(ConfigError, match="belongs to one layer only"):
        LayeredLoss([Stage(weight="weight"), Stage(weight="weight")])


def test_layers_in_between_see_one_record_at_a_time():
    shapes = []

    def then(values, scale):
        shapes.append((tuple(values.shape), tuple(scale.shape)))
        return values * scale

    loss = LayeredLoss([Stage(weight="weight", then=then, scales=("scale",))])
    images, labels = batch((5,), 4)
    weights = {"weight": torch.ones(3, 5, dtype=torch.float64), "scale": torch.ones(3, dtype=torch.float64)}
    record_gradients(loss, weights, images, labels)
    assert shapes == [((3,), (3,))]


def test_a_loss_of_its_own_kind_that_looks_at_the_label_first_is_that_of_vmap():
    """As a discriminator's: it is shown the label beside the image, and says one number."""

    def before(image, label):
        return torch.cat([image.flatten(), (torch.arange(3) == label).to(image.dtype)])

    def after(values, label):
        return F.softplus(-values).squeeze() * (1 + label)

    stages = [Stage(weight="a.weight", bias="a.bias", then=torch.tanh), Stage(weight="b.weight", bias="b.bias")]
    layers = nn.ModuleDict({"a": nn.Linear(67, 5), "b": nn.Linear(5, 1)}).double()
    images, labels = batch((1, 8, 8), 7)
    loss = LayeredLoss(stages, before=before, after=after)

    def in_one(parameters, image, label):
        hidden = torch.tanh(F.linear(before(image, label), parameters["a.weight"], parameters["a.bias"]))
        return after(F.linear(hidden, parameters["b.weight"], parameters["b.bias"]), label)

    for clip_norm in (0.01, 1e6):
        ours, _ = sums(loss, layers, images, labels, clip_norm=clip_norm)
        theirs, _ = sums(in_one, layers, images, labels, clip_norm=clip_norm)
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-13)
    parameters = {name: value.detach() for name, value in layers.named_parameters()}
    torch.testing.assert_close(loss(parameters, images[0], labels[0]), in_one(parameters, images[0], labels[0]))


@pytest.mark.parametrize("where", ["before", "after"])
def test_dice_are_refused_since_they_would_know_who_else_takes_part(where):
    def random(values, _):
        return (
            values.flatten() * torch.rand_like(values.flatten()) if where == "before" else torch.rand_like(values).sum()
        )

    images, labels = batch((5,), 4)
    weights = {"weight": torch.ones(3, 5, dtype=torch.float64)}
    with pytest.raises(RuntimeError, match="random"):
        record_gradients(LayeredLoss([Stage(weight="weight")], **{where: random}), weights, images, labels)


def test_what_changes_a_layers_output_in_place_is_refused():
    images, labels = batch((1, 8, 8), 5)
    layers = [nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)]
    network = nn.Sequential(*layers).double()
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    loss = record_loss(network)
    assert isinstance(loss, LayeredLoss)
    with pytest.raises(ConfigError, match="must not change in place"):
        record_gradients(loss, parameters, images, labels)


def test_what_is_lost_of_a_record_is_seen_one_at_a_time():
    shapes = []

    def after(values, label):
        shapes.append((tuple(values.shape), tuple(label.shape)))
        return values.sum()

    images, labels = batch((5,), 4)
    weights = {"weight": torch.ones(3, 5, dtype=torch.float64)}
    record_gradients(LayeredLoss([Stage(weight="weight")], after=after), weights, images, labels)
    assert shapes == [((3,), ())]


BFLOAT16 = 0.08
"""How far from float64, relative to its length, a sum of clipped gradients may be whose layers compute in bfloat16.

Beside noise that is little: of 256 clipped gradients it is at most 20 clip norms, in all directions together, and noise
of multiplier 1 for a ConvNet of 320,000 weights is 565.
"""


def near_double(device, tolerance, width=32, side=28):
    """How far from float64 sums on a device are, relative to their length; less than the tolerance."""
    network = seeded(lambda: ConvNet((1, side, side), 10, width=width))
    images, labels = batch((1, side, side), 48, classes=10, dtype=torch.float32)
    exact, _ = sums(plain(network), network.double(), images.double(), labels, chunk=16)
    network = network.float().to(device)
    loss = record_loss(network)
    found, bad = sums(loss, network, images.to(device), labels.to(device), chunk=24)
    assert bad == 0
    error = float((found.cpu() - exact).norm() / exact.norm())
    assert error < tolerance
    return error


@pytest.mark.parametrize("device", DEVICES)
def test_clipped_sums_of_the_networks_of_psg_stay_near_double(device, monkeypatch):
    monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: False)
    near_double(device, BFLOAT16 if device == "cuda" else 1e-4)


@pytest.fixture(params=["cuda", "cpu"])
def coarse(request, monkeypatch):
    """A device that computes in bfloat16: a graphics card, or a processor as if it had instructions for it."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no card")
    monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: True)
    monkeypatch.setattr(layered, "WIDE", 1)
    monkeypatch.setattr(layered, "LARGE", 1)
    return request.param


@pytest.mark.parametrize(("fast", "width"), [(True, 31), (False, 32)])
def test_narrow_networks_and_processors_without_instructions_for_it_do_without_bfloat16(fast, width, monkeypatch):
    monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: fast)
    near_double("cpu", 1e-4, width)


def test_small_images_do_without_bfloat16_on_a_processor_whose_rounding_their_norms_would_magnify(monkeypatch):
    monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: True)
    near_double("cpu", 1e-4, 32, side=8)
    assert near_double("cpu", BFLOAT16, 32, side=10) > 1e-3


def test_a_processor_with_instructions_for_it_takes_a_wide_network_in_bfloat16(monkeypatch):
    monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: True)
    assert near_double("cpu", BFLOAT16, width=32) > 1e-3


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("channels", [1, 2, 9])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "size"),
    [
        ((5, 5), (1, 2), (1, 1), (10, 3)),
        ((1, 28), (1, 2), (0, 0), (28, 28)),
        ((5, 1), (2, 3), (2, 0), (9, 4)),
        ((3, 3), (1, 1), (1, 1), (8, 8)),
        ((2, 4), (3, 1), (1, 2), (5, 7)),
        ((4, 4), (2, 2), (0, 1), (12, 6)),
        ((3, 4), (2, 2), (1, 1), (9, 2)),
        ((5, 5), (2, 2), (3, 1), (10, 4)),
        ((5, 4), (3, 3), (3, 1), (13, 2)),
        ((4, 3), (2, 2), (1, 1), (2, 9)),
    ],
)
def test_what_a_convolution_makes_of_a_record_is_the_same_bits_whatever_the_others_are(
    kernel, stride, padding, size, channels, fast, monkeypatch
):
    """Libraries have read memory beside the maps, where one channel was laid as several are."""
    monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: fast)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(33, channels, *size, generator=generator)
    stage = Stage(weight="w", stride=stride, padding=padding)
    weights = {"w": torch.randn(32, channels, *kernel, generator=generator)}
    members, labels = torch.ones(1, 33, dtype=torch.bool), torch.zeros(33, dtype=torch.int64)
    wide = Stage(weight="v", then=lambda maps: maps.sum((1, 2)))
    weights["v"] = torch.randn(32, 32, 1, 1, generator=generator)
    loss = LayeredLoss([stage, wide])
    chunks = [(images, labels, members)]
    before = clipped_gradient_sums(loss, weights, chunks, samples=1, clip_norm=1.0)[0].flat
    with torch.autocast("cpu", torch.bfloat16, enabled=fast):
        maps = stage.map(weights, images)
    exact = torch.nn.functional.conv2d(images.double(), weights["w"].double(), None, stride, padding)
    torch.testing.assert_close(maps.double(), exact, rtol=0.03 if fast else 1e-4, atol=0.3 if fast else 1e-4)
    for value in (0.0, 1e3, 1e20, math.nan):
        others = images.clone()
        others[7] = value
        with torch.autocast("cpu", torch.bfloat16, enabled=fast):
            found = stage.map(weights, others)
        assert torch.equal(found[:7], maps[:7])
        assert torch.equal(found[8:], maps[8:])
        after = clipped_gradient_sums(loss, weights, [(others, labels, members)], samples=1, clip_norm=1.0)[0].flat
        assert float((after - before).norm()) <= 2 * (1 + 1e-6)


@pytest.mark.parametrize("fast", [False, True])
def test_a_processors_library_is_not_asked_for_a_convolution_that_steps_where_it_has_one_place(fast, monkeypatch):
    """It has read beside the maps, of any number of channels where it has instructions that few processors have."""
    monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: fast)
    shapes = {"w": (32, 3, 3, 4), "v": (8, 32, 5, 1), "b": (8,), "l": (4, 8)}
    weights = {name: torch.randn(shape, generator=torch.Generator().manual_seed(0)) for name, shape in shapes.items()}
    stages = [
        Stage(weight="w", stride=(2, 2), padding=(1, 1)),
        Stage(weight="v", bias="b", stride=(2, 3), then=torch.flatten),
        Stage(weight="l"),
    ]
    images, labels = torch.randn(5, 3, 9, 2, generator=torch.Generator().manual_seed(1)), torch.arange(5) % 4
    doubles = {name: value.double() for name, value in weights.items()}
    loss, members = LayeredLoss(stages), torch.ones(1, 5, dtype=torch.bool)

    def reference(parameters, image, label):
        maps = torch.nn.functional.conv2d(image[None], parameters["w"], None, 2, 1)
        maps = torch.nn.functional.conv2d(maps, parameters["v"], parameters["b"], (2, 3))
        return torch.nn.functional.cross_entropy(maps.flatten(1) @ parameters["l"].T, label[None])

    every = [(images.double(), labels, members)]
    wanted = clipped_gradient_sums(reference, doubles, every, samples=1, clip_norm=1.0)[0].flat
    monkeypatch.setattr(torch.nn.functional, "conv2d", None)
    exact = clipped_gradient_sums(loss, doubles, every, samples=1, clip_norm=1.0)[0].flat
    torch.testing.assert_close(exact, wanted)
    found = clipped_gradient_sums(loss, weights, [(images, labels, members)], samples=1, clip_norm=1.0)[0].flat
    torch.testing.assert_close(found, wanted, rtol=0.0, atol=2e-3 if fast else 1e-5)  # products are in bfloat16


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_gradients_of_a_record_are_the_same_bits_whatever_the_others_are(fast, channels, monkeypatch):
    """Also where the first block is taken at once, as it is of one channel."""
    monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: fast)
    network = seeded(lambda: ConvNet((channels, 12, 12), 3, width=32, depth=2))
    weights = {name: value.detach() for name, value in network.named_parameters()}
    loss = record_loss(network)
    assert isinstance(loss, LayeredLoss)
    assert (loss.stages[0].at_once is None) == (channels == 3)
    images, labels = batch((channels, 12, 12), 9, dtype=torch.float32)
    before = record_gradients(loss, weights, images, labels)
    kept = torch.arange(9) != 5
    for value in (0.0, 1e3, 1e20, math.nan):
        others = images.clone()
        others[5] = value
        after = record_gradients(loss, weights, others, labels)
        for name, part in after.items():
            for now, then in zip(vars(part).values(), vars(before[name]).values(), strict=True):
                assert not isinstance(now, torch.Tensor) or torch.equal(now[kept], then[kept])


def test_a_first_layer_that_can_be_is_taken_at_once_and_images_want_no_slope():
    network = seeded(lambda: ConvNet((1, 8, 8), 3, width=4, depth=2).double())
    loss = record_loss(network)
    assert isinstance(loss, LayeredLoss)
    first, *later = loss.stages
    usual, asked = first.at_once, []
    assert usual is not None

    def at_once(image, *own):
        asked.append(image.shape)
        return usual(image, *own)

    images, labels = batch((1, 8, 8), 3)
    watched = LayeredLoss([dataclasses.replace(first, at_once=at_once), *later])
    theirs, _ = sums(plain(network), network, images, labels)
    for shown in (images, images.clone().requires_grad_()):
        ours, _ = sums(watched, network, shown, labels)
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)
    assert asked == [(1, 8, 8)] * 2
    with pytest.raises(ConfigError, match="would be lost: b"):
        dataclasses.replace(first, bias="b")


def test_images_of_one_channel_are_not_made_to_fit_a_network_for_two():
    with pytest.raises(RuntimeError, match="channels"):
        Stage(weight="w").map({"w": torch.ones(4, 2, 3, 3)}, torch.ones(5, 1, 8, 8))


def test_only_convolutions_over_many_maps_are_coarse(monkeypatch):
    monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: True)
    device = torch.device("cpu")
    assert not layered.coarsely(device, [torch.empty(64, 31, 3, 3), torch.empty(64, 64)], 784)  # by what comes in
    assert layered.coarsely(device, [torch.empty(8, 32, 3, 3)], 784)
    assert not layered.coarsely(device, [torch.empty(8, 32, 3, 3)], 64)
    colours, labels = batch((3, 8, 8), 2, dtype=torch.float32)
    wide = seeded(lambda: ConvNet((3, 8, 8), 3, width=32, depth=2))
    found = record_gradients(record_loss(wide), dict(wide.named_parameters()), colours, labels)  # type: ignore[arg-type]
    assert {part.rows.dtype for part in found.values() if isinstance(part, Held)} == {torch.float32}
    network = seeded(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3)))
    weights = {name: value.detach() for name, value in network.named_parameters()}
    loss = record_loss(network)
    assert isinstance(loss, LayeredLoss)
    images = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        found = loss.stages[0].map(weights, images.flatten(1))
    assert torch.equal(found, network(images))  # in float32


def test_float64_stays_float64_where_bfloat16_is_faster(coarse):
    network = seeded(lambda: ConvNet((1, 8, 8), 3, width=4, depth=2).double()).to(coarse)
    images, labels = (values.to(coarse) for values in batch((1, 8, 8), 3))
    ours, _ = sums(record_loss(network), network, images, labels)
    theirs, _ = sums(plain(network), network, images, labels)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("number", range(len(NETWORKS)))
def test_records_that_are_looked_at_a_few_at_a_time_give_the_same(number, monkeypatch):
    network, shape = NETWORKS[number]
    network = moved(network.double())
    images, labels = batch(shape, 7)
    loss = record_loss(network)
    together, _ = sums(loss, network, images, labels, chunk=7)
    for at_hand in (1, 3 * 10**4):  # one by one, and some
        monkeypatch.setattr(layered, "AT_HAND", at_hand)
        monkeypatch.setattr(last_channels, "BLOCK", at_hand)
        monkeypatch.setattr(first_block, "BLOCK", at_hand)
        found, _ = sums(loss, network, images, labels, chunk=7)
        torch.testing.assert_close(found, together, rtol=1e-10, atol=1e-14)


def test_bfloat16_gives_worse_gradients(coarse):
    assert near_double(coarse, BFLOAT16) > 1e-3  # it did round


@pytest.mark.parametrize("number", range(len(NETWORKS)))
def test_bfloat16_gives_no_longer_gradients(number, coarse):
    """Lengths have to be those of the numbers held, to the last digits of float32, whatever the layer."""
    network, shape = NETWORKS[number]
    network = moved(copy.deepcopy(network).float()).to(coarse)
    images, labels = (values.to(coarse) for values in batch(shape, 4, dtype=torch.float32))
    loss = record_loss(network)
    assert isinstance(loss, LayeredLoss)
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    weights = torch.ones(1, 1, dtype=torch.float64, device=coarse)
    for image, label in zip(images.split(1), labels.split(1), strict=True):  # in another company they round otherwise
        squares = 0.0
        for part in record_gradients(loss, parameters, image, label).values():
            total = torch.zeros(1, numbers_of(part), dtype=torch.float64, device=coarse)
            part.add(Shares(weights), total)
            assert float(total.square().sum()) == pytest.approx(float(part.squares()), rel=1e-6, abs=1e-30)
            squares += float(part.squares())
        for clip_norm in (1e-5, 1e-2, 1e3):
            alone, _ = sums(loss, network, image, label, clip_norm=clip_norm)
            assert float(alone.norm()) == pytest.approx(min(clip_norm, math.sqrt(squares)), rel=1e-6)


@pytest.mark.parametrize("clip_norm", [1e-6, 1e-5, 1e-4])
def test_a_slope_whose_square_vanishes_is_clipped_all_the_same(clip_norm):
    """Sure of a class, the slopes by the logits are too small to be squared in float32; what came in is huge."""
    loss = LayeredLoss([Stage(weight="w", bias="b")], before=lambda image, _: (image * 5e17).flatten())
    weights = {"w": torch.zeros(10, 784), "b": torch.tensor([0.0] + [-52.2] * 9)}
    chunks = [(torch.ones(1, 1, 28, 28), torch.tensor([0]), torch.ones(1, 1, dtype=torch.bool))]
    totals, _ = clipped_gradient_sums(loss, weights, chunks, samples=1, clip_norm=clip_norm)
    assert float(totals.flat.norm()) <= clip_norm * (1 + 1e-6)
