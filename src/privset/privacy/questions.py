"""What may be asked: each kind of question with its sensitivity, and what its answers cost."""

from __future__ import annotations

import dataclasses

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


def _check_bound(name: str, value: float) -> None:
    # Far outside this range squares under- or overflow in float32, and a bound no longer bounds.
    if not 1e-6 <= value <= 1e6:
        raise ConfigError(f"{name} must lie between 1e-6 and 1e6, not {value!r}")
