"""x' and M are drawn once more, from seed, problem and options, and are those of the attack."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from models import additive_model, grey_images, integer_model, own_labels, random_images
from numpy_brusle import posterior_mean

import brusle
from brusle.attacks import BruSLe, Minimal, Restarts, SparseRS
from brusle.explaining.cases import Case
from brusle.explaining.synthetic import fits, synthetic_of
from brusle.search import Round

SHAPE = (3, 8, 6)
ATTACK = BruSLe(pixels=4, queries=60)


def attacked(attack, shape=SHAPE, n=6, **options):
    """A model with easy and hard images, and what became of them."""
    model, images = integer_model(shape, 5), random_images(n, shape)
    targets = model.function(images).argmin(1)
    labels = own_labels(model, images)
    return attack(model.victim(), images, labels, targets, **options)


def cases(result, attack):
    return [Case.fresh(result, at, (), attack) for at in range(len(result))]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"palette": "uniform"},
        {"palette": "gaussian"},
        {"palette": "inverted"},
        {"palette": "inverted-levels"},
        {"variant": "reference"},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [0, 7])
def test_adversarial_pixels_have_exactly_the_colours_of_x(options, seed) -> None:
    attack = replace(ATTACK, **options)
    result = attacked(attack, seed=seed)
    assert result.pixels.min() > 0
    for case in cases(result, attack):
        found, why = synthetic_of(case)
        assert found is not None and not why
        changed = (case.original != case.adversarial).any(0).numpy()
        np.testing.assert_array_equal(found.image[:, changed], case.adversarial.numpy()[:, changed])
        # the paper's formula: the mean over channels of |x - x'|
        expected = np.abs(case.original.numpy() - found.image).sum(0) / SHAPE[0]
        np.testing.assert_allclose(found.dissimilarity, expected, atol=1e-6)


def test_of_several_colours_the_one_that_differs_most_is_shown() -> None:
    attack = replace(ATTACK, colours=4)
    for case in cases(attacked(attack), attack):
        found, _ = synthetic_of(case)
        drawn = attack.synthetic(case.problem, 0)
        assert fits(drawn, case.problem, case.adversarial)
        arms = drawn.colour[0].view(48, 4, 3).numpy()
        original = case.original.flatten(1).T.numpy()
        for pixel in range(48):
            m = np.abs(arms[pixel] - original[pixel]).mean(1)
            row, column = divmod(pixel, 6)
            assert found.dissimilarity[row, column] == pytest.approx(m.max(), abs=1e-6)
            np.testing.assert_array_equal(found.image[:, row, column], arms[pixel, m.argmax()])


def test_a_problem_has_the_same_colours_alone_and_among_others() -> None:
    result = attacked(ATTACK)
    together = ATTACK.synthetic(result.problems, 0).colour
    for at in range(len(result)):
        alone = ATTACK.synthetic(result.problems[at : at + 1], 0).colour
        assert torch.equal(alone[0], together[at])


def test_without_m_there_is_none_to_show() -> None:
    attack = replace(ATTACK, dissimilarity=False)
    found, _ = synthetic_of(cases(attacked(attack), attack)[0])
    assert found is not None and found.dissimilarity is None


def test_of_restarts_the_one_that_found_the_image() -> None:
    attack = Restarts(BruSLe(2, queries=2, palette="uniform"), 8)
    model, images = integer_model(SHAPE, 5), random_images(12, SHAPE)
    result = attack(model.victim(), images, own_labels(model, images), trace=True)
    seen = set()
    for at, case in enumerate(cases(result, attack)):
        found, why = synthetic_of(case)
        assert found is not None, why
        search = result.traces[at].improvements[-1].search
        drawn = attack.attack.synthetic(case.problem, 0, search).colour[0]
        if result.status[at] == "success":
            np.testing.assert_array_equal(found.image.reshape(3, -1).T, drawn.numpy())
            seen.add(search)
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("attack", "known", "reason"),
    [
        (Minimal(ATTACK, 80), None, "several"),
        (ATTACK, replace(ATTACK, palette="image"), "is not stored"),
        (ATTACK, replace(ATTACK, palette="gaussian"), "another version"),
        (SparseRS(4, 60), None, ""),
        (ATTACK, "unknown", ""),
    ],
    ids=["minimal", "image", "other colours", "another attack", "unknown"],
)
def test_what_is_not_known_is_not_drawn(attack, known, reason) -> None:
    case = cases(attacked(attack), attack if known is None else known)[0]
    found, why = synthetic_of(case)
    assert found is None and reason in why and bool(why) == bool(reason)


def test_colours_of_an_image_that_was_given() -> None:
    attack = replace(ATTACK, palette="image")
    result = attacked(attack, starts=random_images(6, SHAPE, seed=9))
    for at, case in enumerate(cases(result, attack)):
        found, _ = synthetic_of(case)
        np.testing.assert_array_equal(found.image, result.problems.starts[at].numpy())


def test_theta_is_that_of_the_counts_of_the_paper() -> None:
    """From what was asked and answered: a and n by algorithm 4, theta by equations 6 to 8."""
    model, image = additive_model([9, 8, 7, 6, 5], 1000, (6, 5)), grey_images(1, (6, 5))
    attack = BruSLe(pixels=3, queries=60, initial=4)
    rounds: list[tuple[np.ndarray, float]] = []

    def watch(seen: Round) -> None:
        mask = np.zeros(30, bool)
        mask[seen.candidates.index[0].numpy()] = True
        rounds.append((mask, float(seen.loss[0])))

    result = attack(model.victim(), image, [0], trace=True, on_round=watch)
    explained = brusle.explain(result, attack=attack)
    a, n = np.zeros(30), np.zeros(30)
    best, lowest = rounds[0][0], np.inf
    thetas = {}
    for query, (mask, loss) in enumerate(rounds, 1):
        if query <= attack.initial:
            n += mask
        else:
            n += best | mask
            a += (best & ~mask) * (loss >= lowest)
        if loss < lowest:
            best, lowest = mask, loss
        alpha = attack.alpha_prior - 1 + (a + attack.z) / (n + attack.z)
        np.testing.assert_allclose(alpha / alpha.sum(), posterior_mean(a, n, 1.0, attack.z))
        thetas[query] = alpha
    assert [belief.query for belief in explained.trace.beliefs] == [5, 20, 50, 60]
    for belief in explained.trace.beliefs:
        theta = thetas[belief.query].reshape(6, 5)
        shade = np.ptp(theta) / 63
        assert shade > 0 and np.abs(belief.values - theta).max() <= shade / 2 + 1e-6
