import json

from privset.studies.speeds import gradients, runs, seconds, steps
from privset.studies.tables import filled


def test_what_a_command_took_is_read_from_its_file(tmp_path):
    (tmp_path / "speed").mkdir()
    for device, cores in (("cpu", 2), ("Some Card", 16)):
        found = {"what": "privset generate", "value": 61.7, "device": device, "cores": cores}
        accuracy = {"mean": 95.44, "std": 0.26, "runs": [95.2, 95.7]}
        text = json.dumps(found | {"accuracy": accuracy})
        (tmp_path / "speed" / f"release-{device.split()[0]}.json").write_text(text, encoding="utf-8")
    (tmp_path / "speed" / "gradient-cpu.json").write_text("{}", encoding="utf-8")
    untrained = found | {"what": "privset generate --method dp-merf"}
    trained = untrained | {"accuracy": accuracy, "training": {"networks": 3, "seconds": 12.3}}
    for name, one in (("a", untrained), ("b", trained)):
        (tmp_path / "speed" / f"dp-merf-release-{name}.json").write_text(json.dumps(one), encoding="utf-8")
    assert seconds("dp-merf-release", tmp_path).splitlines()[2:] == [
        "| `privset generate --method dp-merf` | Some Card | 62 |  |",
        "| `privset generate --method dp-merf` | Some Card | 62 + 12 | 95.4 ± 0.3 |",
    ]
    lines = seconds("release", tmp_path).splitlines()
    assert lines[2:] == [
        "| `privset generate` | Some Card | 62 | 95.4 ± 0.3 |",
        "| `privset generate` | 2 CPU cores | 62 | 95.4 ± 0.3 |",
    ]
    place = "<!-- seconds: release -->\nold\n<!-- end of results -->\n"
    assert filled(place, tmp_path).splitlines()[1:-1] == lines


def test_what_benchmarks_measured_is_read_from_their_files(tmp_path):
    (tmp_path / "speed").mkdir()
    for batch, others in ((256, {"vmap": 7.7}), (32, {})):
        found = {"settings": {"batch": batch, "width": 128, "side": 28}, "milliseconds": {"ours": 2.476} | others}
        (tmp_path / "speed" / f"gradient-cuda-b{batch}.json").write_text(json.dumps(found), encoding="utf-8")
    assert gradients("cuda", tmp_path).splitlines()[2:] == [
        "| 32 | 28x28 | 128 | 2.48 ms |  |",
        "| 256 | 28x28 | 128 | 2.48 ms | 7.70 ms |",
    ]
    found = {
        "per_class": 10,
        "milliseconds": {"gradient": 1.0, "matching": 2.0, "update": 0.5},
        "steps": {"matching": 100_000, "updates": 450_000},
        "hours": {"in one go": None, "sum of parts": 0.5},
        "peak_memory_mib": 2048.0,
        "commit": "0123456789abcdef",
    }
    for size, hours in ((10, 0.25), (20, None)):
        more = {"per_class": size, "hours": found["hours"] | {"in one go": hours}}
        (tmp_path / "speed" / f"psg-ipc{size}-cuda.json").write_text(json.dumps(found | more), encoding="utf-8")
    assert steps("cuda", tmp_path).splitlines()[2:] == [
        "| 10 | 1.00 ms | 2.00 ms | 0.50 ms | 100,000 | 450,000 | 15 min | 2.0 GiB | 012345678 |",
        "| 20 | 1.00 ms | 2.00 ms | 0.50 ms | 100,000 | 450,000 | 30 min | 2.0 GiB | 012345678 |",
    ]


def test_a_run_of_each_method_is_one_row(tmp_path):
    (tmp_path / "speed").mkdir()
    found = {
        "method": "gs-wgan",
        "preset": "standard",
        "epsilon": 10.0,
        "per_class": 6000,
        "value": 8.06,
        "phases": {
            "warming up critics": {"steps": 100, "timed": 1},
            "training a generator": {"steps": 1500, "timed": 56},
        },
        "peak_memory_mib": 14_592.0,
        "commit": "0123456789abcdef",
    }
    for name in ("gs-wgan", "dp-cgan"):
        path = tmp_path / "speed" / f"method-{name}-standard-eps10-ipc6000-cuda.json"
        path.write_text(json.dumps(found | {"method": name}), encoding="utf-8")
    assert runs("cuda", tmp_path).splitlines()[2:] == [
        "| `dp-cgan` | `standard` | 10 | 6,000 | 100 + 1,500 | 1 + 56 | 8.1 min | 14.2 GiB | 012345678 |",
        "| `gs-wgan` | `standard` | 10 | 6,000 | 100 + 1,500 | 1 + 56 | 8.1 min | 14.2 GiB | 012345678 |",
    ]
    assert runs("cuda/gs-wgan", tmp_path).splitlines()[2:] == runs("cuda", tmp_path).splitlines()[3:]
