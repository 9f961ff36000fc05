"""How many records are looked at together; what they add up to is tested by the curator's questions."""

import pytest

from privset import processor
from privset.methods.record_loss import record_loss
from privset.networks import ConvNet
from privset.privacy.sums import _chunk_for


@pytest.mark.parametrize(
    ("width", "fast", "layered", "records"),
    [
        (128, True, True, 222),  # in bfloat16, gradients are half as long
        (128, False, True, 111),
        (128, True, False, 52),  # under vmap each passes a cache many times
        (128, False, False, 52),
        (256, True, True, 56),
        (8, True, True, 256),  # never more
        (512, False, True, 16),  # nor fewer
    ],
)
def test_records_taken_together_fit_where_their_gradients_are_held(width, fast, layered, records, monkeypatch):
    monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: fast)
    network = ConvNet((1, 28, 28), 10, width=width)
    loss = record_loss(network)
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    assert _chunk_for(loss if layered else lambda *one: loss(*one), parameters, "cpu", 28 * 28) == records
