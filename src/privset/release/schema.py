"""The JSON Schema of certificates: ``python -m privset.release.schema > docs/certificate.schema.json``."""

from __future__ import annotations

import json
import sys

from privset.release.certificate import Certificate


def schema() -> str:
    """The JSON Schema as text, as published in docs/certificate.schema.json."""
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Certificate.model_json_schema()
    return json.dumps(document, indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema())
