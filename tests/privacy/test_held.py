import pytest
import torch

from privset.privacy.clipping import Shares
from privset.privacy.held import Held, Products


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_lines_are_measured_to_a_part_in_a_million(dtype):
    rows = torch.randn(3, 1, 2**20, generator=torch.Generator().manual_seed(0)).to(dtype)
    exact = rows.double().square().sum((1, 2))
    torch.testing.assert_close(Held(rows).squares(), exact, rtol=1e-6, atol=0.0)


def test_thousands_of_contributions_do_not_round_past_the_bound():
    rows = torch.full((6000, 1, 1), 0.1)
    product = Products(torch.full((6000, 1), 0.1), torch.ones(6000, 1))
    for part in (Held(rows), product):
        totals = torch.zeros(1, 1, dtype=torch.float64)
        part.add(Shares(torch.ones(1, 6000, dtype=torch.float64)), totals)
        assert float(totals) == pytest.approx(6000 * float(torch.tensor(0.1)), rel=1e-12)  # float64 from row to row
