"""Tables of how long things take, of what the commands in benchmarks/ put on file."""

from __future__ import annotations

import json
from pathlib import Path

from privset.studies.results import markdown, percent


def seconds(kind: str, results: Path) -> str:
    """The commands of benchmarks/KIND.py that are on file, as a Markdown table: how long each took, what came out.

    Seconds of training on what came out, where these were counted, are added to it with a plus.
    """
    columns = ["command", "on", "seconds", "accuracy"]
    rows = [columns, ["---"] * len(columns)]
    for path in sorted((results / "speed").glob(f"{kind}-*.json")):
        found = json.loads(path.read_bytes())
        machine = f"{found['cores']} CPU cores" if found["device"] == "cpu" else found["device"]
        accuracy = percent(found["accuracy"]) if "accuracy" in found else ""
        took = f"{found['value']:.0f}" + (f" + {found['training']['seconds']:.0f}" if "training" in found else "")
        rows.append([f"`{found['what']}`", machine, took, accuracy])
    return markdown(rows)


def gradients(device: str, results: Path) -> str:
    """What benchmarks/gradient.py measured on a device: milliseconds of a clipped gradient sum, ours and others'."""
    files = [json.loads(path.read_bytes()) for path in (results / "speed").glob(f"gradient-{device}-*.json")]
    names = list(dict.fromkeys(name for found in files for name in found["milliseconds"]))
    rows = [["records", "image", "width", *names], ["---"] * (3 + len(names))]
    for found in sorted(files, key=lambda one: [one["settings"][name] for name in ("side", "width", "batch")]):
        setting, measured = found["settings"], found["milliseconds"]
        image = f"{setting['side']}x{setting['side']}"
        times = [_milliseconds(measured[name]) if name in measured else "" for name in names]
        rows.append([str(setting["batch"]), image, str(setting["width"]), *times])
    return markdown(rows)


def steps(device: str, results: Path) -> str:
    """What benchmarks/psg.py measured on a device: milliseconds of each part of PSG's loop, minutes of a whole run."""
    parts = ("gradient", "matching", "update")
    rows = [["images a class", *parts, "steps", "updates", "so a whole run", "memory", "code"], ["---"] * 9]
    files = [json.loads(path.read_bytes()) for path in (results / "speed").glob(f"psg-*-{device}.json")]
    for found in sorted(files, key=lambda one: one["per_class"]):
        hours = found["hours"]["in one go"] or found["hours"]["sum of parts"]
        rows.append(
            [
                str(found["per_class"]),
                *(_milliseconds(found["milliseconds"][name]) for name in parts),
                *(f"{found['steps'][name]:,}" for name in ("matching", "updates")),
                f"{60 * hours:.0f} min" if hours > 1 / 30 else f"{3600 * hours:.0f} s",
                f"{found['peak_memory_mib'] / 1024:.1f} GiB",
                found["commit"][:9],
            ]
        )
    return markdown(rows)


def runs(name: str, results: Path) -> str:
    """What benchmarks/methods.py counted on a device: minutes of a whole run of each method, and its memory.

    Steps, and how many of them were timed, are those of one phase after the other.
    As DEVICE/METHOD those of one method.
    """
    device, _, method = name.partition("/")
    columns = ["method", "preset", "epsilon", "images a class", "steps", "timed", "a run", "memory", "code"]
    rows = [columns, ["---"] * len(columns)]
    files = [json.loads(path.read_bytes()) for path in (results / "speed").glob(f"method-*-{device}.json")]
    files = [found for found in files if method in ("", found["method"])]
    for found in sorted(files, key=lambda one: (one["method"], one["preset"], one["epsilon"], one["per_class"])):
        steps, timed = (
            " + ".join(f"{phase[what]:,}" for phase in found["phases"].values()) for what in ("steps", "timed")
        )
        rows.append(
            [
                f"`{found['method']}`",
                f"`{found['preset']}`",
                f"{found['epsilon']:g}",
                f"{found['per_class']:,}",
                steps,
                timed,
                _duration(found["value"]),
                f"{found['peak_memory_mib'] / 1024:.1f} GiB",
                found["commit"][:9],
            ]
        )
    return markdown(rows)


def _duration(minutes: float) -> str:
    """In the largest unit of which there are two.

    >>> _duration(8.06), _duration(250), _duration(7868)
    ('8.1 min', '4.2 hours', '5.5 days')
    """
    for unit, length in (("days", 1440), ("hours", 60)):
        if minutes >= 2 * length:
            return f"{minutes / length:.1f} {unit}"
    return f"{minutes:.1f} min"


def _milliseconds(value: float) -> str:
    return f"{value:.2f} ms" if value < 100 else f"{value:,.0f} ms"
