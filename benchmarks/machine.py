"""What the benchmarks have in common: images that any would do for, and what is said of the machine."""

from __future__ import annotations

import os
import resource
import sys
from typing import Any

import torch

from privset.facts import PublicFacts
from privset.release.software import versions
from privset.studies.runner import command_of, commit

COMMIT = commit()
"""At the start: files may change while the code that was read runs on."""

FACTS = PublicFacts(
    name="random images",
    channels=1,
    height=28,
    width=28,
    classes=tuple("0123456789"),
    size=60_000,
    mean=(0.1307,),
    std=(0.3081,),
)
"""Of MNIST's size; what the pixels are changes no time."""


def peak_memory_mib(device: torch.device) -> float:
    """Of a card, what was allocated at most since it was reset; of a processor, by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def described(device: torch.device) -> dict[str, Any]:
    """What every file of results says: the machine, the command, the commit that was run, and versions."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "cores": len(os.sched_getaffinity(0)),
        "command": command_of("python", sys.argv),
        "commit": COMMIT,
        "versions": versions(),
    }
