import pytest

from privset.data import facts_of
from privset.errors import ConfigError
from privset.evaluation import AS_TRAINED, RECIPES
from privset.methods.gs_wgan import GsWganConfig
from privset.networks import CLASSIFIERS
from privset.studies import STUDIES, Cell, Study, get


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_every_cell_of_the_catalogue_could_be_run(study):
    for cell in study.cells:
        assert cell.definition()["settings"].get("per_class", cell.per_class) == cell.per_class
        assert cell.is_real or cell.make_method(3).config.seed == 3
        assert set(cell.recipes) <= ({AS_TRAINED} if cell.trains else RECIPES.keys())
        assert cell.definition()["classifier"] in CLASSIFIERS
        cell.budget.check_size(facts_of(cell.data).size)


def test_the_moments_study_has_every_data_set_epsilon_and_size():
    names = [cell.name for cell in get("moments").cells]
    assert len(names) == 12 + 5
    assert names[0] == "mnist-eps1-ipc10"
    assert names[11] == "cifar10-eps10-ipc50"
    assert names[-1] == "fashion-mnist-eps1-ipc500"


def test_the_studies_of_references_have_the_papers_values():
    real = {cell.name: cell for cell in get("real").cells}
    assert (real["mnist-all"].published, real["fashion-mnist-ipc20"].published) == (99.6, 77.4)
    assert real["mnist-all"].definition()["per_class"] is None
    assert real["mnist-all"].definition()["epsilon"] == "inf"
    trained = {cell.name: cell for cell in get("dp-sgd").cells}
    assert trained["fashion-mnist-eps10-paper"].published == 82.9
    assert trained["fashion-mnist-eps10-paper"].definition()["classifier"] == "convnet"
    assert trained["mnist-eps1-strong"].definition()["classifier"] == "scattering"
    assert trained["mnist-eps1-strong"].published is None


def test_the_studies_of_the_papers_methods_have_its_values_and_its_noise():
    psg = {cell.name: cell for cell in get("psg").cells}
    assert len(psg) == 2 * 6 + 6
    assert {cell.accountant for cell in psg.values()} == {"rdp"}
    assert (psg["mnist-eps10-ipc20"].published, psg["mnist-eps1-ipc20"].published) == (95.6, 80.9)
    assert psg["mnist-eps1-ipc10"].published is None
    assert (psg["cifar10-epsinf-ipc20"].published, psg["cifar10-epsinf-ipc20"].budget.private) == (52.6, False)
    prior = {cell.name: cell for cell in get("psg-prior").cells}
    assert [prior[f"mnist-eps10-ipc{size}"].published for size in (1, 10, 20)] == [88.2, 92.2, 90.6]
    assert [prior[f"fashion-mnist-eps10-ipc{size}-code"].published for size in (1, 10, 20)] == [63.0, 70.2, 70.7]
    assert prior["mnist-eps10-ipc20"].definition()["settings"]["outer_steps"] == 20
    assert prior["mnist-eps10-ipc20-code"].definition()["settings"]["outer_steps"] == 2
    merf = {cell.name: cell for cell in get("dp-merf").cells}
    assert merf["mnist-eps1-ipc6000-paper"].definition()["settings"]["noise_multiplier"] == 10.0
    assert merf["fashion-mnist-eps10-ipc20-standard"].definition()["settings"]["noise_multiplier"] is None
    assert merf["fashion-mnist-eps10-ipc20-standard"].published == 67.9
    usual = merf["mnist-eps10-ipc6000-standard"]
    for network in ("mlp", "lenet", "alexnet", "vgg11", "resnet18"):
        other = merf[f"{usual.name}-{network}"]
        assert (other.classifier, other.set_key(0)) == (network, usual.set_key(0))


def make(**changes):
    fields = {"name": "a", "method": "psg", "preset": "small", "data": "digits", "epsilon": 1.0, "per_class": 1}
    return Cell(**(fields | changes))


def test_the_study_of_baselines_has_both_noises_and_six_networks_on_the_same_sets():
    cells = {cell.name: cell for cell in get("baselines").cells}
    calibrated, published = cells["mnist-eps10-dp-cgan"], cells["mnist-published10-dp-cgan"]
    assert (calibrated.published, cells["fashion-mnist-eps10-dp-cgan"].published) == (52.5, 50.2)
    assert cells["mnist-eps1-dp-cgan"].published is None
    assert (calibrated.per_class, calibrated.recipes, calibrated.classifier) == (6000, ("paper",), "convnet")
    assert calibrated.make_method(0).config.noise_multiplier is None
    assert published.make_method(0).config.noise_multiplier == 1.12
    for network in ("mlp", "lenet", "alexnet", "vgg11", "resnet18"):
        other, ours = cells[f"mnist-published10-dp-cgan-{network}"], cells[f"mnist-eps10-datalens-{network}"]
        assert (other.classifier, other.sets, other.networks) == (network, 1, 1)
        assert (ours.classifier, ours.sets, ours.published) == (network, 1, None)
        assert other.set_key(0) == published.set_key(0) != calibrated.set_key(0)
        assert ours.set_key(0) == cells["mnist-eps10-datalens"].set_key(0)


@pytest.mark.parametrize("method", ["dp-cgan", "gs-wgan", "dp-sinkhorn", "g-pate", "datalens"])
def test_the_published_noise_of_every_baseline_can_be_paid_for_and_is_claimed_to_cost_what_the_cell_is_named(method):
    cells = [cell for cell in get("baselines").cells if cell.method == method and "published" in cell.name]
    assert {cell.name.split("-published")[0] for cell in cells} == {"mnist", "fashion-mnist"}
    for cell in cells:
        plan = cell.make_method(0).plan(facts_of(cell.data), cell.budget)
        named = float(cell.name.split("published")[1].split("-")[0])
        assert plan.claim is not None
        assert plan.epsilon <= cell.epsilon
        if method == "g-pate":  # published runs end where an accountant that looks at the votes says so, or here
            assert {event.count for event in plan.events} == {1000}
            assert plan.epsilon == pytest.approx(cell.epsilon, rel=3e-3)
            assert plan.claim.epsilon > plan.epsilon > named
        else:
            assert plan.claim.epsilon == pytest.approx(named, rel=0.05)


def test_the_values_of_the_papers_first_table():
    cells = {cell.name: cell for cell in get("baselines").cells}
    for name, mnist, fashion in [
        ("eps10-gs-wgan", 84.9, 63.1),
        ("published10-gs-wgan-replayed", 84.9, 63.1),
        ("eps10-dp-sinkhorn", 83.2, 71.1),
        ("eps1-g-pate", 58.8, 58.1),
        ("eps10-g-pate", 80.9, 69.3),
        ("published1-datalens", 71.2, 64.8),
        ("eps10-datalens", 80.7, 70.6),
        ("eps1-gs-wgan", None, None),
    ]:
        assert (cells[f"mnist-{name}"].published, cells[f"fashion-mnist-{name}"].published) == (mnist, fashion)
    assert cells["fashion-mnist-published10-dp-sinkhorn"].make_method(0).config.noise_multiplier == 0.9
    assert cells["mnist-published10-dp-sinkhorn"].make_method(0).config.noise_multiplier == 1.1
    assert cells["fashion-mnist-published10-datalens"].make_method(0).config.top == 350
    for method, kind in [
        ("dp-cgan", "published"),
        ("gs-wgan", "published"),
        ("dp-sinkhorn", "eps"),
        ("g-pate", "eps"),
        ("datalens", "eps"),
    ]:
        for data in ("mnist", "fashion-mnist"):
            tested = {cell.classifier for cell in cells.values() if cell.name.startswith(f"{data}-{kind}10-{method}")}
            assert tested == {"convnet", "mlp", "lenet", "alexnet", "vgg11", "resnet18"}


def test_the_values_of_the_papers_table_of_other_networks_are_those_of_the_published_noise():
    cells = {cell.name: cell for cell in get("baselines").cells}
    for name, lenet, alexnet, vgg11, resnet18, mlp in [
        ("mnist-published10-dp-cgan", 52.6, 52.1, 54.7, 51.8, 54.3),
        ("fashion-mnist-published10-dp-cgan", 52.6, 52.1, 54.7, 51.8, 54.3),
        ("mnist-published10-gs-wgan", 83.2, 80.5, 87.9, 89.3, 74.7),
        ("fashion-mnist-published10-gs-wgan", 62.7, 55.1, 57.3, 58.9, 65.4),
    ]:
        networks = ("lenet", "alexnet", "vgg11", "resnet18", "mlp")
        for now in ("", "-replayed") if "gs-wgan" in name else ("",):
            found = [cells[f"{name}-{network}{now}"].published for network in networks]
            assert found == [lenet, alexnet, vgg11, resnet18, mlp]


def test_gs_wgan_with_the_published_noise_is_measured_with_its_first_settings_and_with_its_presets():
    cells = {cell.name: cell for cell in get("baselines").cells}
    first, now = cells["mnist-published10-gs-wgan"], cells["mnist-published10-gs-wgan-replayed"]
    assert now.make_method(0).config == GsWganConfig.paper(per_class=6000, epsilon=386)
    before, after = first.definition()["settings"], now.definition()["settings"]
    changed = {name for name, value in after.items() if before[name] != value}
    assert changed == {"warm_up", "taught", "critic_steps", "between", "replayed", "least_slope"}
    assert cells["mnist-published10-gs-wgan-mlp-replayed"].set_key(0) == now.set_key(0) != first.set_key(0)
    assert "fashion-mnist-published10-gs-wgan" not in cells
    assert cells["fashion-mnist-published10-gs-wgan-mlp"].make_method(0).config.least_slope == 0


def test_other_networks_have_a_published_value_by_the_published_noise_only():
    cells = {cell.name: cell for cell in get("baselines").cells}
    others = [cell for cell in cells.values() if cell.name.startswith(("mnist-eps", "fashion-mnist-eps"))]
    assert {cell.published for cell in others if cell.classifier != "convnet"} == {None}


def test_a_definition_has_the_cells_own_settings_over_the_presets_and_no_infinity():
    definition = make(epsilon=float("inf"), settings={"runs": 7}).definition()
    assert definition["epsilon"] == "inf"
    assert definition["settings"]["runs"] == 7
    assert definition["settings"]["batch_size"] == 1024  # the preset's
    assert "seed" not in definition["settings"]


def test_what_cannot_be_a_study_is_refused():
    with pytest.raises(ConfigError, match="psg has no setting nosuch"):
        make(settings={"nosuch": 1}).definition()
    with pytest.raises(ConfigError, match="no setting seed"):
        make(settings={"seed": 1}).definition()
    for change in ({"sets": 0}, {"networks": 0}, {"recipes": ()}):
        with pytest.raises(ConfigError, match="at least one set"):
            make(**change)
    for change in ({"settings": {"runs": 1}}, {"preset": "small"}, {"epsilon": 1.0, "preset": ""}):
        with pytest.raises(ConfigError, match="real records have no preset"):
            make(**({"method": "real", "epsilon": float("inf")} | change))
    for change in ({}, {"recipes": ("paper",), "per_class": None, "networks": 1}):
        with pytest.raises(ConfigError, match="a classifier is one network"):
            make(**({"method": "dp-sgd"} | change))
    for change in ({"per_class": None}, {"recipes": ("paper", AS_TRAINED)}):
        with pytest.raises(ConfigError, match="a set has a number of images"):
            make(**change)
    with pytest.raises(ConfigError, match="two cells have one name"):
        Study(name="s", what="", cells=(make(), make()))
    with pytest.raises(
        ConfigError,
        match="no study 'nosuch'; there are moments, settings, psg, psg-prior, dp-merf, dp-merf-settings, real",
    ):
        get("nosuch")


def test_cells_are_chosen_by_name_and_pattern_in_the_studys_order():
    study = Study(name="s", what="", cells=(make(name="a-1"), make(name="a-2"), make(name="b-1")))
    assert study.choose() == study.cells
    assert [cell.name for cell in study.choose(["b-1", "a-*"])] == ["a-1", "a-2", "b-1"]
    assert [cell.name for cell in study.choose(["*-1"])] == ["a-1", "b-1"]
    with pytest.raises(ConfigError, match="no cell 'c'; it has a-1, a-2, b-1"):
        study.choose(["a-1", "c"])
    with pytest.raises(ConfigError, match=r"it has mnist-eps10-gs-wgan, .*, and \d{3} others that `privset study list"):
        get("baselines").choose(["mnist-eps10-gswgan"])


def test_in_the_papers_studies_its_own_recipe_counts_and_in_ours_the_better_one():
    for name in ("psg", "psg-prior", "dp-merf", "real"):
        assert {cell.counted for cell in get(name).cells} == {"paper"}
    assert {cell.counted for cell in get("moments").cells} == {None}
