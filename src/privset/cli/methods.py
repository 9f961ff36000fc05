"""`privset methods`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from privset import networks
from privset.cli import console
from privset.cli.arguments import parse
from privset.methods import METHODS, MeasuringMethod


@dataclasses.dataclass(frozen=True, kw_only=True)
class MethodsArguments:
    """The methods, and the networks they can use."""

    json: bool = False
    """Print one JSON object."""


def methods(arguments: Sequence[str]) -> int:
    """The methods, their presets, and the networks they can use."""
    parsed = parse(MethodsArguments, arguments, "privset methods")
    if parsed.json:
        known = [
            {
                "name": m.name,
                "makes": m.makes,
                "measures_once": issubclass(m, MeasuringMethod),
                "summary": m.summary,
                "reference": m.reference,
                "presets": list(m.presets),
                "claims": m.claims or None,
            }
            for m in METHODS.values()
        ]
        console.show_json({"methods": known, "networks": list(networks.CLASSIFIERS)})
        return 0
    rows = [[m.name, m.makes, "yes" if issubclass(m, MeasuringMethod) else "no", m.summary] for m in METHODS.values()]
    console.show_table(["name", "makes", "can measure once", "what it does"], rows)
    rows = [[m.name, ", ".join(m.presets), m.reference] for m in METHODS.values()]
    console.show_table(["name", "presets", "published in"], rows)
    for method in METHODS.values():
        if method.claims:
            console.show(f"{method.name}: {method.claims}")
    console.show(
        "To compare with: real records, which is no method; privset evaluate RELEASE --data DATA --beside real"
    )
    console.show(f"Networks and classifiers: {', '.join(networks.CLASSIFIERS)}.")
    console.show("All settings of a method: privset generate --method NAME --help")
    return 0
