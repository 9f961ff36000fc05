"""Against the definition, written out slowly: filters pixel by pixel, sums over all pixels, no Fourier transform."""

import math

import numpy as np
import pytest
import torch
from torch.func import vmap

from privset.networks import ScatteringNet
from privset.networks.scattering import ANGLES, MAPS, Scattering, morlets


def wave(size, scale, number):
    """A Morlet wavelet ``[h, w]`` in space, on a grid that begins again at its end, as its definition has it."""
    sigma, frequency, angle = 0.8 * 2**scale, 0.75 * math.pi / 2**scale, math.pi * number / ANGLES

    def gaussian(turned):
        total = np.zeros(size, dtype=complex)
        for down in range(-2, 3):
            for right in range(-2, 3):
                y, x = np.meshgrid(np.arange(size[0]), np.arange(size[1]), indexing="ij")
                y, x = y + down * size[0], x + right * size[1]
                along = x * math.cos(angle) + y * math.sin(angle)
                across = y * math.cos(angle) - x * math.sin(angle)
                bell = np.exp(-(along**2 + across**2 / 4) / (2 * sigma**2)) / (4 * math.pi * sigma**2)
                total += bell * np.exp(1j * turned * along)
        return total

    oscillating, still = gaussian(frequency), gaussian(0.0)
    return oscillating - oscillating.sum() / still.sum() * still


def convolved(image, kernel):
    """Circular, by its definition."""
    height, width = image.shape
    found = np.zeros(image.shape, dtype=complex)
    for down in range(height):
        for right in range(width):
            found += kernel[down, right] * np.roll(image, (down, right), axis=(0, 1))
    return found


def averaged(image, skip, size):
    """At every fourth pixel of the image without its margin, by a Gaussian of deviation 1.6 with weights of sum 1."""
    height, width = image.shape

    def weights(place, padded):
        distance = skip * np.arange(padded // skip) - place
        bell = np.sum([np.exp(-((distance + turn * padded) ** 2) / (2 * 1.6**2)) for turn in range(-3, 4)], axis=0)
        return bell / bell.sum()

    places = [range(4, 4 + side, 4) for side in size]
    return np.array(
        [[weights(y, height * skip) @ image @ weights(x, width * skip) for x in places[1]] for y in places[0]]
    )


def slow(image):
    size = image.shape
    padded = np.pad(image, [(4, 4 + -side % 4) for side in size], mode="reflect")
    fine, coarse = ([wave(padded.shape, scale, number) for number in range(ANGLES)] for scale in (0, 1))
    first = [np.abs(convolved(padded, kernel)) for kernel in fine]
    second = [np.abs(convolved(padded, kernel)[::2, ::2]) for kernel in coarse]
    again = [np.abs(convolved(one, kernel)[::2, ::2]) for one in first for kernel in coarse]
    return np.stack(
        [averaged(one, 1, size) for one in [padded, *first]] + [averaged(one, 2, size) for one in second + again]
    )


@pytest.mark.parametrize("size", [(8, 8), (9, 14)])
def test_it_is_what_the_definition_says(size):
    images = torch.randn(2, 2, *size, generator=torch.Generator().manual_seed(0))
    found = Scattering(size)(images)
    assert found.shape == (2, 2 * MAPS, -(-size[0] // 4), -(-size[1] // 4))
    for image, maps in zip(images, found, strict=True):
        expected = np.concatenate([slow(channel.double().numpy()) for channel in image])
        assert np.allclose(maps.numpy(), expected, atol=1e-5)


def test_flat_ground_has_no_waves():
    found = Scattering((12, 12))(torch.full((1, 1, 12, 12), 3.0))[0]
    assert torch.allclose(found[0], torch.tensor(3.0))
    assert found[1:].abs().max() < 1e-5


def test_waves_look_in_eight_directions_at_two_sizes():
    for scale in (0, 1):
        spectra = morlets((32, 32), scale=scale)
        peaks = spectra.flatten(1).argmax(dim=1)
        down, right = (torch.fft.fftfreq(32)[part] for part in (peaks // 32, peaks % 32))
        angles = torch.atan2(down, right).mul(180 / math.pi)
        assert torch.allclose(angles % 180, torch.arange(8) * 22.5, atol=8)
        assert torch.allclose(torch.hypot(down, right), torch.tensor(0.375 / 2**scale), atol=0.04)


def test_images_do_not_meet_and_vmap_gives_the_same():
    images = torch.randn(5, 3, 10, 12, generator=torch.Generator().manual_seed(0))
    features = ScatteringNet((3, 10, 12), 4).features
    together = features(images)
    assert torch.allclose(together[2:3], features(images[2:3]), atol=1e-6)
    assert torch.allclose(together, vmap(lambda image: features(image[None])[0])(images), atol=1e-6)
    assert torch.allclose(together.norm(dim=1), torch.ones(5))


def test_only_the_last_layer_learns_and_nothing_else_is_saved():
    network = ScatteringNet((1, 28, 28), 10)
    assert {name: tuple(value.shape) for name, value in network.state_dict().items()} == {
        "head.weight": (10, 81 * 49),
        "head.bias": (10,),
    }
    assert not list(network.features.parameters())
