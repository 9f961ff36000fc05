import dataclasses
from pathlib import Path

from tests.release.conftest import Workshop

from privset.privacy.accounting import spend
from privset.release.statement import best_guess, percent_up, rounded_up
from privset.report import guarantee
from privset.report.sources import read_subjects


def test_the_board_reads_the_same_chance_as_the_certificate_states(release: Path) -> None:
    (subject,) = read_subjects([release])
    stated = subject.certificate.guarantee
    chance = percent_up(best_guess(stated.epsilon_spent, stated.delta))
    words = guarantee.in_words(subject)
    assert f"<strong>at most {chance}</strong>" in words
    assert f"at most {chance} by studying" in subject.certificate.statement


def test_each_question_has_its_cost(statistics: Path) -> None:
    (subject,) = read_subjects([statistics])
    shown = guarantee.budget(subject)
    for event in subject.certificate.gaussian_events():
        assert rounded_up(spend([event], subject.certificate.guarantee.delta).best) in shown
    assert shown.count("everyone") == len(subject.certificate.events)
    assert "of 0.5 budgeted" in shown


def test_what_is_not_private_is_not_said_to_have_cost_anything(workshop: Workshop, tmp_path: Path) -> None:
    (seeded,) = read_subjects([workshop.publish(tmp_path / "seeded", workshop.plan(), noise="seeded")])
    assert "This would be epsilon 0.5 of 0.5 budgeted, if" in guarantee.budget(seeded)
    (clean,) = read_subjects([workshop.publish(tmp_path / "clean", workshop.plan(epsilon=float("inf")))])
    assert "There was no budget" in guarantee.budget(clean)


def test_epsilons_add_up_once_for_each_source(
    release: Path, distilled: Path, statistics: Path, workshop: Workshop, tmp_path: Path
) -> None:
    subjects = read_subjects([release, distilled, statistics])
    costs = {one.certificate.guarantee.epsilon_spent for one in subjects}
    assert len(costs) == 2
    (sentence,) = guarantee.together(subjects)
    assert f"epsilon {rounded_up(sum(costs))}, delta 2e-05" in sentence
    (sentence,) = guarantee.together(subjects[1:])
    assert "share one epsilon" in sentence
    assert guarantee.together(subjects[:1]) == []
    seeded = read_subjects([workshop.publish(tmp_path / "seeded", workshop.plan(), noise="seeded")])
    (sentence,) = guarantee.together([*subjects[:1], *seeded])
    assert "no guarantee" in sentence


def test_releases_of_other_data_do_not_add_up(release: Path, workshop: Workshop, tmp_path: Path) -> None:
    facts = dataclasses.replace(workshop.facts, name="other")
    other = workshop.publish(tmp_path / "other", workshop.plan(facts=facts))
    assert guarantee.together(read_subjects([release, other])) == []
