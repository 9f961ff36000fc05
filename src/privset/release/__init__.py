"""What comes out: a set, noisy statistics or a classifier, the certificate, and the folder they are published in."""

from privset.release.artefact import ClassifierRelease, Release, Snapshot, StatisticsRelease
from privset.release.certificate import LEDGER_FILE, Certificate
from privset.release.classifier import Classifier
from privset.release.dataset import LabelledImages
from privset.release.distilling import distil
from privset.release.drawing import sample
from privset.release.folder import check_writable
from privset.release.generator import Generator
from privset.release.issuing import certify, certify_distilled, certify_drawn
from privset.release.loading import load, load_classifier, load_published, load_statistics
from privset.release.merging import merge
from privset.release.saving import save
from privset.release.statement import NOT_ACCOUNTED, statement_of
from privset.release.statistics import NoisyStatistics
from privset.release.synthetic import SyntheticSet
from privset.release.unfinished import Unfinished
from privset.release.verification import Check, Verification, require_verified, verify

__all__ = [
    "LEDGER_FILE",
    "NOT_ACCOUNTED",
    "Certificate",
    "Check",
    "Classifier",
    "ClassifierRelease",
    "Generator",
    "LabelledImages",
    "NoisyStatistics",
    "Release",
    "Snapshot",
    "StatisticsRelease",
    "SyntheticSet",
    "Unfinished",
    "Verification",
    "certify",
    "certify_distilled",
    "certify_drawn",
    "check_writable",
    "distil",
    "load",
    "load_classifier",
    "load_published",
    "load_statistics",
    "merge",
    "require_verified",
    "sample",
    "save",
    "statement_of",
    "verify",
]
