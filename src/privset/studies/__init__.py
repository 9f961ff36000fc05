"""Measured accuracies as data: studies of cells, and a runner that can be killed and started again."""

from privset.studies.catalogue import STUDIES, get
from privset.studies.results import Results
from privset.studies.runner import Outcome, run
from privset.studies.study import Cell, Study

__all__ = ["STUDIES", "Cell", "Outcome", "Results", "Study", "get", "run"]
