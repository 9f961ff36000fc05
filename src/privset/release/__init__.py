"""What comes out: the synthetic set, its certificate, and the folder they are published in."""

from privset.release.artefact import Release, check_writable, load, save
from privset.release.certificate import LEDGER_FILE, Certificate
from privset.release.statement import NOT_ACCOUNTED, statement_of
from privset.release.synthetic import SyntheticSet
from privset.release.verification import Check, Verification, verify

__all__ = [
    "LEDGER_FILE",
    "NOT_ACCOUNTED",
    "Certificate",
    "Check",
    "Release",
    "SyntheticSet",
    "Verification",
    "check_writable",
    "load",
    "save",
    "statement_of",
    "verify",
]
