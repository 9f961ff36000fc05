"""Where the randomness that privacy rests on comes from: Gaussian noise and secret samples.

ChaCha20, keyed with 256 bits of the operating system's entropy, so that neither noise nor sample can be guessed
from outputs or from a seed. A source made with a seed repeats itself, for tests and studies, and stamps a
certificate "seeded noise: not private".

On a processor numbers come from a compiled generator, through NumPy; on a graphics card they are made where they are
needed (`privset.privacy.chacha`), under a key of their own, so that the two never give the same words.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, Literal

import numpy as np
import torch
from randomgen import ChaCha
from torch import Tensor

from privset.errors import ConfigError
from privset.privacy.chacha import CounterStream

_WORDS = ("block", "keysetup", "ctr")
"""What the state of a stream is made of: its current block, its key, its position."""


class NoiseSource:
    """Normal numbers and random bits from one cryptographic stream for each kind of device.

    Attributes:
        kind: "system" (secret, for releases) or "seeded" (repeatable, never private).
        seed: Of seeded noise; None for the system's, whose key nobody is told.
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and not 0 <= seed < 2**256:
            raise ConfigError(f"a noise seed must be 0 or more (and below 2**256), not {seed}")
        self.kind: Literal["system", "seeded"] = "system" if seed is None else "seeded"
        self.seed = seed
        key = secrets.randbits(256) if seed is None else seed
        self._stream = np.random.Generator(ChaCha(key=key, rounds=20))  # pyright: ignore[reportArgumentType]
        # A key of its own: under the same one, both generators would give the same words.
        own = secrets.token_bytes(32) if seed is None else _hashed(seed)
        self._on_device = CounterStream(own)

    @property
    def counted(self) -> CounterStream:
        """What is drawn on a graphics card, to be named where draws are recorded and played back."""
        return self._on_device

    def normals(self, count: int, device: torch.device) -> Tensor:
        """``[count]`` independent standard normal numbers, float64, on the device."""
        if device.type == "cpu":
            return torch.from_numpy(self._stream.standard_normal(count))
        return self._on_device.normals(count, device)

    def chosen(self, count: int, rate: float, device: torch.device) -> Tensor:
        """``[count]`` independent draws on a graphics card, true with the probability floor(rate * 2**64) / 2**64."""
        return self._on_device.chosen(count, rate, device)

    def add_normal(self, answer: Tensor, std: float) -> Tensor:
        """``answer`` plus independent N(0, std**2) on every element, in ``answer``'s dtype and device.

        The sum is taken in float64 and rounded once at the end. A ``std`` of 0 returns the answer as it is.
        The samples are floating-point normals: attacks on their low-order bits are out of scope, as in
        every mainstream DP library, and each certificate says so.
        """
        if std == 0:
            return answer
        noise = self.normals(answer.numel(), answer.device).view(answer.shape)
        return (answer.detach().to(torch.float64) + std * noise).to(answer.dtype)

    def bits(self, count: int) -> np.ndarray:
        """``[count]`` uniform 64-bit words."""
        return self._stream.integers(0, 2**64, size=count, dtype=np.uint64)

    def integers(self, bound: int, count: int) -> np.ndarray:
        """``[count]`` independent whole numbers from 0 to ``bound - 1``, exactly uniform."""
        return self._stream.integers(0, bound, size=count, dtype=np.int64)

    def apart(self) -> NoiseSource:
        """A source for one run that may be stopped and moved back to where it stood, and for nothing else.

        Of the system's noise it is a new one: moved back, a stream that others had drawn from in the meantime would
        give them and the run the same noise. Of seeded noise, which hides nothing, it goes on where this one stands.
        """
        other = NoiseSource(self.seed)
        if self.seed is not None:
            other.restore(self.state())
        return other

    def state(self) -> dict[str, Any]:
        """Where the streams stand, as JSON has it: **as secret as the noise**, since it holds the keys.

        Whoever has it can repeat, and subtract, what comes after it, and with the keys what came before. For
        `privset.privacy.standing` only, which keeps it for the data holder's eyes until a run is done.
        """
        found = self._stream.bit_generator.state["state"]
        words = {name: [int(word) for word in found[name]] for name in _WORDS}
        counter = {"key": self._on_device.key.hex(), "position": self._on_device.position}
        return {"chacha": words | {"rounds": int(found["rounds"])}, "counter": counter}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where a source stood when it gave this state: what is drawn next is what it drew next.

        Raises:
            ConfigError: It is no such state; this source is as it was.
        """
        now = self._stream.bit_generator.state
        try:
            given, counter = state["chacha"], state["counter"]
            words = {name: np.array(given[name], dtype=now["state"][name].dtype) for name in _WORDS}
            if given["rounds"] != 20 or any(words[name].shape != now["state"][name].shape for name in _WORDS):
                raise ValueError("not a position of ChaCha20")
            on_device = CounterStream(bytes.fromhex(counter["key"]), position=int(counter["position"]))
            self._stream.bit_generator.state = dict(now) | {"state": words | {"rounds": 20}}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"noise cannot go on from there ({error})") from error
        self._on_device.become(on_device)


def _hashed(seed: int) -> bytes:
    return hashlib.sha256(b"privset: noise on a device\0" + seed.to_bytes(32, "little")).digest()


def system_noise() -> NoiseSource:
    """A fresh secret stream from the operating system's entropy: the only source a release may use."""
    return NoiseSource()


def seeded_noise(seed: int) -> NoiseSource:
    """A stream that anyone who knows the seed can repeat and subtract: for tests and studies, never private."""
    return NoiseSource(seed)
