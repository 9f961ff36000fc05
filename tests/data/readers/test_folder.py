from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import ImageFile

from privset.data import facts_of, load
from privset.data.encoded import Encoded
from privset.errors import ConfigError, DataError

ImageTree = Callable[..., Path]


def _grey(height: int = 9, width: int = 10, value: int = 7) -> np.ndarray:
    return np.full((height, width), value, np.uint8)


def _colour(height: int = 9, width: int = 10) -> np.ndarray:
    return np.full((height, width, 3), 9, np.uint8)


def test_classes_and_order_come_from_sorted_names(tree: ImageTree) -> None:
    root = tree({"dog": [_grey(value=3), _grey(value=4)], "cat": [_grey(value=1)]})
    data = load(root)
    assert data.facts.classes == ("cat", "dog")
    assert data.facts.name == "pets"
    assert data.facts.shape == (1, 9, 10)
    assert data.train.labels.tolist() == [0, 1, 1]
    assert data.train.images[:, 0, 0, 0].tolist() == [1, 3, 4]
    assert data.test is None


@pytest.mark.parametrize(
    "options",
    [{}, {"size": 8}, {"channels": 3}, {"size": 12, "channels": 1}, {"mean": 0.1, "std": [0.2, 0.2, 0.2]}],
)
def test_facts_foretell_what_load_gives(tree: ImageTree, options: dict[str, Any]) -> None:
    train = {"train/cat": [_colour()], "train/dog": [_colour()]}
    root = tree({**train, "test/cat": [_colour()], "validation/cat": [_colour()]})
    data = load(root, **options)
    assert data.facts == facts_of(root, **options)
    assert data.test is not None
    assert len(data.test) == 1


def test_facts_decode_no_pixel(tree: ImageTree, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a pixel was decoded")

    root = tree({"cat": [_grey()] * 3, "dog": [_grey()]})
    monkeypatch.setattr(Encoded, "pixels", refuse)
    monkeypatch.setattr(ImageFile.ImageFile, "load", refuse)
    assert facts_of(root, test_fraction=0.25).size == 3


def test_mixed_channels_are_the_callers_to_decide(tree: ImageTree) -> None:
    root = tree({"cat": [_grey()], "dog": [_colour()]})
    with pytest.raises(DataError, match=r"is in colour but .* is grey; give the number of channels"):
        load(root)
    data = load(root, channels=3)
    assert data.facts.channels == 3
    assert data.train.images[0, :, 0, 0].tolist() == [7, 7, 7]


def test_folder_and_archive_give_the_same_records(tree: ImageTree, tmp_path: Path, pixels: np.ndarray) -> None:
    root = tree({"a": list(pixels[:4]), "b": list(pixels[4:])})
    np.savez(tmp_path / "own.npz", x=pixels, y=[0, 0, 0, 0, 1, 1])
    choices: list[dict[str, Any]] = [{}, {"size": 8}, {"channels": 1}, {"size": 17, "channels": 1}]
    for options in choices:
        one, other = load(root, **options), load(tmp_path / "own.npz", **options)
        assert torch.equal(one.train.images, other.train.images)
        assert torch.equal(one.train.labels, other.train.labels)


def test_jpeg_and_capital_suffixes(tree: ImageTree) -> None:
    root = tree({"cat": [_grey()], "dog": [_grey()]}, suffix="JPEG")
    assert load(root).train.images[0, 0, 4, 4] == 7


def test_litter_is_ignored(tree: ImageTree) -> None:
    root = tree({"cat": [_grey()], "dog": [_grey()]})
    for litter in (".DS_Store", "cat/.DS_Store", "cat/Thumbs.db", "dog/desktop.ini", "README.md"):
        (root / litter).write_bytes(b"litter")
    (root / ".git").mkdir()
    (root / "__MACOSX").mkdir()
    assert load(root).facts.classes == ("cat", "dog")


def test_progress_is_told(tree: ImageTree, progress: Any) -> None:
    load(tree({"cat": [_grey()] * 3, "dog": [_grey()]}), observer=progress)
    assert progress.phases == [("reading image headers", 4), ("reading images", 4)]
    assert progress.steps == 4


def test_mixed_sizes_need_a_size(tree: ImageTree) -> None:
    root = tree({"cat": [_grey()], "dog": [_grey(12, 12)]})
    with pytest.raises(DataError, match=r"dog/000.png is 12x12 but .*cat/000.png is 9x10; give a size"):
        load(root)
    assert load(root, size=10).facts.shape == (1, 10, 10)


def test_small_images_need_a_size(tree: ImageTree) -> None:
    root = tree({"cat": [_grey(4, 9)], "dog": [_grey(4, 9)]})
    with pytest.raises(DataError, match=r"pets: images are 4x9; the smallest size is 8x8"):
        facts_of(root)
    assert load(root, size=8).facts.shape == (1, 8, 8)


def test_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the folder holds no class folders"):
        load(tmp_path)


def test_empty_class_folder(tree: ImageTree) -> None:
    with pytest.raises(DataError, match=r"pets/dog: the class folder is empty"):
        load(tree({"cat": [_grey()], "dog": []}))


@pytest.mark.parametrize("layout", ["", "train/"])
def test_one_class(tree: ImageTree, layout: str) -> None:
    with pytest.raises(DataError, match=r"found one class, 'cat'; at least two"):
        load(tree({f"{layout}cat": [_grey()]}))


def test_images_without_a_class(tree: ImageTree) -> None:
    with pytest.raises(DataError, match=r"pets/000.png: an image outside a class folder has no label"):
        load(tree({".": [_grey()], "cat": [_grey()]}))


def test_folder_inside_a_class(tree: ImageTree) -> None:
    with pytest.raises(DataError, match=r"Test/cat: a folder inside the class folder 'Test'.*train and test"):
        load(tree({"Train/cat": [_grey()], "Test/cat": [_grey()]}, name="wrong"))


def test_class_beside_train(tree: ImageTree) -> None:
    with pytest.raises(DataError, match=r"pets/dog: stands beside train/"):
        load(tree({"train/cat": [_grey()], "train/dog": [_grey()], "dog": [_grey()]}))


def test_class_only_in_test(tree: ImageTree) -> None:
    train = {"train/cat": [_grey()], "train/dog": [_grey()]}
    with pytest.raises(DataError, match=r"test/emu: a class of test/ that train/ does not have"):
        load(tree({**train, "test/emu": [_grey()]}))


def test_empty_test_folder(tree: ImageTree) -> None:
    with pytest.raises(DataError, match=r"pets/test: the folder holds no class folders"):
        load(tree({"train/cat": [_grey()], "train/dog": [_grey()], "test": []}))


def test_class_that_the_split_takes_away(tree: ImageTree) -> None:
    with pytest.raises(DataError, match=r"no training record has.*smaller test_fraction"):
        load(tree({"cat": [_grey()], "dog": [_grey()]}), test_fraction=0.5)


def test_fraction_beside_test_folder(tree: ImageTree) -> None:
    train = {"train/cat": [_grey()], "train/dog": [_grey()]}
    with pytest.raises(ConfigError, match=r"comes with a test split of 1 records"):
        facts_of(tree({**train, "test/cat": [_grey()]}), test_fraction=0.5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notes.txt", b"hello", "cat/notes.txt: not a PNG or JPEG file"),
        ("a.gif", b"GIF89a", "cat/a.gif: not a PNG or JPEG file; remove it, or convert"),
        ("a.png", b"", r"cat/a.png: the file is empty \(0 bytes\)"),
        ("a.png", b"not an image", "cat/a.png: not a readable PNG or JPEG image"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"size": 8, "channels": 1}])
def test_bad_files(tree: ImageTree, name: str, content: bytes, message: str, options: dict[str, Any]) -> None:
    root = tree({"cat": [_grey()], "dog": [_grey()]})
    (root / "cat" / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load(root, **options)


@pytest.mark.parametrize("options", [{}, {"size": 8, "channels": 1}])
def test_the_first_few_bad_files_are_named_and_all_are_counted(tree: ImageTree, options: dict[str, Any]) -> None:
    root = tree({"cat": [_grey()], "dog": [_grey()]})
    for number in range(4):
        (root / "cat" / f"{number}.png").write_bytes(b"")
        (root / "dog" / f"{number}.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match="8 files cannot be used") as found:
        load(root, **options)
    first, *lines = str(found.value).splitlines()
    assert first.endswith("these are the first:")
    assert [line.split(": ")[0].strip().removeprefix(f"{root}/") for line in lines] == [
        *(f"cat/{number}.png" for number in range(4)),
        "dog/0.png",
    ]


def test_files_of_other_kinds_are_named_together(tree: ImageTree) -> None:
    root = tree({"cat": [_grey()], "dog": [_grey()]})
    for name in ("a.gif", "b.txt"):
        (root / "cat" / name).write_bytes(b"hello")
    with pytest.raises(DataError, match=r"2 files cannot be used:\n.*cat/a.gif: not a PNG.*\n.*cat/b.txt: not a PNG"):
        load(root)


def test_truncated_file(tree: ImageTree, pixels: np.ndarray) -> None:
    root = tree({"cat": [pixels[0]], "dog": [pixels[1]]})
    file = root / "dog" / "000.png"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(DataError, match=r"dog/000.png: not a readable PNG or JPEG image"):
        load(root)


def test_dangling_link(tree: ImageTree) -> None:
    root = tree({"cat": [_grey()], "dog": [_grey()]})
    (root / "cat" / "a.png").symlink_to(root / "nowhere.png")
    with pytest.raises(DataError, match=r"cat/a.png: not a readable PNG or JPEG image \(No such file"):
        load(root)
