import json
import math

import numpy as np
import pytest
import torch
from scipy import stats

from privset.errors import ConfigError
from privset.privacy import seeded_noise, system_noise


@pytest.mark.parametrize("std", [0.02, 1.0, 35.0])
def test_noise_is_normal_with_the_stated_deviation(std):
    noise = system_noise().add_normal(torch.zeros(200_000, dtype=torch.float64), std) / std
    # The deviation of a sample deviation is 1 / sqrt(2n) = 0.0016: five of them.
    assert float(noise.std()) == pytest.approx(1.0, abs=0.008)
    assert float(noise.mean()) == pytest.approx(0.0, abs=5 / math.sqrt(200_000))
    assert stats.kstest(noise.numpy(), "norm").pvalue > 1e-6


def test_noise_is_added_to_the_answer_in_its_own_type():
    answer = torch.full((3, 4), 7.0)
    noisy = seeded_noise(1).add_normal(answer, 1e-3)
    assert noisy.dtype == torch.float32
    assert noisy.shape == (3, 4)
    assert torch.allclose(noisy, answer, atol=0.01)
    assert not torch.equal(noisy, answer)
    assert torch.equal(seeded_noise(1).add_normal(answer, 0.0), answer)


def test_every_call_and_every_system_stream_is_fresh():
    source = system_noise()
    zeros = torch.zeros(1000, dtype=torch.float64)
    first, second, other = (
        source.add_normal(zeros, 1),
        source.add_normal(zeros, 1),
        system_noise().add_normal(zeros, 1),
    )
    for a, b in [(first, second), (first, other)]:
        assert abs(np.corrcoef(a.numpy(), b.numpy())[0, 1]) < 0.2


def test_seeded_noise_repeats_itself_and_says_so():
    zeros = torch.zeros(10)
    assert torch.equal(seeded_noise(3).add_normal(zeros, 1), seeded_noise(3).add_normal(zeros, 1))
    assert not torch.equal(seeded_noise(3).add_normal(zeros, 1), seeded_noise(4).add_normal(zeros, 1))
    assert (seeded_noise(3).kind, system_noise().kind) == ("seeded", "system")


def test_a_source_with_a_seed_can_never_pass_for_secret():
    from privset.errors import ConfigError
    from privset.privacy import NoiseSource

    assert NoiseSource(0).kind == "seeded"
    with pytest.raises(ConfigError, match="a noise seed must be 0 or more"):
        seeded_noise(-1)


def test_torch_seeds_do_not_reach_the_noise():
    torch.manual_seed(0)
    first = system_noise().add_normal(torch.zeros(10), 1)
    torch.manual_seed(0)
    assert not torch.equal(first, system_noise().add_normal(torch.zeros(10), 1))


@pytest.mark.parametrize("words", [0, 1, 5])  # in the middle of a block of 16, and at its end
def test_a_stream_goes_on_where_another_stood(words):
    source, zeros = system_noise(), torch.zeros(1000, dtype=torch.float64)
    source.add_normal(zeros[:words], 1.0)
    source.bits(words)
    other = seeded_noise(3)
    other.restore(json.loads(json.dumps(source.state())))
    for _ in range(2):
        assert np.array_equal(other.bits(7), source.bits(7))
        assert torch.equal(other.add_normal(zeros, 1.0), source.add_normal(zeros, 1.0))


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("chacha"),
        lambda state: state["chacha"].pop("ctr"),
        lambda state: state["chacha"].update(rounds=8),
        lambda state: state["chacha"].update(keysetup=[1]),
        lambda state: state["chacha"].update(block=["a"] * 16),
        lambda state: state["chacha"].update(ctr=[-1, 2**70]),
    ],
)
def test_what_is_no_position_is_refused_and_the_stream_stays(change):
    source, same = seeded_noise(1), seeded_noise(1)
    state = source.state()
    change(state)
    with pytest.raises(ConfigError, match="noise cannot go on from there"):
        source.restore(state)
    assert np.array_equal(source.bits(3), same.bits(3))


def test_a_state_goes_on_where_it_was_taken_on_every_device():
    source = system_noise()
    source.bits(3)
    source.normals(5, torch.device("cpu"))
    source._on_device.words(40, torch.device("cpu"))
    state = json.loads(json.dumps(source.state()))
    expected = drawn_from(source)
    other = seeded_noise(9)
    other.restore(state)
    assert all(torch.equal(a, b) for a, b in zip(drawn_from(other), expected, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(drawn_from(other), expected, strict=True))  # it went on


def drawn_from(source):
    cpu = torch.device("cpu")
    stream = source._on_device
    return (
        torch.from_numpy(source.bits(4).astype(np.int64)),
        source.normals(4, cpu),
        stream.normals(4, cpu),
        stream.words(4, cpu),
    )


@pytest.mark.parametrize(
    "broken", [{}, {"chacha": {}}, {"counter": {"key": "00", "position": 0}}, {"counter": {"key": "x", "position": -1}}]
)
def test_a_state_that_is_none_is_refused_and_changes_nothing(broken):
    from privset.errors import ConfigError

    source, same = seeded_noise(1), seeded_noise(1)
    state = {} if not broken else source.state() | broken
    with pytest.raises(ConfigError, match="noise cannot go on from there"):
        source.restore(state)
    assert all(torch.equal(a, b) for a, b in zip(drawn_from(source), drawn_from(same), strict=True))


@pytest.mark.parametrize("seed", [0, 1, 2**255])
def test_the_two_streams_of_a_source_have_nothing_in_common(seed):
    source = seeded_noise(seed)
    assert source._on_device.key != seed.to_bytes(32, "little")
    assert source._on_device.key != seeded_noise(seed + 1)._on_device.key
    assert system_noise()._on_device.key != system_noise()._on_device.key
    host = {int(word) & 0xFFFFFFFF for word in source.bits(64)} | {int(word) >> 32 for word in source.bits(64)}
    assert not host & {int(word) & 0xFFFFFFFF for word in source._on_device.words(256, torch.device("cpu"))}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card")
def test_noise_on_a_graphics_card_is_normal_and_stays_there():
    source = system_noise()
    zeros = torch.zeros(200_000, device="cuda")
    first, second = source.add_normal(zeros, 3.0), source.add_normal(zeros, 3.0)
    assert first.device.type == "cuda"
    assert first.dtype == torch.float32
    assert stats.kstest((first / 3).cpu().numpy(), "norm").pvalue > 1e-6
    assert abs(float((first * second).mean()) / 9) < 5 / math.sqrt(200_000)


def test_a_source_apart_has_its_own_key_or_the_same_seed():
    secret = system_noise()
    assert secret.apart().state()["chacha"]["keysetup"] != secret.state()["chacha"]["keysetup"]
    assert secret.apart().state()["counter"]["key"] != secret.state()["counter"]["key"]
    seeded = seeded_noise(4)
    seeded.bits(3)
    other = seeded.apart()
    assert (other.kind, other.seed) == ("seeded", 4)
    first = other.bits(5)  # from where the first one stands, which stays there
    assert np.array_equal(first, seeded.bits(5))
