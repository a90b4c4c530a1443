"""PixelBandit against its definition, computed another way."""

import math

import pytest
import torch
from models import random_images

from brusle.attacks import PixelBandit
from brusle.attacks import pixel_bandit as module
from brusle.errors import InputError
from brusle.loop import Feedback
from brusle.problems import Problems


def searching(images: torch.Tensor, rounds: int, targeted: bool = True, seed: int = 0, **options):
    """A search after so many rounds with made-up scores, and what was asked in each."""
    n = len(images)
    attack = PixelBandit(**{"pixels": 4, "queries": 60, "memory": 12} | options)
    targets = torch.ones(n, dtype=torch.int64) if targeted else None
    problems = Problems.make(images, torch.zeros(n, dtype=torch.int64), targets, range(n))
    search = attack.start(problems, seed, 0)
    generator = torch.Generator().manual_seed(seed)
    asked = []
    for _ in range(rounds):
        edits = search.ask()
        asked.append((search.new_pixel.clone(), search.new_colour.clone(), edits))
        scores = torch.randn(n, 5, generator=generator, dtype=torch.float64)
        loss = -scores.log_softmax(1)[:, 1]
        search.tell(Feedback(loss, torch.zeros(n, dtype=torch.bool), scores))
    return search, asked


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
    colours = search.grid.colours
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
    for name in ("pixel", "colour", "feature", "z", "inverse", "parity", "heard", "base", "asked"):
        setattr(many, name, getattr(one, name).expand(n, *getattr(one, name).shape[1:]))
    many.counted, many.best_z = one.counted.expand(n, -1), one.best_z.expand(n, -1)
    drawn, _ = many._draw()
    colours, loading = one.grid.colours, one.grid.loading
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
        effects = drawn[:, :, pixel] @ loading[colour] * scale
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
        return float(torch.tensor(alike).double() @ learned[0, :11])

    whole = residual(set(best))
    for place, element in enumerate(best):
        assert float(own[0, place]) == pytest.approx(whole - residual(set(best) - {element}))
    for pixel, colour in set.union(*masks) - set(best):
        gain = residual({*best, (pixel, colour)}) - whole
        assert float(others[0, colour, pixel]) == pytest.approx(gain)
    assert int((others != 0).sum()) <= len(set.union(*masks) - set(best))


def test_pixels_that_stand_together_share_their_effect() -> None:
    images = random_images(1, (3, 32, 32))
    search, _ = searching(images, 0, pixels=2)
    effect = torch.zeros(1, 4, 32 * 32)
    effect[:, 0] = 1.0
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
        value = search._values(effect, search._candidates())
        beside = search._beside(value, effect, search.best_pixel, colour, kept)[0, 0, other]
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
        search.tell(Feedback(torch.ones(1).double(), torch.zeros(1).bool(), scores))
    search.loss = search.loss + 1000.0
    search.ask()
    search.tell(Feedback(torch.ones(1).double(), torch.zeros(1).bool(), scores))
    assert not search.tried.any()  # the best mask is another


def test_products_of_signs_are_alike_as_the_residual(monkeypatch) -> None:
    monkeypatch.setattr(module, "_FEATURES", 40_000)
    search, _ = searching(random_images(1, (3, 6, 6)), 0)
    signs = []
    for changed in range(5):  # of four elements
        search.new_pixel = torch.tensor([[20 + i if i < changed else i for i in range(4)]])
        search.new_colour = torch.zeros(1, 4, dtype=torch.int64)
        signs.append(search._signs()[0])
    for changed in range(5):
        expected = math.exp(-changed / (0.6 * 4))
        assert float((signs[0] * signs[changed]).mean()) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("shape", [(3, 6, 5), (1, 3, 4), (5, 8, 8), (3, 70, 130)])
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
                assert not torch.equal(own, search.grid.colours[c])
        assert torch.equal(edits.index, search.new_pixel)
        scores = torch.randn(3, 5, generator=torch.Generator().manual_seed(age)).double()
        loss = -scores.log_softmax(1)[:, 1]
        search.tell(Feedback(loss, torch.zeros(3, dtype=torch.bool), scores))


def test_large_images_have_cells() -> None:
    search, _ = searching(random_images(1, (3, 70, 130)), 11)
    assert (search.grid.side, search.grid.cells) == (3, (24, 44))
    candidates = search._candidates()
    assert torch.equal(search.grid.cell_of[candidates][0], torch.arange(24 * 44))
    assert not torch.equal(candidates, search.pick(torch.tensor([0]))._candidates() + 1)
    search.asked = search.asked + 1
    assert (candidates != search._candidates()).double().mean() > 0.5  # other pixels next time


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
