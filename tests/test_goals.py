import math

import pytest
import torch

from brusle.errors import InputError
from brusle.goals import Goal
from brusle.scores import Meaning, Scores

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]])
P = [[math.exp(v) / sum(map(math.exp, row)) for v in row] for row in LOGITS.tolist()]
LABELS, TARGETS = torch.tensor([0, 0]), torch.tensor([1, 1])


@pytest.mark.parametrize(
    ("targeted", "loss", "expected"),
    [
        (True, "ce", [-math.log(P[0][1]), -math.log(P[1][1])]),
        (True, "margin", [P[0][0] - P[0][1], P[1][2] - P[1][1]]),
        (True, "logit-margin", [1.0, -2.0]),
        (False, "ce", [math.log(P[0][0]), math.log(P[1][0])]),
        (False, "margin", [P[0][0] - P[0][1], P[1][0] - P[1][1]]),
        (False, "logit-margin", [1.0, -3.0]),
    ],
)
def test_losses_by_hand(targeted, loss, expected) -> None:
    goal = Goal(targeted, loss)
    targets = TARGETS if targeted else None
    assert goal.losses(Scores(LOGITS), LABELS, targets).tolist() == pytest.approx(
        expected, rel=1e-6
    )
    probabilities = Scores(torch.tensor(P, dtype=torch.float64), Meaning("probabilities"))
    got = goal.losses(probabilities, LABELS, targets)
    assert got.tolist() == pytest.approx(expected, rel=1e-6)


def test_margin_still_moves_where_float32_softmax_is_saturated() -> None:
    close = torch.tensor([[30.0, 0.0], [30.5, 0.0]])
    assert float(close.softmax(1)[0, 0]) == 1.0
    losses = Goal(False, "margin").losses(Scores(close), torch.zeros(2, dtype=torch.int64), None)
    assert losses[0] < losses[1]


def test_reached_is_strict() -> None:
    scores = Scores(torch.tensor([[1.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 1.0, 2.0]]))
    labels, targets = torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64)
    assert Goal(False, "margin").reached(scores, labels, None).tolist() == [False, True, True]
    assert Goal(True, "ce").reached(scores, labels, targets).tolist() == [False, True, False]


def test_unknown_loss_and_missing_targets() -> None:
    with pytest.raises(InputError, match="choose from ce, margin"):
        Goal(True, "hinge")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="targets="):
        Goal(True, "ce").losses(Scores(LOGITS), LABELS, None)
