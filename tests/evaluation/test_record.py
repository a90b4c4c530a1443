"""What a run folder says has types, and a setting an identity that outlives new options."""

import json
import sqlite3
from dataclasses import dataclass, field, fields, make_dataclass, replace

import pytest
from models import integer_model, own_labels, random_images
from pydantic import ValidationError

import brusle
from brusle.attacks import BruSLe, Ensemble, SparseRS
from brusle.attacks.combined import Restarts
from brusle.attacks.minimal import Minimal
from brusle.data import Framing
from brusle.evaluation.record import About, Row, Session, Setting, StoredTraits
from brusle.evaluation.storing.schema import TABLES
from brusle.evaluation.storing.store import Store
from brusle.search import Behaviour


@dataclass(frozen=True)
class Mine:
    """An attack of somebody else's."""

    pixels: int = 3
    queries: int = 10
    rate: float = 0.5
    sizes: tuple[int, ...] = (1, 2)
    names: list[str] = field(default_factory=lambda: ["a"])
    behaviour = Behaviour(needs="scores")
    label = "Mine"


class Plain:
    """One that is no dataclass."""

    pixels, queries, label, behaviour = 3, 10, "Plain", Behaviour(needs="labels")

    def __init__(self, rate: float) -> None:
        self.rate, self._hidden = rate, object()


def key(attack, goal="untargeted", **more) -> dict:
    return json.loads(Setting.of(attack, goal, **more).key)


def test_a_setting_is_known_by_class_budgets_and_unusual_options() -> None:
    attack = {"kind": "BruSLe", "pixels": 4, "queries": 60, "options": {}}
    assert key(BruSLe(4, 60)) == {"attack": attack, "goal": "untargeted", "seed": 0, "eot": 1}
    attack["options"] = {"colours": 2, "palette": "uniform"}
    unusual = BruSLe(4, 60, palette="uniform", colours=2, z=0.01)
    assert key(unusual, "targeted", seed=3, eot=2) == {
        "attack": attack, "goal": "targeted", "seed": 3, "eot": 2,
    }  # fmt: skip
    assert key(BruSLe(4))["attack"]["queries"] == 500  # a budget is said, whatever its default


def test_attacks_within_attacks_are_described_likewise() -> None:
    inner = {"kind": "SparseRS", "pixels": 4, "queries": 20, "options": {"alpha_init": 0.5}}
    attack = SparseRS(4, 20, alpha_init=0.5)
    for outer, queries, option in (
        (Minimal(attack, 100), 100, {"total": 100}),
        (Restarts(attack, 3), 60, {"times": 3}),
    ):
        options = {"attack": inner, **option}
        known = {"kind": type(outer).__name__, "pixels": 4, "queries": queries, "options": options}
        assert key(outer)["attack"] == known
    assert Setting.of(Minimal(attack, 100), "untargeted").minimal
    both = key(Ensemble([attack, BruSLe(4, 20)], "Both"))["attack"]
    assert both["queries"] == 40 and both["options"]["name"] == "Both"
    assert both["options"]["attacks"][0] == inner


def test_a_new_option_does_not_orphan_old_results(tmp_path) -> None:
    newer = make_dataclass("BruSLe", [("shape", str, "round")], bases=(BruSLe,), frozen=True)
    for attack in (BruSLe(3, 20), BruSLe(3, 20, z=0.1)):
        later = newer(**vars(attack))
        assert key(attack) == key(later) != key(replace(later, shape="square"))
    model = integer_model((3, 6, 6), 4)
    images = random_images(5, (3, 6, 6))
    data = (images, own_labels(model, images))
    brusle.evaluate(model.victim(), data, [BruSLe(3, 20)], "untargeted", tmp_path)
    again = brusle.evaluate(model.victim(), data, [newer(3, 20)], "untargeted", tmp_path)
    assert again.resumed == 5 and len(again.settings) == 1


def test_attacks_of_others_have_identities_too() -> None:
    assert key(Mine())["attack"] == {"kind": "Mine", "pixels": 3, "queries": 10, "options": {}}
    assert key(Mine(rate=0.25, sizes=(3,), names=["b"]))["attack"]["options"] == {
        "rate": 0.25, "sizes": [3], "names": ["b"],
    }  # fmt: skip
    assert key(Plain(0.5))["attack"]["options"] == {"rate": 0.5}
    assert key(Plain(0.5)) == key(Plain(0.5)) != key(Plain(0.25))


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (float("inf"), "inf"),
        (1, 1),
        (True, True),
        (None, None),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        (b"x", "b'x'"),
        ("\ud800", "\\ud800"),
    ],
)
def test_any_option_can_be_written_down(value, plain, tmp_path) -> None:
    setting = Setting.of(Mine(rate=value), "untargeted")
    assert setting.options == {"rate": plain}
    with Store.write(tmp_path) as store:
        stored = store.add_setting(setting)
        assert store.add_setting(setting) == stored and stored.number == 1
    with Store.read(tmp_path) as store:
        assert store.settings_by_key() == {setting.key: stored}


def about(**more) -> About:
    session = Session(began="now", plan={}, pairs="", provenance={})
    facts = {"brusle": "1", "results": 2, "victim": "zoo:toy", "weights": "", "data": "sample"}
    usual = {"shape": (3, 4, 4), "classes": (), "randomised": False, "sessions": (session,)}
    return About(**facts | usual | more)


def test_what_is_said_about_a_run_is_read_as_it_was_written(tmp_path) -> None:
    said = about(defences=("rnd:0.02", "jpeg:75"), notes=("one",), warnings={"range": "odd"})
    with Store.write(tmp_path) as store:
        assert store.about() is None
        store.write_about(said)
    with Store.read(tmp_path) as store:
        assert store.about() == said
    assert said.as_dict()["victim"] == said.defended_victim == "zoo:toy + rnd:0.02 + jpeg:75"
    assert said.as_dict()["defences"] == ["rnd:0.02", "jpeg:75"]


def test_what_is_said_about_a_run_has_types() -> None:
    for wrong in ({"shape": (3, 4)}, {"sessions": ()}, {"colour": "red"}, {"victim": None}):
        with pytest.raises(ValidationError):
            about(**wrong)
    with pytest.raises(ValidationError):
        about().victim = "another"


def test_a_victim_may_have_a_plus_in_its_name(tmp_path) -> None:
    with Store.write(tmp_path) as store:
        store.write_about(about(victim="onnx:a + b.onnx", defences=("label",)))
    with Store.read(tmp_path) as store:
        assert (store.about().victim, store.about().defences) == ("onnx:a + b.onnx", ("label",))


def test_the_table_of_rows_has_the_columns_of_a_row() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript(TABLES)
    columns = [line[1] for line in connection.execute("PRAGMA table_info(rows)")]
    connection.close()
    assert columns == ["setting", *(f.name for f in fields(Row)), "checksum"]


@pytest.mark.parametrize(
    "framing",
    [
        Framing(None, (32, 30)),
        Framing(40, (32, 32), "bicubic"),
        Framing((40, 36), (32, 32), "lanczos", "floor"),
    ],
)
def test_a_framing_is_read_as_it_was_written(framing) -> None:
    victim = integer_model((3, 8, 8), 4).victim()
    victim.framing = framing
    stored = StoredTraits.of(victim).model_dump_json()
    assert StoredTraits.model_validate_json(stored).traits().framing == framing


def test_framings_of_older_folders_halve_as_they_did() -> None:
    older = '{"framing": {"resize": 40, "crop": [32, 32], "filter": "bilinear"}}'
    assert StoredTraits.model_validate_json(older).traits().framing == Framing(40, (32, 32))
    with pytest.raises(ValidationError):
        StoredTraits.model_validate_json(older.replace("bilinear", "magic"))
