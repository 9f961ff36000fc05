"""ChaCha20 against RFC 8439, the statistics of what is made of it, and the kernels where something can run them.

That is a graphics card, or Triton's interpreter: TRITON_INTERPRET=1, with Triton installed.
"""

import os

import pytest
import torch
from scipy import stats

from privset.privacy import chacha_kernels
from privset.privacy.chacha import CounterStream, _below

CPU = torch.device("cpu")
INTERPRETED = chacha_kernels.AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
CARD = chacha_kernels.AVAILABLE and torch.cuda.is_available()
KERNELS = pytest.mark.skipif(not (INTERPRETED or CARD), reason="neither a graphics card nor the interpreter")
DEVICE = torch.device("cuda" if CARD else "cpu")
DEVICES = [CPU, *([DEVICE] if CARD else [])]

RFC_8439 = """e4e7f110 15593bd1 1fdd0f50 c47120a3 c7f4d1c7 0368c033 9aaa2204 4e6cd4c3
              466482d2 09aa9f07 05d7c214 a2028bd9 d19c12b5 b94e16de e883d0cb 4e3c50a2"""


def fresh() -> CounterStream:
    return CounterStream(os.urandom(32))


@pytest.mark.parametrize("device", DEVICES)
def test_a_block_is_that_of_the_standard(device):
    # Section 2.3.2. Its counter has 32 bits and its nonce 96: the first of these are the upper half of ours.
    nonce, counter = bytes.fromhex("0000004a00000000"), 1 + (0x09000000 << 32)
    stream = CounterStream(bytes(range(32)), nonce=nonce, position=counter)
    assert [f"{int(word) & 0xFFFFFFFF:08x}" for word in stream.words(16, device)] == RFC_8439.split()


def test_no_number_of_a_block_is_used_twice():
    stream = fresh()
    drawn, expected = [], 0
    for count in (1, 16, 17, 5):
        drawn.append(stream.words(count, CPU))
        expected += -(-count // 16)
        assert stream.position == expected
    stream.normals(9, CPU)
    assert stream.position == expected + 2
    stream.chosen(9, 0.5, CPU)
    assert stream.position == expected + 4
    whole = CounterStream(stream.key).words(16 * 6, CPU)
    for words, first in zip(drawn, (0, 1, 2, 4), strict=True):
        assert torch.equal(words, whole[16 * first :][: len(words)])
    assert len(set(torch.cat([part.flatten() for part in drawn]).tolist())) == 39


def test_a_key_with_nothing_left_is_refused_rather_than_begun_again():
    stream = CounterStream(bytes(32), position=2**63 - 2)
    stream.words(32, CPU)
    with pytest.raises(OverflowError, match="no more numbers"):
        stream.words(1, CPU)


def test_what_is_numbered_from_a_slot_is_drawn_where_the_slot_says_and_used_up_by_who_takes_it():
    stream, other = CounterStream(bytes(32), position=5), CounterStream(bytes(32), position=5)
    slot = torch.zeros((), dtype=torch.int64)

    def draw(source):
        return torch.cat([source.chosen(9, 0.5, CPU).double(), source.normals(9, CPU), source.words(3, CPU).double()])

    with stream.numbered_from(slot) as count:
        draw(stream)
        assert count() == 2 + 2 + 1
    assert stream.position == 5
    for _ in range(3):
        slot.fill_(stream.take(5))
        with stream.numbered_from(slot):
            found = draw(stream)
        assert torch.equal(found, draw(other))
        assert stream.position == other.position
    assert torch.equal(draw(stream), draw(other))  # and by itself it goes on from there


@pytest.mark.parametrize("device", DEVICES)
def test_a_stream_that_becomes_another_draws_what_that_would(device):
    stream, other = fresh(), fresh()
    stream.words(20, device)
    other.words(40, CPU)
    (sent,) = stream._sent.values()
    stream.become(other)
    assert torch.equal(stream.words(16, device).cpu(), other.words(16, CPU))
    assert stream._sent[device] is sent  # in place: recordings know no other


@pytest.mark.parametrize("settings", [{"key": b"short"}, {"key": bytes(32), "nonce": b""}])
def test_keys_of_other_lengths_are_refused(settings):
    with pytest.raises(ValueError, match="32 bytes and a nonce 8"):
        CounterStream(**settings)
    with pytest.raises(ValueError, match="position"):
        CounterStream(bytes(32), position=-1)


@pytest.mark.parametrize("device", DEVICES)
def test_normals_are_standard_normal_and_independent(device):
    stream, size = fresh(), 200_000
    first, second = (stream.normals(size, device).cpu() for _ in range(2))
    for drawn in (first, second):
        assert drawn.dtype == torch.float64
        assert float(drawn.std()) == pytest.approx(1.0, abs=0.008)  # five deviations of a deviation
        assert stats.kstest(drawn.numpy(), "norm").pvalue > 1e-6
    bound = 5 / size**0.5
    assert abs(float((first * second).mean())) < bound
    for distance in (1, 2, 7, 8, 16):  # neighbours: the pair of Box and Muller, and the block
        assert abs(float((first[distance:] * first[:-distance]).mean())) < bound
        squares = first.square() - 1
        assert abs(float((squares[distance:] * squares[:-distance]).mean())) < 2 * bound
    assert float(first.abs().max()) > 4


@pytest.mark.parametrize("device", DEVICES)
def test_words_are_uniform_in_every_bit(device):
    words = fresh().words(2**17, device).cpu().to(torch.int64) & 0xFFFFFFFF
    for bit in range(32):
        assert float((words >> bit & 1).double().mean()) == pytest.approx(0.5, abs=5 * 0.5 / 2**8.5)
    counts = torch.bincount(words >> 24, minlength=256)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-6


@pytest.mark.parametrize("device", DEVICES)
def test_records_are_chosen_independently_and_at_the_rate(device):
    draws, size, rate = 2000, 300, 0.03
    hits = fresh().chosen(draws * size, rate, device).cpu().view(draws, size).double()
    expected = draws * rate
    assert float((hits.sum(0) - expected).abs().max()) < 6 * expected**0.5
    assert float(hits.sum(1).var()) == pytest.approx(size * rate * (1 - rate), rel=0.2)
    assert float((hits[:, 1:] * hits[:, :-1]).mean()) == pytest.approx(rate**2, rel=0.25)
    assert float((hits[1:] * hits[:-1]).mean()) == pytest.approx(rate**2, rel=0.25)
    assert bool(fresh().chosen(5, 1.0, device).all())


@pytest.mark.parametrize("rate", [0.1, 0.5, 1e-12, 1 - 2**-53])
def test_the_probability_is_never_above_the_rate(rate):
    threshold = int(rate * 2**64)
    for number, taken in ((0, True), (threshold - 1, True), (threshold, False), (2**64 - 1, False)):
        halves = [number >> 32, number & 0xFFFFFFFF]
        words = torch.tensor([half - 2**32 if half >= 2**31 else half for half in halves], dtype=torch.int32)
        assert _below(words, rate).tolist() == [taken]


@KERNELS
def test_the_kernels_give_the_words_and_the_normals_of_the_plain_path(monkeypatch):
    key, start = os.urandom(32), 2**32 - 3  # over the border of the lower half of the counter
    plain = CounterStream(key, position=start)
    words, normals = plain.words(16 * 7, CPU), plain.normals(8 * 200, CPU)
    monkeypatch.setattr(chacha_kernels, "fits", lambda _: True)
    stream = CounterStream(key, position=start)
    assert torch.equal(stream.words(16 * 7, DEVICE).cpu(), words)
    torch.testing.assert_close(stream.normals(8 * 200, DEVICE).cpu(), normals, rtol=1e-9, atol=1e-9)


@KERNELS
@pytest.mark.parametrize("rate", [0.9, 0.5, 0.25, 0.01, 2.0**-32, 1e-12, 1 - 2**-53])
def test_the_kernel_chooses_whom_the_plain_path_chooses(rate, monkeypatch):
    key, count = os.urandom(32), 8 * 130 + 3
    expected = CounterStream(key).chosen(count, rate, CPU)
    monkeypatch.setattr(chacha_kernels, "fits", lambda _: True)
    stream = CounterStream(key)
    assert torch.equal(stream.chosen(count, rate, DEVICE).cpu(), expected)
    assert stream.position == 131


@KERNELS
@pytest.mark.parametrize("apart", [-1, 0, 1])
def test_the_kernel_compares_all_64_bits(apart, monkeypatch):
    """At the very number that is drawn, for every choice of a block."""
    key = os.urandom(32)
    words = [int(word) & 0xFFFFFFFF for word in CounterStream(key).words(16, CPU)]
    numbers = [high << 32 | low for high, low in zip(words[::2], words[1::2], strict=True)]
    stream = CounterStream(key)
    start = stream._next(1, DEVICE)
    for place, number in enumerate(numbers):
        found = chacha_kernels.chosen(*start, 1, below=number + apart).flatten().tolist()
        assert found == [other < number + apart for other in numbers]
        assert found[place] == (apart > 0)
