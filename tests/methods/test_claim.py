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


def test_whoever_compares_is_told_whether_the_claim_is_right():
    sound = dataclasses.replace(CLAIM, unsound=None)
    other = dataclasses.replace(sound, relation=REPLACE)
    assert CLAIM.explained() == f"{CLAIM.sentence()} So do not take the published epsilon for a guarantee."
    assert "is right for what is asked here: its epsilon holds as well" in sound.explained()
    assert "its epsilon holds where one record is replaced by another, the guarantee where" in other.explained()
    assert [one.brief() for one in (CLAIM, sound, other)] == [
        "9.6, add or remove one record: does not hold as published",
        "9.6, add or remove one record: holds as well",
        "9.6, replace one record: holds as well",
    ]
