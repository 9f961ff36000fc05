"""The errors a user can act on. Every one of them says what was wrong, where, and what to do."""

import difflib
from collections.abc import Iterable


class PrivsetError(Exception):
    """Base of all errors that are the caller's to mend; the command line prints it and exits with 2."""


class DataError(PrivsetError, ValueError):
    """Something is wrong with the data that was given, and this says with which file."""


class ConfigError(PrivsetError):
    """A setting, or a combination of settings, that cannot work."""


class BudgetError(PrivsetError):
    """A budget that cannot be met, or a question that would pass it; nothing was answered."""


class UnaffordableError(BudgetError):
    """A budget that would need so much noise that nothing could be heard of the records."""


class ReleaseError(PrivsetError):
    """A release folder that cannot be written, read or believed."""


class InUseError(ReleaseError):
    """Another process is writing there now."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A question to follow a message about a name that is none of those known; empty if none is near.

    >>> did_you_mean("gswgan", ["psg", "gs-wgan"])
    ' Did you mean gs-wgan?'
    >>> did_you_mean("me", ["measure", "plan", "merge"])
    ' Did you mean measure or merge?'
    """
    typed, known = str(name).lower().replace("_", "-"), list(known)
    begun = [one for one in known if typed and one.startswith(typed)]
    near = begun or difflib.get_close_matches(typed, known, n=1)
    return f" Did you mean {' or '.join(near)}?" if near else ""
