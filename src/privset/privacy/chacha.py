"""Random words and normal numbers on any device, from ChaCha20 in counter mode.

A graphics card that waits for noise from the processor spends much of a step of PSG waiting. Its own generators are
fast and not cryptographic. This is the block function of RFC 8439, with a counter of 64 bits as in the original: by one
kernel on a graphics card, by torch's operations elsewhere, the same words bit by bit.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from privset.privacy import chacha_kernels

_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
"""The text "expand 32-byte k"."""
_COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))


class CounterStream:
    """The words of one key, in order. Every block of 16 has a number, and no number is ever used twice.

    That holds of what is drawn here, and of what `recording` plays back, which takes its numbers here first. Who has a
    stream `become` another, or be `numbered_from` a slot, has to see to it.

    Args:
        key: 32 bytes that no one else may know.
        nonce: 8 bytes; streams of one key and different nonces have nothing in common.

    Attributes:
        key: As given.
        position: Number of the next block. The processor counts, so that no device is asked where it stands.
    """

    def __init__(self, key: bytes, *, nonce: bytes = bytes(8), position: int = 0) -> None:
        if len(key) != 32 or len(nonce) != 8:
            raise ValueError(f"a key has 32 bytes and a nonce 8, not {len(key)} and {len(nonce)}")
        if not 0 <= position < 2**63:
            raise ValueError(f"a position lies between 0 and 2**63, not at {position}")
        self.key, self.position = key, position
        self._nonce = nonce
        self._sent: dict[torch.device, tuple[Tensor, Tensor]] = {}
        self._slot: tuple[Tensor, int] | None = None

    def words(self, count: int, device: torch.device) -> Tensor:
        """``[count]`` uniform 32-bit words, int32; what is left of the last block is thrown away."""
        blocks = -(-count // 16)
        return _blocks(*self._next(blocks, device), blocks).flatten()[:count]

    def normals(self, count: int, device: torch.device) -> Tensor:
        """``[count]`` independent standard normal numbers, float64, by Box and Muller from 53 random bits each.

        None is longer than 8.65; of true normal numbers one in 10**17 is.
        """
        blocks = -(-count // 8)
        start = self._next(blocks, device)
        if chacha_kernels.fits(start[0]):
            return chacha_kernels.normals(*start, blocks).flatten()[:count]
        return _normals(_blocks(*start, blocks)).flatten()[:count]

    def chosen(self, count: int, rate: float, device: torch.device) -> Tensor:
        """``[count]`` independent draws, true with the probability floor(rate * 2**64) / 2**64."""
        if rate >= 1:
            return torch.ones(count, dtype=torch.bool, device=device)
        blocks = -(-count // 8)
        start = self._next(blocks, device)
        if chacha_kernels.fits(start[0]):
            return chacha_kernels.chosen(*start, blocks, below=int(rate * 2**64)).flatten()[:count]
        return _below(_blocks(*start, blocks).flatten(), rate)[:count]

    def take(self, blocks: int) -> int:
        """The number of the first of so many blocks; they are used up from here on."""
        first = self.position
        if first + blocks > 2**63:
            raise OverflowError("this key has no more numbers")
        self.position += blocks
        return first

    @contextlib.contextmanager
    def numbered_from(self, slot: Tensor) -> Iterator[Callable[[], int]]:
        """Have what is drawn here begin at the block whose number ``slot []`` holds when it is computed.

        For what a device records now and plays back later, each time from another block. Nothing is used up by it: who
        plays it back takes as many blocks as the function that is given here counts, and has the slot name the first.
        """
        begun = self.position
        self._slot = slot, begun
        try:
            yield lambda: self.position - begun
        finally:
            self._slot, self.position = None, begun

    def become(self, other: CounterStream) -> None:
        """Go on as the other stream would, also in what was recorded before."""
        self.key, self.position, self._nonce = other.key, other.position, other._nonce
        for key, nonce in self._sent.values():
            key.copy_(_little_endian(self.key))
            nonce.copy_(_little_endian(self._nonce))

    def _next(self, blocks: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Key, nonce and the number of the first of so many blocks, on the device; they are used up from here on."""
        if self._slot is None and device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("what is recorded would draw the same numbers each time: name the stream to `recorded`")
        first = self.take(blocks)
        if device not in self._sent:
            self._sent[device] = _little_endian(self.key).to(device), _little_endian(self._nonce).to(device)
        if self._slot is not None:
            slot, begun = self._slot
            return *self._sent[device], slot + (first - begun)
        # Filled in on the device: to send it there would wait for all that the device has to do.
        return *self._sent[device], torch.full((), first, dtype=torch.int64, device=device)


def _little_endian(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.int32).clone()


def _below(words: Tensor, rate: float) -> Tensor:
    """Words ``[2 n]`` -> ``[n]``, whether a number of 64 bits, of two words each, is below ``rate * 2**64``."""
    high, low = words.view(-1, 2).to(torch.int64).unbind(1)
    # Unsigned numbers compare as signed ones do whose highest bit is turned.
    drawn = ((high << 32) | (low & 0xFFFFFFFF)) ^ -(2**63)
    return drawn < int(rate * 2**64) - 2**63


def _blocks(key: Tensor, nonce: Tensor, position: Tensor, count: int) -> Tensor:
    """Blocks ``[count, 16]`` of words from number ``position []`` on; int32, to be read as unsigned."""
    if chacha_kernels.fits(position):
        return chacha_kernels.blocks(key, nonce, position, count)
    number = position + torch.arange(count, device=position.device)
    first = [
        *(torch.full_like(number, constant, dtype=torch.int32) for constant in _CONSTANTS),
        *key.expand(count, 8).unbind(1),
        number.to(torch.int32),  # the lower half: what does not fit is cut off
        (number >> 32).to(torch.int32),
        *nonce.expand(count, 2).unbind(1),
    ]
    state = list(first)
    for _ in range(10):
        for places in _COLUMNS + _DIAGONALS:
            _quarter_round(state, *places)
    return torch.stack([one + other for one, other in zip(state, first, strict=True)], dim=1)


def _quarter_round(state: list[Tensor], a: int, b: int, c: int, d: int) -> None:
    for one, other, turned, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        state[one] = state[one] + state[other]
        mixed = state[turned] ^ state[one]
        state[turned] = (mixed << by) | ((mixed >> (32 - by)) & ((1 << by) - 1))


def _normals(blocks: Tensor) -> Tensor:
    """Words ``[n, 16]`` -> normal numbers ``[n, 8]``, two from every four words."""
    high, low = (blocks.view(-1, 4, 2, 2).to(torch.int64) & 0xFFFFFFFF).unbind(3)
    uniform = ((high << 21) | (low >> 11)).to(torch.float64).add_(0.5).mul_(2.0**-53)
    radius, angle = (-2 * uniform[..., 0].log()).sqrt(), 2 * math.pi * uniform[..., 1]
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=2).flatten(1)
