"""`privset methods`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from privset import networks
from privset.cli import console
from privset.cli.arguments import parse
from privset.methods import METHODS, MeasuringMethod

_REAL = "real records, which is no method"


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
                "page": page(m.name),
                "claims": m.claims or None,
            }
            for m in METHODS.values()
        ]
        references = [{"name": "real", "summary": _REAL, "page": page("real")}]
        console.show_json({"methods": known, "references": references, "networks": list(networks.CLASSIFIERS)})
        return 0
    rows = [[m.name, m.makes, "yes" if issubclass(m, MeasuringMethod) else "no", m.summary] for m in METHODS.values()]
    console.show_table(["name", "makes", "can measure once", "what it does"], rows)
    rows = [[m.name, ", ".join(m.presets), m.reference] for m in METHODS.values()]
    console.show_table(["name", "presets", "published in"], rows)
    for method in METHODS.values():
        if method.claims:
            console.show(f"{method.name}: {method.claims}")
    console.show(f"To compare with: {_REAL}; privset evaluate RELEASE --data DATA --beside real")
    console.show(f"Networks and classifiers: {', '.join(networks.CLASSIFIERS)}.")
    console.show("All settings of a method: privset generate --method NAME --help")
    console.show(f"How it works, what is proven and what was measured: {page('NAME')}")
    return 0


def page(name: str) -> str:
    """Where a method is described, in the project's files and in its documentation.

    >>> page("dp-merf")
    'docs/methods/dp-merf.md'
    """
    return f"docs/methods/{name}.md"
