"""What the benchmarks have in common: images that any would do for, and what is said of the machine."""

from __future__ import annotations

import argparse
import os
import resource
import sys
from pathlib import Path
from typing import Any

import torch

from privset.errors import ConfigError
from privset.facts import PublicFacts
from privset.files import unwritable
from privset.methods import Execution
from privset.processor import capabilities, multiplies_bfloat16
from privset.release.software import versions
from privset.studies.origin import command_of, commit

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


def parser(about: str | None, *, anywhere: bool = True) -> argparse.ArgumentParser:
    """Of what every benchmark is told: where results are, and, if it runs anywhere, where to compute."""
    found = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if anywhere:
        found.add_argument("--device", default="cpu", type=_device, help="cpu, cuda or cuda:N")
    found.add_argument("--results", type=results_folder, default="results", help="folder of the results")
    return found


def results_folder(word: str) -> Path:
    """A folder that results can be written to, from the command line; refused before anything is measured."""
    if why := unwritable(Path(word)):
        raise argparse.ArgumentTypeError(f"{why}; give another folder for results")
    return Path(word)


def at_least_one(word: str) -> int:
    """A number of things, from the command line."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, not {word!r}")
    return int(word)


def _device(word: str) -> str:
    try:
        return Execution(device=word).device
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def peak_memory_mib(device: torch.device) -> float:
    """Of a card, what was allocated at most since it was reset; of a processor, by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def described(device: torch.device) -> dict[str, Any]:
    """What every file of results says: the machine, the command, the commit that was run, and versions."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "processor": {"name": capabilities().get("cpu_name"), "bfloat16": multiplies_bfloat16()},
        "threads": torch.get_num_threads(),
        "cores": len(os.sched_getaffinity(0)),
        "command": command_of("python", sys.argv),
        "commit": COMMIT,
        "versions": versions(),
    }
