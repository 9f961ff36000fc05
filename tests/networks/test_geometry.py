import pytest

from privset.networks.geometry import extra_padding, halving, padded


@pytest.mark.parametrize("size", range(8, 129))
def test_extra_padding_reaches_a_multiple_of_eight_or_one_pixel_less(size: int) -> None:
    height, width = padded((size, 32), extra_padding((size, 32)))

    assert height % 8 in (0, 7)
    assert size <= height < size + 8
    assert width == 32


@pytest.mark.parametrize(("size", "least", "factor"), [(4, 2, 2), (3, 2, 1), (2, 2, 1), (2, 1, 2), (1, 1, 1)])
def test_halving_leaves_the_least(size: int, least: int, factor: int) -> None:
    assert halving((size, 64), least=least) == (factor, 2)
