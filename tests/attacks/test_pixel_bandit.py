"""PixelBandit against its definition, computed another way."""

import math

import pytest
import torch
from models import random_images

from brusle.attacks import PixelBandit
from brusle.attacks.pixel_bandit import masks, swaps
from brusle.attacks.pixel_bandit.prior import Prior
from brusle.errors import InputError
from brusle.problems import Problems
from brusle.search import Feedback

# what is the same for problems that differ in their random numbers only
MEMORY = ("pixel", "colour", "effect", "size", "z", "known", "inverse", "heard", "best_z", "asked")


def searching(
    images: torch.Tensor,
    rounds: int,
    targeted: bool = True,
    seed: int = 0,
    cells: int | None = None,
    **options,
):
    """A search after so many rounds with made-up scores, and what was asked in each.

    With ``cells`` along a side it is the one for large images.
    """
    n, (c, h, w) = len(images), images.shape[1:]
    attack = PixelBandit(**{"pixels": 4, "queries": 60, "memory": 12} | options)
    targets = torch.ones(n, dtype=torch.int64) if targeted else None
    problems = Problems.make(images, torch.zeros(n, dtype=torch.int64), targets, range(n))
    if cells is None:
        search = attack.start(problems, seed, 0)
    else:
        prior = Prior.of(h, w, c, attack.length or 3.0, images.device, cells)
        search = swaps.SwapBandit.start(attack, prior, problems, seed, 0)
    generator = torch.Generator().manual_seed(seed)
    asked = []
    for _ in range(rounds):
        edits = search.ask()
        asked.append((search.new_pixel.clone(), search.new_colour.clone(), edits))
        if cells is not None:
            names = ("new_swap", "new_paint", "new_weight")
            asked[-1] = tuple(getattr(search, name).clone() for name in names)
        answer(search, torch.randn(n, 5, generator=generator, dtype=torch.float64))
    return search, asked


def answer(search, scores: torch.Tensor, loss: float | None = None) -> None:
    n = len(scores)
    losses = -scores.log_softmax(1)[:, 1] if loss is None else torch.full((n,), loss).double()
    search.tell(Feedback(losses, torch.zeros(n, dtype=torch.bool), scores))


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
    search, asked = searching(images, rounds, queries=2000, length=3.0)
    colours = search.prior.colours
    for row in range(2):
        kept = asked[-12:]
        slots = [at % 12 for at in range(rounds)][-12:]
        masks = [
            [(int(p), colours[int(c)]) for p, c in zip(pixel[row], colour[row], strict=True)]
            for pixel, colour, _ in kept
        ]
        dense = torch.tensor([[covariance(images[row], a, b, 3.0) for b in masks] for a in masks])
        dense = dense.double() + 0.05 * torch.eye(len(masks))
        mine = search.inverse[row][slots][:, slots]
        assert torch.allclose(mine @ dense, torch.eye(len(masks)).double(), atol=2e-4)
        if rounds < 12:
            rest = [slot for slot in range(12) if slot not in slots]
            assert not search.inverse[row][rest].any()


def test_draws_have_the_mean_and_the_spread_of_the_posterior() -> None:
    image, n = random_images(1, (3, 4, 4)), 6000
    one, asked = searching(image, 11, length=2.0, initial=8)
    # the same observations for many problems, whose random numbers differ
    many, _ = searching(image.expand(n, -1, -1, -1), 0, length=2.0, initial=8)
    for name in (*MEMORY, "parity", "base", "counted"):
        setattr(many, name, getattr(one, name).expand(n, *getattr(one, name).shape[1:]))
    drawn, _ = many._draw()
    colours = one.prior.colours
    masks = [
        [(int(p), colours[int(c)]) for p, c in zip(pixel[0], colour[0], strict=True)]
        for pixel, colour, _ in asked
    ]
    direction = torch.cat([torch.ones(1), -one.best_z[0, 1:5].softmax(0), torch.zeros(5)])
    y = (one.z[0, :11] - one.base[0] / 8) @ direction.double()
    inverse = one.inverse[0, :11, :11]
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
    search, asked = searching(images, 11)
    _, learned = search._draw()
    own, others = search._familiar(learned)
    masks = [set(zip(p[0].tolist(), c[0].tolist(), strict=True)) for p, c, _ in asked]
    best = list(zip(search.best_pixel[0].tolist(), search.best_colour[0].tolist(), strict=True))

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
    search, _ = searching(images, 0, pixels=2)
    effect = torch.ones(1, 8, 32 * 32)
    one, colour = 10 * 32 + 10, torch.tensor([[0, 0]])
    for other in (11 * 32 + 10, 10 * 32 + 13, 30 * 32 + 30):
        search.best_pixel, search.best_colour = torch.tensor([[one, other]]), colour
        together = nearness(one, other, 32, 2.0)
        drawn = search._effects(effect, search.best_pixel, colour)[0]
        whole = float(drawn.sum()) / (1 + together)
        shares = search._shares(effect)[0]
        for place in range(2):
            alone = float(drawn[1 - place])
            assert float(shares[place]) == pytest.approx(whole - alone, abs=1e-6)
        kept = torch.tensor([[True, False]])
        beside = search._beside(effect, search.best_pixel, colour, kept)[0, 0, other]
        # the crowd loses a little less than in truth where it is near, a little more where not
        truth = whole - float(drawn[0])
        assert abs(float(beside) - truth) < 0.12 * float(drawn[0])


def test_what_was_tried_in_vain_is_not_tried_again() -> None:
    search, _ = searching(random_images(1, (1, 4, 4)), 2, initial=1)
    search.loss = search.loss * 0 - 100.0  # nothing will be better
    seen = set()
    for _ in range(40):
        search.ask()
        best = set(search.best_pixel[0].tolist())
        new = [
            (p, c)
            for p, c in zip(
                search.new_pixel[0].tolist(), search.new_colour[0].tolist(), strict=True
            )
            if p not in best
        ]
        if int(search._swaps()) == 1 and len(seen) < 20:  # of 12 pixels in 2 colours
            assert not seen & set(new)
        seen |= set(new)
        scores = torch.randn(1, 5, dtype=torch.float64)
        answer(search, scores, loss=1.0)
    search.loss = search.loss + 1000.0
    search.ask()
    answer(search, scores, loss=1.0)
    assert not search.tried.any()  # the best mask is another


def test_products_of_signs_are_alike_as_the_residual(monkeypatch) -> None:
    monkeypatch.setattr(masks, "_FEATURES", 40_000)
    search, _ = searching(random_images(1, (3, 6, 6)), 0)
    signs = []
    for changed in range(5):  # of four elements
        search.new_pixel = torch.tensor([[20 + i if i < changed else i for i in range(4)]])
        search.new_colour = torch.zeros(1, 4, dtype=torch.int64)
        signs.append(search._signs()[0])
    for changed in range(5):
        expected = math.exp(-changed / (0.6 * 4))
        assert float((signs[0] * signs[changed]).mean()) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("shape", [(3, 6, 5), (1, 3, 4), (5, 8, 8)])
def test_candidates_are_swaps_of_the_best_mask(shape) -> None:
    images = random_images(3, shape)
    images[:, :, 0] = images[:, :, 0].round()  # some pixels have corner colours already
    search, _ = searching(images, 10)
    flat = images.flatten(2)
    for age in range(30):
        best = [
            set(zip(p, c, strict=True))
            for p, c in zip(search.best_pixel.tolist(), search.best_colour.tolist(), strict=True)
        ]
        edits = search.ask()
        swaps = round(1 + 3 * math.exp(-0.2 * (age + 8)))
        for row in range(3):
            pixel, colour = search.new_pixel[row].tolist(), search.new_colour[row].tolist()
            assert len(set(pixel)) == 4
            new = set(zip(pixel, colour, strict=True)) - best[row]
            assert len(new) == swaps  # what is taken out does not come back
            for p, c in new:
                own = flat[row, :, p]
                assert not torch.equal(own, search.prior.colours[c])
        assert torch.equal(edits.index, search.new_pixel)
        answer(search, torch.randn(3, 5, generator=torch.Generator().manual_seed(age)).double())


def test_large_images_have_cells() -> None:
    search, _ = searching(random_images(1, (3, 70, 130)), 11)
    assert isinstance(search, swaps.SwapBandit)
    assert (search.prior.side, search.prior.cells) == (3, (24, 44))
    candidates = search._candidates()
    assert torch.equal(search.prior.cell_of[candidates][0], torch.arange(24 * 44))
    search.asked = search.asked + 1
    assert (candidates != search._candidates()).double().mean() > 0.5  # other pixels next time


def listed(search, row: int, observation) -> list[tuple[int, torch.Tensor, float]]:
    """The swaps of one observation: pixel, colour, and 1 put in or -1 taken out."""
    pixel, colour, weight = (values[row].tolist() for values in observation)
    colours = search.prior.colours
    elements = zip(pixel, colour, weight, strict=True)
    return [(p, colours[c], sign) for p, c, sign in elements if sign != 0]


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
    search, asked = searching(images, rounds, queries=2000, length=3.0, cells=4)
    for row in range(2):
        # the first two masks are random, so no swaps
        slots = [at % 12 for at in range(2, rounds)][-12:]
        lists = [listed(search, row, one) for one in asked[2:]][-12:]
        counts = torch.tensor([len(one) / 2 for one in lists]).double()
        dense = torch.zeros(len(lists), len(lists)).double()
        for i, one in enumerate(lists):
            for j, two in enumerate(lists):
                dense[i, j] = fields_alike(images[row], 4, one, two, 3.0)
                dense[i, j] += owns_alike(images[row], one, two)
        dense = dense + counts[:, None] * counts + torch.diag(0.01 * counts**2 + 0.02)
        mine = search.inverse[row][slots][:, slots]
        assert torch.allclose(mine @ dense, torch.eye(len(lists)).double(), atol=2e-3)
        rest = [slot for slot in range(12) if slot not in slots]
        assert not search.inverse[row][rest].any()


def test_draws_of_swaps_have_the_mean_and_the_spread_of_the_posterior() -> None:
    image, n, count = random_images(1, (3, 8, 8)), 6000, 9
    one, asked = searching(image, 2 + count, length=2.0, cells=4)
    many, _ = searching(image.expand(n, -1, -1, -1), 0, length=2.0, cells=4)
    for name in (*MEMORY, "swaps", "best_pixel", "best_colour"):
        setattr(many, name, getattr(one, name).expand(n, *getattr(one, name).shape[1:]))
    for slot in range(2, 2 + count):  # each has draws of its own, which say something else
        many.new_swap, many.new_paint, weight = (v.expand(n, -1) for v in asked[slot])
        size = weight * many.prior.scale(many.images, many.new_swap, many.new_paint)
        many.said[:, slot] = many._say(size)
    effects, own = many._draw()
    lists = [listed(one, 0, swap) for swap in asked[2:]]
    direction = torch.cat([torch.ones(1), -one.best_z[0, 1:5].softmax(0), torch.zeros(5)])
    y = one.z[0, 2 : 2 + count] @ direction.double()
    inverse = one.inverse[0, 2 : 2 + count, 2 : 2 + count]
    variance = float(y @ inverse @ y) / count
    colours = one.prior.colours

    def check(drawn, prior: float, with_swaps: list[float]) -> None:
        alike = torch.tensor(with_swaps).double()
        mean = float(alike @ inverse @ y)
        spread = 0.6**2 * variance * (prior - float(alike @ inverse @ alike))
        assert abs(float(drawn.mean()) - mean) < 4.5 * math.sqrt(spread / n)
        assert float(drawn.var()) == pytest.approx(spread, rel=0.15)

    for pixel, colour in ((0, 0), (27, 3), (61, 7)):
        element = [(pixel, colours[colour], 1.0)]
        scale = scale_of(image[0], pixel, colours[colour])
        drawn = effects[:, colour, one.prior.cell_of[pixel]] * scale
        check(drawn, scale**2, [fields_alike(image[0], 4, element, a, 2.0) for a in lists])
    for place in range(4):
        pixel, colour = int(one.best_pixel[0, place]), colours[one.best_colour[0, place]]
        scale = scale_of(image[0], pixel, colour)
        element = [(pixel, colour, 1.0)]
        check(own[:, place], 0.3 * scale**2, [owns_alike(image[0], element, a) for a in lists])


@pytest.mark.parametrize("shape", [(3, 40, 48), (1, 30, 30)])
def test_swaps_stand_apart(shape) -> None:
    images = random_images(2, shape)
    images[:, :, 0] = images[:, :, 0].round()  # some pixels have corner colours already
    search, _ = searching(images, 2, cells=20, pixels=9, queries=200)
    columns = search.prior.cells[1]
    for age in range(40):
        before = search.best_pixel.clone()
        search.ask()
        for row in range(2):
            pixel, colour = search.new_pixel[row].tolist(), search.new_colour[row].tolist()
            new = set(pixel) - set(before[row].tolist())
            assert len(set(pixel)) == 9
            assert len(new) == round(float(search.radius[row]))
            for p, c in zip(pixel, colour, strict=True):
                own = images[row].flatten(1)[:, p]
                assert p not in new or not torch.equal(own, search.prior.colours[c])
            # not in the cells of what stays, and not in cells that touch
            cells = {p: divmod(int(search.prior.cell_of[p]), columns) for p in pixel}
            for p in new:
                for q in set(pixel) - {p}:
                    far = max(abs(a - b) for a, b in zip(cells[p], cells[q], strict=True))
                    assert far > (1 if q in new else 0)
        answer(search, torch.randn(2, 5, generator=torch.Generator().manual_seed(age)).double())


def test_the_number_of_swaps_follows_success() -> None:
    search, _ = searching(random_images(1, (3, 20, 20)), 2, cells=10, pixels=9)
    expected = 9.0
    for better in (False,) * 8 + (True,) * 2 + (False,) * 40 + (True,):
        search.ask()
        answer(search, torch.zeros(1, 5).double(), loss=float(search.loss) - (1 if better else -1))
        expected = min(9.0, max(1.0, expected * (1.5 if better else 1.5**-0.25)))
        assert float(search.radius) == pytest.approx(expected)
    assert expected == 1.5


def test_swaps_find_the_best_elements_of_a_sum() -> None:
    """Scores are a sum of smooth effects: the mask comes close to the best there is."""
    shape, pixels = (3, 66, 66), 12
    images = random_images(1, shape)
    y, x = torch.meshgrid(torch.arange(66.0), torch.arange(66.0), indexing="ij")
    effect = (torch.sin(y / 9) * torch.cos(x / 7)).flatten()
    search, _ = searching(images, 0, pixels=pixels, queries=400, memory=200)
    for _ in range(400):
        search.ask()
        total = effect[search.new_pixel].sum().double()
        scores = torch.zeros(1, 5).double()
        scores[0, 1] = total
        answer(search, scores)
    best = float(effect[search.best_pixel].sum())
    assert best > 0.85 * float(effect.topk(pixels).values.sum())


def noisy(search, sigma: float, rounds: int, varies: bool) -> None:
    """Answer with a sum of effects of positions and random numbers of this spread."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(rounds):
        search.ask()
        score = search.new_pixel.double().sum(1) / 100
        scores = torch.zeros(len(score), 5).double()
        scores[:, 1] = score + sigma * torch.randn(len(score), generator=generator)
        loss = -scores.log_softmax(1)[:, 1]
        wrong = torch.zeros(len(score), dtype=torch.bool)
        search.tell(Feedback(loss, wrong, scores, randomised=varies))


def test_noise_is_estimated_where_the_victim_is_randomised() -> None:
    chosen = {}
    for sigma in (0.0, 0.3, 3.0):
        search, _ = searching(random_images(8, (3, 8, 8)), 0, memory=60, queries=70)
        noisy(search, sigma, 64, varies=True)
        chosen[sigma] = search.noise.log().mean().exp()
        for row in range(8):  # the inverse has kept up
            whole = search.covariance[row]
            assert torch.allclose(whole @ search.inverse[row], torch.eye(60).double(), atol=1e-3)
    assert chosen[0.0] < chosen[0.3] < chosen[3.0]
    search, _ = searching(random_images(8, (3, 8, 8)), 0, memory=60, queries=70)
    noisy(search, 3.0, 64, varies=False)
    assert (search.noise == 0.05).all()


def test_the_best_mask_of_a_randomised_victim_is_the_likeliest() -> None:
    search, _ = searching(random_images(30, (3, 8, 8)), 0, memory=60, queries=70)
    noisy(search, 1.0, 50, varies=True)
    luckiest = 0
    for row in range(30):
        y = search._observed()[row, :50]
        whole = search.covariance[row, :50, :50]
        bare = whole - (search.noise[row] - 0.05) * torch.eye(50)
        # chosen along the slope at the best mask before; the scores of one class alone vary here
        expected = int((bare @ torch.linalg.solve(whole, y)).argmax())
        luckiest += expected == int(y.argmax())
        assert torch.equal(search.pixel[row, expected], search.best_pixel[row])
    assert luckiest < 20


def test_probabilities_that_are_zero_or_rounded() -> None:
    search, _ = searching(random_images(2, (3, 6, 6)), 0)
    scores = torch.tensor([[0.7, 0.02, 0.28, 0.0, 0.0], [0.5, 0.0, 0.25, 0.25, 0.0]]).double()
    search.ask()
    answer = Feedback(torch.ones(2), torch.zeros(2).bool(), scores, output="probabilities")
    search.tell(answer)
    assert search.classes[:, 0].tolist() == [1, 1]
    first = search.first[:, :5].exp()
    assert first[0].tolist() == pytest.approx([0.02, 0.7, 0.28, 0.01, 0.01])  # half the smallest
    assert first[1, 0] == pytest.approx(0.125)


def test_bad_options() -> None:
    for bad, message in (
        ({"memory": 1}, "memory is 1"),
        ({"initial": 0}, "initial is 0"),
        ({"length": 0.0}, "length is 0.0: it must be above 0"),
        ({"decay": -1.0}, "decay is -1.0"),
    ):
        with pytest.raises(InputError, match=message):
            PixelBandit(3, 10, **bad)
