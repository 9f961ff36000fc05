import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from privset.methods.plan import Plan
from privset.release.schema import schema

PUBLISHED = Path(__file__).parents[2] / "docs" / "certificate.schema.json"


def test_published_schema_is_current() -> None:
    assert PUBLISHED.read_text() == schema(), "run: python -m privset.release.schema > docs/certificate.schema.json"


@pytest.mark.parametrize("epsilon", [0.5, math.inf])
def test_certificates_keep_to_the_schema(tmp_path: Path, workshop: Any, epsilon: float) -> None:
    folder = workshop.publish(tmp_path / "set", workshop.plan(epsilon))
    document = json.loads((folder / "certificate.json").read_text())
    validator = jsonschema.Draft202012Validator(json.loads(schema()))
    validator.check_schema(validator.schema)

    validator.validate(document)
    for change in ({"surprise": 1}, {"version": 2}, {"seal": "short"}, {"guarantee": None}):
        assert not validator.is_valid(document | change)


def test_schema_names_every_field_as_required(plan: Plan) -> None:
    document = json.loads(schema())

    optional = {"source", "joined", "claim", "drawn", "party"}
    assert set(document["required"]) == set(document["properties"]) - optional
    assert not document["additionalProperties"]
