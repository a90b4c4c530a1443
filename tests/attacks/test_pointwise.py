import foolbox
import numpy as np
import pytest
import torch
from driving import begin, feedback
from foolbox.criteria import Misclassification
from models import additive_model, grey_images, integer_model, own_labels, random_images

from brusle import rng
from brusle.attacks.pointwise import Pointwise
from brusle.errors import InputError
from brusle.problems import Problems, flatten_pixels
from brusle.rng import Purpose

SHAPE, CLASSES = (3, 6, 6), 4


class Case:
    """A small victim, images, and an adversarial start for each."""

    def __init__(self, n: int, model=None) -> None:
        self.model = model or integer_model(SHAPE, CLASSES).function
        pool = random_images(1000, SHAPE)
        best = self.model(pool).topk(2).values
        clear = (best[:, 0] - best[:, 1]).sort(descending=True).indices
        self.images = pool[clear[:n]]  # far from the boundary: there is something to do
        self.labels = self.model(self.images).argmax(1)
        pool = random_images(500, SHAPE, seed=1)
        seen = self.model(pool).argmax(1)
        self.starts = pool[[int((seen != label).int().argmax()) for label in self.labels]]

    def fooled(self, images: torch.Tensor) -> torch.Tensor:
        return self.model(images).argmax(1) != self.labels

    def reducible(self, images: torch.Tensor, unit: str) -> torch.Tensor:
        """Which images stay adversarial with one more unit set back."""
        width = SHAPE[0] if unit == "pixel" else 1
        flat = flatten_pixels(images).view(len(images), -1, width)
        original = flatten_pixels(self.images).view(flat.shape)
        any_works = torch.zeros(len(images), dtype=torch.bool)
        for place in range(flat.shape[1]):
            less = flat.clone()
            less[:, place] = original[:, place]
            works = self.fooled(unflatten(less))
            any_works |= works & (flat[:, place] != original[:, place]).any(1)
        return any_works


def unflatten(flat: torch.Tensor) -> torch.Tensor:
    c, h, w = SHAPE
    return flat.reshape(len(flat), h, w, c).permute(0, 3, 1, 2)


def first_ends(case: Case, attack: Pointwise, seed: int, rounds: int = 900) -> torch.Tensor:
    """Where the search stands before it begins again for the first time."""
    problems = Problems.make(case.images, case.labels, starts=case.starts)
    search = begin(attack, problems, seed, 0)
    ends = torch.zeros_like(problems.flat_images)
    running = torch.ones(len(problems), dtype=torch.bool)
    for _ in range(rounds):
        before = search.current.clone()
        images = unflatten(search.ask().pixels)
        reached = case.fooled(images)
        search.tell(feedback(reached.double(), reached, reached[:, None]))
        again = (search.current == search.start).flatten(1).all(1) & running
        again &= (before != search.start).flatten(1).any(1)
        ends[again] = before[again].view(-1, *ends.shape[1:])
        running &= ~again
    assert not running.any()
    return unflatten(ends)


def changed_values(a: torch.Tensor, b: torch.Tensor) -> np.ndarray:
    return (a != b).flatten(1).sum(1).double().numpy()


def test_ends_like_foolbox() -> None:
    """The same starts, single values: neither end can be reduced, and they are as small."""
    weight = torch.from_numpy(np.random.default_rng(3).normal(size=(108, CLASSES)))
    case, seeds = Case(40, lambda x: (x.double().flatten(1) - 0.5) @ weight), 5
    theirs, ours = [], []
    for seed in range(seeds):
        np.random.seed(seed)  # noqa: NPY002 (what Foolbox draws from)
        reference = foolbox.attacks.PointwiseAttack(l2_binary_search=False)
        found = reference.run(
            as_foolbox(case),
            case.images,
            Misclassification(case.labels),
            starting_points=case.starts,
        )
        assert case.fooled(found).all()
        assert not case.reducible(found, "value").any()
        theirs.append(changed_values(found, case.images))
        ends = first_ends(case, Pointwise(1, unit="value", group=1), seed)
        assert case.fooled(ends).all()
        assert not case.reducible(ends, "value").any()
        ours.append(changed_values(ends, case.images))
    # the spread of one image's ends is what is left to chance; images themselves are the same
    difference = np.mean(ours, 0) - np.mean(theirs, 0)
    chance = np.sqrt((np.var(ours, 0, ddof=1) + np.var(theirs, 0, ddof=1)) / seeds)
    error = np.sqrt(np.mean(chance**2) / len(difference))
    assert abs(difference.mean()) < 3 * error
    assert error < 0.03 * np.mean(theirs)
    assert 5 < np.mean(theirs) < 50  # neither trivial nor untouched


def as_foolbox(case: Case) -> foolbox.models.Model:
    class Module(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return case.model(images)

    return foolbox.PyTorchModel(Module().eval(), bounds=(0, 1), device="cpu")


@pytest.mark.parametrize("group", [1, 8])
def test_no_pixel_can_be_set_back_at_the_end(group) -> None:
    case = Case(40)
    ends = first_ends(case, Pointwise(1, group=group), seed=0)
    assert case.fooled(ends).all()
    assert not case.reducible(ends, "pixel").any()


def transcription(original, start, fooled, stream, group, queries):
    """Pointwise on one image of ``(units, values)``, written out; yields every candidate."""
    asked = 0
    while True:
        current, size = start.copy(), group
        while True:
            differs = [u for u in range(len(start)) if (current[u] != original[u]).any()]
            lots = rng.bits(stream, asked, Purpose.POINTWISE_ORDER, len(start))[0].tolist()
            order = sorted(differs, key=lambda u: (lots[u], u))
            size = max(1, min(size, len(order) // 2))
            useful = False
            for first in range(0, len(order), size):
                candidate = current.copy()
                candidate[order[first : first + size]] = original[order[first : first + size]]
                yield candidate
                asked += 1
                if asked == queries:
                    return
                if fooled(candidate):
                    current, useful = candidate, True
            if not useful and size == 1:
                break
            if not useful:
                size //= 2


@pytest.mark.parametrize("unit", ["pixel", "value"])
@pytest.mark.parametrize("group", [1, 7, None])
def test_agrees_with_a_transcription_candidate_by_candidate(unit, group) -> None:
    case, queries = Case(6), 400
    attack = Pointwise(1, queries if group else 30, unit=unit, group=group)
    problems = Problems.make(case.images, case.labels, starts=case.starts)
    search = begin(attack, problems, 5, 0)
    asked = []
    for _ in range(queries):
        images = unflatten(search.ask().pixels)
        asked.append(images.numpy())
        reached = case.fooled(images)
        search.tell(feedback(reached.double(), reached, reached[:, None]))
    width = SHAPE[0] if unit == "pixel" else 1
    streams = rng.streams(5, problems.ids)
    for i in range(6):
        original = problems.flat_images[i].numpy().reshape(-1, width)
        start = flatten_pixels(case.starts)[i].numpy().reshape(-1, width)

        def fooled(flat, i=i):
            image = unflatten(torch.from_numpy(flat)[None].reshape(1, -1, SHAPE[0]))
            return int(case.model(image).argmax()) != int(case.labels[i])

        size = attack.first_group(len(start))
        expected = transcription(original, start, fooled, streams[i : i + 1], size, queries)
        for turn, flat in enumerate(expected):
            image = unflatten(torch.from_numpy(flat)[None].reshape(1, -1, SHAPE[0]))
            assert np.array_equal(asked[turn][i], image[0].numpy()), (i, turn)
        assert turn == queries - 1
    if group is None:
        assert attack.first_group(len(start)) > 1


@pytest.mark.parametrize(("budget", "expected"), [(3, "failed"), (5, "success"), (8, "success")])
@pytest.mark.parametrize("targeted", [False, True])
def test_known_optimum_of_an_additive_model(budget, expected, targeted) -> None:
    # 8 + 7 + 6 + 4 = 25: four pixels at best; other orders end at more, e.g. 8 + 7 + 5 + 3 + 2
    model = additive_model([8, 7, 6, 5, 4, 3, 2, 1, 1, 1], threshold=25, shape=(6, 6))
    images = grey_images(12, (6, 6))
    starts = torch.ones_like(images) if targeted else None
    attack = Pointwise(budget, 800)
    result = attack(
        model.victim(), images, 0, 1 if targeted else None, ids=range(12), starts=starts
    )
    assert result.status == [expected] * 12
    assert int(result.pixels.min()) >= 4


def test_beginning_again_finds_smaller_sets() -> None:
    """One round ends at some irreducible set; with more queries the optimum of 4 turns up."""
    model = additive_model([8, 7, 6, 5, 4, 3, 2, 1, 1, 1], threshold=25, shape=(6, 6))
    images = grey_images(30, (6, 6))
    few = Pointwise(1, 100)(
        model.victim(), images, 0, 1, ids=range(30), starts=torch.ones_like(images)
    )
    many = Pointwise(1, 1500)(
        model.victim(), images, 0, 1, ids=range(30), starts=torch.ones_like(images)
    )
    assert (many.pixels <= few.pixels).all()
    assert many.pixels.double().mean() < few.pixels.double().mean()
    assert many.pixels.tolist() == [4] * 30


def test_untouched_pixels_keep_values_between_levels() -> None:
    model = integer_model(SHAPE, CLASSES)
    images = (random_images(20, SHAPE) * 0.9 + 0.0317).clamp(0, 1)
    labels = own_labels(model, images)
    result = Pointwise(5, 300)(model.victim(), images, labels)
    assert result.success.any()
    same = (result.images == images).all(1).flatten(1).sum(1)
    assert torch.equal(same, 36 - result.pixels)
    assert int(result.pixels[result.success].max()) <= 5


def test_groups_follow_the_queries() -> None:
    assert Pointwise(1, 2048).first_group(1024) == 1
    assert Pointwise(1, 2047).first_group(1024) == 2
    assert Pointwise(1, 20_000).first_group(224 * 224) == 6
    assert Pointwise(1, 20_000, group=9).first_group(224 * 224) == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": "row"}, "unit is 'row': choose from pixel, value"),
        ({"group": 0}, "group is 0: it must be an integer of at least 1"),
        ({"group": 1.5}, "group is 1.5: it must be an integer"),
    ],
)
def test_bad_options(options, message) -> None:
    with pytest.raises(InputError, match=message):
        Pointwise(3, **options)


def test_a_targeted_attack_asks_for_starts() -> None:
    model = integer_model(SHAPE, CLASSES)
    with pytest.raises(InputError, match="Pointwise starts at an image of the target class"):
        Pointwise(3)(model.victim(), random_images(2, SHAPE), [0, 0], [1, 1])
    assert model.seen == 0
