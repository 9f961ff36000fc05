"""croissant.json: a machine's description of an export, with the guarantee in it (https://mlcommons.org/croissant).

Only exports have one: it says how files are read as records, and a safetensors file is nothing that its readers know.
The guarantee stands in the description, which every catalogue shows, and in the vocabulary for responsible use. There
is no licence in it, since that is the data holder's to choose.
"""

from __future__ import annotations

import json
from typing import Any

from privset.exports.statement import of_export
from privset.release import card
from privset.release.certificate import Certificate

FILE = "croissant.json"

_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
"""The standard one, as version 1.0 prints it."""


def of_table(certificate: Certificate, name: str, digest: str) -> dict[str, Any]:
    """The description of a parquet file with the columns ``image`` and ``label``.

    Args:
        certificate: Of the release.
        name: Path of the file in the export.
        digest: Its SHA-256.
    """

    def column(name: str) -> dict[str, Any]:
        return {"fileObject": {"@id": "parquet"}, "extract": {"column": name}}

    file = {
        "@type": "cr:FileObject",
        "@id": "parquet",
        "description": "Images with their labels.",
        "contentUrl": name,
        "encodingFormat": "application/x-parquet",
        "sha256": digest,
    }
    pixels = column("image") | {"transform": {"jsonPath": "bytes"}}
    return _described(
        certificate,
        [file],
        [
            _field("images/image", "sc:ImageObject", "The synthetic image.", pixels),
            _field("images/label", "sc:Integer", "Its class, by number.", column("label")) | _REFERENCE,
        ],
    )


def of_images(certificate: Certificate, pattern: str) -> dict[str, Any]:
    """The description of PNG files in folders.

    Args:
        certificate: Of the release.
        pattern: Regular expression that finds the label in the name of a file.
    """

    def picture(what: str) -> dict[str, Any]:
        return {"fileSet": {"@id": "pictures"}, "extract": {"fileProperty": what}}

    pictures = {
        "@type": "cr:FileSet",
        "@id": "pictures",
        "description": "One file for each image; metadata.csv has the same labels.",
        "encodingFormat": "image/png",
        "includes": "*/*.png",
    }
    label = picture("filename") | {"transform": {"regex": pattern}}
    return _described(
        certificate,
        [pictures],
        [
            _field("images/image", "sc:ImageObject", "The synthetic image.", picture("content")),
            # No reference to the classes: mlcroissant 1.1 joins before it has made a number of the text.
            _field("images/label", "sc:Integer", "Its class, by number.", label),
        ],
    )


def to_bytes(described: dict[str, Any]) -> bytes:
    """The file's bytes."""
    return (json.dumps(described, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


_REFERENCE = {"references": {"field": {"@id": "classes/label"}}}
"""A label means the class that has it."""


def _described(
    certificate: Certificate, distribution: list[dict[str, Any]], fields: list[dict[str, Any]]
) -> dict[str, Any]:
    classes = certificate.facts.classes
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": card.title(certificate),
        "description": of_export(certificate),
        "datePublished": certificate.created[:10],
        "keywords": card.tags(certificate),
        "isLiveDataset": False,
        "rai:personalSensitiveInformation": of_export(certificate),
        "rai:dataLimitations": list(certificate.not_accounted),
        "rai:dataCollection": (
            f"Synthetic: made by privset {certificate.software['privset']} with the method {certificate.method}; every "
            f"question asked of the private records is in certificate.json, whose seal is {certificate.seal}."
        ),
        "distribution": distribution,
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "classes",
                "description": "What the labels mean.",
                "dataType": "sc:Enumeration",
                "key": {"@id": "classes/label"},
                "field": [
                    _field("classes/label", "sc:Integer", "The number.", None),
                    _field("classes/name", "sc:Text", "The name of the class.", None),
                ],
                "data": [{"classes/label": label, "classes/name": name} for label, name in enumerate(classes)],
            },
            {
                "@type": "cr:RecordSet",
                "@id": "images",
                "description": f"{certificate.statement.split('. ')[0]}.",
                "field": fields,
            },
        ],
    }


def _field(identity: str, kind: str, what: str, source: dict[str, Any] | None) -> dict[str, Any]:
    field = {"@type": "cr:Field", "@id": identity, "description": what, "dataType": kind}
    return field if source is None else field | {"source": source}
