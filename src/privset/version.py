"""The version of this package, in the one place that everything else reads it from."""

__version__ = "0.1.0"

PUBLISHED = ("0.1.0",)
"""Every version that releases may name; `verify` believes no other."""
