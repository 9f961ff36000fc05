"""Commands as a user types them."""

import pytest

from privset.cli import main


@pytest.fixture
def call(capsys):
    """Runs a command; its exit code, standard output, standard error."""

    def run(*words):
        try:
            code = main([str(word) for word in words])
        except SystemExit as stop:  # tyro ends the process for what it cannot parse
            code = stop.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
