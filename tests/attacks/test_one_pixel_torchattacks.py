"""The variant of One-Pixel that follows torchattacks, against the real package.

torchattacks wants an old version of requests, so it is not installed beside brusle but into a
folder of its own, without its dependencies; and only the modules that matter are imported.
"""

import importlib
import math
import os
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from driving import begin, feedback
from models import Counting, integer_model, levels, own_labels, random_images

from brusle import rng
from brusle.attacks import OnePixel
from brusle.problems import Edits, Problems
from brusle.rng import Purpose

PEERS = Path(os.environ.get("BRUSLE_PEERS", Path(sys.prefix) / "peers"))
SHAPE, CLASSES = (3, 8, 8), 4


@pytest.fixture
def theirs(monkeypatch):
    """Their module `onepixel`, without the rest of the package, which needs torchvision."""
    if not (PEERS / "torchattacks").exists():
        pytest.skip(
            f"torchattacks is not in {PEERS}: python -m pip install --no-deps "
            f"--target {PEERS} torchattacks==3.5.1"
        )
    for name in ("torchattacks", "torchattacks.attacks"):
        package = types.ModuleType(name)
        package.__path__ = [str(PEERS / name.replace(".", "/"))]
        monkeypatch.setitem(sys.modules, name, package)
    module = importlib.import_module("torchattacks.attacks.onepixel")
    yield module
    for name in [name for name in sys.modules if name.startswith("torchattacks.")]:
        del sys.modules[name]


class Module(torch.nn.Module):
    """A victim of whole 8-bit levels, as both sides see it, with a record of what it was asked."""

    def __init__(self, model: Counting) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.model, self.asked = model, []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.asked += list(levels(images))
        # far enough apart for their float32, and not so far that probabilities become 0 or 1
        return (self.model.function(levels(images) / 255) / 20).float()


class OurNumbers:
    """Stands in for NumPy's generator, and gives the numbers that our search draws."""

    def __init__(self, stream: torch.Tensor, members: int, size: int) -> None:
        self.stream, self.members, self.size = stream, members, size
        self.trial = self.checked = members  # queries before the next rival
        self.queue: list[float] = []
        self.redrawn = 0

    def uniform(self, step: int, purpose: Purpose, count: int) -> np.ndarray:
        return rng.uniform(rng.bits(self.stream, step, purpose, count))[0].numpy()

    def random_sample(self, shape) -> np.ndarray:
        assert shape == (self.members, self.size)
        return np.stack(
            [
                self.uniform(step, Purpose.ONE_PIXEL_MEMBER, self.size)
                for step in range(self.members)
            ]
        )

    def rand(self, *count):
        if count:  # crossover, which is switched off
            return np.zeros(count)
        if self.queue:  # a value that has left its range
            return self.queue.pop(0)
        return float(self.uniform(self.trial, Purpose.ONE_PIXEL_SCALE, 1)[0])

    def randint(self, low, high):  # where crossover would begin
        return low

    def shuffle(self, others: list[int]) -> None:
        race = rng.bits(self.stream, self.trial, Purpose.ONE_PIXEL_PARENTS, self.members)[0].numpy()
        others.sort(key=lambda member: race[member])
        self.trial += 1

    def expect(self, trial: np.ndarray) -> None:
        """Their solver is about to draw anew what is out of range in ``trial``."""
        numbers = self.uniform(self.checked, Purpose.ONE_PIXEL_AGAIN, self.size)
        self.queue = [float(numbers[i]) for i in np.flatnonzero((trial < 0) | (trial > 1))]
        self.checked += 1
        self.redrawn += len(self.queue)


@pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])
@pytest.mark.parametrize(("pixels", "popsize"), [(1, 10), (3, 10), (2, 37)])
def test_asks_the_same_images_as_torchattacks_given_the_same_numbers(
    theirs, monkeypatch, pixels, popsize, targeted
) -> None:
    """Their attack runs on our random numbers; image for image the same is asked."""
    module, steps = Module(integer_model(SHAPE, CLASSES)), 12
    solver = sys.modules["torchattacks.attacks._differential_evolution"]
    check = solver.DifferentialEvolutionSolver._ensure_constraint

    def ensure(self, trial):
        self.random_number_generator.expect(trial)
        check(self, trial)

    monkeypatch.setattr(solver.DifferentialEvolutionSolver, "_ensure_constraint", ensure)
    attack = OnePixel(pixels, variant="torchattacks", population=popsize)
    members, redrawn, twice = attack.members(3), 0, 0
    for number in range(2):
        images = random_images(1, SHAPE, seed=number)
        label = module(images).argmax(1)
        aim = (label + 1) % CLASSES if targeted else label
        problems = Problems.make(images, label, aim if targeted else None, ids=[number])
        numbers = OurNumbers(rng.streams(0, problems.ids), members, pixels * 5)
        monkeypatch.setattr(solver, "check_random_state", lambda seed, numbers=numbers: numbers)
        their_attack = theirs.OnePixel(module, pixels=pixels, steps=steps, popsize=popsize)
        if targeted:
            their_attack.set_mode_targeted_by_label(quiet=True)
        # they would stop at the first generation with a success, which is the loop's business here
        monkeypatch.setattr(their_attack, "_attack_success", lambda *arguments: False)
        module.asked.clear()
        their_attack(images, aim)
        expected = module.asked[: members * (steps + 1)]
        assert len(module.asked) == len(expected)

        search = begin(attack, problems, 0, 0)
        for asked, image in enumerate(expected):
            edits = search.ask()
            mine = edits.render(problems.flat_images, SHAPE)
            assert torch.equal(levels(mine)[0], image), f"candidate {asked}"
            assert search.initial().tolist() == [asked < members]
            probability = torch.softmax(module(mine), 1)[:, aim[0]].double()
            loss = 1 - probability if targeted else probability
            search.tell(feedback(loss, torch.zeros(1) > 0, loss[:, None]))
            twice += len(set(edits.index[0].tolist())) < pixels
        assert numbers.checked == members * (steps + 1)
        redrawn += numbers.redrawn
    # values out of range and edits on top of others were among them
    assert redrawn > 0 and (twice or pixels == 1)


@pytest.mark.parametrize("pixels", [1, 3, 5])
@pytest.mark.parametrize("channels", [1, 3])
def test_population_and_number_of_queries_are_those_of_torchattacks(
    theirs, pixels, channels
) -> None:
    """Its defaults, on an image that stays as it is; it asks once more in every generation."""
    module = Module(Counting(lambda x: torch.tensor([[1.0, 0.0]]).expand(len(x), 2)))
    images = random_images(1, (channels, 8, 8))
    theirs.OnePixel(module, pixels=pixels)(images, torch.tensor([0]))
    members = OnePixel(pixels, variant="torchattacks").members(channels)
    assert len(module.asked) == 11 * members + 10
    assert members == {1: {1: 9, 3: 9, 5: 15}, 3: {1: 10, 3: 15, 5: 25}}[channels][pixels]


def test_as_many_successes_as_torchattacks_with_its_own_numbers(theirs) -> None:
    """Two samples of the same images with the same number of queries."""
    model, count, steps = integer_model(SHAPE, CLASSES), 80, 15
    module = Module(model)
    images = random_images(40, SHAPE).repeat(2, 1, 1, 1)
    labels = module(images).argmax(1)
    np.random.seed(0)  # noqa: NPY002  their generator is the global one
    found = theirs.OnePixel(module, pixels=2, steps=steps, popsize=20)(images, labels)
    hits = module(found).argmax(1) != labels
    attack = OnePixel(2, 20 * (steps + 1), variant="torchattacks", population=20)
    assert attack.members(3) == 20
    mine = attack(model.victim(), images, labels, ids=range(count)).success
    p, q = float(hits.double().mean()), float(mine.double().mean())
    assert 0.1 < p < 0.9
    assert abs(p - q) < 3 * math.sqrt((p * (1 - p) + q * (1 - q)) / count)


# without the package


def test_one_pixel_painted_twice_shows_the_later_colour() -> None:
    problems = Problems.make(random_images(1, (3, 2, 2)), [0])
    search = begin(OnePixel(4, variant="torchattacks"), problems, 0, 0)
    places = torch.tensor([[0.1, 0.1], [0.6, 0.9], [0.4, 0.3], [1.0, 0.2]])
    colours = torch.tensor([[0.0, 0.2, 0.4], [1.0, 0.0, 0.0], [0.6, 0.8, 1.0], [0.0, 1.0, 0.0]])
    edits = search.paint(torch.cat([places, colours], 1)[None].double())
    painted = edits.render(problems.flat_images, (3, 2, 2))[0]
    assert torch.allclose(painted[:, 0, 0], colours[2])
    assert torch.allclose(painted[:, 1, 1], colours[1])
    assert torch.allclose(painted[:, 1, 0], colours[3])  # the end of the range is the last row
    assert torch.equal(painted[:, 0, 1], problems.images[0, :, 0, 1])


def test_resuming_asks_the_given_edits_first() -> None:
    problems = Problems.make(torch.rand(3, 3, 5, 7), [0] * 3, ids=range(3))
    index = torch.tensor([[34, 2], [0, 1], [7, 6]])
    colour = problems.flat_images.gather(1, index[:, :, None].expand(-1, -1, 3))  # not on levels
    search = begin(OnePixel(2, variant="torchattacks"), problems, 0, 0)
    painted = search.resume(Edits(index, colour)).render(problems.flat_images, problems.shape)
    assert torch.equal(painted, problems.images)


def test_finds_what_it_takes() -> None:
    model = integer_model(SHAPE, CLASSES)
    images = random_images(40, SHAPE)
    labels = own_labels(model, images)
    result = OnePixel(3, 300, variant="torchattacks")(model.victim(), images, labels)
    assert result.success.any()
    assert int(result.pixels.max()) <= 3
