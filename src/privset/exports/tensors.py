"""One .pt for PyTorch, made of tensors, numbers and strings only, so that it opens without running code."""

from __future__ import annotations

import io
from collections.abc import Iterator

import torch

from privset.exports.statement import of_export
from privset.observer import Observer
from privset.release import Release

NAME = "set.pt"


def files(release: Release, observer: Observer) -> Iterator[tuple[str, bytes]]:
    """A dictionary for ``torch.load(..., weights_only=True)``: the set as published, class names, the statement."""
    observer.phase("writing tensors", 1)
    facts, guarantee = release.set.facts, release.certificate.guarantee
    content = {
        "images": release.set.images,
        "labels": release.set.labels,
        "classes": list(facts.classes),
        "mean": list(facts.mean),
        "std": list(facts.std),
        "pixel_form": release.set.pixel_form,
        "private": guarantee.private,
        "epsilon": guarantee.epsilon_spent,
        "delta": guarantee.delta,
        "statement": of_export(release.certificate),
    }
    file = io.BytesIO()
    torch.save(content, file)
    yield NAME, file.getvalue()
    observer.step()
