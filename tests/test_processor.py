import math
import os
import subprocess
import sys

import pytest
import torch

from privset import processor


@pytest.fixture
def unknown(monkeypatch):
    """Nothing is remembered of this machine, before or after."""
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    processor.multiplies_bfloat16.cache_clear()
    yield
    processor.multiplies_bfloat16.cache_clear()


@pytest.mark.parametrize(
    ("known", "faster"),
    [
        ({"avx512_f": True, "avx512_bf16": True, "amx_bf16": False}, True),
        ({"amx_bf16": True}, True),
        ({"avx512_f": True, "avx512_bf16": False}, False),
        ({"architecture": "arm64", "bf16": True}, False),
        ({}, False),
    ],
)
def test_bfloat16_is_faster_where_there_are_instructions_for_it(unknown, monkeypatch, known, faster):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    assert processor.multiplies_bfloat16() is faster


def test_a_torch_that_does_not_tell_counts_as_no(unknown, monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert processor.capabilities() == {}
    assert not processor.multiplies_bfloat16()


def test_so_does_a_limit_on_what_the_library_may_use(unknown, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert not processor.multiplies_bfloat16()


def pages_cleared(**variables):
    """How often the system had to give a process memory, for 20 tensors of 16 MB one after the other."""
    script = """
import resource
import torch
import privset

def make():
    return torch.ones(2**22).sum().item()

make(), make()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    make()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    found = subprocess.run([sys.executable, "-c", script], env=kept | variables, capture_output=True, check=True)
    return int(found.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="not for this system")
def test_memory_is_kept_for_what_comes_next_unless_it_was_said_what_becomes_of_it():
    # Their 20 x 4096 pages of 4 KiB, or fewer large ones, are given once and not twenty times.
    assert pages_cleared() < 20
    assert pages_cleared(MALLOC_MMAP_THRESHOLD_="65536") >= 20


@pytest.fixture
def unsaid(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_TUNABLES"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "platform", "linux")


@pytest.mark.parametrize(("most", "set_to"), [(2**30, [2**27, 2**29]), (2**25, [2**25, 2**29]), (0, [])])
def test_an_older_library_keeps_smaller_tensors_and_one_that_keeps_none_is_left_as_it_was(
    most, set_to, monkeypatch, unsaid
):
    taken = []

    class Library:
        def mallopt(self, option, value):
            fits = option == -1 or value <= most
            taken.extend([value] * fits)
            return int(fits)

    monkeypatch.setattr(processor.ctypes, "CDLL", lambda _: Library())
    processor.keep_memory()
    assert taken == set_to
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    processor.keep_memory()
    assert taken == set_to


def test_a_system_without_such_a_library_is_left_alone(monkeypatch, unsaid):
    asked = []

    class Other:
        def __getattr__(self, name):
            asked.append(name)
            raise AttributeError(name)

    monkeypatch.setattr(processor.ctypes, "CDLL", lambda _: Other())
    processor.keep_memory()
    assert asked == ["mallopt"]
    monkeypatch.setattr(sys, "platform", "darwin")
    processor.keep_memory()
    assert asked == ["mallopt"]


@pytest.fixture
def told(monkeypatch, tmp_path):
    """A machine that tells what is written here of its memory: 3 GiB free, and one to swap to."""
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 3145728 kB\nSwapFree: 1048576 kB\n")
    monkeypatch.setattr(processor, "_MACHINE", tmp_path / "meminfo")
    monkeypatch.setattr(processor, "_CONTAINER", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("container", "free"),
    [
        ({}, 4),
        ({"memory.max": "max", "memory.current": "5"}, 4),
        ({"memory.max": 3 * 2**30, "memory.current": 2**30, "memory.stat": "anon 9"}, 2),
        ({"memory.max": 9 * 2**30, "memory.current": 0, "memory.stat": ""}, 4),
        ({"memory.max": 2**30, "memory.current": 2**31, "memory.stat": "anon 9"}, 0),
        ({"memory.max": 2**30, "memory.current": 2**30, "memory.stat": f"active_file 0\ninactive_file {2**30}"}, 1),
        ({"memory.max": 3 * 2**30}, 3),
    ],
)
def test_free_memory_is_that_of_the_machine_or_what_its_container_leaves(told, container, free):
    for name, value in container.items():
        (told / name).write_text(f"{value}\n")
    assert processor.free_memory() == free * 2**30


def test_a_system_that_does_not_tell_what_is_free_has_what_there_is(told, monkeypatch):
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 100}.__getitem__, raising=False)
    (told / "meminfo").write_text("MemTotal: 400 kB\n")
    assert processor.free_memory() == 409_600
    (told / "meminfo").unlink()
    assert processor.free_memory() == 409_600
    monkeypatch.delattr(os, "sysconf")
    assert processor.free_memory() == math.inf
