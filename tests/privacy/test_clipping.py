import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import facts_for, records_for, resized, without
from torch.func import functional_call

from privset import networks
from privset.errors import ConfigError
from privset.facts import normalise
from privset.privacy.clipping import clip_factors, clipped_gradient_sum, clipped_sum, clipped_sums

finite = st.floats(-1e4, 1e4, allow_nan=False)


@given(rows=st.lists(st.lists(finite, min_size=3, max_size=3), min_size=1, max_size=6), bound=st.floats(0.01, 100))
def test_one_row_moves_a_clipped_sum_by_at_most_the_bound(rows, bound):
    vectors = torch.tensor(rows, dtype=torch.float64)
    with_all, _ = clipped_sum(vectors, bound)
    for index in range(len(rows)):
        without, _ = clipped_sum(torch.cat([vectors[:index], vectors[index + 1 :]]), bound)
        assert float((with_all - without).norm()) <= bound * (1 + 1e-9)


def test_short_rows_pass_unchanged_and_long_ones_keep_their_direction():
    vectors = torch.tensor([[3.0, 4.0], [0.3, 0.4]], dtype=torch.float64)
    total, bad = clipped_sum(vectors, 1.0)
    assert torch.allclose(total, torch.tensor([0.6 + 0.3, 0.8 + 0.4], dtype=torch.float64))
    assert int(bad) == 0


def test_rows_that_are_not_finite_count_as_zero_and_are_counted():
    vectors = torch.tensor([[1.0, 0.0], [math.nan, 0.0], [math.inf, 1.0], [1e200, 1e200]], dtype=torch.float32)
    total, bad = clipped_sum(vectors, 1.0)
    assert total.tolist() == [1.0, 0.0]
    assert int(bad) == 3
    assert clip_factors(torch.tensor([math.inf, math.nan]), 1.0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("vectors", [torch.full((2, 4), 16, dtype=torch.uint8), torch.ones(2, 3, 3), torch.ones(2)])
def test_what_cannot_be_clipped_is_refused(vectors):
    with pytest.raises(ConfigError, match="one vector of float32 or float64"):
        clipped_sum(vectors, 1.0)
    with pytest.raises(ConfigError, match="one vector of float32 or float64"):
        clipped_sums(vectors, torch.zeros(2, dtype=torch.int64), 1, 1.0)


def test_no_rows_give_zeros():
    total, bad = clipped_sum(torch.zeros(0, 4), 1.0)
    assert total.tolist() == [0.0] * 4
    assert int(bad) == 0


def make(seed=0, count=7):
    facts = facts_for(count)
    network = networks.build("convnet", facts, seed=seed, width=4, depth=2).double()
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, *facts.shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (count,), generator=generator)

    def loss(parameters, image, label):
        return F.cross_entropy(functional_call(network, parameters, (image[None],)), label[None])

    return loss, {name: value.detach() for name, value in network.named_parameters()}, images, labels


def flat(gradients):
    return torch.cat([value.flatten() for value in gradients.values()])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 50), clip_norm=st.sampled_from([1e-3, 0.1, 10.0]), scale=st.sampled_from([0.0, 1.0, 1e3]))
def test_one_record_moves_the_gradient_sum_by_at_most_the_clip_norm_over_all_parameters(seed, clip_norm, scale):
    loss, parameters, images, labels = make(seed)
    images = images * scale
    with_all, _ = clipped_gradient_sum(loss, parameters, [(images, labels)], clip_norm=clip_norm)
    for index in range(len(images)):
        keep = torch.arange(len(images)) != index
        without, _ = clipped_gradient_sum(loss, parameters, [(images[keep], labels[keep])], clip_norm=clip_norm)
        assert float((flat(with_all) - flat(without)).norm()) <= clip_norm * (1 + 1e-9)


def test_the_bound_is_reached_so_noise_for_less_would_be_too_little():
    loss, parameters, images, labels = make()
    alone, _ = clipped_gradient_sum(loss, parameters, [(images[:1], labels[:1])], clip_norm=1e-3)
    assert abs(float(flat(alone).norm()) - 1e-3) < 1e-9


def test_the_sum_is_that_of_single_records_whatever_the_chunks():
    loss, parameters, images, labels = make()
    whole, _ = clipped_gradient_sum(loss, parameters, [(images, labels)], clip_norm=0.1)
    chunked, _ = clipped_gradient_sum(
        loss, parameters, zip(images.split(3), labels.split(3), strict=True), clip_norm=0.1
    )
    singly = torch.stack(
        [
            flat(clipped_gradient_sum(loss, parameters, [(x[None], y[None])], clip_norm=0.1)[0])
            for x, y in zip(images, labels, strict=True)
        ]
    ).sum(0)
    assert torch.allclose(flat(whole), flat(chunked), atol=1e-12)
    assert torch.allclose(flat(whole), singly, atol=1e-12)


def test_a_record_with_a_broken_gradient_leaves_the_others_alone():
    loss, parameters, images, labels = make()
    broken = images.clone()
    broken[2, 0, 0, 0] = math.nan
    keep = torch.arange(len(images)) != 2
    expected, _ = clipped_gradient_sum(loss, parameters, [(images[keep], labels[keep])], clip_norm=0.1)
    total, bad = clipped_gradient_sum(loss, parameters, [(broken, labels)], clip_norm=0.1)
    assert int(bad) == 1
    assert torch.allclose(flat(total), flat(expected), atol=1e-12)


def test_sums_are_kept_in_float64_whatever_the_parameters():
    loss, parameters, images, labels = make()
    single = {name: value.float() for name, value in parameters.items()}
    network = networks.build("convnet", facts_for(7), seed=0, width=4, depth=2)

    def single_loss(parameters, image, label):
        return F.cross_entropy(functional_call(network, parameters, (image[None],)), label[None])

    total, _ = clipped_gradient_sum(single_loss, single, [(images.float(), labels)], clip_norm=0.1)
    exact, _ = clipped_gradient_sum(loss, parameters, [(images, labels)], clip_norm=0.1)
    assert {value.dtype for value in total.values()} == {torch.float64}
    assert torch.allclose(flat(total), flat(exact), atol=1e-5)


def test_an_empty_batch_gives_zeros():
    loss, parameters, _, _ = make()
    total, bad = clipped_gradient_sum(loss, parameters, [], clip_norm=0.1)
    assert float(flat(total).abs().sum()) == 0
    assert int(bad) == 0
    assert {name: value.shape for name, value in total.items()} == {n: v.shape for n, v in parameters.items()}


def test_a_long_sum_of_short_contributions_does_not_round_past_the_bound():
    # In float32 the sum of thousands of equal contributions drifts; one record less must still move it by C alone.
    facts = facts_for(6000)
    records = records_for(facts)

    def loss(parameters, image, label):
        return parameters["w"].sum() * 3

    def clean(some, facts):
        images = normalise(some.images, facts)
        total, _ = clipped_gradient_sum(loss, {"w": torch.zeros(1)}, [(images, some.labels)], clip_norm=0.1)
        return float(total["w"])

    moved = clean(records, facts) - clean(without(records, 17), resized(facts, 5999))
    assert moved == pytest.approx(0.1, rel=1e-6)


@pytest.mark.parametrize("stride", [(1, 2), (2, 2)])
def test_weights_that_lie_channels_last_do_not_let_records_meet(stride):
    """A processor's library has read beside maps that are one place wide, where one channel was laid as several are."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(16, 1, 3, 4, generator=generator).to(memory_format=torch.channels_last)
    assert weight.stride() != (12, 12, 4, 1)

    def loss(parameters, image, label):
        maps = F.conv2d(image[None], parameters["weight"], None, stride, 1)
        return F.cross_entropy(maps.tanh().sum(2).flatten(1), label[None])

    images, labels = torch.randn(33, 1, 7, 3, generator=generator), torch.arange(33) % 3

    def clean(some):
        return clipped_gradient_sum(loss, {"weight": weight}, [(some, labels)], clip_norm=1.0)[0]["weight"]

    before = clean(images)
    assert torch.equal(clean(images), before)
    for value in (0.0, 1e3, math.nan):
        others = images.clone()
        others[7] = value
        assert float((clean(others) - before).norm()) <= 2 * (1 + 1e-6)
