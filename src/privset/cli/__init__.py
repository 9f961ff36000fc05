"""The command line: one function a command, and the only place that prints."""

from privset.cli.main import main as main
