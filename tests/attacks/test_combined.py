"""Restarts and ensembles: the worst case over searches, with all queries counted."""

import pytest
import torch
from models import integer_model, own_labels, random_images

from brusle.attacks import BruSLe, Ensemble, Restarts
from brusle.errors import InputError

SHAPE = (3, 10, 10)


def problem(n=30, classes=5):
    model = integer_model(SHAPE, classes)
    images = random_images(n, SHAPE)
    return model, images, own_labels(model, images)


def test_one_restart_is_the_attack_itself() -> None:
    model, images, labels = problem()
    attack = BruSLe(3, 20)
    alone, once = (a(model.victim(), images, labels) for a in (attack, Restarts(attack, 1)))
    assert alone.status == once.status
    assert torch.equal(alone.queries, once.queries) and torch.equal(alone.images, once.images)


def test_restarts_add_up_the_queries_of_failures() -> None:
    model, images, labels = problem()
    attack = BruSLe(3, 20)
    first = attack(model.victim(), images, labels)
    more = Restarts(attack, 4)(model.victim(), images, labels)
    solved = first.success
    assert torch.equal(more.queries[solved], first.queries[solved])
    later = more.success & ~solved
    assert later.any()  # or the test would show little
    assert (more.queries[later] > 20).all()
    assert (more.queries[~more.success] == 80).all()
    assert (more.losses[~more.success] <= first.losses[~more.success]).all()


def test_a_restart_has_other_random_numbers() -> None:
    model, images, labels = problem()
    attack = BruSLe(1, 1)
    results = [Restarts(attack, times)(model.victim(), images, labels) for times in (1, 2)]
    failed = ~results[1].success
    assert (results[0].losses[failed] > results[1].losses[failed]).any()


def test_an_ensemble_gives_the_next_attack_only_what_is_left() -> None:
    model, images, labels = problem()
    weak, strong = BruSLe(2, 15), BruSLe(2, 60, palette="uniform")
    alone = {a: a(model.victim(), images, labels) for a in (weak, strong)}
    model.seen = 0
    both = Ensemble([weak, strong])(model.victim(), images, labels)
    first = alone[weak].success
    assert both.success.tolist() == (first | alone[strong].success).tolist()
    spent = torch.where(first, alone[weak].queries, 15 + alone[strong].queries)
    assert torch.equal(both.queries, spent)
    assert int(both.ledger.total.sum()) == model.seen
    names = {True: weak.label, False: strong.label}
    expected = [names[f] if s else "" for f, s in zip(first.tolist(), both.success, strict=True)]
    assert both.found_by == expected
    assert {weak.label, strong.label} <= set(both.found_by)


def test_labels_name_what_differs() -> None:
    assert BruSLe(2, 60).label == "BruSLe"
    assert BruSLe(2, palette="uniform").label == "BruSLe palette=uniform"
    assert Restarts(BruSLe(2), 3).label == "BruSLe x 3"
    assert Ensemble([BruSLe(2)], "mine").label == "mine"


def test_bad_combinations() -> None:
    with pytest.raises(InputError, match=r"budgets of \[2, 3\] pixels: give all the same"):
        Ensemble([BruSLe(2), BruSLe(3)])
    with pytest.raises(InputError, match="at least one attack"):
        Ensemble([])
    with pytest.raises(InputError, match="times is 0"):
        Restarts(BruSLe(2), 0)
