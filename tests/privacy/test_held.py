import math

import pytest
import torch

from privset.privacy import held
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


@pytest.mark.parametrize("last", [None, (3, 3, 40)])
@pytest.mark.parametrize("count", [1, 8, 9, 50])
@pytest.mark.parametrize("piece", [held.PIECE, 100])
def test_many_long_rows_are_all_added_up_in_every_sample_that_they_are_in(last, count, piece, monkeypatch):
    monkeypatch.setattr(held, "PIECE", piece)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(count, 2, 360, generator=generator)
    each = torch.rand(3, count, generator=generator, dtype=torch.float64)
    each[1, ::3], each[2], each[:, 4:5], rows[4:5] = 0, 0, 0, math.nan
    totals = torch.ones(3, 720, dtype=torch.float64)
    Held(rows, last).add(Shares(each), totals)
    plain = rows.double().nan_to_num()
    plain = plain if last is None else plain.view(count, 2, 9, 40).transpose(2, 3)
    torch.testing.assert_close(totals, 1 + each @ plain.reshape(count, 720), rtol=1e-12, atol=1e-12)
