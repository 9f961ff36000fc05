"""Every study by name; a new one is added in a file of this folder, as data, and here."""

from __future__ import annotations

from privset.errors import ConfigError, did_you_mean
from privset.studies.catalogue.baselines import BASELINES
from privset.studies.catalogue.ours import DP_MERF_SETTINGS, MOMENTS, SETTINGS, SMOKE
from privset.studies.catalogue.paper import DP_MERF, DP_SGD, PSG, PSG_PRIOR, REAL_DATA
from privset.studies.catalogue.parties import CONTINUAL
from privset.studies.catalogue.recipes import PRECISION, RECIPES_AGAIN
from privset.studies.study import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        *(MOMENTS, SETTINGS, PSG, PSG_PRIOR, DP_MERF, DP_MERF_SETTINGS),
        *(REAL_DATA, RECIPES_AGAIN, PRECISION, DP_SGD, CONTINUAL, BASELINES, SMOKE),
    )
}
"""By the name typed on the command line."""


def get(name: str) -> Study:
    """The study of that name.

    >>> len(get("moments").cells)
    17
    """
    if name not in STUDIES:
        raise ConfigError(f"there is no study {name!r}; there are {', '.join(STUDIES)}.{did_you_mean(name, STUDIES)}")
    return STUDIES[name]
