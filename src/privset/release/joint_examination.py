"""The checks of a set that was joined from several releases, from what it holds of these."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from privset.release import joint, synthetic
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.release.certificate import LEDGER_FILE, Certificate
from privset.release.examination import Examination, expect, same_number
from privset.release.loading import read_file
from privset.release.sections import Guarantee, Joined, SetContents
from privset.release.statement import rounded_up


class JointExamination(Examination):
    """The checks of one joint release: of each part, and of what is said of all together."""

    def __init__(self, folder: Path, text: bytes, certificate: Certificate) -> None:
        super().__init__(folder, text, certificate)
        assert certificate.joined is not None
        self.joined: Joined = certificate.joined

    def all(self) -> list[tuple[str, Callable[[], str]]]:
        """Name and function of every check, cheap ones first."""
        return [
            ("certificate", self._check_seal),
            ("files", self._check_files),
            ("set", self._check_set),
            ("relation", self._check_relation),
            ("noise", self._check_noise),
            ("statement", self._check_statement),
            ("card", self._check_card),
            ("preview", self._check_preview),
            *((f"part {number}", self._of_part(number)) for number in range(1, len(self.joined.parts) + 1)),
            ("images", self._check_images),
            ("joint", self._check_joint),
        ]

    def possible_files(self) -> set[str]:
        """Those of any set, without a ledger of its own, and certificate and ledger of each part."""
        numbers = range(1, len(self.joined.parts) + 1)
        parts = {f"parts/{number}/{name}" for number in numbers for name in (CERTIFICATE_FILE, LEDGER_FILE)}
        return super().possible_files() - {LEDGER_FILE} | parts

    def _of_part(self, number: int) -> Callable[[], str]:
        def check() -> str:
            part, stated = self._part(number), self.joined.parts[number - 1]
            expect(part.seal == stated.certificate, "this is the certificate of another release")
            expect(part.joined is None, "this part was joined from others itself")
            contents = part.contents
            expect(
                isinstance(contents, SetContents)
                and (contents.digest, contents.images) == (stated.digest, stated.images),
                "its certificate is about another set than the joint certificate says",
            )
            folder = self.folder / "parts" / str(number)
            for _, one in Examination(folder, read_file(folder, CERTIFICATE_FILE), part).of_part():
                one()
            spent = rounded_up(part.guarantee.epsilon_spent)
            return f"{stated.images:,} images of {part.facts.name}, epsilon {spent}, seal {part.seal}"

        return check

    def _check_images(self) -> str:
        """That the images are those of the parts, one after the other."""
        found, first = self._set(self._undamaged(synthetic.FILE)), 0
        for number, stated in enumerate(self.joined.parts, 1):
            part = joint.part_of(found, first, self._part(number))
            expect(part.digest() == stated.digest, f"the images of part {number} are not those of its certificate")
            first += stated.images
        expect(first == len(found), f"there are {len(found):,} images, and the parts have {first:,}")
        return f"{first:,} images, each of them of one of the {len(self.joined.parts)} parts"

    def _check_joint(self) -> str:
        """That guarantee, questions, facts and limits follow from those of the parts."""
        certificate, disjoint = self.certificate, self.joined.disjoint
        parts = [self._part(number) for number in range(1, len(self.joined.parts) + 1)]
        joint.check_different([(f"part {n}", part) for n, part in enumerate(parts, 1)], disjoint=disjoint)
        asked = joint.joint_asked(parts, disjoint=disjoint)
        said = {
            "guarantee": _same_guarantee(certificate.guarantee, asked.pop("guarantee")),
            "settings": certificate.configuration == {} and certificate.seeds == {} and self._made_first(),
            "claim": certificate.claim is None,  # each part has its own
            "generator": self._generator is None,
            "snapshots": certificate.snapshots is None,
            "party": certificate.party is None,  # it is of several
            **{name: getattr(certificate, name) == value for name, value in asked.items()},
        }
        odd = ", ".join(name.replace("_", " ") for name, same in said.items() if not same)
        expect(not odd, f"does not follow from the parts: {odd}")
        rule = (
            "the largest of the parts', whose records are said to be disjoint"
            if disjoint
            else "of the questions of all parts together"
        )
        return f"epsilon {rounded_up(certificate.guarantee.epsilon_spent)}: {rule}, recomputed"

    def _part(self, number: int) -> Certificate:
        name = f"parts/{number}/{CERTIFICATE_FILE}"
        return Certificate.parse(self._undamaged(name), name)


def _same_guarantee(recorded: Guarantee, computed: Guarantee) -> bool:
    numbers = [
        (recorded.epsilon_budgeted, computed.epsilon_budgeted),
        (recorded.epsilon_spent, computed.epsilon_spent),
        (recorded.delta, computed.delta),
        (recorded.epsilon_by.rdp, computed.epsilon_by.rdp),
        (recorded.epsilon_by.pld, computed.epsilon_by.pld),
    ]
    words = all(getattr(recorded, name) == getattr(computed, name) for name in ("private", "relation", "accountant"))
    return words and all(same_number(*pair) for pair in numbers)
