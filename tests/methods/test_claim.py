import dataclasses

from privset.methods.claim import REPLACE, Claim
from privset.privacy.budget import RELATION

CLAIM = Claim(epsilon=9.6, delta=1e-5, relation=RELATION, by="A and B (2019)", unsound="The noise is less.")


def test_words_of_a_claim_are_part_of_the_certificate_and_stay_as_they_are():
    assert CLAIM.sentence() == (
        "Claimed by A and B (2019) for these settings: epsilon 9.6, delta 1e-05 (add-or-remove-one-record); not "
        "proven, and not the guarantee. The noise is less."
    )
    sound = dataclasses.replace(CLAIM, unsound=None)
    assert sound.sentence().endswith("another bound, and not the guarantee.")
    other = dataclasses.replace(sound, relation=REPLACE)
    assert other.sentence().endswith("not the guarantee. Its relation is another one: do not compare the two.")
