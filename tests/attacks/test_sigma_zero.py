import math

import pytest
import torch
from driving import begin, feedback
from test_pgd0 import CLASSES, Net, linear_victim
from torch import Tensor

from brusle.attacks.sigma_zero import SigmaZero
from brusle.errors import InputError
from brusle.problems import Problems, flatten_pixels, to_levels
from brusle.victims import wrap

goals = pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])


@pytest.mark.parametrize("shape", [(1, 6, 6), (3, 5, 8)])
@pytest.mark.parametrize("adam", [False, True], ids=["plain", "adam"])
@goals
def test_known_optimum_of_a_linear_model(shape, adam, targeted) -> None:
    # 8 + 7 + 6 = 21 is not enough, 8 + 7 + 6 + 5 = 26 is: four pixels are needed
    victim = linear_victim([8, 7, 6, 5, 4, 3, 2, 1, 1, 1], 24.5, shape)
    images = torch.full((2, *shape), 128 / 255)
    targets = 1 if targeted else None
    least = SigmaZero(1, 120, adam=adam)(victim, images, 0, targets)
    assert least.status == ["failed"] * 2
    assert least.queries.tolist() == [120] * 2  # a search for the minimum goes on to the end
    assert least.pixels.tolist() == [4] * 2
    assert least.losses.tolist() == [4.0] * 2
    assert least.labels.tolist() == [1] * 2
    for budget in (4, 7):
        result = SigmaZero(budget, 120, adam=adam)(victim, images, 0, targets)
        assert result.status == ["success"] * 2
        assert 4 <= int(result.pixels.min()) <= int(result.pixels.max()) <= budget


def plain_run(net, image, label, target, queries, adam, by_value) -> list[tuple[Tensor, bool]]:
    """The algorithm on one image, in float64, with torch's own autograd, Adam and schedule.

    With ``by_value`` it is the authors', which counts colour values; else pixels are counted.
    """
    x, sigma = image.double(), 1e-3
    d = torch.zeros_like(x, requires_grad=True)
    kind = torch.optim.Adam if adam else torch.optim.SGD
    optimiser = kind([d], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, queries, eta_min=0.1)
    tau, seen = 0.3, []
    for _ in range(queries):
        asked = torch.where((d.detach() != 0).any(0), to_levels(x + d.detach()).double(), x)
        asked = asked + d - d.detach()  # the gradient goes through the rounding
        scores = net(asked[None])[0]
        aim = label if target is None else target
        ahead = scores[aim] - torch.cat([scores[:aim], scores[aim + 1 :]]).max()
        margin = ahead if target is None else -ahead
        adversarial = bool(margin < 0)
        seen.append((asked.detach(), adversarial))
        size = d.square() if by_value else d.square().sum(0)
        optimiser.zero_grad()
        (margin.clamp_min(0) + (size / (size + sigma)).mean()).backward()
        d.grad /= d.grad.abs().max().clamp_min(1e-12)
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            d.copy_((x + d).clamp(0, 1) - x)
            tau += 0.01 * schedule.get_last_lr()[0] * (1 if adversarial else -1)
            tau = min(max(tau, 0.0), 1.0)
            largest = d.abs() if by_value else d.abs().amax(0).expand_as(d)
            d[largest < tau] = 0
    return seen


@goals
@pytest.mark.parametrize("adam", [False, True], ids=["plain", "adam"])
@pytest.mark.parametrize("shape", [(1, 8, 5), (2, 4, 5)])
def test_agrees_with_a_plain_transcription(targeted, adam, shape) -> None:
    net, n, queries = Net(), 5, 40
    generator = torch.Generator().manual_seed(2)
    images = torch.randint(0, 256, (n, *shape), generator=generator).float() / 255
    labels = net(images).argmax(1)
    targets = (labels + 1) % CLASSES if targeted else None
    attack = SigmaZero(1, queries, adam=adam)
    search = begin(attack, Problems.make(images, labels, targets), 0, 0)
    aims = labels if targets is None else targets
    ours = []
    for _ in range(queries):
        pixels = search.ask().pixels
        asked = pixels.transpose(1, 2).reshape(n, *shape).double().requires_grad_()
        scores = net(asked)
        others = scores.scatter(1, aims[:, None], -torch.inf).amax(1)
        margin = scores.gather(1, aims[:, None])[:, 0] - others
        margin = margin if targets is None else -margin
        margin.sum().backward()
        ours.append((asked.detach(), margin < 0))
        slope = flatten_pixels(asked.grad).float()
        search.tell(feedback(margin.detach(), margin < 0, scores.detach(), slope))
    sides = set()
    for i in range(n):
        target = None if targets is None else int(targets[i])
        label, by_value = int(labels[i]), shape[0] == 1
        theirs = plain_run(net, images[i], label, target, queries, adam, by_value)
        for (mine, ours_there), (expected, there) in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine[i], expected, atol=1.01 / 255, rtol=0)
            assert bool(ours_there[i]) == there
            sides.add(there)
    assert sides == {True, False}


def tell(search, slope: Tensor, reached: bool) -> None:
    n = len(slope)
    loss = torch.full((n,), -1.0 if reached else 1.0, dtype=torch.float64)
    search.tell(feedback(loss, loss < 0, torch.zeros(n, 2), slope))


def test_a_pixel_stays_as_long_as_one_of_its_channels_changes_enough() -> None:
    images = torch.full((1, 2, 1, 3), 0.5)
    search = begin(SigmaZero(1, 1000, threshold=0.3), Problems.make(images, 0), 0, 0)
    assert torch.equal(search.ask().pixels, flatten_pixels(images))
    # one step of at most 1, cut back to the box: changes of (0.5, 0.02), (0.2, 0.2), (0, 0)
    tell(search, torch.tensor([[[1.0, -0.02], [-0.2, 0.2], [0.0, 0.0]]]), reached=False)
    changed = search.ask().pixels != flatten_pixels(images)
    assert changed.tolist() == [[[True, True], [False, False], [False, False]]]
    torch.testing.assert_close(search.ask().pixels[0, 0], torch.tensor([0, 133 / 255]))


def test_the_threshold_follows_the_boundary() -> None:
    images = torch.full((2, 1, 2, 2), 0.5)
    search = begin(SigmaZero(1, 10, threshold=0.02), Problems.make(images, 0, ids=[1, 2]), 0, 0)

    def rate(step: int) -> float:
        return 0.1 + 0.9 * (1 + math.cos(math.pi * step / 10)) / 2

    slope = torch.ones(2, 4, 1)
    tell(search, slope, reached=True)
    up = 0.02 + 0.01 * rate(1)
    assert search.tau.tolist() == pytest.approx([up, up])
    for step in range(2, 7):
        tell(search, slope, reached=False)
        up = max(0.0, up - 0.01 * rate(step))
        assert search.tau.tolist() == pytest.approx([up, up], abs=1e-6)
    assert up == 0  # and never below


def test_an_adversarial_image_sheds_its_smallest_changes_first() -> None:
    images = torch.full((1, 1, 1, 3), 0.5)
    search = begin(SigmaZero(1, 1000, threshold=0.0), Problems.make(images, 0), 0, 0)
    search.search.delta = torch.tensor([[[0.5], [-0.4], [0.2]]])
    junk = torch.full((1, 3, 1), 99.0)  # the gradient of the margin does not count any more
    tell(search, junk, reached=True)
    now = search.delta[0, :, 0]
    assert float(now[2]) == pytest.approx(-0.5)  # a full step of 1, cut back at the box
    assert 0.4 < float(now[0]) < 0.5 and -0.4 < float(now[1]) < -0.2


def test_only_restarts_are_random() -> None:
    images = torch.rand(3, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    problems = Problems.make(images, 0)

    def first(seed: int, restart: int) -> Tensor:
        return begin(SigmaZero(1, 10), problems, seed, restart).ask().pixels

    assert torch.equal(first(0, 0), problems.flat_images)
    assert torch.equal(first(1, 0), problems.flat_images)
    noisy = first(0, 1)
    assert torch.equal(noisy, first(0, 1))
    assert not torch.equal(noisy, first(1, 1)) and not torch.equal(noisy, first(0, 2))
    assert len(begin(SigmaZero(1, 10), problems[:0], 0, 1).ask().pixels) == 0
    far = (noisy - problems.flat_images).abs()
    assert 0.09 < float(far.max()) < 0.103 and 0 <= float(noisy.min()) <= float(noisy.max()) <= 1


def test_best_image_of_a_failure_is_the_sparsest_adversarial_one() -> None:
    net = Net()
    generator = torch.Generator().manual_seed(4)
    images = torch.randint(0, 256, (20, 2, 4, 5), generator=generator).float() / 255
    labels = net(images).argmax(1)
    result = SigmaZero(1, 60)(wrap(net, output="logits", differentiable=True), images, labels)
    failed = torch.tensor([s == "failed" for s in result.status])
    assert failed.any()
    found = failed & result.losses.isfinite()
    assert found.any()
    assert torch.equal(result.losses[found], result.pixels[found].double())
    assert bool((net(result.images[found]).argmax(1) != labels[found]).all())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": 0.0}, "step_size is 0.0: it must be above 0"),
        ({"sigma": -1.0}, "sigma is -1.0"),
        ({"threshold_rate": float("nan")}, "threshold_rate is nan"),
        ({"threshold": 1.5}, "threshold is 1.5: it must be from 0 to 1"),
    ],
)
def test_bad_options(options, message) -> None:
    with pytest.raises(InputError, match=message):
        SigmaZero(3, 10, **options)
