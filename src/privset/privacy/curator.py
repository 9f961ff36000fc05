"""The only holder of the private records. It answers noisy questions, each charged before it is answered.

A method is handed a `Curator` and public facts, never a record: the records, and the networks that looked at them
(`wards`), live in the closures of the answering functions (`sums`, `votes`, `pullback`), and no data attribute,
iterator or return value leads to them. That guards against accidents, not against hostile code in the same process.
Proofs of what each answer guarantees: docs/proofs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from privset.data.records import Records
from privset.errors import ConfigError
from privset.facts import PublicFacts
from privset.privacy.accounting import GaussianEvent
from privset.privacy.clipping import Loss, Parameters, Tally
from privset.privacy.kept import KeptAnswers
from privset.privacy.layered import LayeredLoss
from privset.privacy.ledger import Ledger
from privset.privacy.noise import NoiseSource
from privset.privacy.pullback import Make, Pull, Use, check_generated, pulling, pulling_by_wards
from privset.privacy.questions import GradientQuestion, PullbackQuestion, Question, TotalQuestion, VotesQuestion
from privset.privacy.standing import Checkpoint, Standing
from privset.privacy.sums import Statistic, Transform, check_statistic, summing
from privset.privacy.votes import answering
from privset.privacy.ward_steps import Learn, Public, Say
from privset.privacy.wards import Begin, Guardian, Wards, keeping


class Curator:
    """Answers questions about private records, within a budget.

    Args:
        records: The private records.
        facts: What is public about them.
        ledger: Where each question is charged before it is answered.
        noise: Source of noise and of samples.
        device: Where answers are computed.
        chunk: How many per-record gradients, or images before wards, are held at once; None chooses. A matter of memory
            and speed, but that wards draw numbers of their own chunk by chunk: with another one they draw others.
        tally: Receives what the data holder alone may see.
        kept: Keeps the answers to `total` questions before they are given, and gives those it has again.
        standing: Counts the answers that are given, and keeps where the run stands; of a run that is taken up again it
            has moved the noise to where that stood.
    """

    def __init__(
        self,
        records: Records,
        facts: PublicFacts,
        ledger: Ledger,
        noise: NoiseSource,
        *,
        device: str = "cpu",
        chunk: int | None = None,
        tally: Tally | None = None,
        kept: KeptAnswers | None = None,
        standing: Standing | None = None,
    ) -> None:
        if len(records) != facts.size:
            raise ConfigError(f"{facts.name}: {len(records)} records, but the public facts say {facts.size}")
        ledger.budget.check_size(facts.size)
        if ledger.is_reopened and kept is None and standing is None:
            raise ConfigError(
                "a ledger that was opened again pays for kept answers, or for the same ones again; here are neither"
            )
        if kept is not None and standing is not None:
            raise ConfigError("a run keeps its answers, or where it stands, and not both")
        self.facts = facts
        self._ledger = ledger
        self._device = device
        self._standing, self._keeps = standing, kept is not None
        # Answers that are used up are not paid for again, nor is their charge there for others.
        self._prepaid: dict[GaussianEvent, int] = {} if standing is None else standing.debts()
        images, labels, tally = records.images.to(device), records.labels.to(device), tally or Tally()
        self._answer_gradient, self._answer_total, self._remember = summing(
            images, labels, facts, noise, device, chunk, tally, kept
        )
        guardian = Guardian(images, labels, facts, noise, chunk, tally)
        self._appoint, self._teach = keeping(guardian)
        self._check_votes, self._answer_votes = answering(guardian, noise, tally)
        self._answer_pullback, self._train_by_pullback = pulling(images, labels, facts, noise, tally)
        self._check_pullback_by, self._answer_pullback_by = pulling_by_wards(guardian, noise, tally)

    @property
    def checkpoint(self) -> Checkpoint:
        """Where a method keeps its state between two questions; it goes on from the one that is there.

        The state must be made of answers and public values alone, of every answer given so far, and hold all that the
        questions to come depend on.
        """
        return self._standing or Checkpoint()

    def prepay(self, question: Question, count: int) -> None:
        """Charge ``count`` answers at once, so that a fast loop never waits for the disk.

        Raises `BudgetExceeded`, and charges nothing, if they do not all fit into the budget.
        """
        self._ledger.charge(question.event(count))
        single = question.event(1)
        self._prepaid[single] = self._prepaid.get(single, 0) + count

    def remember(self, transform: Transform, dtype: torch.dtype = torch.float32) -> None:
        """Apply a transform to all records now, and keep the values for `gradient`: nothing is answered or charged.

        What is too large for this machine, or cannot be computed, fails here, before anything was paid for.
        """
        self._remember(transform, dtype)

    def gradient(
        self,
        question: GradientQuestion,
        loss: Loss,
        parameters: Parameters,
        *,
        draws: int = 1,
        transform: Transform | None = None,
    ) -> list[Parameters]:
        """``draws`` independent noisy gradient sums at the same parameters, each on its own Poisson sample.

        Guarantee: each draw is one sampled Gaussian answer of sensitivity ``clip_norm``; all of them are charged
        before the first is computed. The sums are not divided by anything: divide by public constants only.

        Args:
            question: Rate, clipping and noise.
            loss: Of one record, a public function. A `privset.privacy.layered.LayeredLoss` is the fastest; on a card it
                is recorded when it is first seen, so numbers that it knows beside its arguments stay what they were.
            parameters: Where the gradient is taken; public.
            draws: How many answers; together they take one pass over the records of all samples.
            transform: What the loss is given in place of an image, a public function that stays what it is. Evaluated
                under `torch.func.vmap`, once for each record: the curator remembers the values of the last one.
        """
        if any(value.dtype not in (torch.float32, torch.float64) for value in parameters.values()):
            raise ConfigError("gradients are asked for in float32 or float64; in less, clipping would not hold")
        self._refuse_kept("gradient")
        if isinstance(loss, LayeredLoss):
            loss.check(parameters)
        self._pay(question, count=draws)
        return self._answer_gradient(question, loss, parameters, draws, transform)

    def total(self, question: TotalQuestion, statistic: Statistic, *, block: int | None = None) -> Tensor:
        """Noisy sums ``[classes, d]``, or ``[1, d]`` if not by class, of a statistic over all records.

        Guarantee: a Gaussian answer of sensitivity ``bound`` for every pure statistic that gives one vector of
        float32 or float64; any other is refused, on a blank image and before anything is charged. It is evaluated under
        `torch.func.vmap`, which keeps the records of a block apart; a vector longer than ``bound`` is shortened to
        it, and one that is not finite counts as zero. A class without records gives noise around zero. Where
        answers are kept, this one is durable before it is returned, and a kept one is returned as it is.

        Args:
            question: Bound and noise.
            statistic: Of one normalised record, a public function.
            block: Records looked at together (memory and speed alone); None chooses.
        """
        check_statistic(statistic, self.facts, self._device)
        self._pay(question)
        return self._answer_total(question, statistic, block)

    def appoint(self, count: int, begin: Begin, *, batch_size: int, by_class: bool = False) -> Wards:
        """``count`` networks that stay here, each with a shard of the records: nothing is answered or charged.

        Guarantee: every record is in one shard at most, and one record more changes one of them. Unless they are dealt
        ``by_class``, a record's shard is drawn uniformly and independently of all others. What is returned is a name
        that leads to nothing.

        Args:
            count: How many.
            begin: Their first states, by public seeds; called with a range of their numbers.
            batch_size: Records of its own shard that a ward learns from in a step; smaller ones are gone through again.
            by_class: Whether wards have about as many records of each class; of a class that is much larger than
                others, some are then in no shard.
        """
        return self._appoint(count, begin, batch_size, by_class)

    def teach(self, wards: Wards, learn: Learn, public: Public, *, which: Tensor | None = None) -> None:
        """One step of every ward, or of some, from a batch of its own shard: nothing is answered or charged.

        Args:
            wards: Whom.
            learn: One step of one ward, a pure function, evaluated under `torch.func.vmap`, which may however change
                the state in place. It may draw random numbers by torch's own functions, as many for each ward; they
                are the ward's own. On a graphics card it is recorded and played back: it may look at nothing but its
                arguments, and may not ask the device for a number.
            public: What all of them are shown alike; tensors on the curator's device.
            which: Numbers ``[k]`` of those that learn, all different; None has all of them learn.
        """
        self._teach(wards, learn, public, which)

    def votes(self, question: VotesQuestion, wards: Wards, say: Say, public: Public) -> Tensor:
        """The noisy sum of what all wards say; for choices the counts ``[..., bins]``, for lead the largest ``[...]``.

        Guarantee: a Gaussian answer of sensitivity ``question.sensitivity``, whatever the wards learned and say: what
        one ward says is shortened to ``bound`` as a whole, or turned into one choice in each histogram, that of the
        largest number along the last axis; what is not finite counts as nothing. It is charged before a ward is heard.

        Args:
            question: What is asked, bound and noise.
            wards: Whom.
            say: What one ward says, of what it is and of public values; evaluated as ``learn`` in `teach`, but it may
                not change what the ward is. What it says before it has learned anything is looked at first, once for
                public values of one form: if it cannot be bounded, nothing is charged.
            public: As in `teach`.
        """
        return self.votes_together((question,), wards, say, public)[0]

    def votes_together(
        self, questions: Sequence[VotesQuestion], wards: Wards, say: Say, public: Public
    ) -> tuple[Tensor, ...]:
        """The answers to several questions about what all wards say, who are heard once for all of them.

        Guarantee: that of `votes` for each, with a sensitivity, a charge and noise of its own. All of them are charged
        before a ward is heard; if what is said cannot be bounded for one, or they do not all fit into the budget, none
        is charged or answered. Random numbers that a ward draws as it speaks are the same in all answers.

        Args:
            questions: At least one; answers are in their order.
            wards: Who is heard.
            say: What one of them says, as in `votes`.
            public: What all of them are shown alike.
        """
        asked = tuple(questions)  # what is paid for is what is answered, whatever becomes of the caller's list
        self._refuse_kept("votes")
        if not asked:
            raise ConfigError("ask wards at least one question")
        self._check_votes(asked, wards, say, public)
        self._pay(*asked)
        return self._answer_votes(asked, wards, say, public)

    def pullback(self, question: PullbackQuestion, pull: Pull, generated: Tensor, *public: Tensor) -> Tensor:
        """The noisy gradient, of the shape of ``generated [m, c, h, w]``, of a loss that looks at a sample of records.

        Guarantee: one sampled Gaussian answer of sensitivity 2 ``clip_norm`` over all images together, whatever the
        loss: it may compare records and divide by how many were drawn, since the gradient is shortened as a whole. A
        gradient that is not finite counts as zero, and so does that of an empty sample. It is charged before a record
        is looked at. Fewer or more records in the sample change no shape that anyone sees.

        Args:
            question: Rate, clipping and noise.
            pull: The gradient: a public function without memory of ``(generated, *public, images, labels, weights)``.
            generated: The images that are to change; public.
            public: What else the pull is given.
        """
        check_generated(generated)
        self._pay_for_pullbacks(question, 1)
        return self._answer_pullback(question, pull, lambda: (generated, *public))

    def train_by_pullback(self, question: PullbackQuestion, pull: Pull, make: Make, learn: Use, *, steps: int) -> None:
        """Several answers as by `pullback`, each to what ``make`` gives after ``learn`` was given the one before.

        Guarantee: that of `pullback` for each; all of them are charged before the first.

        On a graphics card a step is recorded and played back, with sample and noise of its own each time. So none of
        the three may ask the device for a number, and what changes from step to step must do so in place. They are
        the same objects in every call, or each call is recorded anew.

        Args:
            question: As for `pullback`.
            pull: Likewise.
            make: Gives ``(generated, *public)``; a public function.
            learn: Is given an answer; likewise.
            steps: How many answers.
        """
        self._pay_for_pullbacks(question, steps)
        self._train_by_pullback(question, pull, make, learn, steps)

    def pullback_by(self, question: PullbackQuestion, wards: Wards, say: Say, public: Public) -> Tensor:
        """The noisy sum of how wards, all or a secret few, would have the generated images change ``[m, ...]``.

        Guarantee: a Gaussian answer of sensitivity 2 ``clip_norm`` over all images together, whatever the wards learned
        and say; and one on a sample of wards, if the rate is below 1: who takes part is drawn anew for each answer and
        told to no one. That is worth nothing if a ward can be taught because it was drawn, so it cannot: `teach` is
        told by the method whom to teach.

        Args:
            question: Share of the wards, clipping and noise.
            wards: Whom.
            say: The gradient ``[m, ...]`` of one ward, of what it is and of public values; as in `votes`.
            public: As in `teach`.
        """
        self._refuse_kept("pullback")
        self._check_pullback_by(question, wards, say, public)
        self._pay(question)
        return self._answer_pullback_by(question, wards, say, public)

    def _pay_for_pullbacks(self, question: PullbackQuestion, count: int) -> None:
        if question.of_wards:
            raise ConfigError("the question is about wards; ask for pullback_by")
        self._refuse_kept("pullback")
        self._pay(question, count=count)

    def _refuse_kept(self, kind: str) -> None:
        if self._keeps:
            raise ConfigError(f"answers to {kind} questions are not kept; a method that measures asks for totals only")

    def _pay(self, *questions: Question, count: int = 1) -> None:
        """Charge ``count`` answers to each question, but for what was paid for before; all of them, or none."""
        if count < 1:
            raise ConfigError(f"ask for at least one answer, not {count}")
        if torch.is_autocast_enabled("cuda" if self._device.startswith("cuda") else "cpu"):
            raise ConfigError("ask outside of torch.autocast: lengths would be taken in half precision, and not hold")
        credit, due = dict(self._prepaid), []
        for question in questions:
            single = question.event(1)
            paid = credit.get(single, 0)
            if paid < count:
                due.append(question.event(count - paid))
            credit[single] = max(paid, count) - count
        self._ledger.charge(*due)
        self._prepaid = credit
        if self._standing is not None:
            for question in questions:
                self._standing.use(question.event(1), count)
