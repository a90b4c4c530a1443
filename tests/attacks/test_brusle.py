import itertools
import math
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from driving import begin, feedback
from numpy_brusle import brusle as transcription

from brusle import rng
from brusle.attacks import BruSLe, palettes, schedules
from brusle.attacks.drawing import draw_in_turn
from brusle.errors import InputError
from brusle.problems import Problems
from brusle.victims import wrap

SHAPE, CLASSES, QUERIES = (3, 10, 10), 5, 120
PAPER = Path(__file__).parents[3] / "shared" / "paper" / "paper.tex"


class Net:
    """The same small nonlinear net for one NumPy image and for a torch batch."""

    def __init__(self) -> None:
        generator = np.random.default_rng(11)
        size = math.prod(SHAPE)
        self.first = generator.normal(size=(48, size)) * 3 / math.sqrt(size)
        self.second = generator.normal(size=(CLASSES, 48)) * 1.1

    def one(self, image: np.ndarray) -> np.ndarray:
        return self.second @ np.tanh(self.first @ (image.ravel() - 0.5))

    def batch(self, images: torch.Tensor) -> torch.Tensor:
        x = images.double().flatten(1) - 0.5
        return (x @ torch.from_numpy(self.first).T).tanh() @ torch.from_numpy(self.second).T


@pytest.mark.parametrize("variant", ["paper", "reference"])
@pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])
def test_agrees_with_the_transcription_of_the_algorithm(variant, targeted) -> None:
    """Two samples of 600 attacks each: the curves must agree within sampling error."""
    net, count, pixels = Net(), 600, 4 if targeted else 2
    generator = np.random.default_rng(1)
    images = generator.integers(0, 256, (60, *SHAPE)).astype(np.float32) / 255
    images = np.repeat(images, count // 60, axis=0)
    labels = net.batch(torch.from_numpy(images)).argmax(1)
    targets = (labels + 1 + torch.arange(count) % (CLASSES - 1)) % CLASSES if targeted else None

    attack = BruSLe(pixels, QUERIES, variant=variant)
    victim = wrap(net.batch, output="logits")
    result = attack(victim, images, labels, targets, ids=range(count), batch_size=200)
    ours = np.where(result.success.numpy(), result.queries.numpy(), QUERIES + 1)

    one = Problems.make(images[:1], labels[:1], ids=[0])
    fixed = palettes.draw("binary", one, rng.streams(0, torch.zeros(1, dtype=torch.int64)))
    synthetic = (
        fixed.colour[0].T.reshape(SHAPE).double().numpy() if variant == "reference" else None
    )
    theirs = np.empty(count)
    for i in range(count):
        outcome = transcription(
            net.one,
            images[i],
            int(labels[i]),
            None if targets is None else int(targets[i]),
            pixels,
            QUERIES,
            np.random.default_rng([7, i]),
            variant,
            synthetic=synthetic,
        )
        theirs[i] = outcome.queries if outcome.success else QUERIES + 1

    curve = [(np.mean(ours <= q), np.mean(theirs <= q)) for q in (1, 5, 10, 11, 20, 40, 80, 120)]
    for p, q in curve:
        # images repeat, so attacks of one image are alike and the error is a little smaller
        pooled = (p + q) / 2
        assert abs(p - q) <= 3 * math.sqrt(2 * pooled * (1 - pooled) / count) + 1e-9
    spread = math.sqrt((ours.var() + theirs.var()) / count)
    assert abs(ours.mean() - theirs.mean()) < 3 * spread
    assert 0.2 < curve[-1][0] < 0.98  # a curve at the edge would show nothing
    if variant == "reference":
        assert ours.min() > attack.initial


@pytest.mark.parametrize("alpha_prior", [1.0, 1.5])
@pytest.mark.parametrize("dissimilarity", [True, False])
def test_state_follows_the_update_of_the_paper_step_by_step(alpha_prior, dissimilarity) -> None:
    """Success curves are blunt; here every count and weight is recomputed from the masks asked."""
    count, side, pixels = 6, 7, 8
    images = np.random.default_rng(3).integers(0, 256, (count, 3, side, side)) / 255
    problems = Problems.make(images.astype(np.float32), 0, ids=range(count))
    attack = BruSLe(pixels, 150, alpha_prior=alpha_prior, dissimilarity=dissimilarity)
    search = begin(attack, problems, seed=1, restart=0)
    x = problems.flat_images.numpy()
    m = (
        np.abs(x - search.synthetic.colour.numpy()).mean(2)
        if dissimilarity
        else np.ones((count, side**2))
    )
    u, best = [set() for _ in range(count)], np.full(count, np.inf)
    a, n = np.zeros((count, side**2)), np.zeros((count, side**2))
    losses = np.random.default_rng(4).normal(size=(150, count)).cumsum(0) * 0.1
    accepted = 0
    for step in range(150):
        edits = search.ask()
        for i, row in enumerate(edits.index.tolist()):
            new = set(row)
            better = losses[step, i] < best[i]
            n[i, list(new if step < attack.initial else new | u[i])] += 1
            if step >= attack.initial and not better:
                a[i, list(u[i] - new)] += 1
            if better:
                u[i], best[i] = new, losses[step, i]
                accepted += step >= attack.initial
        loss = torch.from_numpy(losses[step])
        search.tell(feedback(loss, loss < -99, loss[:, None]))
        theta = alpha_prior + (a + 0.01) / (n + 0.01) - 1
        weight = theta * m
        for i in range(count):
            weight[i, list(u[i])] = 0
        assert [set(row) for row in search.u.tolist()] == u
        np.testing.assert_allclose(search.theta.numpy(), theta, rtol=1e-5)
        np.testing.assert_allclose(search.weight.numpy(), weight, rtol=1e-5, atol=1e-9)
    assert 20 < accepted < 140 * count - 20
    assert a.max() > 1


def test_the_pixel_to_remove_is_drawn_by_theta() -> None:
    """Of two selected pixels the one with theta p goes with chance (1 - p), if they sum to 1."""
    count = 20_000
    images = torch.full((count, 1, 3, 3), 0.5)
    attack = BruSLe(2, 50, initial=1)
    search = begin(attack, Problems.make(images, 0, ids=range(count)), seed=0, restart=0)
    search.ask()
    loss = torch.zeros(count, dtype=torch.float64)
    search.tell(feedback(loss, loss > 0, loss[:, None]))
    search.theta.scatter_(1, search.u, torch.tensor([0.2, 0.8]).expand(count, 2))
    before, after = search.u.clone(), search.ask().index
    gone = before[:, 0] != after[:, 0]
    assert torch.equal(gone, before[:, 1] == after[:, 1])  # exactly one of the two
    assert abs(gone.double().mean() - 0.8) < 4 * (0.8 * 0.2 / count) ** 0.5


@pytest.mark.parametrize("group", [1, 2])
def test_draws_in_turn_follow_the_weights_without_replacement(group) -> None:
    weight = torch.zeros(7 * 5)
    weight[[2, 3, 20, 33]] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    n = 60_000
    u = rng.uniform(rng.bits(rng.streams(4, torch.arange(n)), 0, 0, 6))
    drawn = draw_in_turn(weight.repeat(n, 1), u, group)
    first, second = drawn[:, 0], drawn[:, 1]
    for position, p in ((2, 0.1), (3, 0.2), (20, 0.3), (33, 0.4)):
        assert abs((first == position).double().mean() - p) < 4 * (p * (1 - p) / n) ** 0.5
    # the second follows the weights that are left: without 33, or without 3 (and 2 in a group)
    for taken, then, p in ((33, 20, 3 / 6), (3, 20, 3 / 8 if group == 1 else 3 / 7)):
        given = second[first == taken]
        assert abs((given == then).double().mean() - p) < 4 * (p * (1 - p) / len(given)) ** 0.5
    pixels = drawn // group
    assert (pixels[:, 0] != pixels[:, 1]).all()
    assert (pixels[:, 1] != pixels[:, 2]).all()
    # fewer draws are the beginning of more
    assert torch.equal(draw_in_turn(weight.repeat(n, 1), u[:, :2], group), drawn[:, :1])


@pytest.mark.parametrize("q", [0, 1, 10, 100, 499])
def test_power_step_is_the_formula_of_the_authors_code(q) -> None:
    expected = 0.15 * ((q + 1) ** -0.24 + 0.997 ** (q + 1)) / 2
    got = schedules.changing_rate("power-step", q, 500, 0.15, 0.24, 0.997)
    assert got == pytest.approx(expected, rel=1e-12)


def test_printed_schedule_is_the_formula_in_the_papers_algorithm_1() -> None:
    """lambda_0 (t^m1 + m2^t), t from 1 in the first round after N initial masks; here N is 3."""
    attack = BruSLe(6, 60, schedule="printed", initial=3)
    search = begin(attack, some_problems(1), seed=0, restart=0)
    moved = []
    for _ in range(60):
        before = set(search.u[0].tolist())
        if not bool(search.initial()):
            moved.append(len(set(search.ask().index[0].tolist()) - before))
        search.ask()
        search.tell(feedback(torch.zeros(1).double(), torch.zeros(1) > 0, torch.zeros(1, 2)))
    rates = [0.3 * (t**0.24 + 0.997**t) for t in range(1, 58)]
    # with b = ceil((1 - lambda) B) pixels kept; a rate above 1 moves them all
    assert moved == [6 - max(0, math.ceil((1 - rate) * 6)) for rate in rates]
    assert moved[0] == 3 and moved[-1] == 6 and rates[-1] > 1  # it grows, and is cut off


@pytest.mark.skipif(not PAPER.exists(), reason="the paper is not part of the repository")
def test_printed_schedule_stands_in_the_paper() -> None:
    text = PAPER.read_text()
    assert r"\lambda^{(t)} \leftarrow \lambda_0(t^{m_1}+m_2^t)" in text
    assert r"t\leftarrow 1" in text  # the first round


@pytest.mark.parametrize("schedule", [s for s in get_args(schedules.Schedule) if s != "printed"])
def test_schedules_start_near_lambda_0_and_do_not_grow(schedule) -> None:
    rates = [schedules.changing_rate(schedule, q, 500, 0.3, 0.24, 0.997) for q in range(501)]
    assert 0.29 < rates[0] <= 0.3
    assert all(a >= b for a, b in itertools.pairwise(rates))
    moves = schedules.removals(schedule, 500, 20, 0.3, 0.24, 0.997)
    assert len(moves) == 501
    assert moves[0] in (5, 6) and min(moves) >= 1
    # floor(lambda B), never fewer than one
    assert list(moves) == [max(1, math.floor(r * 20)) for r in rates]


@pytest.mark.parametrize(
    ("targeted", "pixels", "expected"),
    [
        (False, 32 * 32, 0.3),
        (False, 224 * 224, 0.3),
        (True, 32 * 32, 0.15),
        (True, 96 * 96, 0.15),
        (True, 224 * 224, 0.05),
    ],
)
def test_lambda_0_of_the_paper(targeted, pixels, expected) -> None:
    assert BruSLe(5).changing_rate_0(targeted, pixels) == expected
    assert BruSLe(5, lambda_0=0.2).changing_rate_0(targeted, pixels) == 0.2


def some_problems(n: int = 40) -> Problems:
    image = np.zeros((n, 3, 16, 16), np.float32)
    image[:, 0], image[:, 1, :8], image[:, 2] = 51 / 255, 1.0, 204 / 255
    return Problems.make(image, [0] * n, ids=range(n), starts=1 - image)


@pytest.mark.parametrize("colours", [1, 2, 4])
@pytest.mark.parametrize("palette", ["binary", "uniform", "gaussian", "inverted-levels"])
def test_palettes_are_8_bit_levels_of_the_right_distribution(palette, colours) -> None:
    problems = some_problems()
    stream = rng.streams(0, problems.ids)
    drawn = palettes.draw(palette, problems, stream, colours).colour
    assert drawn.shape == (40, 256 * colours, 3)
    assert torch.equal(drawn, (drawn * 255).round() / 255)
    assert drawn.min() >= 0 and drawn.max() <= 1
    n = 40 * 256 * colours
    mean, std = drawn.double().mean((0, 1)), drawn.double().std((0, 1))
    if palette == "inverted-levels":
        # channel 0 is 51 everywhere, channel 1 half 0 and half 255, channel 2 204
        assert torch.allclose(mean[[0, 2]], torch.tensor([0.8, 0.2], dtype=torch.float64))
        assert abs(mean[1] - 0.5) < 4 * 0.5 / n**0.5
        return
    sigma = {"binary": 0.5, "uniform": 12**-0.5, "gaussian": 0.17}[palette]
    assert (mean - 0.5).abs().max() < 4 * sigma / n**0.5
    assert (std - sigma).abs().max() < 0.01
    if palette == "binary":
        assert set(drawn.unique().tolist()) == {0.0, 1.0}
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("colours", [1, 4])
def test_inverted_palette_has_the_frequencies_of_the_rounded_inverted_image(colours) -> None:
    """Against a count in integers: a channel of 8-bit level below 128 is 1 when inverted."""
    generator = np.random.default_rng(3)
    levels = generator.integers(0, 256, (6, 3, 32, 32))
    levels[0, 0], levels[0, 1], levels[0, 2] = 127, 128, 90  # all ones, all zeros, all ones
    levels[1:, 1] //= 2  # channels of one image, and images, have frequencies of their own
    levels[2, 2, :20] = 255
    levels[3, 0, 5:] = 200
    problems = Problems.make(levels.astype(np.float32) / 255, [0] * 6, ids=range(6))
    drawn = palettes.draw("inverted", problems, rng.streams(0, problems.ids), colours).colour
    assert drawn.shape == (6, 1024 * colours, 3)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    expected = (levels < 128).reshape(6, 3, 1024).mean(2)
    error = np.sqrt(expected * (1 - expected) / (1024 * colours))
    got = drawn.double().mean(1).numpy()
    assert (np.abs(got - expected) <= 4 * error).all()  # without error where all are alike
    assert len({round(p, 1) for p in expected.flatten()}) > 4  # else the test would show little
    channels = drawn[4].double().T
    assert torch.corrcoef(channels[[0, 2]])[0, 1].abs() < 0.15  # drawn apart from each other


def test_given_image_as_palette() -> None:
    problems = some_problems(2)
    drawn = palettes.draw("image", problems, rng.streams(0, problems.ids)).colour
    assert torch.equal(drawn.transpose(1, 2).reshape(2, 3, 16, 16), problems.starts)

    def brightness(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x.sum((1, 2, 3)), 384 - x.sum((1, 2, 3))], 1)

    black_wins = wrap(brightness, output="logits")
    images = torch.ones(3, 1, 16, 16)
    result = BruSLe(200, 50, palette="image")(black_wins, images, 0, starts=images * 0)
    assert result.success.all()
    assert set(result.images.unique().tolist()) == {0.0, 1.0}
    with pytest.raises(InputError, match="give starts="):
        BruSLe(5, palette="image")(black_wins, images, 0)


def test_pixels_that_cannot_change_are_not_drawn_unless_too_few_others_are_left() -> None:
    """M is 0 outside a corner of 12 pixels: new pixels come from there while there are enough."""
    images = torch.zeros(20, 1, 10, 10)
    starts = torch.zeros_like(images)
    starts[:, :, :4, :3] = 1
    corner = {row * 10 + column for row in range(4) for column in range(3)}
    problems = Problems.make(images, 0, ids=range(20), starts=starts)
    attack = BruSLe(12, 100, palette="image")
    search = begin(attack, problems, seed=0, restart=0)
    moves = schedules.removals("power-step", 100, 12, 0.3, attack.m1, attack.m2)
    losses = rng.uniform(rng.bits(rng.streams(5, problems.ids), 0, 0, 100))
    fell_back = 0
    for step in range(100):
        before = [set(row) for row in search.u.tolist()]
        after = [set(row) for row in search.ask().index.tolist()]
        for old, new in zip(before, after, strict=True) if step >= attack.initial else ():
            added = new - old
            assert len(new) == 12
            assert len(added) == moves[step]
            if len(corner - old) >= len(added):
                assert added <= corner
            else:
                fell_back += 1
        search.tell(feedback(losses[:, step] - step / 50, torch.zeros(20) > 0, losses))
    assert 0 < fell_back < 20 * 90


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"palette": "pastel"}, "choose from binary, uniform"),
        ({"schedule": "linear"}, "choose from power-step"),
        ({"loss": "hinge"}, "choose from auto, ce"),
        ({"variant": "mine"}, "choose from paper, reference"),
        ({"lambda_0": 0.0}, "above 0 and at most 1"),
        ({"alpha_prior": 0.5}, "weights turn negative"),
        ({"z": 0.0}, "above 0"),
        ({"m2": 1.5}, "m2 is 1.5: it must be above 0 and at most 1"),
        ({"initial": 0}, "at least 1"),
        ({"colours": 0}, "at least 1"),
        ({"palette": "image", "colours": 2}, "one colour per pixel"),
    ],
)
def test_bad_options(options, message) -> None:
    with pytest.raises(InputError, match=message):
        BruSLe(5, **options)


def test_repr_says_all() -> None:
    attack = BruSLe(5, 70, palette="uniform", m1=0.3)
    assert eval(repr(attack)) == attack
