"""What a critic of GS-WGAN learns, and what it has to say: public code, run by the curator with each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from privset.facts import PublicFacts, scale
from privset.methods.descent import step_of_adam
from privset.networks.critic_slopes import penalty_slope
from privset.networks.critics import Critic
from privset.networks.precision import tensor_cores
from privset.privacy.ward_steps import Public, State

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

        with tensor_cores(images.device):
            slopes = self._slopes(state, images, fakes, between, labels)
        weights, means, squares = ([state[kind + name] for name in slopes] for kind in ("", "mean of ", "square of "))
        down = list(slopes.values())
        step_of_adam(weights, means, squares, down, taken=public["taken"], rate=self._rate, betas=_BETAS)
        return state | critic.followed(state)

    def _slopes(self, state: State, images: Tensor, fakes: Tensor, between: Tensor, labels: Tensor) -> State:
        """The gradient by a critic's weights of WGAN-GP's loss.

        That is the mean score of fakes, less that of images, and a little of the mean square of the latter; and the
        penalty for slopes by what lies between them whose length is not 1.
        """
        stretches, count = self._critic.stretches(state), len(images)
        look = self._critic.look(state, stretches, torch.cat([images, fakes, between]), labels.repeat(3))
        by_images = (2 * _DRIFT * look.scores[:count] - 1) / count
        others = torch.ones(2 * count, device=images.device, dtype=images.dtype)
        by_scores = torch.cat([by_images, others[:count] / count, others[count:]])
        slopes = look.back(by_scores)
        pushed = penalty_slope(look.by_images(slopes[0][2 * count :]), _PENALTY)
        found = look.by_weights(by_scores, slopes, pushed)
        return {
            name: stretches[name].by_weight(state[name], found[name]) if name in stretches else found[name]
            for name in self._critic.shapes
        }

    def say(self, state: State, public: Public) -> Tensor:
        """The gradient ``[m, c, h, w]`` down which the fakes would look more real to this critic."""
        fakes = public["fakes"]
        with tensor_cores(fakes.device):
            look = self._critic.look(state, self._critic.stretches(state), fakes, public["labels"])
            return look.by_images(look.back(-torch.ones_like(look.scores))[0])
