import itertools

import numpy as np
import pytest
import torch
from driving import begin, feedback
from torch import Tensor

from brusle.attacks.pgd0 import PGD0, project
from brusle.errors import InputError
from brusle.problems import Edits, Problems, flatten_pixels
from brusle.victims import wrap

SHAPE, CLASSES = (2, 4, 5), 4
goals = pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])


def linear_victim(weights: list[float], threshold: float, shape: tuple[int, int, int]):
    """Class 1 wins once pixels of enough weight are at the right end of the range.

    Made for grey images of level 128. A pixel brings its weight (up to 1 % more where the right
    end is black, which is one level further away) when all its channels are there, each channel
    an equal share.
    """
    c, h, w = shape
    generator = torch.Generator().manual_seed(5)
    full = torch.zeros(h * w, dtype=torch.float64)
    full[: len(weights)] = torch.tensor(weights, dtype=torch.float64)
    full = full[torch.randperm(h * w, generator=generator)].view(h, w) / c
    slope = full * (torch.randint(0, 2, (c, h, w), generator=generator) * 2 - 1) * 255 / 127

    def scores(images: Tensor) -> Tensor:
        gained = ((images.double() - 128 / 255) * slope).flatten(1).sum(1)
        return torch.stack([torch.full_like(gained, threshold), gained], 1)

    return wrap(scores, output="logits", differentiable=True)


@pytest.mark.parametrize("shape", [(1, 6, 6), (3, 5, 8)])
@pytest.mark.parametrize("loss", ["ce", "logit-margin", "margin"])
@goals
def test_known_optimum_of_a_linear_model(shape, loss, targeted) -> None:
    # 8 + 7 + 6 = 21 is not enough, 8 + 7 + 6 + 5 = 26 is: four pixels are needed
    victim = linear_victim([8, 7, 6, 5, 4, 3, 2, 1, 1, 1], 24.5, shape)
    images = torch.full((5, *shape), 128 / 255)
    # the short default step of targeted attacks may keep a pixel of a run's random start for a
    # better one; the long step does not
    step_size = PGD0(1).length_of_step(False, images[0].numel())
    for budget, expected in ((1, "failed"), (3, "failed"), (4, "success"), (7, "success")):
        attack = PGD0(budget, 45, loss=loss, step_size=step_size)
        result = attack(victim, images, 0, 1 if targeted else None, ids=range(5))
        assert result.status == [expected] * 5
        if expected == "success":
            assert int(result.pixels.min()) >= 4
            assert int(result.pixels.max()) <= budget


def test_default_step_depends_on_goal_and_size() -> None:
    assert PGD0(1).length_of_step(False, 3072) == pytest.approx(120000 / 255)
    assert PGD0(1).length_of_step(True, 3072) == pytest.approx(60000 / 255)
    assert PGD0(1).length_of_step(False, 150528) == pytest.approx(49 * 120000 / 255)
    assert PGD0(1, step_size=3.0).length_of_step(True, 12) == 3.0


def test_projection_is_the_nearest_point_by_exhaustive_search() -> None:
    generator = np.random.default_rng(3)
    ties = 0
    for _ in range(60):
        pixels, channels = int(generator.integers(1, 7)), int(generator.integers(1, 4))
        k = int(generator.integers(1, pixels + 1))
        x = generator.integers(0, 256, (pixels, channels)) / 255
        scale = generator.choice([0.3, 2.0, 400.0])
        z = x + generator.normal(size=x.shape) * scale
        boxed = z.clip(0, 1)
        best, nearest = None, np.inf
        for chosen in itertools.combinations(range(pixels), k):
            point = x.copy()
            point[list(chosen)] = boxed[list(chosen)]
            distance = ((z - point) ** 2).sum()
            if abs(distance - nearest) < 1e-3:
                ties += 1
            if distance < nearest:
                best, nearest = point, distance
        got = project(torch.tensor(z[None]).float(), torch.tensor(x[None]).float(), k)
        np.testing.assert_allclose(got[0].numpy(), best, atol=0.5 / 255 + 1e-6)
        np.testing.assert_allclose(got[0].numpy() * 255, np.rint(best * 255), atol=1e-3)
    assert ties < 10


def test_unchanged_pixels_keep_values_that_are_no_levels() -> None:
    original = torch.rand(4, 30, 3, generator=torch.Generator().manual_seed(0))
    z = torch.randn(4, 30, 3, generator=torch.Generator().manual_seed(1)) * 3
    got = project(z, original, 7)
    changed = (got != original).any(2)
    assert changed.sum(1).tolist() == [7] * 4
    assert torch.equal(got[~changed], original[~changed])
    assert torch.equal((got[changed] * 255).round() / 255, got[changed])


class Net:
    """A small smooth net in float64."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(11)
        self.first = torch.randn(40, 30, generator=generator, dtype=torch.float64) * 0.6
        self.second = torch.randn(30, CLASSES, generator=generator, dtype=torch.float64)

    def __call__(self, images: Tensor) -> Tensor:
        return ((images.double().flatten(1) - 0.5) @ self.first).tanh() @ self.second


def plain_run(net, image, label, target, start, pixels, step_size, steps) -> list[np.ndarray]:
    """One run of PGD on the cross-entropy, as in the paper, one image at a time, in NumPy."""
    x, at, seen = image.astype(np.float64), start.astype(np.float64), []
    for _ in range(steps):
        seen.append(at)
        leaf = torch.tensor(at[None], requires_grad=True)
        p = net(leaf).softmax(1)[0, label if target is None else target]
        (p.log() if target is None else -p.log()).backward()
        slope = leaf.grad[0].numpy()
        z = at - step_size * slope / np.abs(slope).sum()
        outside = np.maximum(0, np.maximum(-z, z - 1))
        gain = ((z - x) ** 2).sum(0) - (outside**2).sum(0)
        keep = gain >= np.sort(gain.ravel())[-pixels]
        at = np.where(keep, np.rint(z.clip(0, 1) * 255) / 255, x)
    return seen


@goals
@pytest.mark.parametrize(("pixels", "step_size"), [(1, None), (4, None), (4, 2.5), (20, 1.5)])
def test_agrees_with_a_plain_transcription(targeted, pixels, step_size) -> None:
    net, n, steps = Net(), 6, 15
    generator = torch.Generator().manual_seed(2)
    images = torch.randint(0, 256, (n, *SHAPE), generator=generator).float() / 255
    labels = net(images).argmax(1)
    targets = (labels + 1) % CLASSES if targeted else None
    search = begin(
        PGD0(pixels, 99, steps=steps, step_size=step_size),
        Problems.make(images, labels, targets),
        0,
        0,
    )
    ours = []
    for _ in range(steps):
        candidate = search.ask().pixels
        ours.append(candidate.transpose(1, 2).reshape(n, *SHAPE).numpy().astype(np.float64))
        leaf = torch.tensor(ours[-1], requires_grad=True)
        p = net(leaf).log_softmax(1)[range(n), labels if targets is None else targets]
        (p if targets is None else -p).sum().backward()
        none = torch.zeros(n)
        search.tell(feedback(none, none.bool(), none, flatten_pixels(leaf.grad).float()))
    size = step_size or 120000 / 255 * 40 / 3072 / (2 if targeted else 1)
    compared = 0
    for i in range(n):
        target = None if targets is None else int(targets[i])
        theirs = plain_run(
            net, images[i].numpy(), int(labels[i]), target, ours[0][i], pixels, size, steps
        )
        for step, expected in enumerate(theirs):
            mine = ours[step][i]
            if step and np.allclose(theirs[step - 1], expected, atol=1e-6):
                break  # a fixed point, after which ours has started again
            np.testing.assert_allclose(mine, expected, atol=1.01 / 255)
            np.testing.assert_array_equal(
                np.abs(mine - images[i].numpy()).max(0) > 0.01,
                np.abs(expected - images[i].numpy()).max(0) > 0.01,
            )
            compared += step > 0
    assert compared >= n * 3


def constant_slopes(search, n: int, rounds: int) -> list[Tensor]:
    """The candidates of a search under gradients that never change."""
    slope = torch.linspace(-1, 1, search.original[0].numel()).view_as(search.original[:1])
    seen = []
    for _ in range(rounds):
        seen.append(search.ask().pixels.clone())
        none = torch.zeros(n)
        search.tell(feedback(none, none.bool(), none, slope.expand_as(search.original)))
    return seen


def make_problems(n: int = 3, shape: tuple[int, int, int] = SHAPE) -> Problems:
    return Problems.make(torch.full((n, *shape), 128 / 255), 0, ids=range(n))


def test_a_run_that_stands_still_ends_at_once() -> None:
    # under a constant gradient a long step arrives at once, and there is nowhere to go from there
    search = begin(PGD0(2, 99, steps=50, step_size=1e4), make_problems(), 0, 0)
    seen = constant_slopes(search, 3, 12)
    for i in range(3):
        path = [candidate[i] for candidate in seen]
        assert not any(torch.equal(a, b) for a, b in itertools.pairwise(path))
        starts, ends = path[::2], path[1::2]
        assert all(torch.equal(end, ends[0]) for end in ends)
        assert len({start.numpy().tobytes() for start in starts}) == 6


def test_a_run_ends_after_its_steps_and_not_before() -> None:
    # steps so short that no run arrives; the candidates within a run stay near each other
    search = begin(PGD0(20, 99, steps=4, step_size=0.4), make_problems(), 0, 0)
    seen = constant_slopes(search, 3, 12)
    jumps = torch.stack([(b - a).abs().sum((1, 2)) for a, b in itertools.pairwise(seen)])
    assert (jumps > 2).nonzero()[:, 0].unique().tolist() == [3, 7]
    assert bool((jumps[[3, 7]] > 2).all())


def test_starts_are_random_colours_of_the_pixels_that_changed_most() -> None:
    search = begin(PGD0(3, 99), make_problems(200, (1, 5, 5)), 7, 0)
    start = search.ask().pixels[:, :, 0]
    far = (start - 128 / 255).abs().sort(1, descending=True).values
    assert bool((far[:, 2] > 0).all()) and bool((far[:, 3:] == 0).all())
    # the three largest of 25 uniform distances from 0 to 1/2: on average 25, 24, 23 parts of 26
    expected = torch.tensor([25, 24, 23]) / 26 / 2
    torch.testing.assert_close(far[:, :3].mean(0), expected, atol=0.01, rtol=0)
    assert 200 < int((start > 0.7).sum()) < 400  # both ways
    assert search.initial().all()


@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 2, 3)])
def test_step_size_is_the_l1_length_of_a_step(shape) -> None:
    values = shape[0] * shape[1] * shape[2]
    pixels = shape[1] * shape[2]
    for step_size, per_value in ((None, 120000 / 255 / 3072), (0.2 * values, 0.2)):
        problems = make_problems(2, shape)
        search = begin(PGD0(pixels, 99, step_size=step_size), problems, 0, 0)
        own = problems.flat_images
        asked = search.resume(Edits(torch.arange(pixels).repeat(2, 1), own))
        assert torch.equal(asked.pixels, own)
        none = torch.zeros(2)
        slope = torch.tensor([-1e-20, 3.0])[:, None, None].expand_as(own)  # scale does not matter
        search.tell(feedback(none, none.bool(), none, slope))
        moved = (search.ask().pixels - own)[:, 0, 0] * 255
        assert moved.round().tolist() == [round(255 * per_value), -round(255 * per_value)]


def test_resumes_from_edits() -> None:
    problems = make_problems(3, (2, 6, 6))
    index = torch.tensor([[3, 9, 20], [0, 1, 35], [7, 30, 2]])
    colour = torch.randint(0, 256, (3, 3, 2), generator=torch.Generator().manual_seed(1)) / 255
    colour[1, 1] = 128 / 255  # in the original's own colour
    edits = Edits(index, colour.float())
    search = begin(PGD0(3, 99), problems, 0, 0)
    got = search.resume(edits).render(problems.flat_images, problems.shape)
    assert torch.equal(got, edits.render(problems.flat_images, problems.shape))
    seen = constant_slopes(search, 3, 30)
    assert int(max((s != problems.flat_images).any(2).sum(1).max() for s in seen)) <= 3


def test_no_gradient_means_a_new_start() -> None:
    search = begin(PGD0(2, 99), make_problems(), 0, 0)
    first = search.ask().pixels.clone()
    none = torch.zeros(3)
    search.tell(feedback(none, none.bool(), none, torch.zeros_like(first)))
    assert not torch.equal(search.ask().pixels, first)
    assert search.ask().pixels.isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"step_size": 0.0}, "step_size is 0.0: it must be above 0"),
        ({"step_size": float("nan")}, "step_size is nan"),
        ({"loss": "hinge"}, "loss is 'hinge': choose from auto, ce"),
    ],
)
def test_bad_options(options, message) -> None:
    with pytest.raises(InputError, match=message):
        PGD0(3, 10, **options)
