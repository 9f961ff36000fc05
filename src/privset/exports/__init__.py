"""The set in people's tools: a release converted to PNG files, NumPy, Hugging Face parquet or PyTorch.

An export is a folder of its own, and a copy: the release stays what is verified. It is made from a release that
verifies only, and it carries the certificate and, in its card, what that guarantees.
"""

from privset.exports.exporting import FORMATS, Format, export, format_of

__all__ = ["FORMATS", "Format", "export", "format_of"]
