"""A list of labels with confidences that do not sum to one."""

import pytest
import torch
from models import random_images

from brusle import defences
from brusle.errors import InputError
from brusle.victim import traits
from brusle.victims import wrap

CHANCES = torch.tensor([[0.9, 0.03, 0.02, 0.05], [0.005, 0.005, 0.49, 0.5], [0.25] * 4])


def answers(chances: torch.Tensor, output="probabilities"):
    return wrap(lambda images: chances[: len(images)], output=output)


def test_probabilities_become_confidences() -> None:
    listed = defences.Confidences(answers(CHANCES), half=0.01, least=0.5, most=10)
    assert listed.output == "confidences" and traits(listed).gives == "partial"
    scores = listed(random_images(3, (3, 4, 4)))
    double = CHANCES.double()
    wanted = double / (double + 0.01)
    absent = torch.zeros(3, 4, dtype=torch.bool)
    absent[1, :2] = True  # 0.005 / 0.015 is below one half
    assert torch.equal(scores, wanted.masked_fill(absent, -torch.inf))


def test_lists_are_cut_at_the_best() -> None:
    images = random_images(3, (3, 4, 4))
    scores = defences.make("confidences:0.01,0,2", answers(CHANCES))(images)
    assert (scores > -torch.inf).sum(1).tolist() == [2, 2, 2]
    assert scores[0].topk(2).indices.tolist() == [0, 3]
    empty = defences.make("confidences?least=0.99", answers(CHANCES[2:]))(images[:1])
    assert (empty == -torch.inf).all()


def test_logits_and_other_lists_become_confidences_too() -> None:
    images = random_images(3, (3, 4, 4))
    of_chances = defences.make("confidences", answers(CHANCES))(images)
    of_logits = defences.make("confidences", answers(CHANCES.log(), "logits"))(images)
    assert torch.allclose(of_chances, of_logits)
    of_best = defences.defend(answers(CHANCES), ("topk:1", "confidences"))(images)
    assert (of_best > 0).sum(1).tolist() == [1, 1, 1]


def test_the_label_is_what_makes_it_again() -> None:
    victim = answers(CHANCES)
    listed = defences.make("confidences:0.02,0.4,5", victim)
    assert listed.label == "confidences:0.02,0.4,5"
    assert defences.make(listed.label, victim) == listed
    assert traits(defences.defend(victim, ("label", "confidences"))).gives == "label"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("confidences:0", "half above 0"),
        ("confidences:0.1,2", "from 0 to 1"),
        ("confidences:0.1,0.5,0", "1 label or more"),
        ("confidences:0.1,0.5,2.5", "1 label or more"),
    ],
)
def test_bad_numbers_are_refused(spec, message) -> None:
    with pytest.raises(InputError, match=message):
        defences.make(spec, answers(CHANCES))


def test_confidences_are_not_taken_twice() -> None:
    with pytest.raises(InputError, match="gives confidences already"):
        defences.defend(answers(CHANCES), ("confidences", "confidences"))
