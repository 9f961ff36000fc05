import resource
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import torch
from privset.cli.memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
torch.ones(2**20)  # whatever happens once has happened
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    torch.ones(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is changed")
def test_freed_memory_is_used_again_without_asking_the_system():
    def faults(word):
        done = subprocess.run([sys.executable, "-c", SCRIPT, word], capture_output=True, text=True, check=True)
        return int(done.stdout)

    pages = 50 * 2**26 // resource.getpagesize()
    assert faults("keep") < pages / 10
