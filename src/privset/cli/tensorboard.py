"""Curves and previews for TensorBoard, written as a run goes on."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import SupportsFloat

import numpy as np

from privset.cli import console
from privset.cli.watching import PREVIEW_SECONDS, Pace, draw, reason
from privset.errors import ConfigError
from privset.facts import PublicFacts
from privset.observer import Glimpse, Observer

_CURVE_SECONDS = 0.5
"""Two points of a curve are this far apart at least: to read a figure makes a graphics card wait."""


def require_tensorboard() -> None:
    """Raise `ConfigError` if TensorBoard is not installed; to be called before anything else is done."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError("--tensorboard needs the package tensorboard; pip install 'privset[tensorboard]'")


class TensorBoard(Observer):
    """Figures by phase and step, the budget spent, and the set as it forms.

    All of it is made of noisy answers, as the set is. What cannot be drawn or written is left out with a warning: no
    run, whose budget is spent, ends for that.

    Args:
        folder: For ``tensorboard --logdir``; every run adds a file of its own.
        facts: What is public about the images.

    Raises:
        ConfigError: TensorBoard is not installed, or the folder cannot be written.
    """

    def __init__(self, folder: Path, facts: PublicFacts) -> None:
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        try:
            self._writer = SummaryWriter(str(folder), flush_secs=5)
        except OSError as error:
            raise ConfigError(
                f"{folder} cannot be written for TensorBoard ({error.strerror}); choose another"
            ) from error
        self._facts, self._failed = facts, False
        self._curves, self._pictures = Pace(_CURVE_SECONDS), Pace(PREVIEW_SECONDS)
        self._name, self._total, self._done, self._charges = "", 0, 0, 0

    def close(self) -> None:
        """Write what is left."""
        self._attempt(self._writer.close)

    def phase(self, name: str, total: int) -> None:
        """Begin new curves."""
        self._name, self._total, self._done = name, total, 0
        self._curves, self._pictures = Pace(_CURVE_SECONDS), Pace(PREVIEW_SECONDS)

    def step(self, count: int = 1, **values: float) -> None:
        """Add points to the curves, if it is time, and at the end of a phase."""
        self._done += count
        if values and (self._curves.due() or self._last):
            self._attempt(lambda: self._add(values))
            self._curves.rest()

    def spent(self, epsilon: float, budget: float) -> None:
        """Add the budget spent, charge by charge: all charges may come before the first step."""
        self._charges += 1
        if math.isfinite(epsilon):
            self._attempt(lambda: self._writer.add_scalar("privacy/epsilon spent", epsilon, self._charges))
            self._attempt(lambda: self._writer.add_scalar("privacy/epsilon budgeted", budget, self._charges))

    def show(self, look: Callable[[], Glimpse]) -> None:
        """Add figures, and more rarely a picture, if it is time; and at the end of a phase."""
        draws = self._pictures.due() or self._last
        if draws or self._curves.due():
            self._attempt(lambda: self._show(look(), draws=draws))

    def _show(self, glimpse: Glimpse, *, draws: bool) -> None:
        if glimpse.values:
            self._add(glimpse.values)
            self._curves.rest()
        if draws and (sheet := draw(glimpse, self._facts)) is not None:
            pixels = np.asarray(sheet)
            form = "HW" if pixels.ndim == 2 else "HWC"
            self._writer.add_image(f"set/{self._name}", pixels, self._done, dataformats=form)
            self._pictures.rest()

    @property
    def _last(self) -> bool:
        return self._done == self._total

    def _add(self, values: Mapping[str, SupportsFloat]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{self._name}/{name}", float(value), self._done)

    def _attempt(self, action: Callable[[], object]) -> None:
        if self._failed:
            return
        try:
            action()
        # As for the preview in a file: the run is paid for, and no curve is worth it.
        except Exception as error:
            self._failed = True
            console.warn(f"Nothing more is written for TensorBoard ({reason(error)}); the run goes on.")
