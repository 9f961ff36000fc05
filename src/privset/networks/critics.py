"""The critic of GS-WGAN, as a function of its weights, so that a thousand of them can be evaluated side by side.

Three strided convolutions and a linear layer say how real an image looks; a vector for each class, multiplied with the
same features, how much like its class (Miyato, Koyama: ICLR 2018). All weights have spectral norm: each is divided by
its largest stretch, which a vector that is kept beside it follows by one step of the power method at a time. Where
records are few, one dense layer may take the place of the convolutions: it learns what classes look like much sooner.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor

from privset.facts import PublicFacts
from privset.networks.critic_slopes import Layer, Look, Stretch, Weights
from privset.networks.patches import KERNEL

_DIRECTION = "direction of "


class Critic:
    """The form of critics; weights are dictionaries that `first_weights` makes.

    Args:
        facts: What is public about the images.
        width: Maps of the first convolution; the second and third have twice and four times as many.
        dense: Whether one dense layer of ``width`` units takes the place of the convolutions.
        normal: Whether the vectors of classes begin as standard normal numbers; if not, as other weights do.
    """

    def __init__(self, facts: PublicFacts, *, width: int = 64, dense: bool = False, normal: bool = False) -> None:
        self._normal = normal
        channels, height, breadth = facts.shape
        self.shapes: dict[str, tuple[int, ...]]
        if dense:
            features, self._layers = width, [Layer("dense", "bias of dense", dense=True)]
            self.shapes = {"dense": (width, channels * height * breadth), "bias of dense": (width,)}
        else:
            self._layers = [Layer(f"conv {k}", f"bias {k}", dense=False) for k in range(3)]
            for _ in self._layers:
                height, breadth = (height + 1) // 2, (breadth + 1) // 2
            widths = (channels, width, 2 * width, 4 * width)
            features = widths[-1] * height * breadth
            self.shapes = {
                **{f"conv {k}": (widths[k + 1], widths[k], KERNEL, KERNEL) for k in range(3)},
                **{f"bias {k}": (widths[k + 1],) for k in range(3)},
            }
        self.shapes |= {
            "linear": (1, features),
            "bias": (1,),
            "classes": (len(facts.classes), features),
        }
        """Of every weight, by name."""

    def first_weights(self, seeds: Iterable[int], device: torch.device | None = None) -> Weights:
        """Fresh critics, one for each seed: weights, stacked ``[critics, ...]``, and the directions beside them.

        They are drawn where they are to lie, so they are known by the seed and the kind of device.
        """
        return {name: torch.stack(values) for name, values in self._drawn(seeds, device).items()}

    def _drawn(self, seeds: Iterable[int], device: torch.device | None) -> dict[str, list[Tensor]]:
        drawn: dict[str, list[Tensor]] = {}
        for seed in seeds:
            generator = torch.Generator(device or "cpu").manual_seed(seed)
            for name, shape in self.shapes.items():
                # As torch begins convolutions and linear layers, and perhaps a vector for each of some words.
                if name == "classes" and self._normal:
                    value = torch.randn(shape, generator=generator, device=device)
                else:
                    bound = 1 / math.sqrt(math.prod(self.shapes[_fed_like(name)][1:]))
                    value = torch.empty(shape, device=device).uniform_(-bound, bound, generator=generator)
                drawn.setdefault(name, []).append(value)
                if len(shape) > 1:
                    along = torch.randn(shape[0], generator=generator, device=device)
                    drawn.setdefault(_DIRECTION + name, []).append(along / along.norm())
        return drawn

    def followed(self, state: Weights) -> Weights:
        """The directions after another step of the power method."""
        return {name: _power(state[name.removeprefix(_DIRECTION)], state[name])[0] for name in self.directions(state)}

    def directions(self, state: Weights) -> Weights:
        """Of all that is kept of a critic, what spectral norm remembers."""
        return {name: value for name, value in state.items() if name.startswith(_DIRECTION)}

    def stretches(self, state: Weights) -> dict[str, Stretch]:
        """How far each weight of one critic stretches what it is given."""
        return {
            name: _stretch(state[name], state[_DIRECTION + name])
            for name, shape in self.shapes.items()
            if len(shape) > 1
        }

    def look(self, state: Weights, stretches: dict[str, Stretch], images: Tensor, labels: Tensor) -> Look:
        """What one critic sees in images ``[n, c, h, w]`` of these classes ``[n]``."""
        normed = {
            name: stretches[name].divided(state[name]) if name in stretches else state[name] for name in self.shapes
        }
        return Look(self._layers, normed, images, labels)

    def __call__(self, state: Weights, images: Tensor, labels: Tensor) -> Tensor:
        """Of one critic: how real images ``[n, c, h, w]`` of these classes ``[n]`` look to it ``[n]``."""
        return self.look(state, self.stretches(state), images, labels).scores


def _fed_like(name: str) -> str:
    """The weight that has as many inputs as this weight or bias."""
    return {"bias": "linear", "bias of dense": "dense"}.get(name, name.replace("bias", "conv"))


def _power(weight: Tensor, along: Tensor) -> tuple[Tensor, Tensor]:
    """Output and input direction of a weight's largest stretch, one step better than ``along``."""
    table = weight.detach().flatten(1)
    back = F.normalize(along @ table, dim=0)
    return F.normalize(table @ back, dim=0), back


def _stretch(weight: Tensor, along: Tensor) -> Stretch:
    out, back = _power(weight, along)
    return Stretch(out, back, out @ weight.flatten(1) @ back)
