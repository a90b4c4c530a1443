"""Plans: the same however they are written, and refused where they are wrong."""

from datetime import date

import pytest
from click.testing import CliRunner
from models import integer_model, own_labels, random_images

import brusle
from brusle import defaults
from brusle.attacks import BruSLe, Ensemble, Minimal, PixelBandit, SparseRS
from brusle.cli.evaluate import command
from brusle.errors import DataError, InputError
from brusle.evaluation import Plan

VICTIM = brusle.victims.wrap(lambda x: x, output="logits")


def test_a_file_and_values_are_the_same_plan(tmp_path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("goals: targeted\nattacks: [brusle, sparse-rs]\npixels: [10]\nseeds: 3\n")
    values = {"goals": ["targeted"], "attacks": ("brusle", "sparse-rs"), "pixels": 10, "seeds": [3]}
    assert Plan.read(path) == Plan.of(values)
    assert Plan.read(path).digest == Plan.of(dict(reversed(values.items()))).digest
    assert Plan.of(values | {"queries": 301}).digest != Plan.of(values).digest
    assert Plan.of({}).digest == Plan.of({"queries": 300}).digest


def test_what_is_given_twice_is_the_same_plan() -> None:
    once = {"goals": ["targeted"], "attacks": ["brusle"], "pixels": [10, 20], "seeds": [0]}
    twice = {"goals": ["targeted"] * 2, "attacks": ["brusle"] * 2, "pixels": [10, 20, 10]}
    assert Plan.of(once).digest == Plan.of(twice | {"seeds": [0, 0]}).digest
    assert Plan.of({"defences": ["rnd:0.1", "rnd:0.1"]}).defences == ("rnd:0.1", "rnd:0.1")


def test_attacks_of_a_plan() -> None:
    plan = Plan.of({"attacks": ["brusle", "sparse-rs:synthetic=true"], "pixels": {"targeted": 7}})
    attacks = plan.attacks_on(VICTIM)
    assert attacks["targeted"] == [BruSLe(7, 300), SparseRS(7, 300, synthetic=True)]
    assert [a.pixels for a in attacks["untargeted"]] == [2, 2, 5, 5]  # not said: the defaults
    fewest = Plan.of({"minimal": True, "goals": "targeted", "pixels": 9, "queries": 50})
    both = [Minimal(BruSLe(9, 10), 50), Minimal(PixelBandit(9, 10), 50)]
    assert fewest.attacks_on(VICTIM) == {"targeted": both}
    several = Plan.of({"standard": True, "goals": "untargeted", "pixels": 4, "queries": 5})
    members = [PixelBandit(4, 5), BruSLe(4, 5), SparseRS(4, 5)]  # a function has no gradients
    assert several.attacks_on(VICTIM) == {"untargeted": [Ensemble(members, "Standard")]}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"querys": 3}, "the plan has no key 'querys': did you mean 'queries'?"),
        ({"queries": 0}, "the plan: queries is 0: .*greater than 0"),
        ({"goals": ["sideways"]}, "goals is 'sideways'"),
        ({"targets": "some"}, "targets is 'some'"),
        ({"seeds": []}, "seeds"),
        ({"standard": True, "attacks": "sparse-rs"}, "standard chooses the attacks"),
    ],
)
def test_bad_values(values, message) -> None:
    with pytest.raises(InputError, match=message):
        Plan.of(values)


def test_bad_files(tmp_path) -> None:
    with pytest.raises(DataError, match="cannot read the plan"):
        Plan.read(tmp_path / "none.yaml")
    path = tmp_path / "plan.yaml"
    path.write_text("a: [1")
    with pytest.raises(DataError, match="is no YAML"):
        Plan.read(path)
    path.write_text("- a\n- b\n")
    with pytest.raises(DataError, match="is no plan: it must be keys and values"):
        Plan.read(path)
    path.write_text("querys: 3\n")
    with pytest.raises(InputError, match="plan.yaml has no key 'querys'"):
        Plan.read(path)


def test_several_seeds_on_the_same_pairs() -> None:
    run = brusle.evaluate(attacks=[BruSLe(8, 12)], goal="targeted", limit=10, seed=[4, 5])
    first, second = run.results
    assert (first.seed, second.seed) == (4, 5)
    assert first.problems.targets.tolist() == second.problems.targets.tolist()
    assert first.losses.tolist() != second.losses.tolist()
    assert [s.title[-6:] for s in run.settings] == ["seed 4", "seed 5"]


def test_a_plan_does_what_its_options_do(tmp_path) -> None:
    values = {"goals": "targeted", "pixels": 8, "queries": 12, "limit": 10, "seeds": 4}
    plan = Plan.of(values)
    run = brusle.evaluate(plan, out=tmp_path, batch_size=20)
    attacks = [BruSLe(8, 12), PixelBandit(8, 12)]
    same = brusle.evaluate(attacks=attacks, goal="targeted", limit=10, seed=4)
    assert list(run.rows()) == list(same.rows())
    (session,) = run.about.sessions
    assert Plan.of(session.plan) == plan


def test_keywords_make_a_plan_of_objects(monkeypatch, tmp_path) -> None:
    model, images = integer_model((3, 8, 8), 4), random_images(4, (3, 8, 8))
    data, attacks = (images, own_labels(model, images)), [BruSLe(2, 6)]
    said = {"goals": "untargeted", "limit": None}
    plan = Plan.of({"victim": model.victim(), "data": data, "attacks": attacks, **said})
    run = brusle.evaluate(plan)
    same = brusle.evaluate(model.victim(), data, attacks, "untargeted")
    assert list(run.rows()) == list(same.rows())
    assert run.about.sessions[0].plan == same.about.sessions[0].plan
    # made of words, so it names a folder, too; its weights and images tell it from others
    monkeypatch.chdir(tmp_path)
    folder = brusle.evaluate(plan, out="auto").folder
    assert folder.parent.name == "runs" and (folder / "rows.json").is_file()


def test_names_and_attacks_of_one_plan() -> None:
    plan = Plan.of({"attacks": ["brusle", SparseRS(4, 9)], "pixels": [2, 3], "queries": 7})
    assert plan.attacks_on(VICTIM)["targeted"] == [SparseRS(4, 9), BruSLe(2, 7), BruSLe(3, 7)]
    plan = Plan.of({"attacks": {"targeted": "brusle"}, "pixels": 2, "queries": 7})
    assert plan.attacks_on(VICTIM) == {"untargeted": [], "targeted": [BruSLe(2, 7)]}


def test_a_plan_and_keywords_are_not_mixed() -> None:
    for more in ({"data": "npz:a"}, {"seed": 1}, {"limit": 3}, {"attacks": BruSLe(2, 3)}):
        with pytest.raises(InputError, match="a plan says what to evaluate"):
            brusle.evaluate(Plan(), **more)


@pytest.mark.parametrize("key", ["victim", "data", "attacks"])
@pytest.mark.parametrize(
    "value", [None, 5, 0.5, True, b"a", [1], {1}, {"a": 1}, [["a"], ["b"]], date(2026, 1, 2)]
)
def test_what_a_file_may_hold_is_no_object(key, value) -> None:
    with pytest.raises(InputError, match=f"the plan: {key} is .*: (Input should be|choose from)"):
        Plan.of({key: value})


def test_the_defaults_stand_once() -> None:
    plan = Plan()
    assert (plan.victim, plan.data, plan.queries) == (
        defaults.VICTIM,
        defaults.DATA,
        defaults.QUERIES,
    )
    shown = CliRunner().invoke(command, ["--help"]).output
    for value in (defaults.VICTIM, defaults.DATA, f"default: {defaults.QUERIES}"):
        assert str(value) in shown
    budgets = {g: [a.pixels for a in plan.attacks_on(VICTIM)[g]] for g in plan.goals}
    assert {g: tuple(dict.fromkeys(mine)) for g, mine in budgets.items()} == defaults.PIXELS
