"""Defences: what they do to images and scores, and what attacks, ledger and result make of it."""

import io
import math

import numpy as np
import pytest
import torch
from installed import install
from models import Counting, integer_model, own_labels, random_images
from PIL import Image

from brusle import defences
from brusle.attacks import BruSLe
from brusle.errors import InputError
from brusle.oracle import Oracle
from brusle.victim import traits
from brusle.victims import timed, wrap
from brusle.victims.wrappers import named

SHAPE = (3, 8, 8)
KEYS = torch.arange(6)


def revealing() -> Counting:
    return Counting(lambda images: images.flatten(1))


def test_noise_has_the_stated_size_and_is_a_function_of_the_key() -> None:
    images = torch.full((6, 3, 40, 40), 0.5)
    victim = defences.RandomNoise(revealing().victim(), 0.1)
    noise = victim.draw(images, KEYS) - 0.5
    assert abs(float(noise.std()) - 0.1) < 0.002 and abs(float(noise.mean())) < 0.002
    alone = victim.draw(images[:1], KEYS[4:5]) - 0.5
    assert torch.equal(alone[0], noise[4])
    assert not torch.equal(noise[0], noise[1])


def test_two_noises_are_not_the_same_noise() -> None:
    images = torch.full((6, 3, 40, 40), 0.5)
    twice = defences.RandomNoise(defences.RandomNoise(revealing().victim(), 0.1), 0.1)
    spread = float((twice.draw(images, KEYS) - 0.5).std())
    assert abs(spread - 0.1 * 2**0.5) < 0.003


def test_median_filter_removes_a_single_pixel_and_equals_numpy() -> None:
    images = random_images(2, SHAPE)
    filtered = defences.MedianFilter(revealing().victim(), 3).before(images, KEYS)
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect")
    for row, column in ((0, 0), (3, 5), (7, 7)):
        window = padded[:, :, row : row + 3, column : column + 3].reshape(2, 3, 9)
        assert np.allclose(filtered[:, :, row, column], np.median(window, axis=2))
    spot = torch.zeros(1, 3, 8, 8)
    spot[:, :, 4, 4] = 1
    assert not defences.MedianFilter(revealing().victim(), 3).before(spot, KEYS).any()


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_equals_pillow(channels) -> None:
    images = random_images(2, (channels, 16, 16))
    out = defences.Jpeg(revealing().victim(), 40).before(images, KEYS)
    levels = (images[1].permute(1, 2, 0) * 255).round().byte().numpy()
    file = io.BytesIO()
    Image.fromarray(levels.squeeze()).save(file, "JPEG", quality=40)
    expected = np.asarray(Image.open(file)).reshape(levels.shape)
    assert np.array_equal((out[1].permute(1, 2, 0) * 255).round().byte().numpy(), expected)


def test_scores_are_rounded_cut_to_the_best_and_to_the_label() -> None:
    table = torch.tensor([[0.612, 0.284, 0.104], [0.2, 0.1, 0.7]], dtype=torch.float64)
    victim = wrap(lambda images: table[: len(images)], output="probabilities")
    images = torch.zeros(2, 1, 2, 2)
    rounded = defences.RoundScores(victim, 1)
    assert rounded(images).tolist() == [[0.6, 0.3, 0.1], [0.2, 0.1, 0.7]]
    top = defences.TopScores(victim, 2)
    assert top(images).tolist() == [[0.612, 0.284, -math.inf], [0.2, -math.inf, 0.7]]
    label = defences.LabelOnly(victim)
    assert label(images).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert [traits(v).gives for v in (rounded, top, label)] == ["scores", "partial", "label"]
    assert traits(defences.TopScores(label, 2)).gives == "label"


def test_score_defences_turn_logits_into_probabilities() -> None:
    victim = wrap(lambda images: torch.tensor([[0.0, 2.0]]), output="logits")
    defended = defences.RoundScores(victim, 3)
    assert defended.output == "probabilities"
    assert defended(torch.zeros(1, 1, 2, 2)).tolist() == [[0.119, 0.881]]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("rdn:0.02", "unknown defence 'rdn:0.02': did you mean 'rnd'?"),
        ("rnd:much", "'much' is no number"),
        ("rnd:-1", "rnd needs a standard deviation above 0, not -1"),
        ("median:4", "median needs an odd size of 3 or more, not 4"),
        ("jpeg:200", "jpeg needs a quality from 1 to 95, not 200"),
        ("topk:0", "topk needs k of 1 or more: 0"),
        ("label:3", "too many or too few values"),
        ("rnd?sigma=much", "'much' is no number"),
        ("rnd?sigma=true", "'true' is no number"),
        ("rnd?sigma", "option 'sigma' of 'rnd?sigma' has no value: write sigma=VALUE"),
        ("rnd?sigmo=1", "'rnd?sigmo=1' has no option 'sigmo': did you mean 'sigma'?"),
        ("rnd?sigma=1&sigma=2", "option 'sigma' of 'rnd?sigma=1&sigma=2' is given twice"),
        ("rnd:0.1?sigma=0.2", "too many or too few values"),
    ],
)
def test_says_what_is_wrong_with_a_spec(spec, message) -> None:
    with pytest.raises(InputError) as error:
        defences.make(spec, revealing().victim())
    assert message in str(error.value)


def test_a_spec_and_its_name_are_the_same() -> None:
    victim = revealing().victim()
    for spec in ("rnd:0.02", "median:3", "jpeg:75", "round:2", "topk:5", "label"):
        assert defences.make(spec, victim).name == f"counting + {spec}"
    for spec, short in (("rnd?sigma=0.5", "rnd:0.5"), ("topk?k=2", "topk:2"), ("label?", "label")):
        assert defences.make(spec, victim) == defences.make(short, victim)


def noisy_problem(n: int = 12, sigma: float = 0.1):
    model = integer_model(SHAPE, 5)
    images = random_images(n, SHAPE)
    return model, defences.RandomNoise(model.victim(), sigma), images, own_labels(model, images)


@pytest.mark.parametrize("eot", [1, 3])
def test_every_draw_is_counted_and_the_limit_holds(eot) -> None:
    model, victim, images, labels = noisy_problem()
    result = BruSLe(4, 20)(victim, images, labels, eot=eot)
    assert int(result.ledger.total.sum()) == model.seen
    assert int(result.ledger.attack.max()) <= 20
    assert (result.ledger.clean == eot).all()
    assert (result.ledger.attack % eot == 0).all()
    failed = torch.tensor([status == "failed" for status in result.status])
    assert (result.queries[failed] == 20 - 20 % eot).all()
    # fresh draws of each hit, one by one whatever the attack averaged over
    hits = torch.tensor([status in ("success", "unverified") for status in result.status])
    assert torch.equal(result.ledger.verify, 20 * hits.long())


def test_a_noisy_result_does_not_depend_on_batch_size_or_order() -> None:
    _, victim, images, labels = noisy_problem(20)
    attack = BruSLe(4, 15)
    one = attack(victim, images, labels, batch_size=1, eot=2)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    many = attack(victim, images[order], labels[order], batch_size=7, eot=2)
    assert [one.status[i] for i in order] == many.status
    assert torch.equal(one.queries[order], many.queries)
    assert torch.equal(one.stable[order], many.stable)
    other = attack(victim, images, labels, batch_size=1, eot=2, seed=1)
    assert not torch.equal(one.queries, other.queries)


def test_averages_the_answers_of_a_randomised_victim() -> None:
    calls = iter([[0.0, 1.0], [0.0, 3.0], [6.0, 2.0]])
    victim = wrap(lambda images: torch.tensor([next(calls)]), output="logits", randomised=True)
    oracle = Oracle(victim, 1, limit=10, batch_size=4, eot=3)
    answers = oracle.ask(torch.tensor([0]), torch.zeros(1, 1, 2, 2), "search")
    assert answers.values.tolist() == [[2.0, 2.0]]
    assert int(oracle.ledger.search[0]) == 3


def test_first_hit_and_stable_success_differ() -> None:
    """A victim that changes its mind on any changed pixel: with probability 0.3, or 0.8."""

    class Moody:
        name, output, device, randomised = "moody", "logits", torch.device("cpu"), True

        def __init__(self, chance: float) -> None:
            self.chance = chance

        def draw(self, images, keys):
            changed = ((images - 0.5).abs() > 0.1).flatten(1).any(1)
            uniform = torch.tensor(
                [torch.rand(1, generator=torch.Generator().manual_seed(k)) for k in keys.tolist()]
            )
            fooled = (changed & (uniform < self.chance)).double()
            return torch.stack([1 - fooled, fooled], 1) * 2

        __call__ = None

    images = torch.full((30, 1, 6, 6), 128 / 255)
    for chance, stable in ((0.3, 0.0), (0.8, 1.0)):
        result = BruSLe(2, 40)(Moody(chance), images, 0, ids=range(30))
        assert result.asr() == 1.0 and result.randomised
        assert abs(result.stable_asr - stable) < 0.15
        assert f"stable {result.stable_asr:.3f}" in repr(result)


def test_averaging_a_deterministic_victim_is_refused() -> None:
    model = integer_model(SHAPE, 4)
    with pytest.raises(InputError, match="is not randomised and would give the same answer 4"):
        BruSLe(2, 20)(model.victim(), random_images(1, SHAPE), 0, eot=4)
    _, victim, images, labels = noisy_problem(1)
    with pytest.raises(InputError, match="5 queries are not enough for one answer of eot=8"):
        BruSLe(2, 5)(victim, images, labels, eot=8)


def test_says_when_the_search_is_blind() -> None:
    model = integer_model(SHAPE, 5)
    images = random_images(2, SHAPE)
    labels = own_labels(model, images)
    with pytest.raises(InputError, match="label gives only the label: take an attack that needs"):
        BruSLe(2, 3)(defences.make("label", model.victim()), images, labels)
    assert model.seen == 0
    notes = {
        spec: BruSLe(2, 3)(defences.make(spec, model.victim()), images, labels).notes
        for spec in ("topk:2", "round:3")
    }
    assert "best classes only" in notes["topk:2"][0]
    assert notes["round:3"] == []


def test_on_a_deterministic_victim_stable_is_success() -> None:
    model = integer_model(SHAPE, 5)
    images = random_images(12, SHAPE)
    result = BruSLe(4, 60)(model.victim(), images, own_labels(model, images))
    assert result.success.any()
    assert torch.equal(result.stable, result.success) and not result.randomised


def test_a_defended_victim_is_taken_apart() -> None:
    victim = wrap(lambda x: x.flatten(1)[:, :4], output="logits", name="a + b")
    specs = ("rnd:0.02", "median:3", "label")
    defended = timed(defences.defend(victim, specs), 5)
    assert defences.taken_apart(defended) == (victim, specs)
    factory = named(
        defended, "python:mine:make"
    )  # what it returns is the victim, with all defences
    assert defences.taken_apart(factory) == (factory, ())


def test_a_defence_of_a_plugin_is_taken_apart_too(tmp_path, monkeypatch) -> None:
    """A plugin may return anything; what it was called with is what is written down."""
    code = "def build(victim, height):\n    return victim\n"
    install(tmp_path, "walls", code, defences={"wall": "build"})
    monkeypatch.syspath_prepend(tmp_path)
    victim = wrap(lambda x: x.flatten(1)[:, :4], output="logits", name="mine")
    defended = defences.defend(victim, ("jpeg:75", "wall:3", "label"))
    assert defended.name == "mine + jpeg:75 + wall:3 + label"
    assert defences.taken_apart(defended) == (victim, ("jpeg:75", "wall:3", "label"))
    assert defended(torch.rand(2, 3, 4, 4)).shape == (2, 4)
