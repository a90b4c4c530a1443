import math
from itertools import permutations

import numpy as np
import pytest
import torch
from driving import begin, feedback
from models import Counting, grey_images, integer_model, levels, own_labels, random_images

from brusle.attacks.one_pixel import OnePixel
from brusle.attacks.one_pixel.paper import make_room
from brusle.errors import InputError
from brusle.problems import Edits, Problems


def start(attack: OnePixel, n: int = 1, shape=(3, 8, 8)):
    return begin(attack, Problems.make(random_images(n, shape), [0] * n, ids=range(n)), 0, 0)


def tell(search, loss: list[float]) -> None:
    loss = torch.tensor(loss, dtype=torch.float64)
    search.tell(feedback(loss, torch.zeros_like(loss, dtype=torch.bool), loss[:, None]))


def evolve(search, losses: list[float]) -> list[Edits]:
    """Ask and tell one problem; return what was asked."""
    asked = []
    for loss in losses:
        asked.append(search.ask())
        tell(search, [loss])
    return asked


# how members are drawn, mixed and chosen


def test_first_members_follow_the_papers_distributions() -> None:
    search = start(OnePixel(5, population=40), 100, (3, 20, 30))
    index, colour = [], []
    for _ in range(40):
        edits = search.ask()
        index.append(edits.index)
        colour.append(levels(edits.colour))
        tell(search, [1.0] * 100)
    row, column = torch.cat(index).flatten() // 30, torch.cat(index).flatten() % 30
    for place, size in ((row, 20), (column, 30)):
        share = torch.bincount(place, minlength=size) / len(place)
        assert (share - 1 / size).abs().max() < 5 * math.sqrt(1 / size / len(place))
    values = torch.cat(colour).flatten().double()
    normal = torch.distributions.Normal(128.0, 127.0)
    for level in (0, 30, 128, 200, 254):  # so many values at or below, once rounded
        expected = float(normal.cdf(torch.tensor(level + 0.5)))
        assert abs(float((values <= level).double().mean()) - expected) < 0.01


def members_of(search) -> np.ndarray:
    return search.population[0].double().numpy()


def mixtures(members: np.ndarray, i: int, f: float) -> list[np.ndarray]:
    others = [j for j in range(len(members)) if j != i]
    return [members[a] + f * (members[b] - members[c]) for a, b, c in permutations(others, 3)]


@pytest.mark.parametrize("f", [0.5, 0.9])
def test_rivals_are_mixtures_of_three_others(f) -> None:
    size = 6
    search = start(OnePixel(1, population=size, f=f))
    evolve(search, list(range(size)))
    kinds = set()
    for _ in range(8):
        members = members_of(search)
        for i in range(size):
            search.ask()
            rival = search.candidate[0].double().numpy()
            expected = np.stack(mixtures(members, i, f))
            place, colour = expected[:, :, :2], expected[:, :, 2:]
            outside = (place < 0) | (place >= 8)
            same = (np.abs(place - rival[:, :2]) < 1e-5) | outside
            colour = np.clip(np.rint(colour * 255), 0, 255) / 255
            near = np.abs(colour - rival[:, 2:]) < 1.01 / 255  # halves may be rounded either way
            found = same.all((1, 2)) & near.all((1, 2))
            assert found.any()
            assert (rival[:, :2] >= 0).all() and (rival[:, :2] < 8).all()
            kinds |= set(np.flatnonzero(found).tolist())
            tell(search, [0.5 + i])
    assert len(kinds) > 15  # of 60 triples


def test_crossover_keeps_values_of_the_member_that_is_challenged() -> None:
    attack = OnePixel(20, population=5, crossover=0.3)
    search = start(attack)
    evolve(search, [1.0, 2.0, 3.0, 4.0, 5.0])
    members = members_of(search)
    kept = []
    for i in range(5):
        search.ask()
        kept.append((search.candidate[0].double().numpy() == members[i]).mean())
        tell(search, [9.0])
    assert 0.6 < np.mean(kept) < 0.8


def test_the_better_survives_and_only_the_next_generation_sees_it() -> None:
    search = start(OnePixel(1, population=4))
    evolve(search, [1.0, 2.0, 3.0, 4.0])
    before = search.population.clone()
    rivals = []
    for loss in (0.5, 2.5, 3.0, 3.5):  # better, worse, equal, better
        assert torch.equal(search.population, before)
        search.ask()
        rivals.append(search.candidate[0].clone())
        tell(search, [loss])
    after = search.population[0]
    assert torch.equal(after[0], rivals[0]) and torch.equal(after[3], rivals[3])
    assert torch.equal(after[1:3], before[0, 1:3])
    assert search.loss[0].tolist() == [0.5, 2.0, 3.0, 3.5]


def test_a_population_without_differences_is_drawn_anew() -> None:
    search = start(OnePixel(1, population=4), 2)
    for _ in range(4):
        search.ask()
        assert search.initial().tolist() == [True, True]
        tell(search, [1.0, float(search.age[1])])
    drawn = search.population[0].clone()
    asked = []
    for _ in range(4):
        search.ask()
        assert search.initial().tolist() == [True, False]
        asked.append(search.candidate[0].clone())
        tell(search, [1.0, 9.0])
    assert not any(torch.equal(a, b) for a in asked for b in drawn)


def test_population_follows_the_limit_unless_given() -> None:
    assert OnePixel(1, 1000).members(3) == 25
    assert OnePixel(1, 10).members(3) == 10
    assert OnePixel(1, 10, population=400).members(3) == 400


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"population": 3}, "population is 3: it must be an integer of at least 4"),
        ({"f": 0}, "f is 0: it must be above 0"),
        ({"crossover": 1.5}, "crossover is 1.5: it must be above 0"),
        ({"loss": "l2"}, "loss is 'l2': choose from"),
        ({"variant": "art"}, "variant is 'art': choose from paper, torchattacks"),
        ({"variant": "torchattacks", "f": 0.6}, "draws F itself and has no crossover"),
        ({"variant": "torchattacks", "crossover": 0.9}, "draws F itself and has no crossover"),
    ],
)
def test_bad_options(bad, message) -> None:
    with pytest.raises(InputError, match=message):
        OnePixel(**bad)


# edits


def make_room_slowly(index: list[int], pixels: int) -> list[int]:
    taken: list[int] = []
    for place in sorted(index):
        while place in taken:
            place += 1
        taken.append(place)
    for back in range(1, len(taken) + 1):
        taken[-back] = min(taken[-back], pixels - back)
    return taken


def test_make_room_is_what_it_says() -> None:
    generator = np.random.default_rng(0)
    for pixels, k in ((9, 9), (12, 5), (100, 7), (4, 2), (6, 1)):
        index = generator.integers(0, pixels, (200, k))
        got, order = make_room(torch.from_numpy(index), pixels)
        for row, new, turn in zip(index.tolist(), got.tolist(), order.tolist(), strict=True):
            assert new == make_room_slowly(row, pixels)
            assert len(set(new)) == k and min(new) >= 0 and max(new) < pixels
            assert sorted(turn) == list(range(k))
            if len(set(row)) == k:
                assert [row[t] for t in turn] == new


def test_edits_are_distinct_and_on_levels() -> None:
    search = start(OnePixel(6, population=5), 20, (3, 3, 3))
    for turn in range(40):
        edits = search.ask()
        assert all(len(set(row)) == 6 for row in edits.index.tolist())
        assert torch.equal(levels(edits.colour).float() / 255, edits.colour)
        tell(search, [math.sin(turn + i) for i in range(20)])


def test_resuming_asks_the_given_edits_first_and_evolves_them() -> None:
    problems = Problems.make(torch.rand(3, 3, 5, 7), [0] * 3, ids=range(3))
    index = torch.tensor([[34, 2], [0, 1], [7, 6]])
    colour = problems.flat_images.gather(1, index[:, :, None].expand(-1, -1, 3))  # not on levels
    search = begin(OnePixel(2, population=4), problems, 0, 0)
    painted = search.resume(Edits(index, colour)).render(problems.flat_images, problems.shape)
    assert torch.equal(painted, problems.images)
    tell(search, [1.0, 2.0, 3.0])
    for turn in range(3):
        painted = search.ask().render(problems.flat_images, problems.shape)
        assert not torch.equal(painted, problems.images)
        tell(search, [1.5 + turn] * 3)
    rows = (index // 7).float() + 0.5
    assert torch.equal(search.population[:, 0, :, 0], rows)


# what it finds


def one_place_model(shape=(6, 6), place: int = 20) -> Counting:
    """One grey pixel counts, the brighter the better, and only from level 200 on."""

    def scores(images):
        value = levels(images)[:, 0].flatten(1)[:, place]
        return torch.stack([torch.full_like(value, 199), value], 1).double() / 64

    return Counting(scores)


@pytest.mark.parametrize("targeted", [False, True])
def test_finds_the_one_pixel_that_works(targeted) -> None:
    model, images = one_place_model(), grey_images(12, (6, 6))
    attack = OnePixel(1, 1500, population=50)
    result = attack(model.victim(), images, 0, 1 if targeted else None, ids=range(12))
    assert result.status == ["success"] * 12
    assert result.pixels.tolist() == [1] * 12
    changed = (result.images != images).flatten(1)
    assert changed.nonzero()[:, 1].tolist() == [20] * 12
    assert int(levels(result.images).flatten(1)[:, 20].min()) >= 200


@pytest.mark.parametrize(("budget", "expected"), [(1, "failed"), (2, "success"), (4, "success")])
def test_never_succeeds_with_fewer_pixels_than_it_takes(budget, expected) -> None:
    def scores(images):  # two pixels of the first row have to be bright
        bright = (levels(images)[:, 0, 0] >= 170).sum(1)
        value = levels(images)[:, 0, 0].sum(1)
        return torch.stack([2000 - (bright >= 2) * 1900, value], 1).double() / 512

    images = torch.full((8, 1, 4, 4), 60 / 255)
    result = OnePixel(budget, 1500)(Counting(scores).victim(), images, 0, ids=range(8))
    assert result.status == [expected] * 8


def evolve_in_numpy(
    scores, image: np.ndarray, label: int, pixels: int, size: int, limit: int, generator
) -> int:
    """The attack in plain NumPy on one (c, h, w) image in levels, with F = 0.5.

    Two edits on one pixel paint it twice. Returns the queries it took, limit + 1 if it failed.
    """
    c, h, w = image.shape
    colour = np.clip(generator.normal(128, 127, (size, pixels, c)), 0, 255)
    members = np.concatenate([generator.random((size, pixels, 2)) * (h, w), colour], 2)
    fitness = np.full(size, np.inf)
    children = members
    for asked in range(limit):
        i = asked % size
        if i == 0 and asked:
            members = children.copy()
        child = members[i]
        if asked >= size:
            a, b, d = generator.permutation([j for j in range(size) if j != i])[:3]
            child = members[a] + 0.5 * (members[b] - members[d])
            for axis, most in ((0, h), (1, w)):
                out = (child[:, axis] < 0) | (child[:, axis] >= most)
                child[out, axis] = generator.random(out.sum()) * most
            child[:, 2:] = np.clip(child[:, 2:], 0, 255)
        painted = image.copy()
        for row, column, *values in child:
            painted[:, int(row), int(column)] = np.rint(values)
        logits = scores(painted)
        if logits.argmax() != label:
            return asked + 1
        p = np.exp(logits - logits.max())
        if p[label] / p.sum() < fitness[i]:
            children[i], fitness[i] = child, p[label] / p.sum()
    return limit + 1


@pytest.mark.parametrize("pixels", [1, 3])
def test_as_good_as_a_transcription_in_numpy(pixels) -> None:
    n, size, limit, shape = 150, 10, 120, (3, 8, 8)
    model = integer_model(shape, 5)
    images = random_images(n, shape, seed=3)
    labels = own_labels(model, images)
    result = OnePixel(pixels, limit, population=size)(model.victim(), images, labels)
    mine = torch.where(result.success, result.queries, limit + 1).double().numpy()
    generator = np.random.default_rng(0)

    def scores(painted: np.ndarray) -> np.ndarray:
        return model.function(torch.from_numpy(painted[None]).double() / 255)[0].numpy()

    pairs = zip((images.double() * 255).round().numpy(), labels.tolist(), strict=True)
    theirs = np.array(
        [evolve_in_numpy(scores, x, y, pixels, size, limit, generator) for x, y in pairs]
    )
    assert 0.1 < (theirs > limit).mean() < 0.9
    for other, own in ((theirs > limit, mine > limit), (theirs, mine)):
        difference = own.astype(float) - other  # the same images: pairs
        assert abs(difference.mean()) < 3 * difference.std() / math.sqrt(n)


def test_as_good_as_the_evolution_in_art(monkeypatch) -> None:
    pixel_threshold = pytest.importorskip("art.attacks.evasion.pixel_threshold")
    from art.estimators.classification import PyTorchClassifier

    torch.manual_seed(1)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4)
    ).eval()
    shape, n, generations = (3, 8, 8), 60, 6
    images = random_images(n, shape, seed=5)
    labels = net(images).argmax(1)

    evolution = pixel_threshold.differential_evolution

    def the_papers(function, bounds, **options):
        # ART takes SciPy's default rule; the size is a multiple of the number of values
        options |= {"strategy": "rand1bin", "mutation": 0.5, "popsize": 4, "init": "random"}
        return evolution(function, bounds, **options)

    monkeypatch.setattr(pixel_threshold, "differential_evolution", the_papers)
    classifier = PyTorchClassifier(
        net, torch.nn.CrossEntropyLoss(), shape, 4, clip_values=(0, 1), device_type="cpu"
    )
    np.random.seed(0)  # noqa: NPY002  ART draws from the global generator
    attack = pixel_threshold.PixelAttack(classifier, th=1, max_iter=generations)
    theirs = attack.generate(images.numpy(), labels.numpy())
    hits = net(torch.from_numpy(theirs)).argmax(1) != labels
    size = 4 * 5
    mine = OnePixel(1, size * (generations + 1), population=size)(net, images, labels).success
    assert 0.1 < float(hits.float().mean()) < 0.9
    error = math.sqrt(float(hits.float().var() + mine.float().var()) / n)
    assert abs(float(hits.float().mean() - mine.float().mean())) < 3 * error
