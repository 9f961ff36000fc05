"""What importing the package does before anything else."""

import os
import subprocess
import sys

import pytest

BEFORE_TORCH = """
import os, sys

class Spy:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT"))
            sys.stdout.flush()
            os._exit(0)

sys.meta_path.insert(0, Spy())
import privset
"""


@pytest.mark.parametrize(
    ("given", "found"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_threads_are_told_to_sleep_before_torch_is_loaded_unless_someone_has_it_another_way(given, found):
    kept = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    run = subprocess.run(
        [sys.executable, "-c", BEFORE_TORCH], env=kept | given, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [found]
