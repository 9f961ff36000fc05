"""What may be asked: each kind of question with its sensitivity, and what its answers cost."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from privset.errors import ConfigError
from privset.privacy.accounting import GaussianEvent


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientQuestion:
    """Sum over a Poisson sample of per-record gradients of bounded length, plus noise.

    Sensitivity under add/remove: ``clip_norm``, over all parameters together.
    """

    sampling_rate: float
    """Probability with which each record enters a sample; 1 asks everyone."""
    clip_norm: float
    """Longest contribution of one record (L2, over all parameters together)."""
    noise_multiplier: float
    """Standard deviation of the noise divided by clip_norm."""

    def __post_init__(self) -> None:
        _check_bound("clip norm", self.clip_norm)

    def event(self, count: int) -> GaussianEvent:
        """What ``count`` answers cost."""
        return GaussianEvent(
            question="gradient",
            sampling_rate=self.sampling_rate,
            noise_multiplier=self.noise_multiplier,
            count=count,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TotalQuestion:
    """Sum over all records, by class or in one, of a vector of bounded length, plus noise.

    Sensitivity under add/remove: ``bound``, over all classes together, since a record is in one class.
    """

    bound: float
    """Longest contribution of one record (L2)."""
    noise_multiplier: float
    """Standard deviation of the noise divided by bound."""
    by_class: bool = True
    """One sum for each class, or a single one over all records."""

    def __post_init__(self) -> None:
        _check_bound("bound", self.bound)

    def event(self, count: int) -> GaussianEvent:
        """What ``count`` answers cost."""
        return GaussianEvent(question="total", sampling_rate=1.0, noise_multiplier=self.noise_multiplier, count=count)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VotesQuestion:
    """Sum over all wards, each taught by its own shard of the records, of a bounded contribution, plus noise.

    One record more or less changes one ward, whose contribution then goes from one allowed value to another; a ward is
    there also without records. What is allowed, and so the sensitivity under add/remove, depends on ``kind``:

    - ``vectors``: any vector of length ``bound`` at most: 2 bound.
    - ``choices``: one bin in each of ``histograms``: two places change by 1 in each, sqrt(2 histograms).
    - ``lead``: the same, and answered is only how often the bin chosen most was chosen: sqrt(histograms).
    """

    kind: Literal["vectors", "choices", "lead"]
    """What a ward contributes, and what is answered."""
    noise_multiplier: float
    """Standard deviation of the noise divided by the sensitivity."""
    bound: float | None = None
    """Longest contribution of one ward (L2, over all that it says); of vectors only."""
    histograms: int | None = None
    """How many bins each ward chooses, each in a histogram of its own; of choices and lead only."""

    def __post_init__(self) -> None:
        if (self.kind == "vectors") != (self.histograms is None) or (self.kind == "vectors") == (self.bound is None):
            raise ConfigError("votes that are vectors have a bound, choices and lead a number of histograms")
        if self.bound is not None:
            _check_bound("bound", self.bound)
        if self.histograms is not None and not 1 <= self.histograms <= 10**9:
            raise ConfigError(f"a ward chooses in at least one histogram, not {self.histograms!r}")

    @property
    def sensitivity(self) -> float:
        """How far one record can move the clean answer (L2, over all of it)."""
        if self.bound is not None:
            return 2 * self.bound
        histograms = self.histograms or 0
        return math.sqrt(2 * histograms if self.kind == "choices" else histograms)

    def event(self, count: int) -> GaussianEvent:
        """What ``count`` answers cost."""
        return GaussianEvent(question="votes", sampling_rate=1.0, noise_multiplier=self.noise_multiplier, count=count)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PullbackQuestion:
    """How generated images should change, as a loss sees it that looks at records, or as wards do; plus noise.

    Asked of a Poisson sample of the records, or of wards, each taught by its own shard: all of them, or a fixed number
    that is drawn in secret. The gradient over all generated images, of the loss or of each ward, is shortened to
    ``clip_norm``. One record more or less moves it from one place in a ball to another.

    Sensitivity under add/remove: 2 ``clip_norm``, over all generated images together.
    """

    sampling_rate: float
    """Probability with which each record enters a sample, or the share of wards that take part; 1 asks all."""
    clip_norm: float
    """Longest gradient (L2, over all generated images together), of the loss or of one ward."""
    noise_multiplier: float
    """Standard deviation of the noise divided by the sensitivity."""
    of_wards: bool = False
    """Whether wards are asked and their gradients are added up, or records are."""
    each_image: bool = False
    """Whether every image's gradient is shortened by itself, to clip_norm over the square root of their number."""

    def __post_init__(self) -> None:
        _check_bound("clip norm", self.clip_norm)

    @property
    def sensitivity(self) -> float:
        """How far one record can move the clean answer (L2, over all of it)."""
        return 2 * self.clip_norm

    def event(self, count: int) -> GaussianEvent:
        """What ``count`` answers cost."""
        return GaussianEvent(
            question="pullback",
            sampling_rate=self.sampling_rate,
            noise_multiplier=self.noise_multiplier,
            count=count,
            sampling="without-replacement" if self.of_wards and self.sampling_rate < 1 else "poisson",
        )


Question = GradientQuestion | TotalQuestion | VotesQuestion | PullbackQuestion
"""Any of them."""


def _check_bound(name: str, value: float) -> None:
    # Far outside this range squares under- or overflow in float32, and a bound no longer bounds.
    if not 1e-6 <= value <= 1e6:
        raise ConfigError(f"{name} must lie between 1e-6 and 1e6, not {value!r}")
