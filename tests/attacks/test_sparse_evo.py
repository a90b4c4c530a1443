import math

import numpy as np
import pytest
import torch
from driving import begin, feedback
from models import additive_model, grey_images, integer_model, own_labels, random_images

from brusle import rng
from brusle.attacks import palettes
from brusle.attacks.drawing import draw_subset
from brusle.attacks.sparse_evo import SparseEvo
from brusle.errors import InputError
from brusle.problems import Edits, Problems

SHAPE, CLASSES = (3, 8, 8), 5


def evolve_in_numpy(ask, x, start, aim, pixels, queries, generator, variant):
    """One targeted attack with its own random numbers, from the description of the method.

    Returns the queries to success and the fewest pixels of an adversarial image. A search that is
    stuck goes on here; the attack begins anew, but not within the few queries of the test.
    """
    x, start = (a.reshape(3, -1) for a in (x, start))
    size, members, rate, cr = x.shape[1], 10, 0.01, 0.9
    population, fitness = [], []
    fewest, spent = size, 0
    colour = (
        generator.integers(0, 2, x.shape).astype(np.float32) if variant == "synthetic" else start
    )

    def evaluate(mask):
        nonlocal fewest, spent
        spent += 1
        image = np.where(mask, colour, x)
        scores = ask(image.reshape(SHAPE))
        reached = scores[aim] > np.delete(scores, aim).max()
        if reached:
            fewest = min(fewest, int((image != x).any(0).sum()))
        loss = np.log(np.exp(scores - scores.max()).sum()) + scores.max() - scores[aim]
        if variant == "synthetic":
            return loss
        value = np.linalg.norm(image - x) if variant == "decision" else loss
        return value if reached else math.inf

    def some(mask, count):
        return generator.choice(np.flatnonzero(mask), count, replace=False)

    def out():
        return fewest <= pixels or spent == queries

    whole = (x != start).any(0)
    for _ in range(members):
        for flips in range(max(round(size / 256), 1), 0, -1):
            mask = whole.copy()
            if variant == "synthetic":
                mask[:] = False
                mask[generator.choice(size, pixels, replace=False)] = True
            else:
                mask[some(mask, flips)] = False
            value = evaluate(mask)
            if out():
                return spent, fewest
            if value < math.inf:
                break
        else:
            mask = whole
        population.append(mask)
        fitness.append(value)
    while not out():
        ranks = np.argsort(fitness, kind="stable")
        best = population[ranks[0]]
        first, second = generator.choice(ranks[1:], 2, replace=False)
        cross = np.where(generator.random(size) < cr, population[first], population[second])
        if variant == "synthetic":
            child = best.copy()
            leaving = np.flatnonzero(best & ~cross & (generator.random(size) >= cr))
            coming = np.flatnonzero(cross & ~best)
            count = min(len(leaving), len(coming))
            child[generator.permutation(leaving)[:count]] = False
            child[generator.permutation(coming)[:count]] = True
            moves = max(int(pixels * rate), 1)
            away, there = some(child, moves), some(~child, moves)
            child[away], child[there] = False, True
        else:
            child = best & cross
            if child.any():
                child[some(child, max(int(child.sum() * rate), 1))] = False
        value = evaluate(child)
        if value < fitness[ranks[-1]]:
            population[ranks[-1]], fitness[ranks[-1]] = child, value
    return spent, fewest


@pytest.mark.parametrize(
    ("variant", "pixels", "queries"), [("decision", 1, 60), ("loss", 1, 60), ("synthetic", 6, 60)]
)
def test_agrees_with_a_plain_transcription(variant, pixels, queries) -> None:
    count = 120
    model = integer_model(SHAPE, CLASSES)
    images = random_images(30, SHAPE).repeat_interleave(count // 30, 0)
    labels = own_labels(model, images)
    targets = (labels + 1 + torch.arange(count) % (CLASSES - 1)) % CLASSES
    pool = random_images(500, SHAPE, seed=1)
    seen = own_labels(model, pool)
    starts = torch.stack([pool[int((seen == t).nonzero()[0])] for t in targets])
    attack = SparseEvo(pixels, queries + (variant != "synthetic"), variant=variant)
    result = attack(model.victim(), images, labels, targets, ids=range(count), starts=starts)
    ours = np.where(result.success.numpy(), result.queries.numpy(), queries + 1)

    def ask(image):
        return model.function(torch.from_numpy(image)[None])[0].numpy()

    outcomes = [
        evolve_in_numpy(
            ask,
            images[i].numpy(),
            starts[i].numpy(),
            int(targets[i]),
            pixels,
            queries,
            np.random.default_rng([5, i]),
            variant,
        )
        for i in range(count)
    ]
    if variant == "synthetic":
        theirs = np.array([q if fewest <= pixels else queries + 1 for q, fewest in outcomes])
        assert 0.1 < np.mean(ours <= queries) < 0.95
    else:
        ours = result.pixels.numpy()
        theirs = np.array([fewest for _, fewest in outcomes])
        assert 2 < theirs.mean() < 60
    spread = math.sqrt((ours.var() + theirs.var()) / count)
    assert abs(ours.mean() - theirs.mean()) < 3 * spread
    for q in (0.25, 0.5, 0.75):
        mark = np.quantile(theirs, q)
        a, b = np.mean(ours <= mark), np.mean(theirs <= mark)
        pooled = (a + b) / 2
        assert abs(a - b) <= 3 * math.sqrt(2 * pooled * (1 - pooled) / count) + 1e-9


def shrinking(variant: str, n: int = 12):
    images, starts = random_images(n, SHAPE), random_images(n, SHAPE, seed=9)
    problems = Problems.make(images, [0] * n, [1] * n, ids=range(n), starts=starts)
    return problems, begin(SparseEvo(1, 200, variant=variant), problems, seed=0, restart=0)


@pytest.mark.parametrize("variant", ["decision", "loss"])
def test_every_step_of_a_shrinking_search(variant) -> None:
    """Answers are made up; the test keeps its own population and looks at every child."""
    problems, search = shrinking(variant)
    n, members = len(problems), 10
    generator = torch.Generator().manual_seed(4)
    own: list[list[tuple[float, np.ndarray]]] = [[] for _ in range(n)]
    distance = (problems.starts - problems.images).double().square().sum(1).flatten(1).numpy()
    for _ in range(80):
        filling = search.initial().tolist()
        image = search.ask().render(problems.flat_images, SHAPE)
        from_start = (image == problems.starts).all(1).flatten(1)
        assert ((image == problems.images).all(1).flatten(1) | from_start).all()
        reached = torch.rand(n, generator=generator) < 0.7
        losses = torch.rand(n, generator=generator).double()
        masks = from_start.numpy()
        for i in range(n):
            assert filling[i] == (len(own[i]) < members)
            value = float(losses[i])
            if variant == "decision":
                value = float(distance[i][masks[i]].sum())
            value = value if reached[i] else math.inf
            if filling[i]:
                assert masks[i].sum() == 63  # one of 64 pixels is given back
                # a first mask that is not adversarial leaves the starting image in its place
                own[i].append((value, masks[i] if reached[i] else np.ones(64, dtype=bool)))
                continue
            order = sorted(range(members), key=lambda m, i=i: own[i][m][0])
            best, worst = own[i][order[0]], own[i][order[-1]]
            assert not (masks[i] & ~best[1]).any()  # pixels only go back
            assert masks[i].sum() < best[1].sum() or not best[1].any()
            if value < worst[0]:
                own[i][order[-1]] = (value, masks[i])
        search.tell(feedback(losses, reached, torch.zeros(n, CLASSES)))
        for i in range(n):
            kept = sorted(mask.tobytes() for mask in search.masks[i, : len(own[i])].numpy())
            assert kept == sorted(mask.tobytes() for _, mask in own[i])


def test_a_stuck_search_begins_anew() -> None:
    problems, search = shrinking("decision")
    n = len(problems)

    def answer(yes: bool) -> torch.Tensor:
        image = search.ask().render(problems.flat_images, SHAPE)
        search.tell(
            feedback(torch.zeros(n).double(), torch.full((n,), yes), torch.zeros(n, CLASSES))
        )
        return (image != problems.images).any(1).flatten(1).sum(1)

    for _ in range(60):
        answer(True)
    search.ask()
    best = search.left.clone()
    assert int(best.max()) < 40
    for _ in range(10 * int(best.max())):
        answer(False)
    assert search.initial().any() and not search.initial().all()  # those with fewer came first
    for _ in range(20):
        answer(False)
    assert int(answer(True).min()) >= 40  # from the starting image again


def test_the_synthetic_variant_keeps_the_number_of_pixels() -> None:
    n, pixels = 12, 7
    problems = Problems.make(random_images(n, SHAPE), [0] * n, ids=range(n))
    search = begin(SparseEvo(pixels, 100, variant="synthetic", mutation_rate=0.3), problems, 3, 0)
    colour = palettes.draw("binary", problems, rng.streams(3, problems.ids)).colour
    generator = torch.Generator().manual_seed(0)
    best = torch.full((n,), torch.inf, dtype=torch.float64)
    before = torch.zeros(n, 64, dtype=torch.bool)
    exchanged, told = [], torch.empty(n, 0, dtype=torch.float64)
    for asked in range(60):
        assert search.initial().tolist() == [asked < 10] * n
        edits = search.ask()
        assert edits.index.shape == (n, pixels)
        assert all(len(set(row)) == pixels for row in edits.index.tolist())
        assert torch.equal(
            edits.colour, colour.gather(1, edits.index[:, :, None].expand(-1, -1, 3))
        )
        mask = torch.zeros(n, 64, dtype=torch.bool).scatter(1, edits.index, True)
        if asked >= 10:
            exchanged += (before & ~mask).sum(1).tolist()
        losses = torch.rand(n, generator=generator).double()
        before = torch.where((losses < best)[:, None], mask, before)
        best = torch.minimum(best, losses)
        search.tell(feedback(losses, torch.zeros(n, dtype=torch.bool), torch.zeros(n, CLASSES)))
        told = torch.cat([told, losses[:, None]], 1)
        assert torch.equal(
            search.fitness.sort(1).values[:, : asked + 1], told.sort(1).values[:, :10]
        )
    # two mutate (0.3 of 7), and a tenth of the others is exchanged
    assert max(exchanged) <= pixels and 1.9 < np.mean(exchanged) < 3


def test_draw_subset_draws_evenly_and_never_elsewhere() -> None:
    among = torch.tensor([1, 0, 1, 1, 0, 1, 1, 0], dtype=torch.bool).expand(6000, -1)
    count = torch.arange(6000) % 8
    numbers = rng.bits(rng.streams(0, torch.arange(6000)), 0, 0, 8)
    chosen = draw_subset(among, count, numbers)
    assert not (chosen & ~among).any()
    assert torch.equal(chosen.sum(1), count.clamp_max(5))
    twos = chosen[count == 2][:, among[0]].double().mean(0)
    assert (twos - 0.4).abs().max() < 4 * math.sqrt(0.24 / 750)
    alone = draw_subset(among[:3], count[:3], numbers[:3])  # whatever the others' counts are
    assert torch.equal(alone, chosen[:3])


@pytest.mark.parametrize(
    ("budget", "expected", "targeted"),
    [(3, "failed", False), (5, "success", False), (5, "success", True)],
)
def test_known_optimum_of_an_additive_model(budget, expected, targeted) -> None:
    # 8 + 7 + 6 = 21 is not enough, 8 + 7 + 6 + 4 = 25 is: four pixels are needed
    model = additive_model([8, 7, 6, 5, 4, 3, 2, 1, 1, 1], threshold=25, shape=(6, 6))
    images = grey_images(12, (6, 6))
    result = SparseEvo(budget, 1500)(
        model.victim(),
        images,
        0,
        1 if targeted else None,
        ids=range(12),
        starts=torch.zeros_like(images),
    )
    assert result.status == [expected] * 12
    assert int(result.pixels.min()) >= 4 and int(result.pixels.max()) <= 5


def test_the_synthetic_variant_on_an_additive_model() -> None:
    model = additive_model([8, 7, 6, 5, 4, 3, 2, 1, 1, 1], threshold=25, shape=(6, 6))
    images = grey_images(12, (6, 6))
    for budget, expected in ((3, "failed"), (5, "success")):
        attack = SparseEvo(budget, 400, variant="synthetic")
        assert attack(model.victim(), images, 0, ids=range(12)).status == [expected] * 12


def test_synthetic_resumes_from_edits() -> None:
    n, pixels = 10, 4
    problems = Problems.make(random_images(n, SHAPE), [0] * n)
    generator = torch.Generator().manual_seed(5)
    index = torch.stack([torch.randperm(64, generator=generator)[:pixels] for _ in range(n)])
    edits = Edits(index, torch.randint(0, 256, (n, pixels, 3), generator=generator).float() / 255)
    expected = edits.render(problems.flat_images, SHAPE)
    search = begin(SparseEvo(pixels, 100, variant="synthetic"), problems, 0, 0)
    asked = search.resume(edits)
    nobody = torch.zeros(n, dtype=torch.bool)
    for loss in [0.0] + 12 * [1.0]:
        image = asked.render(problems.flat_images, SHAPE)
        apart = (image != expected).any(1).flatten(1).sum(1)
        assert ((apart == 0) if loss == 0 else (apart <= 2)).all()  # one pixel moves, no more
        search.tell(feedback(torch.full((n,), loss).double(), nobody, torch.zeros(n, CLASSES)))
        asked = search.ask()
    assert not search.initial().any()


def test_what_a_variant_needs() -> None:
    by_variant = {v: SparseEvo(5, variant=v) for v in ("decision", "loss", "synthetic")}
    assert [a.behaviour.needs for a in by_variant.values()] == ["labels", "scores", "scores"]
    for trait in ("dense", "shrinks", "needs_start"):
        assert [getattr(a.behaviour, trait) for a in by_variant.values()] == [True, True, False]
    attack = by_variant["decision"]
    assert attack.queries == 2000
    rates = [attack.rate(t, p) for p in (32 * 32, 224 * 224) for t in (True, False)]
    assert rates == pytest.approx([0.01, 0.04, 0.001, 0.004])
    assert SparseEvo(5, mutation_rate=0.2).rate(True, 100) == 0.2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "scores"}, "choose from decision, loss, synthetic"),
        ({"population": 2}, "population is 2: it must be an integer of at least 3"),
        ({"mutation_rate": 0.0}, "mutation_rate is 0.0"),
        ({"crossover_rate": 1.5}, "crossover_rate is 1.5"),
        ({"initial_share": 0}, "initial_share is 0"),
    ],
)
def test_bad_options_are_refused(options, message) -> None:
    with pytest.raises(InputError, match=message):
        SparseEvo(3, 50, **options)
