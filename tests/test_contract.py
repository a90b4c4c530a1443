"""What every attack promises, whatever it does inside: one table of attacks, one set of tests."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from models import Counting, additive_model, grey_images, integer_model, own_labels, random_images
from strangers import fewer_and_fewer, random_colours

from brusle import rng
from brusle.attacks import (
    L0HSJA,
    PGD0,
    BayesOpt,
    BruSLe,
    Ensemble,
    External,
    Minimal,
    OnePixel,
    PixelBandit,
    Pointwise,
    Restarts,
    SigmaZero,
    SparseEvo,
    SparseRS,
)
from brusle.attacks.pixel_bandit.prior import Prior
from brusle.errors import InputError, VictimError
from brusle.problems import Problems, flatten_pixels
from brusle.results import AttackResult
from brusle.search import Round
from brusle.victims import wrap

ATTACKS = {
    "brusle": lambda pixels, queries: BruSLe(pixels, queries),
    "brusle-reference": lambda pixels, queries: BruSLe(pixels, queries, variant="reference"),
    "brusle-two-colours": lambda pixels, queries: BruSLe(
        pixels, queries, colours=2, palette="uniform", schedule="cosine", dissimilarity=False
    ),
    "brusle-inverted": lambda pixels, queries: BruSLe(
        pixels,
        queries,
        palette="inverted",
        schedule="step-decay",
        loss="logit-margin",
        initial=3,
        alpha_prior=1.5,
    ),
    "brusle-printed": lambda pixels, queries: BruSLe(
        pixels, queries, palette="inverted-levels", schedule="printed"
    ),
    "pixel-bandit": lambda pixels, queries: PixelBandit(pixels, queries, initial=3, memory=20),
    "pixel-bandit-large": lambda pixels, queries: _LargePixelBandit(pixels, queries, memory=20),
    "sparse-rs": lambda pixels, queries: SparseRS(pixels, queries),
    "sparse-rs-feature": lambda pixels, queries: SparseRS(
        pixels, queries, space="feature", loss="ce"
    ),
    "sparse-rs-synthetic": lambda pixels, queries: SparseRS(pixels, queries, synthetic=True),
    "sparse-evo": lambda pixels, queries: SparseEvo(pixels, queries),
    "sparse-evo-loss": lambda pixels, queries: SparseEvo(pixels, queries, variant="loss"),
    "sparse-evo-synthetic": lambda pixels, queries: SparseEvo(pixels, queries, variant="synthetic"),
    "pointwise": lambda pixels, queries: Pointwise(pixels, queries),
    "l0-hsja": lambda pixels, queries: L0HSJA(pixels, queries, probes=8),
    "l0-hsja-authors": lambda pixels, queries: L0HSJA(
        pixels, queries, probes=8, projection="authors"
    ),
    "one-pixel": lambda pixels, queries: OnePixel(pixels, queries),
    "one-pixel-torchattacks": lambda pixels, queries: OnePixel(
        pixels, queries, variant="torchattacks"
    ),
    "bayes-opt": lambda pixels, queries: BayesOpt(
        pixels, queries, initial=4, candidates=40, refit=10
    ),
    "pgd0": lambda pixels, queries: PGD0(pixels, queries, loss="logit-margin"),
    "sigma-zero": lambda pixels, queries: SigmaZero(pixels, queries),
    "external": lambda pixels, queries: External(random_colours, pixels, queries, shrinks=False),
    "external-shrinking": lambda pixels, queries: External(
        fewer_and_fewer, pixels, queries, arrays="numpy", levels=True
    ),
    "restarts": lambda pixels, queries: _restarts(pixels, queries),
    "ensemble": lambda pixels, queries: _ensemble(pixels, queries),
    "minimal": lambda pixels, queries: Minimal(BruSLe(pixels, max(1, queries // 2)), queries),
}


@dataclass(frozen=True)
class _LargePixelBandit(PixelBandit):
    """As in images that are too large for an effect per pixel."""

    def prior_of(self, problems: Problems) -> Prior:
        c, h, w = problems.shape
        return Prior.of(h, w, c, max(h, w) / 8, problems.images.device, most=6)


def _restarts(pixels: int, queries: int) -> Restarts:
    times = next(times for times in (3, 2, 1) if queries % times == 0)
    return Restarts(BruSLe(pixels, queries // times), times)


def _ensemble(pixels: int, queries: int) -> Ensemble:
    second = [BruSLe(pixels, queries // 2, palette="uniform")] if queries > 1 else []
    return Ensemble([BruSLe(pixels, queries - queries // 2), *second])


SHAPE, CLASSES, PIXELS, QUERIES = (3, 12, 12), 5, 3, 40
SLOW_STARTERS = ("sparse-evo", "sparse-evo-loss", "pointwise", "l0-hsja", "l0-hsja-authors")
attacks = pytest.mark.parametrize("name", ATTACKS)
goals = pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])


class Case:
    """A victim with problems for it: targets and starting images as well, if targeted."""

    def __init__(self, n: int, targeted: bool, shape=SHAPE, classes=CLASSES) -> None:
        self.model = integer_model(shape, classes)
        self.images = random_images(n, shape)
        self.labels = own_labels(self.model, self.images)
        self.targets, self.starts = None, None
        if targeted:
            self.targets = (self.labels + 1 + torch.arange(n) % (classes - 1)) % classes
            self.starts = self._images_of(self.targets, shape)

    @property
    def flat(self) -> torch.Tensor:
        return flatten_pixels(self.images)

    def _images_of(self, classes: torch.Tensor, shape) -> torch.Tensor:
        """Random images that the model sees as ``classes``; any image if it never sees one."""
        pool = random_images(4000, shape, seed=1)
        seen = own_labels(self.model, pool)
        first = [int((seen == c).int().argmax()) for c in classes]
        return pool[first]

    def attack(self, attack, turn=slice(None), victim=None, **options) -> AttackResult:
        def pick(values):
            return None if values is None else values[turn]

        return attack(
            victim or self.model.victim(),
            self.images[turn],
            self.labels[turn],
            pick(self.targets),
            starts=pick(self.starts),
            **options,
        )


class Moody(Counting):
    """A victim that gets ``mood(images, mine)`` to decide what to do about one problem's images.

    Candidates of some attacks look nothing like their image. What tells whose they are is the key
    that the oracle gives for random numbers: a function of the problem and of how often it was
    asked. With gradients there is no key, but enough of the image is left to tell.
    """

    differentiable, output, device, name = True, "logits", torch.device("cpu"), "moody"

    def __init__(self, case: Case, problem: int, mood) -> None:
        super().__init__(case.model.function)
        self.problem, self.images, self.mood = problem, case.images, mood
        ids = Problems.make(case.images, case.labels).ids
        stream = rng.streams(0, ids[problem].repeat(1000))
        self.keys = rng.seeds(stream, torch.arange(1000))

    def draw(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return self._answer(images, torch.isin(keys, self.keys))

    def graph(self, images: torch.Tensor) -> torch.Tensor:
        same = (images[:, None] == self.images).flatten(2).sum(2)
        return self._answer(images, same.argmax(1) == self.problem)

    def _answer(self, images: torch.Tensor, mine: torch.Tensor) -> torch.Tensor:
        scores = self(images)
        return self.mood(images, scores, mine)


def rows(result: AttackResult) -> dict[int, tuple]:
    """Everything a row says, by problem id."""
    return {
        int(result.problems.ids[i]): (
            result.status[i],
            int(result.queries[i]),
            int(result.pixels[i]),
            int(result.labels[i]),
            repr(float(result.losses[i])),  # NaN, where no start was found, equals NaN
            result.images[i].numpy().tobytes(),
            tuple(result.ledger.row(i).items()),
        )
        for i in range(len(result))
    }


@attacks
@goals
def test_ledger_equals_a_counter_inside_the_model(name, targeted) -> None:
    case = Case(40, targeted)
    case.labels[:3] = (case.labels[:3] + 1) % CLASSES  # some are wrong from the start
    if targeted:
        case.targets[:3] = (case.labels[:3] + 1) % CLASSES
    attack = ATTACKS[name](PIXELS, QUERIES)
    result = case.attack(attack, batch_size=16)
    assert int(result.ledger.total.sum()) == case.model.seen
    assert int(result.ledger.lost.sum()) == 0
    assert result.ledger.clean.tolist() == [1] * 40
    assert torch.equal(result.queries, result.ledger.initial + result.ledger.search)
    assert result.status[:3] == ["skipped"] * 3
    assert result.queries[:3].tolist() == [0, 0, 0]
    assert torch.equal(result.ledger.verify.bool(), result.success)
    backward = result.ledger.backward
    if attack.behaviour.needs == "gradients":
        assert torch.equal(backward, result.queries)
    else:
        assert int(backward.sum()) == 0
    assert "failed" in result.status
    assert name in SLOW_STARTERS or "success" in result.status


@attacks
@goals
def test_rows_do_not_depend_on_batch_size_or_order(name, targeted) -> None:
    case = Case(20, targeted)
    attack = ATTACKS[name](PIXELS, QUERIES)
    expected = rows(case.attack(attack, seed=3, batch_size=64))
    order = torch.randperm(20, generator=torch.Generator().manual_seed(9))
    for batch_size, turn in ((1, slice(None)), (7, order), (64, order)):
        got = case.attack(attack, turn, seed=3, batch_size=batch_size)
        assert rows(got) == expected
    if name != "sigma-zero":  # which draws no random numbers
        assert rows(case.attack(attack, seed=4, batch_size=64)) != expected


@attacks
@goals
def test_whoever_watches_sees_every_query_once_and_changes_nothing(name, targeted) -> None:
    case = Case(12, targeted)
    attack = ATTACKS[name](PIXELS, QUERIES)
    expected, unwatched = rows(case.attack(attack, batch_size=5)), case.model.seen
    seen = torch.zeros(12, dtype=torch.int64)

    def watch(round: Round) -> None:
        seen[round.rows] += 1
        count = len(round.rows)
        assert len(round.rows.unique()) == count
        assert len(round.step) == len(round.feedback.loss) == count
        assert len(round.candidates.render(case.flat[round.rows], SHAPE)) == count

    result = case.attack(attack, batch_size=5, on_round=watch)
    assert rows(result) == expected
    assert case.model.seen == 2 * unwatched
    before = result.ledger.attack - seen  # what it took to find where to begin
    if not attack.behaviour.needs_start:
        assert before.tolist() == [0] * 12
    else:
        assert before.tolist() == [1] * 12 if targeted else int(before.min()) >= 1


@attacks
@goals
def test_success_survives_png_and_stays_within_budget(name, targeted) -> None:
    from brusle.verify import png_round_trip

    case = Case(60, targeted)
    attack = ATTACKS[name](PIXELS, QUERIES)
    result = case.attack(attack)
    changed = (result.images != case.images).any(1).flatten(1).sum(1)
    assert torch.equal(result.pixels, changed)
    # what walks towards fewer pixels may end with too many, as a failure
    bound = result.success if attack.behaviour.shrinks else torch.ones(60, dtype=torch.bool)
    assert max(changed[bound].tolist(), default=0) <= PIXELS
    assert result.images.min() >= 0 and result.images.max() <= 1
    assert "unverified" not in result.status
    for i in result.success.nonzero()[:, 0].tolist():
        saved = torch.from_numpy(png_round_trip(result.images[i : i + 1].numpy()))
        label = int(case.model.function(saved).argmax())
        assert label == int(result.labels[i])
        assert label == int(case.targets[i]) if targeted else label != int(case.labels[i])
    assert int(result.success.sum()) < 60
    assert name in SLOW_STARTERS or result.success.any()


@attacks
@pytest.mark.parametrize("queries", [1, 2, 9, 10, 11, 25])
def test_never_one_query_over(name, queries) -> None:
    case = Case(20, False)
    result = case.attack(ATTACKS[name](1, queries), batch_size=6)
    spent = result.queries
    assert int(spent.max()) <= queries
    failed = torch.tensor([s == "failed" for s in result.status])
    assert failed.any()
    assert (spent[failed] == queries).all()
    assert int(result.ledger.total.sum()) == case.model.seen


@attacks
@pytest.mark.parametrize(
    ("shape", "classes", "n"),
    [
        ((3, 8, 8), 5, 1),  # a single image
        ((1, 6, 6), 3, 9),  # one channel
        ((3, 5, 11), 4, 9),  # not square
        ((4, 7, 3), 4, 9),  # four channels
        ((5, 4, 4), 3, 9),  # more channels than any picture format
        ((3, 6, 6), 2, 9),  # two classes
        ((3, 6, 6), 1000, 9),  # a thousand classes
        ((2, 1, 9), 3, 9),  # one row of pixels
    ],
)
def test_odd_shapes(name, shape, classes, n) -> None:
    attack = ATTACKS[name](3, 30)
    for targeted in (False, True):
        case = Case(n, targeted, shape, classes)
        result = case.attack(attack, batch_size=4)
        assert int(result.ledger.total.sum()) == case.model.seen
        assert max(result.pixels[result.success].tolist(), default=0) <= 3
        # of a thousand classes, not all have a starting image
        if classes < 1000 or name not in SLOW_STARTERS:
            assert set(result.status) <= {"success", "failed"}


@attacks
def test_budget_of_the_whole_image_and_of_one_pixel(name) -> None:
    case = Case(6, False, (3, 3, 3))
    for pixels in (1, 9):
        result = case.attack(ATTACKS[name](pixels, 20))
        assert max(result.pixels[result.success].tolist(), default=0) <= pixels
        assert "unverified" not in result.status


@attacks
def test_all_misclassified(name) -> None:
    case = Case(5, False)
    case.labels = (case.labels + 1) % CLASSES
    result = case.attack(ATTACKS[name](2, 20))
    assert result.status == ["skipped"] * 5
    assert np.isnan(result.asr())
    assert result.robust_accuracy == 0
    assert case.model.seen == 5


@attacks
@pytest.mark.parametrize("batch_size", [1, 8, 64])
def test_one_failing_image_gets_an_error_row_and_the_rest_finish(name, batch_size) -> None:
    case = Case(20, False)
    attack = ATTACKS[name](2, 30)
    clean = rows(case.attack(attack, batch_size=batch_size))
    calls = 0

    def breaks(images, scores, mine):
        nonlocal calls
        calls += int(mine.any())
        if mine.any() and calls > 3:
            raise RuntimeError("out of luck\nwith a long story")
        return scores

    stubborn = 10  # no attack breaks this one before the victim does
    moody = Moody(case, stubborn, breaks)
    result = case.attack(attack, victim=moody, batch_size=batch_size)
    assert [i for i, s in enumerate(result.status) if s == "error"] == [stubborn]
    assert result.errors[stubborn] == "the victim raised RuntimeError: out of luck"
    got = rows(result)
    mine = int(result.problems.ids[stubborn])
    for key, row in clean.items():
        if key != mine:
            # all but the lost queries, which the neighbours of a failing image share
            assert got[key][:6] == row[:6]
    assert int(result.ledger.total.sum() + result.ledger.lost.sum()) == moody.seen
    assert result.robust_accuracy == result.status.count("failed") / 19


@attacks
def test_nan_scores_are_an_error_of_that_image_only(name) -> None:
    case = Case(10, False)

    def sometimes_nan(images, scores, mine):
        hit = mine & (images != case.images[4]).flatten(1).any(1)
        return scores.masked_fill(hit[:, None], torch.nan)

    moody = Moody(case, 4, sometimes_nan)
    result = case.attack(ATTACKS[name](2, 30), victim=moody)
    assert [i for i, s in enumerate(result.status) if s == "error"] == [4]
    assert "NaN or infinite" in result.errors[4]


@pytest.mark.parametrize("name", ["brusle", "brusle-reference"])  # whose colours are black, white
@pytest.mark.parametrize(
    ("budget", "expected"), [(1, "failed"), (3, "failed"), (4, "success"), (6, "success")]
)
@goals
def test_known_optimum_of_an_additive_model(name, targeted, budget, expected) -> None:
    # 8 + 7 + 6 = 21 is not enough, 8 + 7 + 6 + 4 = 25 is: four pixels are needed
    model = additive_model([8, 7, 6, 5, 4, 3, 2, 1, 1, 1], threshold=25, shape=(6, 6))
    images = grey_images(12, (6, 6))
    attack = ATTACKS[name](budget, 1500)
    result = attack(model.victim(), images, 0, 1 if targeted else None, ids=range(12))
    assert result.status == [expected] * 12
    if expected == "success":
        assert int(result.pixels.min()) >= 4


@pytest.mark.parametrize("bad", [{"pixels": 0}, {"pixels": 2.5}, {"queries": 0}, {"pixels": True}])
def test_budgets_must_be_positive_integers(bad) -> None:
    with pytest.raises(InputError, match="must be an integer of at least 1"):
        BruSLe(**{"pixels": 3, "queries": 5, **bad})


@attacks
def test_bad_requests_cost_no_query(name) -> None:
    case = Case(4, False)
    model, images, labels = case.model, case.images, case.labels
    with pytest.raises(InputError, match="12 x 12 has 144"):
        ATTACKS[name](145, 5)(model.victim(), images, labels)
    with pytest.raises(InputError, match="target of image 0 equals"):
        ATTACKS[name](3, 5)(model.victim(), images, labels, labels)
    with pytest.raises(InputError, match="batch_size is 0"):
        ATTACKS[name](3, 5)(model.victim(), images, labels, batch_size=0)
    assert model.seen == 0
    with pytest.raises(InputError, match="out of range: the victim has 5 classes"):
        ATTACKS[name](3, 5)(model.victim(), images, [1, 2, 3, 5])
    assert model.seen == 4


@attacks
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: torch.zeros(len(x)), "shape \\(4,\\): scores must be \\(4, classes\\)"),
        (lambda x: torch.zeros(len(x), 1), "at least 2 classes"),
        (lambda x: torch.zeros(1, 5), "answered 4 images with shape \\(1, 5\\)"),
        (lambda x: torch.full((len(x), 5), torch.nan), "no clean image could be classified.*NaN"),
        (lambda x: x.no_such_method(), "no clean image could be classified.*AttributeError"),
        (lambda x: "scores", "no array of scores"),
    ],
)
def test_a_victim_that_answers_nonsense_stops_the_run(name, function, message) -> None:
    with pytest.raises(VictimError, match=message):
        ATTACKS[name](3, 5)(
            wrap(function, output="logits", differentiable=True),
            random_images(4, SHAPE),
            [0, 1, 2, 3],
            batch_size=4,
        )
