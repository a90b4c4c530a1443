"""What the tests of our attacks in other libraries share: a model that counts, and a comparison."""

import torch
from models import integer_model, own_labels, random_images
from torch import Tensor, nn

from brusle.attacks import BruSLe, PixelBandit, Pointwise, SigmaZero, SparseEvo, SparseRS
from brusle.ledger import COLUMNS
from brusle.results import AttackResult

SHAPE, CLASSES = (3, 8, 8), 4
MODEL = integer_model(SHAPE, CLASSES)
IMAGES = random_images(10, SHAPE)
TRUE = own_labels(MODEL, IMAGES)
TARGETS = (TRUE + 1) % CLASSES
LABELS = TRUE.clone()
LABELS[3] = (LABELS[3] + 2) % CLASSES  # one that the model gets wrong
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def _attacks(pixels: int) -> list:
    """Attacks that need scores, labels only, and gradients."""
    return [
        BruSLe(pixels, 60),
        PixelBandit(pixels, 60),
        SparseRS(pixels, 60),
        Pointwise(pixels, 300),
        SparseEvo(pixels, 150),
        SigmaZero(pixels, 60),
    ]


# some of the images withstand
MATRIX = [(attack, False) for attack in _attacks(1)] + [(attack, True) for attack in _attacks(4)]
IDS = [f"{type(one).__name__}-{'targeted' if aim else 'untargeted'}" for one, aim in MATRIX]


def starts_for(attack, targeted: bool) -> Tensor | None:
    """Images that the model says to be the targets, for the attacks that begin at such."""
    if not (targeted and attack.behaviour.needs_start):
        return None
    pool = random_images(2000, SHAPE, seed=9)
    said = own_labels(MODEL, pool)
    return torch.stack([pool[(said == target).nonzero()[0, 0]] for target in TARGETS])


class CountingNet(nn.Module):
    """The integer model as a module, with a counter of its own.

    Args:
        low: what it takes for black.
        high: what it takes for white.
        mean: what was subtracted after that; so was the division by ``std``.
        std: likewise.
        last: channels come last.
    """

    def __init__(self, low=0.0, high=1.0, mean=(0.0,), std=(1.0,), last=False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.low, self.high, self.last, self.seen = low, high, last, 0
        self.mean, self.std = (torch.tensor(v)[None, :, None, None] for v in (mean, std))

    def forward(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        if self.last:
            images = images.permute(0, 3, 1, 2)
        images = images * self.std + self.mean
        return MODEL.function((images - self.low) / (self.high - self.low))


def native(attack, targeted: bool, labels: Tensor = TRUE, seed: int = 0) -> AttackResult:
    """The attack as it is called in brusle, on the plain model."""
    starts = starts_for(attack, targeted)
    targets = TARGETS if targeted else None
    return attack(CountingNet(), IMAGES, labels, targets, seed=seed, starts=starts)


def assert_same(mine: AttackResult, other: AttackResult) -> None:
    assert mine.status == other.status
    assert torch.equal(mine.images, other.images)
    assert torch.equal(mine.queries, other.queries)
    assert torch.equal(mine.labels, other.labels)
    for column in COLUMNS:
        assert torch.equal(getattr(mine.ledger, column), getattr(other.ledger, column)), column


def asked(result: AttackResult) -> int:
    """How many images its ledger says that the model was given."""
    return int((result.ledger.total + result.ledger.lost).sum())
