"""How long it takes from the command to a saved release, and what the set is worth.

Runs `privset generate` as a user would, with the defaults for the device, and counts the seconds from the start of
its process to its end; then trains on the release, and counts those of that. The machine should have nothing else to
do.

    python benchmarks/release.py mnist --epsilon 1 --per-class 10 --device cuda

writes results/speed/release-mnist-eps1-ipc10-cuda.json, and with --method dp-merf dp-merf-release-mnist-...;
`make tables` puts them into the documents. With --networks 0 nothing is trained on the set.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import machine
from machine import at_least_one, described
from privset.studies.results import write

PRIVSET = [sys.executable, "-m", "privset"]


def measure(
    data: str, *, method: str | None, epsilon: float, per_class: int, device: str, networks: int, places: list[str]
) -> dict[str, Any]:
    """Seconds of one release, and the accuracies of networks trained on it, in percent."""
    generate = ["generate", data, *(["--method", method] if method else [])]
    generate += ["--epsilon", f"{epsilon:g}", "--per-class", str(per_class), "--device", device]
    with tempfile.TemporaryDirectory() as folder:
        release = f"{folder}/release"
        start = time.perf_counter()
        subprocess.run([*PRIVSET, *generate, *places, "--out", release], check=True)
        seconds = time.perf_counter() - start
        trained = _trained(release, data, device, networks, places) if networks else {}
        certificate = json.loads(Path(release, "certificate.json").read_bytes())
    return {
        "what": f"privset {' '.join(generate)}",
        "value": seconds,
        "unit": "s",
        "ratio_to": None,
        "method": certificate["method"],
        **trained,
        "noise": "system",
        **described(torch.device(device)),
    }


def _trained(release: str, data: str, device: str, networks: int, places: list[str]) -> dict[str, Any]:
    """What networks trained on a release are worth, and the seconds that they took, tests included."""
    evaluate = ["evaluate", release, "--data", data, "--recipe", "paper", "--runs", str(networks), "--json"]
    command = [*PRIVSET, *evaluate, "--device", device, *places]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {
        "accuracy": found["accuracy"],
        "classifier": found["classifier"],
        "recipe": found["recipe"],
        "seeds": {"networks": found["seeds"]},
        "training": {"networks": networks, "seconds": found["seconds"]},
    }


def main(words: Sequence[str] | None = None) -> None:
    """Measure and put on file."""
    parser = machine.parser(__doc__)
    parser.add_argument("data", help="name of a data set")
    parser.add_argument("--method", help="another one than `privset generate` takes by itself")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--per-class", type=at_least_one, default=10)
    parser.add_argument("--networks", type=int, default=3, help="how many are trained on the set")
    parser.add_argument("--data-dir", help="as in `privset generate`")
    args = parser.parse_args(words)
    try:
        found = measure(
            args.data,
            method=args.method,
            epsilon=args.epsilon,
            per_class=args.per_class,
            device=args.device,
            networks=args.networks,
            places=["--data-dir", args.data_dir] if args.data_dir else [],
        )
    except subprocess.CalledProcessError as error:  # which has said what was wrong
        raise SystemExit(error.returncode) from error
    kind = f"{args.method}-release" if args.method else "release"
    name = f"{kind}-{args.data}-eps{args.epsilon:g}-ipc{args.per_class}-{args.device}.json"
    path = args.results / "speed" / name
    write(path, (json.dumps(found, indent=2) + "\n").encode())
    accuracy = f", {found['accuracy']['mean']:.1f} %" if "accuracy" in found else ""
    print(f"{found['value']:.1f} s{accuracy}: {path}")


if __name__ == "__main__":
    main()
