"""PixelBandit against its definition, computed another way."""

import math
from dataclasses import dataclass

import pytest
import torch
from driving import Driven
from models import integer_model, own_labels, random_images

from brusle import rng
from brusle.attacks import PixelBandit
from brusle.attacks.pixel_bandit import Bandit, crowd
from brusle.attacks.pixel_bandit.best import Answer, Best
from brusle.attacks.pixel_bandit.elements import Chance, Elements
from brusle.attacks.pixel_bandit.log_odds import LogOdds
from brusle.attacks.pixel_bandit.masks import MaskProposals
from brusle.attacks.pixel_bandit.memory import Memory
from brusle.attacks.pixel_bandit.posterior import Posterior, log_likelihood
from brusle.attacks.pixel_bandit.prior import Prior
from brusle.attacks.pixel_bandit.residual import Residual
from brusle.attacks.pixel_bandit.swaps import SwapModel, SwapProposals, Swaps, candidates
from brusle.errors import InputError
from brusle.problems import Edits, Problems
from brusle.scores import Meaning, Scores
from brusle.search import Feedback, Round

Element = tuple[int, int]  # pixel, and number of its colour


@dataclass(frozen=True)
class InCells(PixelBandit):
    """The search for large images, with so many cells along a side."""

    cells: int = 4

    def prior_of(self, problems: Problems) -> Prior:
        c, h, w = problems.shape
        return Prior.of(h, w, c, self.length or 3.0, problems.images.device, self.cells)


def starting(images: torch.Tensor, cells: int | None = None, seed: int = 0, **options) -> Driven:
    """A search; with ``cells`` along a side it is the one for large images."""
    options = {"pixels": 4, "queries": 60, "memory": 12} | options
    attack = PixelBandit(**options) if cells is None else InCells(**options, cells=cells)
    n = len(images)
    ones = torch.ones(n, dtype=torch.int64)
    problems = Problems.make(images, ones * 0, ones, range(n))
    search = attack.start(problems, seed, 0)
    assert isinstance(search.proposals, MaskProposals if cells is None else SwapProposals)
    return Driven(search, n, attack.behaviour.resumes_at)


def searching(
    images: torch.Tensor, rounds: int, seed: int = 0, **options
) -> tuple[Driven, list[list[list[Element]]], list[list[list[Element]]]]:
    """A search after so many rounds with made-up scores.

    Also, for each round and problem, the mask that was asked and the best one before it.
    """
    search = starting(images, seed=seed, **options)
    generator = torch.Generator().manual_seed(seed)
    asked, before = [], []
    for _ in range(rounds):
        before.append(best_masks(search))
        asked.append(masks_of(search, search.ask()))
        answer(search, torch.randn(len(images), 5, generator=generator, dtype=torch.float64))
    return search, asked, before


def masks_of(search: Bandit | Driven, edits: Edits) -> list[list[Element]]:
    """The mask of each problem; its colours are corners of the colour cube."""
    same = (edits.colour[:, :, None] == search.prior.colours).all(3)
    assert bool((same.sum(2) == 1).all())
    return pairs(edits.index, same.int().argmax(2))


def best_masks(search: Bandit | Driven) -> list[list[Element]]:
    return pairs(search.best_pixel, search.best_colour)


def pairs(pixel: torch.Tensor, colour: torch.Tensor) -> list[list[Element]]:
    both = zip(pixel.tolist(), colour.tolist(), strict=True)
    return [list(zip(p, c, strict=True)) for p, c in both]


def answer(search: Driven, scores: torch.Tensor, loss: float | None = None) -> None:
    n = len(scores)
    losses = -scores.log_softmax(1)[:, 1] if loss is None else torch.full((n,), loss).double()
    search.tell(Feedback(losses, torch.zeros(n, dtype=torch.bool), Scores(scores)))


def painted(search: Bandit | Driven, mask) -> list[tuple[int, torch.Tensor]]:
    """The elements of a mask with their colours."""
    return [(pixel, search.prior.colours[colour]) for pixel, colour in mask]


def scale_of(image: torch.Tensor, pixel: int, colour: torch.Tensor) -> float:
    """Larger near the centre, and where the colour differs from the image."""
    _, h, w = image.shape
    far = []
    for at in range(h * w):
        y, x = divmod(at, w)
        radius = math.hypot(y - (h - 1) / 2, x - (w - 1) / 2)
        far.append(max(0.05, 1 - radius / (27 / 32 * max(h, w))))
    centre = far[pixel] / math.sqrt(sum(value**2 for value in far) / (h * w))
    distance = float((image.flatten(1)[:, pixel] - colour).abs().mean())
    return centre * (distance + 0.02) / 0.5


def nearness(p: int, q: int, w: int, reach: float) -> float:
    (y, x), (v, u) = divmod(p, w), divmod(q, w)
    return math.exp(-(abs(y - v) + abs(x - u)) / reach)


def crowd_of(pixel: int, pixels, image: torch.Tensor) -> float:
    """How many of the pixels stand together with one of them."""
    return sum(nearness(pixel, other, image.shape[2], 2.0) for other in pixels)


def effects_alike(image, one, two, length: float) -> float:
    """Covariance of the sums of effects of two masks, given as lists of (pixel, colour)."""
    total = 0.0
    for p, c in one:
        for q, d in two:
            equal = float((c == d).double().mean())
            pair = scale_of(image, p, c) / crowd_of(p, [at for at, _ in one], image)
            pair *= scale_of(image, q, d) / crowd_of(q, [at for at, _ in two], image)
            total += pair * nearness(p, q, image.shape[2], length) * (0.55 + 0.45 * equal)
    return total


def residuals_alike(one, two, b: int) -> float:
    return 0.1 * b * math.exp(-(b - _shared(one, two)) / (0.6 * b))


def covariance(image, one, two, length: float) -> float:
    """Of the scores of two masks."""
    return effects_alike(image, one, two, length) + residuals_alike(one, two, len(one)) + 100.0


@pytest.mark.parametrize("shape", [(3, 6, 5), (1, 4, 7)])
@pytest.mark.parametrize(
    "rounds", [9, 15, 70, 1001]
)  # memory is 12; the inverse is made anew at 64
def test_the_inverse_is_that_of_the_covariance(shape, rounds) -> None:
    images = random_images(2, shape)
    search, asked, _ = searching(images, rounds, queries=2000, length=3.0)
    for row in range(2):
        slots = [at % 12 for at in range(rounds)][-12:]
        masks = [painted(search, mask[row]) for mask in asked[-12:]]
        dense = torch.tensor([[covariance(images[row], a, b, 3.0) for b in masks] for a in masks])
        dense = dense.double() + 0.05 * torch.eye(len(masks))
        inverse = search.proposals.model.posterior.inverse[row]
        mine = inverse[slots][:, slots]
        assert torch.allclose(mine @ dense, torch.eye(len(masks)).double(), atol=2e-4)
        if rounds < 12:
            rest = [slot for slot in range(12) if slot not in slots]
            assert not inverse[rest].any()


def test_draws_have_the_mean_and_the_spread_of_the_posterior() -> None:
    image, n = random_images(1, (3, 4, 4)), 6000
    search, asked, _ = searching(image, 11, length=2.0, initial=8)
    model, colours = search.proposals.model, search.prior.colours
    # the same observations for many problems, whose random numbers differ
    many = model.pick(torch.zeros(n, dtype=torch.int64))
    chance = Chance(rng.streams(0, torch.arange(n)), torch.full((n,), 11))
    drawn, _ = many.draw(chance, search.slope.expand(n, -1, -1))
    masks = [painted(search, mask[0]) for mask in asked]
    direction = torch.cat([torch.ones(1), -search.best.z[0, 1:5].softmax(0), torch.zeros(5)])
    mean_of_random = model.memory.z[0, :8].mean(0)
    y = (model.memory.z[0, :11] - mean_of_random) @ direction.double()
    inverse = model.posterior.inverse[0, :11, :11]
    variance = float(y @ inverse @ y) / 11
    for pixel, colour in ((0, 0), (5, 3), (10, 7)):
        scale = scale_of(image[0], pixel, colours[colour])
        effects = drawn[:, colour, pixel] * scale
        element = [(pixel, colours[colour])]
        with_masks = torch.tensor(
            [effects_alike(image[0], element, mask, 2.0) for mask in masks]
        ).double()
        mean = float(with_masks @ inverse @ y)
        spread = 0.6**2 * variance * (scale**2 - float(with_masks @ inverse @ with_masks))
        error = math.sqrt(spread / n)
        assert abs(float(effects.mean()) - mean) < 4.5 * error
        assert float(effects.var()) == pytest.approx(spread, rel=0.15)


def _shared(one, two) -> int:
    return sum(p == q and bool((c == d).all()) for p, c in one for q, d in two)


def test_the_residual_speaks_of_elements_seen_before() -> None:
    images = random_images(1, (3, 5, 5))
    search, asked, _ = searching(images, 11)
    model = search.proposals.model
    _, learned = model.draw(Chance(search.stream, search.step), search.slope)
    own, others = model.residual.familiar(model.memory, search.best.mask, learned)
    masks, best = [set(mask[0]) for mask in asked], best_masks(search)[0]

    def residual(mask: set) -> float:
        """Its mean, for a mask of any size that is compared as if it had four elements."""
        alike = [0.4 * math.exp(-(4 - len(mask & seen)) / 2.4) for seen in masks]
        return float(torch.tensor(alike) @ learned[0, :11])

    whole = residual(set(best))
    for place, element in enumerate(best):
        assert float(own[0, place]) == pytest.approx(
            whole - residual(set(best) - {element}), abs=1e-5
        )
    for pixel, colour in set.union(*masks) - set(best):
        gain = residual({*best, (pixel, colour)}) - whole
        assert float(others[0, colour, pixel]) == pytest.approx(gain, abs=1e-5)
    assert int((others != 0).sum()) <= len(set.union(*masks) - set(best))


def test_pixels_that_stand_together_share_their_effect() -> None:
    images = random_images(1, (3, 32, 32))
    prior = Prior.of(32, 32, 3, 4.0, images.device)
    flat = images.flatten(2).mT
    everywhere = torch.arange(32 * 32)[None]
    alone = prior.scales(flat, everywhere)  # of effects that are 1 at scale 1
    one, colour = 10 * 32 + 10, torch.tensor([[0, 0]])
    for other in (11 * 32 + 10, 10 * 32 + 13, 30 * 32 + 30):
        mask = Elements(torch.tensor([[one, other]]), colour)
        together = nearness(one, other, 32, 2.0)
        drawn = prior.of_elements(torch.ones(1, 8, 32 * 32), flat, mask)
        assert drawn[0].tolist() == pytest.approx(alone[0, 0, [one, other]].tolist())
        whole = float(drawn.sum()) / (1 + together)
        lost = crowd.without(prior, mask.pixel, drawn)[0]
        for place in range(2):
            rest = float(drawn[0, 1 - place])
            assert float(lost[place]) == pytest.approx(whole - rest, abs=1e-6)
        kept = torch.tensor([[True, False]])
        beside = crowd.beside(prior, mask.pixel, drawn, kept, alone)[0, 0, other]
        # the crowd loses a little less than in truth where it is near, a little more where not
        truth = whole - float(drawn[0, 0])
        assert abs(float(beside) - truth) < 0.12 * float(drawn[0, 0])


def test_what_was_tried_in_vain_is_not_tried_again() -> None:
    search, _, _ = searching(random_images(1, (1, 4, 4)), 1, initial=1)
    generator = torch.Generator().manual_seed(1)
    search.ask()
    answer(search, torch.randn(1, 5, generator=generator).double(), loss=-100.0)
    seen: set[Element] = set()
    for _ in range(40):  # nothing will be better
        best = {pixel for pixel, _ in best_masks(search)[0]}
        mask = masks_of(search, search.ask())[0]
        new = {element for element in mask if element[0] not in best}
        swaps = round(1 + 3 * math.exp(-0.2 * (float(search.step) - 1)))
        if swaps == 1 and len(seen) < 20:  # of 12 pixels in 2 colours
            assert not seen & new
        seen |= new
        answer(search, torch.randn(1, 5, generator=generator).double(), loss=1.0)
    assert search.best.tried.any()
    search.ask()
    answer(search, torch.randn(1, 5, generator=generator).double(), loss=-101.0)
    assert not search.best.tried.any()  # the best mask is another


def test_products_of_signs_are_alike_as_the_residual() -> None:
    memory = Memory.empty(Prior.of(6, 6, 3, 3.0, torch.device("cpu")), 1, 2, 4)
    residual = Residual.empty(memory, features=40_000)
    signs = []
    for changed in range(5):  # of four elements
        pixel = torch.tensor([[20 + i if i < changed else i for i in range(4)]])
        signs.append(residual.features(Elements(pixel, torch.zeros(1, 4, dtype=torch.int64)))[0])
    for changed in range(5):
        expected = math.exp(-changed / (0.6 * 4))
        assert float((signs[0] * signs[changed]).mean()) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("shape", [(3, 6, 5), (1, 3, 4), (5, 8, 8)])
def test_candidates_are_swaps_of_the_best_mask(shape) -> None:
    images = random_images(3, shape)
    images[:, :, 0] = images[:, :, 0].round()  # some pixels have corner colours already
    search, _, _ = searching(images, 10)
    flat = images.flatten(2)
    for age in range(30):
        best = best_masks(search)
        masks = masks_of(search, search.ask())
        swaps = round(1 + 3 * math.exp(-0.2 * (age + 8)))
        for row in range(3):
            assert len({pixel for pixel, _ in masks[row]}) == 4
            new = set(masks[row]) - set(best[row])
            assert len(new) == swaps  # what is taken out does not come back
            for p, c in new:
                own = flat[row, :, p]
                assert not torch.equal(own, search.prior.colours[c])
        answer(search, torch.randn(3, 5, generator=torch.Generator().manual_seed(age)).double())


def test_large_images_have_cells() -> None:
    images = random_images(1, (3, 70, 130))
    search = PixelBandit(4, 60).start(Problems.make(images, [0], [1]), 0, 0)
    assert isinstance(search.proposals, SwapProposals)
    prior = search.prior
    assert (prior.side, prior.cells) == (3, (24, 44))
    pixels = [candidates(prior, Chance(search.stream, torch.tensor([step]))) for step in (11, 12)]
    assert torch.equal(prior.cell_of[pixels[0]][0], torch.arange(24 * 44))
    assert (pixels[0] != pixels[1]).double().mean() > 0.5  # other pixels next time


def swaps_of(best: list[Element], mask: list[Element]) -> list[tuple[int, int, float]]:
    """Pixel, colour, and 1 if it was put into the best mask or -1 if it was taken out."""
    out = [(*element, -1.0) for element in best if element not in mask]
    return out + [(*element, 1.0) for element in mask if element not in best]


def listed(search, row: int, asked, before) -> list[list[tuple[int, torch.Tensor, float]]]:
    """The swaps of each proposal, with their colours; the first two masks are random."""
    both = zip(before[2:], asked[2:], strict=True)
    lists = [swaps_of(best[row], mask[row]) for best, mask in both]
    return [[(p, search.prior.colours[c], sign) for p, c, sign in one] for one in lists]


def fields_alike(image, cells: int, one, two, length: float) -> float:
    """Covariance of what the fields say of two observations."""
    side, w = -(-max(image.shape[1:]) // cells), image.shape[2]
    total = 0.0
    for p, c, sign in one:
        for q, d, other in two:
            (y, x), (v, u) = divmod(p, w), divmod(q, w)
            steps = abs(y // side - v // side) + abs(x // side - u // side)
            equal = float((c == d).double().mean())
            pair = sign * scale_of(image, p, c) * other * scale_of(image, q, d)
            total += pair * math.exp(-steps * side / length) * (0.55 + 0.45 * equal)
    return total


def owns_alike(image, one, two) -> float:
    return 0.3 * sum(
        sign * other * scale_of(image, p, c) * scale_of(image, q, d)
        for p, c, sign in one
        for q, d, other in two
        if p == q and torch.equal(c, d)
    )


@pytest.mark.parametrize("shape", [(3, 7, 8), (1, 12, 5)])
@pytest.mark.parametrize("rounds", [3, 9, 13, 70, 300])
def test_the_inverse_is_that_of_the_covariance_of_swaps(shape, rounds) -> None:
    images = random_images(2, shape)
    search, asked, before = searching(images, rounds, queries=2000, length=3.0, cells=4)
    for row in range(2):
        # the first two masks are random, so no swaps
        slots = [at % 12 for at in range(2, rounds)][-12:]
        lists = listed(search, row, asked, before)[-12:]
        counts = torch.tensor([len(one) / 2 for one in lists]).double()
        dense = torch.zeros(len(lists), len(lists)).double()
        for i, one in enumerate(lists):
            for j, two in enumerate(lists):
                dense[i, j] = fields_alike(images[row], 4, one, two, 3.0)
                dense[i, j] += owns_alike(images[row], one, two)
        dense = dense + counts[:, None] * counts + torch.diag(0.01 * counts**2 + 0.02)
        inverse = search.proposals.model.posterior.inverse[row]
        mine = inverse[slots][:, slots]
        assert torch.allclose(mine @ dense, torch.eye(len(lists)).double(), atol=2e-3)
        rest = [slot for slot in range(12) if slot not in slots]
        assert not inverse[rest].any()


def repeated(swaps: list[tuple[int, int, float]], n: int, width: int) -> Swaps:
    """The same swaps for many problems, filled up with elements of no weight."""
    filled = [*swaps, *[(0, 0, 0.0)] * (width - len(swaps))]
    columns = [torch.tensor(values).repeat(n, 1) for values in zip(*filled, strict=True)]
    return Swaps(Elements(columns[0], columns[1]), columns[2])


def test_draws_of_swaps_have_the_mean_and_the_spread_of_the_posterior() -> None:
    image, n, count = random_images(1, (3, 8, 8)), 6000, 9
    search, asked, before = searching(image, 2 + count, length=2.0, cells=4)
    one, prior, best = search.proposals.model, search.prior, search.best.mask
    # many problems with draws of their own, which say something else, of the same observations
    stream, flat = rng.streams(0, torch.arange(n)), search.images.expand(n, -1, -1)
    many, there = SwapModel.start(prior, stream, 12, 4), torch.ones(n)
    for at in range(2, 2 + count):
        step, change = torch.full((n,), at), one.memory.z[:, at].expand(n, -1)
        swaps = repeated(swaps_of(before[at][0], asked[at][0]), n, width=8)
        many.learn(step, flat, swaps, change, there)
    chance = Chance(stream, torch.full((n,), 2 + count))
    everyone = torch.zeros(n, dtype=torch.int64)
    effects, own = many.draw(chance, flat, best.pick(everyone), search.slope.expand(n, -1, -1))
    lists = listed(search, 0, asked, before)
    direction = torch.cat([torch.ones(1), -search.best.z[0, 1:5].softmax(0), torch.zeros(5)])
    y = one.memory.z[0, 2 : 2 + count] @ direction.double()
    inverse = one.posterior.inverse[0, 2 : 2 + count, 2 : 2 + count]
    variance = float(y @ inverse @ y) / count
    colours = prior.colours

    def check(drawn, prior: float, with_swaps: list[float]) -> None:
        alike = torch.tensor(with_swaps).double()
        mean = float(alike @ inverse @ y)
        spread = 0.6**2 * variance * (prior - float(alike @ inverse @ alike))
        assert abs(float(drawn.mean()) - mean) < 4.5 * math.sqrt(spread / n)
        assert float(drawn.var()) == pytest.approx(spread, rel=0.15)

    for pixel, colour in ((0, 0), (27, 3), (61, 7)):
        element = [(pixel, colours[colour], 1.0)]
        scale = scale_of(image[0], pixel, colours[colour])
        drawn = effects[:, colour, prior.cell_of[pixel]] * scale
        check(drawn, scale**2, [fields_alike(image[0], 4, element, a, 2.0) for a in lists])
    for place in range(4):
        pixel, colour = int(best.pixel[0, place]), colours[best.colour[0, place]]
        scale = scale_of(image[0], pixel, colour)
        element = [(pixel, colour, 1.0)]
        check(own[:, place], 0.3 * scale**2, [owns_alike(image[0], element, a) for a in lists])


@pytest.mark.parametrize("shape", [(3, 40, 48), (1, 30, 30)])
def test_swaps_stand_apart(shape) -> None:
    images = random_images(2, shape)
    images[:, :, 0] = images[:, :, 0].round()  # some pixels have corner colours already
    search, _, _ = searching(images, 2, cells=20, pixels=9, queries=200)
    columns = search.prior.cells[1]
    for age in range(40):
        best = best_masks(search)
        masks = masks_of(search, search.ask())
        for row in range(2):
            mask = dict(masks[row])
            new = set(mask) - {pixel for pixel, _ in best[row]}
            assert len(mask) == 9
            assert len(new) == round(float(search.proposals.radius[row]))
            for p, c in mask.items():
                own = images[row].flatten(1)[:, p]
                assert p not in new or not torch.equal(own, search.prior.colours[c])
            # not in the cells of what stays, and not in cells that touch
            cells = {p: divmod(int(search.prior.cell_of[p]), columns) for p in mask}
            for p in new:
                for q in set(mask) - {p}:
                    far = max(abs(a - b) for a, b in zip(cells[p], cells[q], strict=True))
                    assert far > (1 if q in new else 0)
        answer(search, torch.randn(2, 5, generator=torch.Generator().manual_seed(age)).double())


def test_the_number_of_swaps_follows_success() -> None:
    search, _, _ = searching(random_images(1, (3, 20, 20)), 2, cells=10, pixels=9)
    expected = 9.0
    for better in (False,) * 8 + (True,) * 2 + (False,) * 40 + (True,):
        search.ask()
        loss = float(search.best.loss) - (1 if better else -1)
        answer(search, torch.zeros(1, 5).double(), loss)
        expected = min(9.0, max(1.0, expected * (1.5 if better else 1.5**-0.25)))
        assert float(search.proposals.radius) == pytest.approx(expected)
    assert expected == 1.5


def test_swaps_find_the_best_elements_of_a_sum() -> None:
    """Scores are a sum of smooth effects: the mask comes close to the best there is."""
    shape, pixels = (3, 66, 66), 12
    images = random_images(1, shape)
    y, x = torch.meshgrid(torch.arange(66.0), torch.arange(66.0), indexing="ij")
    effect = (torch.sin(y / 9) * torch.cos(x / 7)).flatten()
    attack = PixelBandit(pixels=pixels, queries=400, memory=200)
    search = Driven(attack.start(Problems.make(images, [0], [1], [0]), 0, 0), 1)
    assert isinstance(search.proposals, SwapProposals)
    for _ in range(400):
        scores = torch.zeros(1, 5).double()
        scores[0, 1] = effect[search.ask().index].sum().double()
        answer(search, scores)
    best = float(effect[search.best_pixel].sum())
    assert best > 0.85 * float(effect.topk(pixels).values.sum())


def noisy(search, sigma: float, rounds: int, varies: bool) -> None:
    """Answer with a sum of effects of positions and random numbers of this spread."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(rounds):
        score = search.ask().index.double().sum(1) / 100
        scores = torch.zeros(len(score), 5).double()
        scores[:, 1] = score + sigma * torch.randn(len(score), generator=generator)
        loss = -scores.log_softmax(1)[:, 1]
        wrong = torch.zeros(len(score), dtype=torch.bool)
        search.tell(Feedback(loss, wrong, Scores(scores), randomised=varies))


def test_noise_is_estimated_where_the_victim_is_randomised() -> None:
    chosen = {}
    for sigma in (0.0, 0.3, 3.0):
        search = starting(random_images(8, (3, 8, 8)), memory=60, queries=70)
        noisy(search, sigma, 64, varies=True)
        model = search.proposals.model
        chosen[sigma] = model.noise.log().mean().exp()
        for whole, inverse in zip(model.posterior.covariance, model.posterior.inverse, strict=True):
            # the inverse has kept up
            assert torch.allclose(whole @ inverse, torch.eye(60).double(), atol=1e-3)
    assert chosen[0.0] < chosen[0.3] < chosen[3.0]
    search = starting(random_images(8, (3, 8, 8)), memory=60, queries=70)
    noisy(search, 3.0, 64, varies=False)
    assert (search.proposals.model.noise == 0.05).all()


def test_the_best_mask_of_a_randomised_victim_is_the_likeliest() -> None:
    search = starting(random_images(30, (3, 8, 8)), memory=60, queries=70)
    noisy(search, 1.0, 50, varies=True)
    luckiest, model = 0, search.proposals.model
    for row in range(30):
        y = model.observed(search.slope)[row, :50]
        whole = model.posterior.covariance[row, :50, :50]
        bare = whole - (model.noise[row] - 0.05) * torch.eye(50)
        # chosen along the slope at the best mask before; the scores of one class alone vary here
        expected = int((bare @ torch.linalg.solve(whole, y)).argmax())
        luckiest += expected == int(y.argmax())
        assert torch.equal(model.memory.elements.pixel[row, expected], search.best_pixel[row])
    assert luckiest < 20


def test_probabilities_that_are_zero_or_rounded() -> None:
    search = starting(random_images(2, (3, 6, 6)))
    scores = torch.tensor([[0.7, 0.02, 0.28, 0.0, 0.0], [0.5, 0.0, 0.25, 0.25, 0.0]]).double()
    search.ask()
    said = Scores(scores, Meaning("probabilities"))
    search.tell(Feedback(torch.ones(2), torch.zeros(2).bool(), said))
    assert search.log_odds.classes[:, 0].tolist() == [1, 1]
    first = search.best.z[:, :5].exp()
    assert first[0].tolist() == pytest.approx([0.02, 0.7, 0.28, 0.01, 0.01])  # half the smallest
    assert first[1, 0] == pytest.approx(0.125)


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("classes", [3, 10, 14])
def test_the_slope_is_that_of_the_log_odds(targeted, classes) -> None:
    generator = torch.Generator().manual_seed(classes)
    labels = torch.tensor([1, 2])
    targets = torch.tensor([0, 1]) if targeted else None
    log_odds = LogOdds.of(Problems.make(random_images(2, (3, 4, 4)), labels, targets))
    scores = torch.randn(2, classes, generator=generator, dtype=torch.float64)
    first = torch.ones(2, dtype=torch.bool)
    z = log_odds.hear(Scores(scores), first).requires_grad_()
    heard = min(classes, 10)
    for row, aim in enumerate((targets if targeted else labels).tolist()):
        assert log_odds.classes[row, 0] == aim
        others = scores[row, [at for at in range(classes) if at != aim]]
        strongest = others.sort(descending=True).values[: heard - 1]
        assert torch.equal(z.detach()[row, 1:heard], strongest)
    odds = (z[:, 0] - z[:, 1:heard].logsumexp(1)).sum() * (1 if targeted else -1)
    (slope,) = torch.autograd.grad(odds, z)
    assert torch.allclose(log_odds.slope(z.detach())[:, :, 0], slope)
    # which classes are heard is decided once
    again = log_odds.hear(Scores(scores.flip(1)), ~first)
    assert torch.equal(again, scores.flip(1).gather(1, log_odds.classes))


def test_the_posterior_is_that_of_a_dense_gaussian_process() -> None:
    generator = torch.Generator().manual_seed(0)
    n, slots, rounds = 3, 6, 20
    features = torch.randn(n, rounds, 40, generator=generator, dtype=torch.float64)
    whole = features @ features.mT / 40
    noise = torch.rand(n, rounds, generator=generator, dtype=torch.float64) + 0.1
    there = (torch.rand(n, rounds, generator=generator) < 0.8).double()
    posterior = Posterior.empty(n, slots, torch.device("cpu"))
    held: dict[int, int] = {}  # which observation a slot holds
    for at in range(rounds):
        held[at % slots] = at
        alike = torch.zeros(n, slots, dtype=torch.float64)
        for slot, other in held.items():
            alike[:, slot] = whole[:, at, other]
        posterior.learn(torch.full((n,), at), there[:, at], alike, noise[:, at])
        y = torch.randn(n, slots, generator=generator, dtype=torch.float64) * posterior.known
        said = torch.randn(n, slots, generator=generator)
        weights = posterior.weights(y, said)
        for row in range(n):
            some = [slot for slot, other in held.items() if there[row, other]]
            seen = [held[slot] for slot in some]
            dense = whole[row][seen][:, seen] + noise[row, seen].diag()
            mean = torch.linalg.solve(dense, y[row, some])
            variance = float(y[row, some] @ mean) / max(1, len(some))
            wrong = torch.linalg.solve(dense, said[row, some].double())
            drawn = mean - 0.6 * math.sqrt(variance) * wrong
            empty = [slot for slot in range(slots) if slot not in some]
            assert not posterior.inverse[row, empty].any()
            assert torch.allclose(posterior.mean(y)[row, some], mean)
            assert torch.allclose(weights.mean[row, some], mean.float(), atol=1e-5)
            assert torch.allclose(weights.draw[row, some], drawn.float(), atol=1e-4)
            assert not weights.draw[row, empty].any()


def test_the_likelihood_is_that_of_the_likeliest_size_of_effects() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, 5, 9, generator=generator, dtype=torch.float64)
    y = torch.randn(5, generator=generator, dtype=torch.float64)
    covariance = features @ features.mT + torch.eye(5)
    highest = []
    for dense in covariance:
        variance = float(y @ torch.linalg.solve(dense, y)) / 5
        normal = torch.distributions.MultivariateNormal
        sizes = [normal(y * 0, size * variance * dense) for size in (0.9, 1.0, 1.1)]
        likely = [float(size.log_prob(y)) for size in sizes]
        assert max(likely) == likely[1]
        highest.append(likely[1])
    mine = log_likelihood(y.expand(2, -1), covariance, torch.ones(2, 5).double())
    assert float(mine[0] - mine[1]) == pytest.approx(highest[0] - highest[1])


def test_a_narrowed_memory_says_the_same_and_copies_nothing() -> None:
    prior = Prior.of(9, 9, 3, 3.0, torch.device("cpu"))
    memory = Memory.empty(prior, 2, 3, 50)
    generator = torch.Generator().manual_seed(0)
    pixel = torch.stack([torch.randperm(81, generator=generator)[:50] for _ in range(2)])
    elements = Elements(pixel, torch.randint(8, (2, 50), generator=generator))
    size = torch.rand(2, 50, generator=generator)
    size[:, 19:] = 0.0
    memory.put(torch.tensor([1, 2]), elements, size, torch.ones(2, 10).double())
    narrow = memory.narrowed(19)
    assert narrow.size.shape == (2, 3, 32)
    assert narrow.size.data_ptr() == memory.size.data_ptr()
    assert narrow.index.data_ptr() == memory.index.data_ptr()
    effects = torch.randn(2, 8, 81, generator=generator)
    assert torch.equal(memory.sums(effects), narrow.sums(effects))
    weight = torch.randn(2, 3, generator=generator)
    assert torch.equal(memory.effects(weight), narrow.effects(weight))
    found = narrow.places(elements)
    for row, slot in enumerate((1, 2)):
        assert torch.equal(found[row, slot], torch.arange(32))
        assert (found[row, [at for at in range(3) if at != slot]] == -1).all()


def test_the_best_mask_changes_if_an_answer_is_better() -> None:
    best = Best.unknown(Prior.of(5, 5, 1, 3.0, torch.device("cpu")), 2, 3)
    colour, z = torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 10).double()
    first, second, third = (Elements(colour + torch.arange(3) + at, colour) for at in (5, 10, 15))
    none = torch.zeros(2, dtype=torch.bool)
    best.take(Answer(first, z, torch.tensor([1.0, 1.0]).double(), ~none))
    assert not best.tried.any()  # all is new
    best.take(Answer(second, 2 * z, torch.tensor([2.0, 0.5]).double(), none))
    assert best.mask.pixel.tolist() == [[5, 6, 7], [10, 11, 12]]
    assert best.z[:, 0].tolist() == [1.0, 2.0]
    assert best.loss.tolist() == [1.0, 0.5]
    assert best.tried[0, 0].nonzero()[:, 0].tolist() == [10, 11, 12]
    assert not best.tried[1].any()
    best.take(Answer(third, z, torch.tensor([math.nan, 3.0]).double(), none))
    assert best.loss.tolist() == [1.0, 0.5]  # the victim that failed said nothing
    best.move(first, 3 * z)
    assert best.tried.flatten(1).sum(1).tolist() == [6, 0]  # in the second it is another mask
    assert best.mask.pixel.tolist() == first.pixel.tolist()
    assert best.z[:, 0].tolist() == [3.0, 3.0]


@pytest.mark.parametrize("cells", [None, 4])
def test_what_was_asked_is_not_changed_later(cells) -> None:
    search = starting(random_images(2, (3, 8, 8)), cells, initial=3)
    asked = []
    for at in range(6):
        edits = search.ask()
        asked.append((edits, edits.index.clone(), edits.colour.clone()))
        answer(search, torch.full((2, 5), float(at)).double())
    for edits, index, colour in asked:
        assert torch.equal(edits.index, index) and torch.equal(edits.colour, colour)


def test_swaps_do_not_doubt_a_randomised_victim() -> None:
    found = []
    for varies in (False, True):
        search = starting(random_images(4, (3, 8, 8)), cells=4)
        noisy(search, 1.0, 30, varies)
        found.append((search.best_pixel, search.best_colour))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])


def test_the_effects_that_a_watcher_sees_are_those_of_a_search_that_is_told_the_same() -> None:
    shape = (3, 8, 6)
    model, image = integer_model(shape, 5), random_images(1, shape, seed=2)
    label, aim = own_labels(model, image), model.function(image).argmin(1)
    attack, seen = PixelBandit(pixels=3, queries=40), {}

    def watch(one: Round) -> None:
        seen[int(one.queries[0])] = (one.search.expected_effects().clone(), one.search.belief())

    attack(model.victim(), image, label, aim, on_round=watch)
    problems = Problems.make(image, label, aim)
    search = Driven(attack.start(problems, 0, 0), 1)
    assert len(seen) > 9
    for effects, belief in seen.values():
        edits = search.ask()
        scores = model.function(edits.render(problems.flat_images, shape))
        loss = -scores.double().log_softmax(1)[:, int(aim)]
        search.tell(Feedback(loss, scores.argmax(1) == aim, Scores(scores)))
        assert effects.shape == (1, 8, 48) and torch.equal(effects, search.expected_effects())
        assert torch.equal(belief, effects.nan_to_num(-9).amax(1))


def test_nothing_is_expected_of_the_colour_that_a_pixel_has() -> None:
    white = torch.ones(1, 1, 4, 4)
    model = integer_model((1, 4, 4), 3)
    seen = []
    attack = PixelBandit(2, 5, initial=5)
    attack(model.victim(), white, own_labels(model, white), on_round=seen.append)
    black, own = seen[-1].search.expected_effects()[0]
    assert seen[-1].search.prior.colours.tolist() == [[0], [1]]
    assert bool(own.isnan().all()) and torch.equal(seen[-1].search.belief()[0], black)


def test_bad_options() -> None:
    for bad, message in (
        ({"memory": 1}, "memory is 1"),
        ({"initial": 0}, "initial is 0"),
        ({"length": 0.0}, "length is 0.0: it must be above 0"),
        ({"decay": -1.0}, "decay is -1.0"),
    ):
        with pytest.raises(InputError, match=message):
            PixelBandit(3, 10, **bad)
