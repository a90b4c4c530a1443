"""Foolbox's attacks under brusle's ledger, against Foolbox itself."""

import json
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from inspect import isclass
from pathlib import Path

import pytest
import torch
from models import Counting, integer_model, own_labels, random_images

import brusle
from brusle import rng
from brusle.attacks import foolbox, make
from brusle.attacks.external.from_foolbox import FOOLBOX
from brusle.errors import InputError
from brusle.problems import Problems

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore"),  # Foolbox's own
]
fb = pytest.importorskip("foolbox")

SHAPE, CLASSES, N = (3, 8, 8), 4, 8
MODEL = integer_model(SHAPE, CLASSES)
IMAGES = random_images(N, SHAPE)
LABELS = own_labels(MODEL, IMAGES)
OPTIONS = {  # those that an attack cannot do without, or would take long with
    "SpatialAttack": {"epsilon": 1, "max_rotation": 3},
    "GenAttack": {"epsilon": 0.9, "steps": 5, "population": 4},
}


def options_of(name: str) -> dict:
    within = name.startswith(("L2", "Linf")) and "Linear" not in name
    return OPTIONS.get(name, {"epsilon": 2.0} if within else {})


def seed_of(at: int, targets=None) -> int:
    """What the global generators begin with, worked out from the problem."""
    aims = None if targets is None else targets[at : at + 1]
    ids = Problems.make(IMAGES[at : at + 1], LABELS[at : at + 1], aims).ids
    return int(rng.bits(rng.streams(0, ids), 0, rng.purpose("external: seed"), 1))


class Native(fb.models.Model):
    """The model in Foolbox's own hands: counts images and finds the first adversarial ones."""

    data_format = "channels_first"

    def __init__(self, label: int, original: torch.Tensor) -> None:
        self.label, self.original, self.asked, self.fewest = label, original, 0, []

    @property
    def bounds(self):
        return fb.types.Bounds(0, 1)

    def __call__(self, inputs):
        images = inputs if isinstance(inputs, torch.Tensor) else inputs.raw
        scores = MODEL.function(images).float()
        self.asked += len(images)
        for image, label in zip(images, scores.argmax(1).tolist(), strict=True):
            if label != self.label:
                self.fewest.append(int((image != self.original).any(0).sum()))
        return scores if isinstance(inputs, torch.Tensor) else type(inputs)(scores)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SaltAndPepperNoiseAttack", {"steps": 60}),
        ("LinearSearchBlendedUniformNoiseAttack", {"steps": 9, "directions": 5}),
        ("BinarySearchContrastReductionAttack", {}),
        ("LinearSearchContrastReductionAttack", {"steps": 20}),
        ("GaussianBlurAttack", {"steps": 20}),
    ],
)
def test_queries_are_those_of_the_native_call(name, options) -> None:
    """Where nothing ends it before its time: the limit is high, and no success so small."""
    model = Counting(MODEL.function)
    result = foolbox(name, pixels=1, queries=5000, **options)(model.victim(), IMAGES, LABELS)
    assert int(result.ledger.total.sum()) == model.seen
    kind, compared = getattr(fb.attacks, name), 0
    for at in range(N):
        native = Native(int(LABELS[at]), IMAGES[at])
        torch.manual_seed(seed_of(at))
        criterion = fb.criteria.Misclassification(LABELS[at : at + 1])
        kind(**options)(native, IMAGES[at : at + 1], criterion, epsilons=None)
        if min(native.fewest, default=2) > 1:
            assert int(result.queries[at]) == native.asked
            assert result.losses[at] == min(native.fewest, default=torch.inf)
            compared += 1
    assert compared >= N // 2


def test_options_may_be_objects() -> None:
    start = fb.attacks.SaltAndPepperNoiseAttack(steps=12)
    attack = foolbox("PointwiseAttack", pixels=2, queries=60, init_attack=start)
    assert "init_attack=SaltAndPepperNoiseAttack(steps=12" in attack.label
    result = attack(MODEL.victim(), IMAGES, LABELS)
    begun = torch.tensor([status != "error" for status in result.status])  # it found a start
    assert begun.any() and (result.queries[begun & ~result.success] == 60).all()


@pytest.mark.ray
def test_rows_of_workers_are_the_same() -> None:
    attack = foolbox("SaltAndPepperNoiseAttack", pixels=20, queries=30, steps=30)
    options = {"data": "sample", "limit": 10, "goal": "untargeted", "on_progress": None}
    victim = "zoo:cifar10-resnet20"
    here, there = (
        [{**row, "seconds": 0} for row in run.rows()]
        for run in (
            brusle.evaluate(victim, attacks=attack, out=None, **options),
            brusle.evaluate(victim, attacks=attack, out=None, engine=brusle.Ray(1), **options),
        )
    )
    assert here == there and len(here) == 10


def test_a_published_attack_is_stopped_exactly_at_its_limit() -> None:
    model = Counting(MODEL.function)
    attack = make("foolbox:PointwiseAttack", 2, 37)
    result = attack(model.victim(), IMAGES, LABELS, batch_size=3)
    assert int(result.ledger.total.sum()) == model.seen
    failed = ~result.success
    assert failed.any() and (result.queries[failed] == 37).all()
    assert int(result.queries.max()) <= 37


@pytest.mark.parametrize("name", FOOLBOX.known)
def test_every_attack_that_is_listed_runs(name) -> None:
    targets = (LABELS + 1) % CLASSES if name == "GenAttack" else None
    attack = foolbox(name, pixels=20, queries=25, **options_of(name))
    model = Counting(MODEL.function)
    result = attack(model.victim(), IMAGES, LABELS, targets, batch_size=N)
    assert set(result.status) <= {"success", "failed", "unverified"}, result.errors
    assert int(result.ledger.total.sum()) == model.seen
    alone = pickle.loads(pickle.dumps(attack))(
        model.victim(), IMAGES[2:3], LABELS[2:3], None if targets is None else targets[2:3]
    )
    assert torch.equal(alone.images[0], result.images[2])
    assert int(alone.queries[0]) == int(result.queries[2])


@pytest.mark.parametrize("name", sorted(FOOLBOX.labels))
def test_what_is_said_to_need_labels_does_the_same_with_scores(name) -> None:
    attack = foolbox(name, pixels=20, queries=25, **options_of(name))
    labels, scores = (
        replace(attack, needs=needs)(MODEL.victim(), IMAGES, LABELS)
        for needs in ("labels", "scores")
    )
    assert torch.equal(labels.images, scores.images)
    assert torch.equal(labels.queries, scores.queries)


def test_what_is_not_listed_needs_gradients_or_more_than_a_model_and_an_image() -> None:
    """Asked of Foolbox itself: with a net that can tell, and with one image."""
    more = {"BinarizationRefinementAttack", "DatasetAttack"}  # starting points, other images
    base = fb.attacks.base.Attack
    names = {n for n, k in vars(fb.attacks).items() if isclass(k) and issubclass(k, base)}
    others = names - set(FOOLBOX.known) - more - {"Attack"}
    assert len(others) > 30 and set(FOOLBOX.known) < names

    class WithGradientsError(BaseException):
        pass

    def notices(images):
        if images.requires_grad:
            raise WithGradientsError
        return MODEL.function(images).float()

    for name in others - {n for n in others if "BrendelBethge" in n}:  # which need numba as well
        options = {"steps": 2} if name == "VirtualAdversarialAttack" else {}
        attack = getattr(fb.attacks, name)(**options)
        net = fb.models.PyTorchModel(torch.nn.Identity().eval(), bounds=(0, 1))
        net._model = notices
        epsilon = None if isinstance(attack, fb.attacks.base.MinimizationAttack) else 0.3
        with pytest.raises(WithGradientsError):
            attack(net, IMAGES[:1], fb.criteria.Misclassification(LABELS[:1]), epsilons=epsilon)
    for name in others | more:
        with pytest.raises(InputError, match="needs gradients, or more than a model and an image"):
            foolbox(name, pixels=3)


def test_the_documentation_lists_them() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "external.md").read_text()
    assert [name for name in FOOLBOX.known if not re.search(rf"`(\w+:)?{name}[`?]", page)] == []
    (spec,) = re.findall(r"`(foolbox:\w+)`", (docs / "attacks.md").read_text())
    assert make(spec, 3, 50).name == spec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("foolbox:BoundryAttack", "Foolbox has no attack 'BoundryAttack': did you mean 'Boundary"),
        ("foolbox:Repeated", "Foolbox has no attack 'Repeated': docs/external.md lists them"),
        ("foolbox:base", "Foolbox has no attack 'base'"),
        ("foolbox:__name__", "Foolbox has no attack '__name__'"),
        ("foolbox:BoundaryAttack?stps=3", "refuses its options: TypeError: .*stps"),
        ("foolbox:SpatialAttack", "SpatialAttack keeps within a distance: give epsilon="),
        ("foolbox:BoundaryAttack?epsilon=1", "looks for a small distance by itself"),
    ],
)
def test_names_that_are_none(spec, message) -> None:
    with pytest.raises(InputError, match=message):
        make(spec, 3, 20)


def test_on_the_command_line_and_again(tmp_path) -> None:
    def call(*arguments: str) -> str:
        command = [sys.executable, "-c", "from brusle.cli import main; main()", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    spec = "foolbox:SaltAndPepperNoiseAttack,steps=40"
    options = ["--attack", spec, "--goal", "untargeted", "--pixels", "30", "--queries", "40"]
    found = []
    for limit in ("10", "20"):
        said = call("evaluate", *options, "--limit", limit, "--out", "run", "--json")
        found.append(json.loads(said)["settings"][0])
    assert [one["summary"]["images"] for one in found] == [10, 20]
    assert found[1]["attack"] == "foolbox:SaltAndPepperNoiseAttack steps=40"
    checked = json.loads(call("verify", "run", "--json"))
    assert checked["sound"] == checked["rows"] == 20 and checked["held"] == checked["checked"] > 0
    listed = call("list", "attacks")
    assert "foolbox:NAME" in listed and "art:NAME" in listed
