"""`--tensorboard` with the real thing: what is written is what TensorBoard reads."""

import io

import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.conftest import facts_for

from privset.cli import tensorboard
from privset.cli.tensorboard import TensorBoard
from privset.observer import Glimpse

TINY = (
    "--networks 3 --width 4 --depth 2 --resolution 2 --waves 8 --steps 6 --networks-per-step 2 --pool 0 --per-class 2"
)
BUDGET = ["--epsilon", "5", "--accountant", "rdp", "--per-class", "2"]


def written(folder):
    found = EventAccumulator(str(folder), size_guidance={"images": 0, "scalars": 0})
    found.Reload()
    return found


def test_curves_budget_and_previews_of_a_run(call, tmp_path):
    logs = tmp_path / "logs"
    code, _, err = call("generate", "digits", *BUDGET, *TINY.split(), "--out", tmp_path / "set", "--tensorboard", logs)
    assert code == 0, err
    found = written(logs)
    assert [point.step for point in found.Scalars("distilling/distance")][-1] == 6
    spent = found.Scalars("privacy/epsilon spent")
    assert spent[-1].value == pytest.approx(5, rel=1e-3)
    assert [point.step for point in spent] == list(range(1, len(spent) + 1))  # a curve, one point a charge
    pictures = found.Images("set/distilling")
    assert pictures[-1].step == 6  # the last one, always
    with Image.open(tmp_path / "set" / "preview.png") as final:
        assert Image.open(io.BytesIO(pictures[-1].encoded_image_string)).size == final.size


@pytest.mark.parametrize("command", ["measure", "distil"])
def test_measuring_and_distilling_write_too(call, tmp_path, command):
    stats, logs = tmp_path / "stats", tmp_path / "logs"
    more = ["--tensorboard", logs]
    assert (
        call("measure", "digits", *BUDGET, *TINY.split(), "--out", stats, *(more if command == "measure" else []))[0]
        == 0
    )
    if command == "distil":
        assert call("distil", stats, "--out", tmp_path / "set", *more)[0] == 0
    tags = written(logs).Tags()
    assert ("privacy/epsilon spent" in tags["scalars"]) == (command == "measure")
    assert ("set/distilling" in tags["images"]) == (command == "distil")


def test_figures_of_psg_are_written(call, tmp_path):
    psg = "--method psg --runs 2 --outer-steps 1 --batches-per-step 3 --batch-size 64 --network mlp --width 4"
    words = [*psg.split(), "--out", tmp_path / "set", "--tensorboard", tmp_path / "logs"]
    assert call("generate", "digits", *BUDGET, *words)[0] == 0
    points = written(tmp_path / "logs").Scalars("matching gradients/distance")
    assert points[-1].step == 6


def test_without_the_package_it_says_what_to_install(call, tmp_path, monkeypatch):
    monkeypatch.setattr(tensorboard.importlib.util, "find_spec", lambda name: None)
    words = ["generate", "digits", *BUDGET, "--out", tmp_path / "set", "--tensorboard", tmp_path / "logs"]
    code, out, err = call(*words)
    assert code == 2
    assert out == ""
    assert "pip install 'privset[tensorboard]'" in err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_costs_nothing(call, tmp_path):
    (tmp_path / "file").write_text("")
    words = ["generate", "digits", *BUDGET, *TINY.split(), "--out", tmp_path / "set"]
    code, _, err = call(*words, "--tensorboard", tmp_path / "file" / "logs")
    assert code == 2
    assert "cannot be written for TensorBoard" in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_points_are_far_apart_and_a_full_disk_ends_no_run(tmp_path, monkeypatch, capsys):
    clock, looks = [0.0], []
    monkeypatch.setattr("privset.cli.watching.time.monotonic", lambda: clock[0])
    labels = torch.arange(3)

    def look():
        looks.append(clock[0])
        return Glimpse(torch.zeros(3, 1, 8, 8), labels, {"loss": torch.tensor(0.5)})

    board = TensorBoard(tmp_path, facts_for(40))
    board.phase("training", 1000)
    for _ in range(100):
        board.step()
        board.show(look)
        clock[0] += 0.1
    assert 15 <= len(looks) <= 20  # in ten seconds

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(board._writer, "add_scalar", full)
    clock[0] += 10
    for _ in range(3):
        board.spent(1.0, 2.0)
    board.close()
    assert capsys.readouterr().err.count("No space left on device") == 1


@pytest.mark.parametrize("part", ["look", "draw", "figure", "step"])
def test_what_cannot_be_drawn_ends_no_run(tmp_path, monkeypatch, capsys, part):
    tried = []

    def fail(*_, **__):
        tried.append(part)
        raise RuntimeError("out of memory")

    class Unreadable(float):
        __float__ = fail

    def look():
        if part == "look":
            fail()
        return Glimpse(torch.zeros(3, 1, 8, 8), torch.arange(3), {"loss": Unreadable() if part == "figure" else 0.5})

    if part == "draw":
        monkeypatch.setattr(tensorboard, "draw", fail)
    board = TensorBoard(tmp_path, facts_for(40))
    for name in ("training", "distilling"):  # each would draw anew
        board.phase(name, 1)
        board.step(loss=Unreadable() if part == "step" else 0.5)
        board.show(look)
    board.close()
    assert " ".join(capsys.readouterr().err.split()).count("TensorBoard (out of memory); the run goes on") == 1
    assert len(tried) == 1
