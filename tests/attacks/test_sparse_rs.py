import math

import numpy as np
import pytest
import torch
from driving import begin, feedback
from models import additive_model, grey_images, integer_model, own_labels, random_images

from brusle.attacks import palettes
from brusle.attacks.drawing import draw_unused
from brusle.attacks.sparse_rs import SparseRS, moved, unlike
from brusle.errors import InputError
from brusle.problems import Edits, Problems
from brusle.rng import streams
from brusle.scores import Meaning
from brusle.search import Feedback

SHAPE, CLASSES = (3, 8, 8), 5
goals = pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])
KINDS = {"pixel": {}, "feature": {"space": "feature"}, "synthetic": {"synthetic": True}}
kinds = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)


def failures(losses: torch.Tensor) -> Feedback:
    n = len(losses)
    return feedback(losses, torch.zeros(n, dtype=torch.bool), torch.zeros(n, CLASSES))


def sparse_rs_in_numpy(ask, x, loss_of, reached, pixels, queries, alpha, generator, options):
    """One attack, written from the description of the method; return the queries to success."""
    c, h, w = x.shape
    units = x.reshape(c * h * w, 1) if "space" in options else x.reshape(c, h * w).T

    def colours(count):
        return generator.integers(0, 2, (count, units.shape[1])).astype(np.float32)

    def image_of(places, colour):
        new = units.copy()
        new[places] = colour
        return new.reshape(c, h, w) if "space" in options else new.T.reshape(c, h, w)

    fixed = colours(len(units)) if "synthetic" in options else None
    places = generator.choice(len(units), pixels, replace=False)
    colour = colours(pixels) if fixed is None else fixed[places]
    best = math.inf
    candidate = places, colour
    for asked in range(queries):
        if asked > 0:
            ends = np.array([0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0])
            divisor = (2, 4, 5, 6, 8, 10, 12, 15, 20)[(asked / queries > ends + 1e-9).sum()]
            count = max(int(alpha / divisor * pixels), 1)
            slots = generator.choice(pixels, count, replace=False)
            free = np.setdiff1d(np.arange(len(units)), places)
            there = generator.choice(free, count, replace=False)
            candidate = places.copy(), colour.copy()
            candidate[0][slots] = there
            new = colours(count) if fixed is None else fixed[there]
            while fixed is None and count == 1 and (new == units[there]).all():
                new = colours(count)
            candidate[1][slots] = new
        scores = ask(image_of(*candidate))
        if reached(scores):
            return asked + 1
        loss = loss_of(scores)
        if loss < best:
            best, (places, colour) = loss, candidate
    return queries + 1


@kinds
@goals
def test_agrees_with_a_plain_transcription(options, targeted) -> None:
    """Two samples of attacks with random numbers of their own: their curves must agree."""
    count, queries, pixels = 120 if options else 240, 40, 8 if targeted else 2
    model = integer_model(SHAPE, CLASSES)
    images = random_images(60, SHAPE)
    images[::2] = images[::2].round()  # in half of them every colour is a corner
    images = images.repeat_interleave(count // 60, 0)
    labels = own_labels(model, images)
    targets = (labels + 1 + torch.arange(count) % (CLASSES - 1)) % CLASSES if targeted else None
    attack = SparseRS(pixels, queries, alpha_init=0.8, **options)
    result = attack(model.victim(), images, labels, targets, ids=range(count), batch_size=200)
    ours = np.where(result.success.numpy(), result.queries.numpy(), queries + 1)

    def ask(image):
        return model.function(torch.from_numpy(image)[None])[0].numpy()

    theirs = np.empty(count)
    for i in range(count):
        aim = int(labels[i] if targets is None else targets[i])

        def margin(scores, aim=aim):
            return scores[aim] - np.delete(scores, aim).max()

        def cross_entropy(scores, aim=aim):
            return np.log(np.exp(scores - scores.max()).sum()) + scores.max() - scores[aim]

        theirs[i] = sparse_rs_in_numpy(
            ask,
            images[i].numpy(),
            cross_entropy if targeted else margin,
            (lambda s: margin(s) > 0) if targeted else (lambda s: margin(s) < 0),
            pixels,
            queries,
            0.8,
            np.random.default_rng([3, i]),
            options,
        )
    curve = [(np.mean(ours <= q), np.mean(theirs <= q)) for q in (1, 3, 10, 20, 40)]
    for p, q in curve:
        pooled = (p + q) / 2
        assert abs(p - q) <= 3 * math.sqrt(2 * pooled * (1 - pooled) / count) + 1e-9
    spread = math.sqrt((ours.var() + theirs.var()) / count)
    assert abs(ours.mean() - theirs.mean()) < 3 * spread
    assert 0.1 < curve[-1][0] < 0.98 and curve[0][0] < curve[-1][0]  # edges would show nothing


@kinds
def test_every_step_is_as_described(options) -> None:
    """Losses are made up, with ties; the test keeps its own account of what is best."""
    n, pixels, queries = 30, 12, 40
    feature = "space" in options
    images = random_images(n, SHAPE)
    attack = SparseRS(pixels, queries, alpha_init=0.9, **options)
    problems = Problems.make(images, [0] * n, ids=range(n))
    search = begin(attack, problems, seed=1, restart=0)
    colours = palettes.draw("binary", problems, streams(1, problems.ids)).colour
    base = problems.flat_images.flatten(1)[:, :, None] if feature else problems.flat_images
    schedule = moved(queries, pixels, 0.9)
    assert schedule[1] > 1  # or the test would show little
    generator = torch.Generator().manual_seed(2)
    best_loss = torch.full((n,), torch.inf, dtype=torch.float64)
    best = base
    for asked in range(queries):
        image = search.ask().render(problems.flat_images, SHAPE)
        flat = image.flatten(2).transpose(1, 2)
        flat = flat.flatten(1)[:, :, None] if feature else flat
        assert search.initial().tolist() == [asked == 0] * n
        now, before = (flat != base).any(2), (best != base).any(2)
        # random 8-bit images have next to no channel that is a corner already
        assert (now.sum(1) <= pixels).all() and (now.sum(1) >= pixels - 2).all()
        assert set(flat[now].unique().tolist()) == {0.0, 1.0} or not now.any()
        if options.get("synthetic"):
            assert torch.equal(flat[now], colours[now])
        if asked:
            kept = now & before
            moves = schedule[asked]
            assert torch.equal(flat[kept], best[kept])  # only those that move get a colour
            assert ((now & ~before).sum(1) <= moves).all()
            assert ((now & ~before).sum(1) == moves).float().mean() > 0.8
            assert ((before & ~now).sum(1) <= moves).all()
        losses = torch.randint(0, 6, (n,), generator=generator).double()
        better = losses < best_loss
        best = torch.where(better[:, None, None], flat, best)
        best_loss = torch.where(better, losses, best_loss)
        search.tell(failures(losses))


@pytest.mark.parametrize("level", [0, 1], ids=["black", "white"])
@pytest.mark.parametrize(
    ("pixels", "options"),
    [(1, {}), (5, {}), (1, {"space": "feature"}), (5, {"space": "feature"})],
    ids=["1 pixel", "5 pixels", "1 value", "5 values"],
)
def test_a_pixel_that_moves_alone_is_never_invisible(pixels, options, level) -> None:
    """No query for an image whose answer is known: the best one, or, with 1 pixel, the clean one.

    The losses accept a fifth of the candidates, so that the best one changes as well.
    """
    n, queries = 4, 100
    images = torch.full((n, *SHAPE), float(level))
    problems = Problems.make(images, [0] * n, ids=range(n))
    search = begin(SparseRS(pixels, queries, **options), problems, seed=0, restart=0)
    assert set(moved(queries, pixels, 0.3)[1:]) == {1}
    generator = torch.Generator().manual_seed(1)
    best, best_loss = images.clone(), 1000.0
    for asked in range(queries):
        image = search.ask().render(problems.flat_images, SHAPE)
        if asked or pixels == 1:
            assert (image != best).flatten(1).any(1).all()
        if pixels == 1:
            assert (image != images).flatten(1).any(1).all()
        accept = asked == 0 or float(torch.rand(1, generator=generator)) < 0.2
        best_loss -= accept
        best = image.clone() if accept else best
        search.tell(failures(torch.full((n,), best_loss + (not accept), dtype=torch.float64)))


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_colours_drawn_again_are_any_other_corner_equally_often(depth) -> None:
    n = 20_000
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * depth).view(-1, depth)
    drawn = corners[torch.arange(n) % len(corners)][:, None]
    shown = corners[1].expand(n, 1, depth)
    got = unlike(drawn, shown, streams(0, torch.arange(n)), 7)
    differed = (drawn != shown).any(2)
    assert torch.equal(got[differed], drawn[differed])  # only those that have to are drawn again
    again = (got[~differed] @ (2.0 ** torch.arange(depth))).long()
    often = torch.bincount(again, minlength=2**depth).double()
    assert often[int(corners[1] @ (2.0 ** torch.arange(depth)))] == 0
    expected = len(again) / (2**depth - 1)
    assert ((often[often > 0] - expected).abs() < 5 * math.sqrt(expected) + 1e-9).all()
    assert int((often > 0).sum()) == 2**depth - 1
    grey = torch.full((n, 1, depth), 0.5)
    assert torch.equal(unlike(drawn, grey, streams(0, torch.arange(n)), 7), drawn)


def test_images_of_many_channels_have_other_corners_too() -> None:
    black = torch.zeros(50, 1, 70)
    got = unlike(black, black, streams(0, torch.arange(50)), 0)
    assert (got != black).any(2).all() and set(got.unique().tolist()) == {0.0, 1.0}


def test_number_of_moves_falls_in_the_steps_of_the_authors() -> None:
    counts = moved(10_000, 200, 0.3)
    places = [0, 1, 50, 51, 200, 201, 500, 501, 1000, 1001, 2000, 2001, 4000, 4001, 6000]
    assert [counts[p] for p in places] == [0, 30, 30, 15, 15, 12, 12, 10, 10, 7, 7, 6, 6, 5, 5]
    assert [counts[p] for p in (6001, 8000, 8001, 10_000)] == [4, 4, 3, 3]
    assert moved(20_000, 200, 0.3)[1] == 60  # still at 0 of 10 000
    assert moved(500, 20, 0.3)[:5] == [0, 3, 3, 1, 1]  # stretched to the limit
    assert set(moved(500, 1, 0.3)[1:]) == {1}  # at least one


def test_unused_positions_are_drawn_evenly() -> None:
    taken = torch.tensor([[5, 0, 2]])
    assert [int(draw_unused(taken, torch.tensor([[u]]), 6)) for u in (0.1, 0.5, 0.9)] == [1, 3, 4]
    # all pairs of draws from a grid of numbers: every ordered pair of free positions equally often
    u = torch.cartesian_prod(torch.arange(12), torch.arange(12)).add(0.5).div(12)
    drawn = draw_unused(taken.expand(144, -1), u, 7)
    pairs, often = drawn.unique(dim=0, return_counts=True)
    assert set(often.tolist()) == {144 // 12}
    assert {tuple(p) for p in pairs.tolist()} == {
        (a, b) for a in (1, 3, 4, 6) for b in (1, 3, 4, 6) if a != b
    }


@pytest.mark.parametrize(("budget", "expected"), [(3, "failed"), (4, "success")])
@kinds
@goals
def test_known_optimum_of_an_additive_model(options, targeted, budget, expected) -> None:
    # 8 + 7 + 6 = 21 is not enough, 8 + 7 + 6 + 4 = 25 is: four pixels are needed
    model = additive_model([8, 7, 6, 5, 4, 3, 2, 1, 1, 1], threshold=25, shape=(6, 6))
    images = grey_images(12, (6, 6))
    attack = SparseRS(budget, 700, **options)
    result = attack(model.victim(), images, 0, 1 if targeted else None, ids=range(12))
    assert result.status == [expected] * 12
    if expected == "success":
        assert int(result.pixels.min()) >= 4


def test_budget_of_the_whole_image_changes_colours() -> None:
    images = random_images(20, (3, 2, 2))
    problems = Problems.make(images, [0] * 20)
    search = begin(SparseRS(4, 50), problems, seed=0, restart=0)
    first = search.ask().render(problems.flat_images, (3, 2, 2))
    search.tell(failures(torch.zeros(20).double()))
    second = search.ask().render(problems.flat_images, (3, 2, 2))
    changed = (first != second).any(1).flatten(1).sum(1)
    assert (changed == 1).all()  # one pixel gets a colour, and another one than it had


def test_resumes_from_edits() -> None:
    n, pixels = 10, 4
    images = random_images(n, SHAPE)
    problems = Problems.make(images, [0] * n)
    generator = torch.Generator().manual_seed(5)
    index = torch.stack([torch.randperm(64, generator=generator)[:pixels] for _ in range(n)])
    colour = torch.randint(0, 256, (n, pixels, 3), generator=generator).float() / 255
    edits = Edits(index, colour)
    expected = edits.render(problems.flat_images, SHAPE)
    for options in ({}, {"synthetic": True}):
        search = begin(SparseRS(pixels, 50, **options), problems, seed=0, restart=0)
        asked = search.resume(edits)
        assert torch.equal(asked.render(problems.flat_images, SHAPE), expected)
        search.tell(failures(torch.zeros(n).double()))
        for _ in range(30):  # one pixel moves, and returns to where it was
            now = search.ask().render(problems.flat_images, SHAPE)
            assert ((now != expected).any(1).flatten(1).sum(1) <= 2).all()
            search.tell(failures(torch.ones(n).double()))

    own = problems.flat_images.gather(1, index[:, :, None].expand(-1, -1, 3))
    colour[:, :, 1:] = own[:, :, 1:]  # one channel value of each pixel: within the budget
    search = begin(SparseRS(pixels, 50, space="feature"), problems, seed=0, restart=0)
    asked = search.resume(Edits(index, colour))
    expected = Edits(index, colour).render(problems.flat_images, SHAPE)
    assert torch.equal(asked.render(problems.flat_images, SHAPE), expected)


def test_feature_space_counts_channel_values() -> None:
    model = integer_model(SHAPE, CLASSES)
    images = random_images(60, SHAPE)
    labels = own_labels(model, images)
    result = SparseRS(6, 60, space="feature")(model.victim(), images, labels)
    values = (result.images != images).flatten(1).sum(1)
    assert (values <= 6).all() and result.success.any()
    assert set(result.images[result.images != images].tolist()) == {0.0, 1.0}


def test_defaults_of_the_authors() -> None:
    attack = SparseRS(10)
    assert attack.loss_for(True, Meaning()) == "ce"
    assert attack.loss_for(False, Meaning()) == "logit-margin"
    assert attack.share(targeted=True, pixels=224 * 224) == 0.1
    assert attack.share(targeted=False, pixels=224 * 224) == 0.3
    assert attack.share(targeted=True, pixels=32 * 32) == 0.3
    assert SparseRS(10, alpha_init=0.8).share(targeted=True, pixels=224 * 224) == 0.8
    assert SparseRS(10, loss="margin").loss_for(True, Meaning()) == "margin"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha_init": 0}, "alpha_init is 0"),
        ({"alpha_init": 1.5}, "at most 1"),
        ({"space": "patch"}, "choose from pixel, feature"),
        ({"loss": "hinge"}, "loss is 'hinge'"),
    ],
)
def test_bad_options_are_refused(options, message) -> None:
    with pytest.raises(InputError, match=message):
        SparseRS(3, 50, **options)
