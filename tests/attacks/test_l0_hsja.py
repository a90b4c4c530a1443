import itertools
import math

import foolbox
import numpy as np
import pytest
import torch
from art.attacks.evasion import HopSkipJump
from art.estimators.classification import BlackBoxClassifier
from driving import begin, feedback
from foolbox.criteria import Misclassification
from models import additive_model, grey_images, integer_model, own_labels, random_images

from brusle.attacks.l0_hsja import L0HSJA, Part, estimate
from brusle.errors import InputError
from brusle.problems import Problems, flatten_pixels, unflatten_pixels
from brusle.victims import wrap


class Run:
    """A search asked and told by hand, with a record of what it did."""

    def __init__(self, attack, images, starts, fooled, seed=0) -> None:
        self.problems = Problems.make(images, torch.zeros(len(images)).long(), starts=starts)
        self.search = begin(attack, self.problems, seed, 0)
        self.fooled = fooled
        self.parts, self.asked, self.reached = [], [], []

    def go(self, queries: int) -> "Run":
        for _ in range(queries):
            self.parts.append(self.search.part.clone())
            candidate = self.search.ask().pixels.clone()
            reached = self.fooled(unflatten_pixels(candidate, self.problems.shape))
            self.asked.append(candidate)
            self.reached.append(reached)
            self.search.tell(feedback(reached.double(), reached, reached[:, None]))
        return self

    def lengths(self, part: int, row: int = 0) -> list[int]:
        """How many queries in a row each visit to ``part`` took, the last one left out."""
        runs, current = [], 0
        for seen in self.parts:
            if int(seen[row]) == part:
                current += 1
            elif current:
                runs.append(current)
                current = 0
        return runs


def far_pair(n: int, shape, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    return random_images(n, shape, seed), random_images(n, shape, seed + 1)


def changed(candidate: torch.Tensor, original: torch.Tensor) -> torch.Tensor:
    return (candidate != original).any(2)


def test_projection_keeps_the_pixels_that_differ_most() -> None:
    images, starts = far_pair(8, (3, 7, 9))
    run = Run(L0HSJA(1), images, starts, lambda x: torch.zeros(len(x)).bool()).go(4)
    original, start = run.problems.flat_images, flatten_pixels(starts)
    for candidate, share in zip(run.asked, (1 / 2, 3 / 4, 7 / 8, 15 / 16), strict=True):
        for i in range(8):
            size = np.linalg.norm((start[i] - original[i]).double().numpy(), axis=1)
            kept = changed(candidate, original)[i].numpy()
            assert abs(kept.sum() - 63 * share) <= 1
            assert size[kept].min() >= size[~kept].max()
            assert torch.equal(candidate[i][kept], start[i][kept])


def projection_of_the_authors(original: np.ndarray, x: np.ndarray, k: int) -> np.ndarray:
    """Pixels by squared difference, ascending; zeros are skipped, the next k are copied.

    If k is at least the number of differing pixels, the original comes back. (pixels, channels).
    """
    size = ((x.astype(int) - original.astype(int)) ** 2).sum(1)
    differing = [pixel for pixel in np.argsort(size) if size[pixel] != 0]
    projected = original.copy()
    if k < len(differing):
        projected[differing[:k]] = x[differing[:k]]
    return projected


def pair_in_levels(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two (pixels, channels) images of 7 x 9, alike in 14 pixels and unequally far elsewhere."""
    generator = np.random.default_rng(seed)
    original = generator.integers(0, 256, (63, 3))
    x = generator.integers(0, 256, (63, 3))
    alike = generator.choice(63, 14, replace=False)
    x[alike] = original[alike]
    sizes = ((x - original) ** 2).sum(1)
    assert len(np.unique(sizes)) == 63 - 14 + 1  # the order is unique
    return original, x


def as_images(flat: list[np.ndarray]) -> torch.Tensor:
    return unflatten_pixels(torch.from_numpy(np.stack(flat)).float() / 255, (3, 7, 9))


@pytest.mark.parametrize("k", [0, 1, 7, 24, 47, 48, 49, 50, 63])
def test_projection_of_the_authors_keeps_the_smallest_differences(k) -> None:
    originals, points = zip(*map(pair_in_levels, range(4)), strict=True)
    images, starts = as_images(originals), as_images(points)
    run = Run(L0HSJA(1, projection="authors"), images, starts, lambda x: torch.zeros(len(x)) > 0)
    projected = run.search.project(torch.arange(4), torch.full((4,), float(k)).double())
    expected = [projection_of_the_authors(o, x, k) for o, x in zip(originals, points, strict=True)]
    assert np.array_equal((projected * 255).round().int().numpy(), np.stack(expected))
    changed_pixels = changed(projected, run.problems.flat_images).sum(1).tolist()
    assert changed_pixels == [k if k < 49 else 0] * 4


@pytest.mark.parametrize("needed", [1, 2, 30, 48, 49])
def test_bisection_with_the_projection_of_the_authors(needed) -> None:
    """A model that counts changed pixels: every k that is asked, and where the search ends."""
    original, x = pair_in_levels(9)
    images, starts = as_images([original]), as_images([x])

    def fooled(x):
        return (x != images).any(1).flatten(1).sum(1) >= needed

    run = Run(L0HSJA(1, projection="authors"), images, starts, fooled).go(7)
    low, high = 0, 49
    for candidate in run.asked:
        if high - low <= 1:
            break
        k = (low + high) // 2
        expected = projection_of_the_authors(original, x, k)
        assert np.array_equal((candidate[0] * 255).round().int().numpy(), expected)
        low, high = (low, k) if k >= needed else (k, high)
    assert high == needed
    # with all 49 the projection would be the original, which is not adversarial
    expected = x if needed == 49 else projection_of_the_authors(original, x, needed)
    assert np.array_equal((run.search.point[0] * 255).round().int().numpy(), expected)


def test_with_the_projection_of_the_authors_nine_tenths_of_the_pixels_stay_changed() -> None:
    """What the paper reports; the Euclidean projection gets far sparser with the same queries."""
    shape, n = (3, 16, 16), 10
    model = net(shape, 2)
    pool = random_images(200, shape)
    labels = model(pool[:n]).argmax(1)
    targets = (labels + 1) % 4
    seen = model(pool).argmax(1)
    starts = pool[[int((seen == target).int().argmax()) for target in targets]]
    share = {}
    for projection in ("authors", "l0"):
        attack = L0HSJA(1, 300, projection=projection, probes=20)
        result = attack(wrap(model, output="logits"), pool[:n], labels, targets, starts=starts)
        assert result.status == ["failed"] * n
        assert torch.equal(model(result.images).argmax(1), targets)  # adversarial all the same
        share[projection] = float(result.pixels.double().mean()) / 256
    assert share["authors"] > 0.9
    assert share["l0"] < 0.5


def test_with_the_projection_of_the_authors_the_result_is_where_the_search_stands() -> None:
    """Recomputed from a search asked by hand: the last adversarial image that is no probe."""
    images, starts = far_pair(1, (3, 6, 6))
    attack = L0HSJA(1, 150, projection="authors", probes=12)

    def scores(x):
        apart = (x - images).abs().flatten(1).mean(1)
        return torch.stack([torch.full_like(apart, 0.06), apart], 1)

    run = Run(attack, images, starts, lambda x: scores(x).argmax(1) == 1)
    run.go(149)  # the start is a query, too
    standing = [
        candidate
        for candidate, part, reached in zip(run.asked, run.parts, run.reached, strict=True)
        if bool(reached) and int(part) != Part.ESTIMATE
    ]
    result = attack(wrap(scores, output="logits"), images, [0], starts=starts)
    assert result.status == ["failed"]
    assert torch.equal(flatten_pixels(result.images), standing[-1])
    fewest = min(int(changed(c, run.problems.flat_images).sum()) for c in standing)
    assert fewest < int(result.pixels[0])  # else the test would show nothing


@pytest.mark.parametrize("needed", [1, 2, 20, 62, 63])
def test_bisection_ends_at_the_fewest_pixels_of_a_counting_model(needed) -> None:
    images, starts = far_pair(3, (3, 7, 9))

    def fooled(x):
        return (x != images).any(1).flatten(1).sum(1) >= needed

    run = Run(L0HSJA(1), images, starts, fooled).go(8)
    assert len(run.lengths(Part.BISECTION)) == 1
    assert run.lengths(Part.BISECTION)[0] <= math.ceil(math.log2(63))
    point = changed(run.search.point, run.problems.flat_images).sum(1)
    assert point.tolist() == [needed] * 3


def linear(shape, seed: int, offset: float):
    """A random unit normal, and the half space beyond ``offset`` from the grey image."""
    normal = np.random.default_rng(seed).normal(size=shape)
    normal = torch.from_numpy(normal / np.linalg.norm(normal))
    return normal, lambda x: ((x.double() - 0.5) * normal).flatten(1).sum(1) > offset


@pytest.mark.parametrize("probes", [50, 200, 1600])
def test_estimate_turns_to_the_normal_of_a_linear_boundary(probes) -> None:
    """Known: the mean of B terms u sign(u_1) is sqrt(2 / pi) along the normal, and noise across."""
    shape, n = (3, 4, 4), 12
    normal, fooled = linear(shape, 0, 1.0)
    images = torch.full((n, *shape), 128 / 255)
    starts = (0.5 + 1.6 * normal).clamp(0, 1).float().expand(n, *shape)
    attack = L0HSJA(1, projection="l2", probes=probes, probe=8.0)
    problems = Problems.make(images, torch.zeros(n).long(), ids=range(n), starts=starts)
    run = Run(attack, images, starts, fooled)
    run.search = begin(attack, problems, 0, 0)
    for _ in range(probes + 20):  # the bisection takes a few, the same for all
        if (run.search.part == Part.STEP).all():
            break
        run.go(1)
    assert (run.search.part == Part.STEP).all()
    slope = unflatten_pixels(run.search.slope.double(), shape)
    assert torch.allclose(slope.flatten(1).norm(dim=1), torch.ones(n).double(), atol=1e-5)
    cosine = (slope * normal).flatten(1).sum(1)
    expected = 1 / math.sqrt(1 + (math.pi / 2 * 48 - 1) / probes)
    assert abs(float(cosine.mean()) - expected) < 0.05


def test_estimate_is_the_mean_without_its_baseline() -> None:
    generator = np.random.default_rng(0)
    u = generator.normal(size=(40, 3, 5, 2))
    phi = np.sign(generator.normal(size=(40, 3)) + 0.5)
    phi[:, 1], phi[:, 2] = 1, -1  # all alike: nothing to subtract
    baseline = phi.mean(0) * (np.abs(phi.mean(0)) < 1)
    expected = ((phi - baseline)[:, :, None, None] * u).mean(0)
    inside = torch.from_numpy((phi > 0).sum(0))
    slope = torch.from_numpy((u * (phi > 0)[:, :, None, None]).sum(0))
    got = estimate(slope, torch.from_numpy(u.sum(0)), inside, torch.full((3,), 40)).numpy()
    for a, b in zip(got, expected, strict=True):
        assert np.allclose(a / np.linalg.norm(a), b / np.linalg.norm(b))


def test_probes_grow_with_the_root_of_the_round_and_stop_at_the_most() -> None:
    images, starts = far_pair(1, (3, 5, 5))
    _, fooled = linear((3, 5, 5), 1, -0.5)
    run = Run(L0HSJA(1, probes=10, most_probes=22), images, starts, lambda x: fooled(x)).go(400)
    lengths = run.lengths(Part.ESTIMATE)
    assert len(lengths) > 6
    assert lengths == [min(22, int(10 * math.sqrt(t + 1))) for t in range(len(lengths))]


def test_steps_are_halved_until_one_arrives_or_rounding_takes_it_away() -> None:
    shape = (3, 6, 6)
    images, starts = far_pair(1, shape)
    count = 0

    def fooled(x):  # only the images of bisections and every second probe
        nonlocal count
        count += 1
        part = int(run.search.part[0])
        return torch.tensor([part == Part.BISECTION or (part == Part.ESTIMATE and count % 2 == 0)])

    run = Run(L0HSJA(1, probes=10), images, starts, fooled)
    point = None
    steps: list[float] = []
    for _ in range(60):
        if run.lengths(Part.STEP):
            break
        run.go(1)
        if int(run.parts[-1][0]) == Part.STEP:
            point = point if point is not None else run.search.point.clone()
            steps.append(float((run.asked[-1] - point).norm()))
    assert len(steps) >= 5
    # rounding and the ends of the range of colours leave a little
    for longer, shorter in itertools.pairwise(steps[1:5]):
        assert shorter == pytest.approx(longer / 2, rel=0.2)
    assert steps[-1] > 0
    assert int(run.search.part[0]) == Part.ESTIMATE and int(run.search.round[0]) == 2
    assert torch.equal(run.search.point, point)


def test_candidates_are_on_levels_and_probes_have_one() -> None:
    images, starts = far_pair(4, (3, 8, 8))
    run = Run(L0HSJA(1, probes=30), images, starts, lambda x: x.flatten(1).mean(1) > 0.49).go(120)
    for candidate in run.asked:
        assert torch.equal(candidate, (candidate * 255).round() / 255)
    first = next(i for i, part in enumerate(run.parts) if (part == Part.ESTIMATE).all())
    step = (run.asked[first] - run.search.original) * 255
    apart = (run.asked[first] - run.asked[first + 1]) * 255
    assert step.abs().max() > 1
    # two probes of 1 level each, and rounding, which adds 1 / 12 to each variance
    assert float(apart.square().mean()) == pytest.approx(2 * (1 + 1 / 12), rel=0.15)


def net(shape, seed: int):
    generator = np.random.default_rng(seed)
    size = math.prod(shape)
    first = torch.from_numpy(generator.normal(size=(size, 30)) / math.sqrt(size) * 3)
    second = torch.from_numpy(generator.normal(size=(30, 4)))
    return lambda x: ((x.double().flatten(1) - 0.5) @ first).tanh() @ second


def test_with_the_l2_projection_it_gets_as_close_as_foolbox_and_art() -> None:
    shape, n, steps = (3, 8, 8), 12, 8
    model = net(shape, 2)
    pool = random_images(600, shape)
    best = model(pool).topk(2).values
    images = pool[(best[:, 0] - best[:, 1]).sort(descending=True).indices[:n]]
    labels = model(images).argmax(1)
    seen = model(pool).argmax(1)
    starts = pool[[int((seen != label).int().argmax()) for label in labels]]

    def fooled(x: torch.Tensor) -> torch.Tensor:
        return model(x).argmax(1) != labels

    def distance(found: torch.Tensor) -> torch.Tensor:
        return (found - images).flatten(1).double().norm(dim=1)

    def at_the_boundary(found: torch.Tensor) -> float:
        """Median distance after a last bisection, which ART leaves out."""
        assert fooled(found).all()
        low, high = torch.zeros(n, 1, 1, 1), torch.ones(n, 1, 1, 1)
        for _ in range(20):
            middle = (low + high) / 2
            hit = fooled(images + middle * (found - images))[:, None, None, None]
            low, high = torch.where(hit, low, middle), torch.where(hit, middle, high)
        return float(distance(images + high * (found - images)).median())

    class Module(torch.nn.Module):
        asked = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.asked += len(x)
            return model(x)

    module = Module().eval()
    torch.manual_seed(0)
    attack = foolbox.attacks.HopSkipJumpAttack(steps=steps, initial_gradient_eval_steps=50)
    wrapped = foolbox.PyTorchModel(module, bounds=(0, 1), device="cpu")
    by_foolbox = torch.cat(  # one by one: in a batch it divides by the norm of all gradients
        [
            attack.run(
                wrapped,
                images[i : i + 1],
                Misclassification(labels[i : i + 1]),
                starting_points=starts[i : i + 1],
            )
            for i in range(n)
        ]
    )
    queries = module.asked // n

    np.random.seed(0)  # noqa: NPY002 (what ART draws from)
    classifier = BlackBoxClassifier(
        lambda x: model(torch.from_numpy(x)).numpy(), shape, 4, clip_values=(0, 1)
    )
    reference = HopSkipJump(classifier, max_iter=steps, init_eval=50, max_eval=10000, verbose=False)
    by_art = torch.from_numpy(
        reference.generate(images.numpy(), labels.numpy(), x_adv_init=starts.numpy())
    )

    attack = L0HSJA(1, projection="l2", probes=50)
    run = Run(attack, images, starts, fooled).go(queries)
    closest = starts.clone()
    for candidate, reached in zip(run.asked, run.reached, strict=True):
        image = unflatten_pixels(candidate, shape)
        better = reached & (distance(image) < distance(closest))
        closest[better] = image[better]

    ours = at_the_boundary(closest)
    # all have come a good part of the way, and to about the same distance
    assert ours < 0.5 * at_the_boundary(starts)
    assert ours == pytest.approx(at_the_boundary(by_foolbox), rel=0.1)
    assert ours == pytest.approx(at_the_boundary(by_art), rel=0.15)


def test_more_queries_never_mean_more_pixels() -> None:
    model = integer_model((3, 8, 8), 4)
    images = random_images(20, (3, 8, 8))
    labels = own_labels(model, images)
    targets = (labels + 1) % 4
    pool = random_images(500, (3, 8, 8), seed=1)
    seen = own_labels(model, pool)
    starts = pool[[int((seen == target).int().argmax()) for target in targets]]
    results = [
        L0HSJA(1, queries, probes=10)(model.victim(), images, labels, targets, starts=starts)
        for queries in (3, 8, 60, 300)
    ]
    pixels = torch.stack([result.pixels for result in results])
    assert (pixels[1:] <= pixels[:-1]).all()
    assert (pixels[-1] < pixels[1]).any()  # the steps are of use, not the first bisection alone


@pytest.mark.parametrize(("budget", "expected"), [(3, "failed"), (6, "success")])
def test_known_optimum_of_an_additive_model(budget, expected) -> None:
    # four pixels at best; the six that count are the only ones that differ from the original
    model = additive_model([8, 7, 6, 4, 2, 1], threshold=25, shape=(4, 4))
    images = grey_images(6, (4, 4))
    scores = model.function
    white = torch.ones_like(images)
    assert bool((scores(white).argmax(1) == 1).all())
    starts = images.clone()
    for place in range(16):
        single = images.clone()
        single.view(6, -1)[:, place] = 1
        if scores(single)[0, 1] > 0:
            starts.view(6, -1)[:, place] = 1
    attack = L0HSJA(budget, 300, probes=10)
    result = attack(model.victim(), images, 0, 1, starts=starts, ids=range(6))
    assert result.status == [expected] * 6
    assert int(result.pixels.min()) >= 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"projection": "l1"}, "projection is 'l1': choose from l0, authors, l2"),
        ({"probes": 0}, "probes is 0: it must be an integer of at least 1"),
        ({"probes": 50, "most_probes": 20}, "most_probes is 20: .* at least 50"),
        ({"probe": 0.1}, "probe is 0.1: give 0.5 to 255 levels"),
    ],
)
def test_bad_options(options, message) -> None:
    with pytest.raises(InputError, match=message):
        L0HSJA(3, **options)
