"""How long it takes from the command to a saved release, and what the set is worth.

Runs `privset generate` as a user would, with the defaults for the device, and counts the seconds from the start of
its process to its end; then trains on the release. The machine should have nothing else to do.

    python benchmarks/release.py mnist --epsilon 1 --per-class 10 --device cuda

writes results/speed/release-mnist-eps1-ipc10-cuda.json; `make tables` puts it into the documents.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from privset.release.software import versions
from privset.studies.results import write
from privset.studies.runner import command_of, commit

PRIVSET = [sys.executable, "-m", "privset"]


def measure(
    data: str, *, epsilon: float, per_class: int, device: str, networks: int, places: list[str]
) -> dict[str, Any]:
    """Seconds of one release, and the accuracies of networks trained on it, in percent."""
    code = commit()  # at the start: files may change while the code that was read runs on
    generate = ["generate", data, "--epsilon", f"{epsilon:g}", "--per-class", str(per_class), "--device", device]
    with tempfile.TemporaryDirectory() as folder:
        release = f"{folder}/release"
        start = time.perf_counter()
        subprocess.run([*PRIVSET, *generate, *places, "--out", release], check=True)
        seconds = time.perf_counter() - start
        evaluate = ["evaluate", release, "--data", data, "--recipe", "paper", "--runs", str(networks), "--json"]
        said = subprocess.run(
            [*PRIVSET, *evaluate, "--device", device, *places], check=True, stdout=subprocess.PIPE
        ).stdout
        settings = json.loads(Path(release, "certificate.json").read_bytes())["method"]
    found = json.loads(said)
    return {
        "what": f"privset {' '.join(generate)}",
        "value": seconds,
        "unit": "s",
        "ratio_to": None,
        "method": settings,
        "accuracy": found["accuracy"],
        "classifier": found["classifier"],
        "recipe": found["recipe"],
        "seeds": {"networks": found["seeds"]},
        "noise": "system",
        "device": found["device"],
        "cores": len(os.sched_getaffinity(0)),
        "command": command_of("python", sys.argv),
        "commit": code,
        "versions": versions(),
    }


def main() -> None:
    """Measure and put on file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="name of a data set")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--per-class", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", type=int, default=3, help="how many are trained on the set")
    parser.add_argument("--data-dir", help="as in `privset generate`")
    parser.add_argument("--results", type=Path, default=Path("results"))
    args = parser.parse_args()
    found = measure(
        args.data,
        epsilon=args.epsilon,
        per_class=args.per_class,
        device=args.device,
        networks=args.networks,
        places=["--data-dir", args.data_dir] if args.data_dir else [],
    )
    path = args.results / "speed" / f"release-{args.data}-eps{args.epsilon:g}-ipc{args.per_class}-{args.device}.json"
    write(path, (json.dumps(found, indent=2) + "\n").encode())
    print(f"{found['value']:.1f} s, {found['accuracy']['mean']:.1f} %: {path}")


if __name__ == "__main__":
    main()
