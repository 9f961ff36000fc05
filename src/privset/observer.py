"""How long-running code says where it is, without printing."""

from __future__ import annotations


class Observer:
    """Receives progress and does nothing with it; the command line draws bars, tests count.

    A phase is announced once with the number of steps it will take (0: not known), then stepped. From a method
    the values are functions of noisy answers and of the synthetic set; from an evaluation they are accuracies on
    real images, which are for whoever holds these.
    """

    def phase(self, name: str, total: int) -> None:
        """Start the phase ``name`` of ``total`` steps; it ends when the next one starts."""

    def step(self, count: int = 1, **values: float) -> None:
        """``count`` steps of the current phase are done; ``values`` are figures worth showing."""
