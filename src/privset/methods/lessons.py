"""What a critic of GS-WGAN learns, and what it has to say: public code, run by the curator with each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import grad

from privset.facts import PublicFacts, scale
from privset.methods.descent import step_of_adam
from privset.networks.critics import Critic
from privset.networks.precision import tensor_cores
from privset.privacy.wards import Public, State

if TYPE_CHECKING:
    from privset.methods.gs_wgan import GsWganConfig

_BETAS = (0.5, 0.9)
_PENALTY = 10.0
"""Weight of the gradient penalty (the paper's lambda)."""
_DRIFT = 1e-3
"""Weight of the squared score of records, which keeps scores near zero."""


class Lessons:
    """What one critic learns, and what it has to say: public code, which the curator has each of them run.

    Args:
        config: Of the critics.
        facts: What is public about the images.
    """

    def __init__(self, config: GsWganConfig, facts: PublicFacts) -> None:
        self._facts, self._published, self._rate = facts, config.published_critics, config.critic_rate
        self._critic = Critic(facts, width=config.critic_width, dense=config.shallow, normal=self._published)

    def begin(self, seed: int, numbers: range, device: torch.device | None = None) -> State:
        """First states of the critics of these numbers: weights, and what Adam remembers."""
        state = self._critic.first_weights((seed + number for number in numbers), device)
        for name in self._critic.shapes:
            state["mean of " + name] = torch.zeros_like(state[name])
            state["square of " + name] = torch.zeros_like(state[name])
        return state

    def learn(self, state: State, images: Tensor, labels: Tensor, public: Public) -> State:
        """One step of Adam on the loss of WGAN-GP, from records ``[b, c, h, w]`` and as many generated images.

        These are of the same classes, drawn from the public ``pool [classes, k, c, h, w]``. All critics that learn
        together have ``taken []`` as many steps before.
        """
        critic, pool = self._critic, public["pool"]
        images = scale(images, self._facts) if self._published else images
        drawn = torch.randint(pool.shape[1], labels.shape, device=labels.device)
        fakes = pool[labels, drawn]
        between = torch.lerp(fakes, images, torch.rand(len(labels), 1, 1, 1, device=images.device))

        def loss(weights: State) -> Tensor:
            normed = critic.normed(state | weights)
            real, fake = critic.scores(normed, torch.cat([images, fakes]), labels.repeat(2)).chunk(2)
            slopes = grad(lambda x: critic.scores(normed, x, labels).sum())(between)
            steepness = (slopes.flatten(1).square().sum(1) + 1e-12).sqrt()
            return (
                fake.mean() - real.mean() + _PENALTY * (steepness - 1).square().mean() + _DRIFT * real.square().mean()
            )

        with tensor_cores(images.device):
            slopes = grad(loss)(critic.parameters(state))
        weights, means, squares = ([state[kind + name] for name in slopes] for kind in ("", "mean of ", "square of "))
        down = list(slopes.values())
        step_of_adam(weights, means, squares, down, taken=public["taken"], rate=self._rate, betas=_BETAS)
        return state | critic.followed(state)

    def say(self, state: State, public: Public) -> Tensor:
        """The gradient ``[m, c, h, w]`` down which the fakes would look more real to this critic."""
        with tensor_cores(public["fakes"].device):
            return grad(lambda x: -self._critic(state, x, public["labels"]).sum())(public["fakes"])
