"""Each change alone against a loop that is easy to believe, then the distribution of the draws."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from privset.evaluation.augmentation import CROP, RESCALE, ROTATE, Draw, augment, crop_padding

SIZES = [(28, 28), (8, 8), (12, 17)]


def draw_of(choice: int, count: int, shape: tuple[int, int], /, **given: Tensor) -> Draw:
    """One and the same ``choice`` for all; what is not given is the identity."""
    padding = torch.tensor([crop_padding(side) for side in shape])
    fields = {
        "choice": torch.full((count,), choice),
        "offset": padding.expand(count, 2),
        "size": torch.tensor(shape).expand(count, 2),
        "angle": torch.zeros(count, dtype=torch.int64),
    }
    return Draw(**(fields | given))


def random_images(count: int, size: tuple[int, int], channels: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(count, channels, *size, generator=generator, dtype=torch.float64) + 5


def scaled_one_by_one(image: Tensor, height: int, width: int) -> Tensor:
    """The published way: nearest neighbour, pasted at the centre of a canvas, the centre cut out."""
    channels, rows, columns = image.shape
    side = max(height, width, rows, columns)
    canvas = torch.zeros(channels, side, side, dtype=image.dtype)
    top, left = (side - height) // 2, (side - width) // 2
    canvas[:, top : top + height, left : left + width] = F.interpolate(image[None], (height, width))[0]
    top, left = (side - rows) // 2, (side - columns) // 2
    return canvas[:, top : top + rows, left : left + columns]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("choice", [CROP, RESCALE, ROTATE])
def test_identity(choice: int, size: tuple[int, int]) -> None:
    images = random_images(3, size)

    torch.testing.assert_close(augment(images, draw_of(choice, 3, size)), images)


@pytest.mark.parametrize("size", SIZES)
def test_crop_is_a_cut_out_of_the_image_padded_with_the_batch_mean(size: tuple[int, int]) -> None:
    images = random_images(6, size)
    high, wide = (crop_padding(side) for side in size)
    generator = torch.Generator().manual_seed(0)
    offset = Draw.random(6, size, generator).offset
    offset[0], offset[1] = torch.tensor([0, 0]), torch.tensor([2 * high - 1, 2 * wide - 1])

    result = augment(images, draw_of(CROP, 6, size, offset=offset))

    mean = images.mean(dim=(0, 2, 3))
    for image, changed, (top, left) in zip(images, result, offset.tolist(), strict=True):
        padded = mean[:, None, None].expand(-1, size[0] + 2 * high, size[1] + 2 * wide).clone()
        padded[:, high : high + size[0], wide : wide + size[1]] = image
        torch.testing.assert_close(changed, padded[:, top : top + size[0], left : left + size[1]])


def test_crop_rolls_the_interior() -> None:
    images = random_images(1, (8, 8))

    result = augment(images, draw_of(CROP, 1, (8, 8), offset=torch.tensor([[0, 1]])))

    assert torch.equal(result[..., 1:, :], images.roll(1, dims=2)[..., 1:, :])


@pytest.mark.parametrize("size", [(28, 28), (8, 8), (10, 10)])
def test_scale_is_what_the_published_loop_does(size: tuple[int, int]) -> None:
    targets = [
        (height, width)
        for height in range(int(0.8 * size[0]), int(1.2 * size[0]) + 1)
        for width in (int(0.8 * size[1]), size[1], int(1.2 * size[1]))
    ]
    images = random_images(len(targets), size)

    result = augment(images, draw_of(RESCALE, len(targets), size, size=torch.tensor(targets)))

    for image, changed, target in zip(images, result, targets, strict=True):
        expected = scaled_one_by_one(image, *target)
        # The library's nearest neighbour rounds in float32 and is one pixel off now and then.
        assert (changed != expected).any(dim=0).double().mean() < 0.15
        assert torch.equal(changed == 0, expected == 0)


def test_scale_by_halves_is_exact() -> None:
    image = torch.arange(1.0, 17.0).view(1, 1, 4, 4)

    halved = augment(image, draw_of(RESCALE, 1, (4, 4), size=torch.tensor([[2, 2]])))
    doubled = augment(image, draw_of(RESCALE, 1, (4, 4), size=torch.tensor([[8, 8]])))

    assert halved[0, 0].tolist() == [[0, 0, 0, 0], [0, 1, 3, 0], [0, 9, 11, 0], [0, 0, 0, 0]]
    assert doubled[0, 0].tolist() == [[6, 6, 7, 7], [6, 6, 7, 7], [10, 10, 11, 11], [10, 10, 11, 11]]


@pytest.mark.parametrize(("angle", "quarters"), [(90, 1), (-90, -1), (180, 2)])
def test_quarter_turns_are_exact(angle: int, quarters: int) -> None:
    images = random_images(2, (9, 9))

    result = augment(images, draw_of(ROTATE, 2, (9, 9), angle=torch.tensor([angle, angle])))

    torch.testing.assert_close(result, images.rot90(quarters, dims=(2, 3)))


def test_half_turn_of_an_oblong_image() -> None:
    images = random_images(1, (8, 11))

    result = augment(images, draw_of(ROTATE, 1, (8, 11), angle=torch.tensor([180])))

    torch.testing.assert_close(result, images.flip(2, 3))


def test_rotation_follows_the_pixels_and_fills_the_corners_with_the_mean() -> None:
    height, width = 21, 21
    down, right = torch.meshgrid(torch.arange(21.0) - 10, torch.arange(21.0) - 10, indexing="ij")
    images = torch.stack([right, down]).double()[None]

    result = augment(images, draw_of(ROTATE, 1, (height, width), angle=torch.tensor([30])))

    # A slope stays a slope; bilinear interpolation of one is exact inside the circle that always fits.
    angle = torch.tensor(torch.pi / 6, dtype=torch.float64)
    inside = down.square() + right.square() < 81
    expected = images[0, 0] * angle.cos() - images[0, 1] * angle.sin()
    torch.testing.assert_close(result[0, 0][inside], expected[inside])
    assert result[0, 0, 0, 0].abs() < 1e-9  # the mean of a slope about its centre


@pytest.mark.parametrize("size", SIZES)
def test_draws_have_the_published_distribution(size: tuple[int, int]) -> None:
    draw = Draw.random(20_000, size, torch.Generator().manual_seed(0))

    shares = draw.choice.bincount(minlength=3) / 20_000
    assert (shares - 1 / 3).abs().max() < 0.015
    assert draw.angle.unique().tolist() == list(range(-45, 45))
    for axis, side in enumerate(size):
        assert draw.offset[:, axis].unique().tolist() == list(range(2 * crop_padding(side)))
        reached = draw.size[:, axis].unique().tolist()
        assert reached == list(range(int(0.8 * side), reached[-1] + 1))
        assert 1.2 * side - 1 <= reached[-1] <= 1.2 * side
    together = torch.stack([draw.offset[:, 0], draw.offset[:, 1], draw.size[:, 0], draw.size[:, 1], draw.angle])
    correlation = torch.corrcoef(together.double()) - torch.eye(5, dtype=torch.float64)
    assert correlation.abs().max() < 0.04


def test_without_rotation_half_of_the_images_are_cropped_and_half_are_scaled() -> None:
    choice = Draw.random(20_000, (28, 28), torch.Generator().manual_seed(0), rotate=False).choice

    assert choice.unique().tolist() == [CROP, RESCALE]
    assert abs(choice.double().mean() - 1 / 2) < 0.015


def test_the_same_generator_gives_the_same_images() -> None:
    images = random_images(5, (8, 8))

    def once(seed: int) -> Tensor:
        return augment(images, Draw.random(5, (8, 8), torch.Generator().manual_seed(seed)))

    assert torch.equal(once(1), once(1))
    assert not torch.equal(once(1), once(2))


def test_batches_side_by_side_are_as_each_alone() -> None:
    batches = torch.stack([random_images(6, (8, 9)), 3 * random_images(6, (8, 9))])
    draws = [Draw.random(6, (8, 9), torch.Generator().manual_seed(seed)) for seed in (0, 1)]

    together = augment(batches, Draw.stack(draws))

    for batch, draw, result in zip(batches, draws, together, strict=True):
        torch.testing.assert_close(result, augment(batch, draw))
