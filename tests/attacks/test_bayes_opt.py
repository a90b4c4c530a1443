import math
import sys

import numpy as np
import pytest
import torch
from driving import begin, feedback
from models import additive_model, grey_images, integer_model, levels, own_labels, random_images

from brusle.attacks.bayes_opt import BayesOpt
from brusle.attacks.bayes_opt.model import (
    SCALES,
    Model,
    distances,
    expected_improvement,
    first_scales,
    kernel,
    quantiles,
)
from brusle.attacks.bayes_opt.region import Neighbourhood, Region, grid
from brusle.errors import InputError
from brusle.problems import Edits, Problems


@pytest.fixture
def data():
    """Twelve candidates of four edits: positions, colours and losses."""
    generator = torch.Generator().manual_seed(0)
    index = torch.stack([torch.randperm(9, generator=generator)[:4] for _ in range(12)])
    colour = torch.rand(12, 4, 3, generator=generator, dtype=torch.float64)
    return index, colour, torch.rand(12, generator=generator, dtype=torch.float64)


# the model


def test_kernel_values_known_by_hand() -> None:
    index = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 9], [5, 6, 7, 8]])
    black, white = torch.zeros(1, 4, 3).double(), torch.ones(1, 4, 3).double()
    colour = torch.cat([black, black, white])
    moved, apart = distances(index, colour, index, colour)
    assert moved.tolist() == [[0, 0.25, 1], [0.25, 0, 1], [1, 1, 0]]
    assert torch.allclose(apart, torch.tensor([[0, 0, 1], [0, 0, 1], [1, 1, 0]]).double())
    k = kernel(moved, apart, torch.tensor([math.log(2), math.log(0.5), -5.0]).double())
    assert torch.allclose(k.diagonal(), torch.ones(3).double())
    overlap = math.exp(-0.25 / 2)  # one of four differs, with a length scale of 2
    assert float(k[0, 1]) == pytest.approx(0.25 * (overlap + 1) + 0.5 * overlap)
    overlap, r = math.exp(-0.5), math.sqrt(5) / 0.5
    matern = (1 + r + r * r / 3) * math.exp(-r)
    assert float(k[0, 2]) == pytest.approx(0.25 * (overlap + matern) + 0.5 * overlap * matern)


def test_kernel_is_made_of_those_of_botorch_and_gpytorch(data) -> None:
    gpytorch = pytest.importorskip("gpytorch")
    from botorch.models.kernels import CategoricalKernel

    index, colour, _ = data
    scales = torch.tensor([0.3, -0.4, -3.0]).double()
    overlap, matern = CategoricalKernel(), gpytorch.kernels.MaternKernel(nu=2.5)
    overlap.lengthscale, matern.lengthscale = math.exp(0.3), math.exp(-0.4)
    with torch.no_grad():
        a = overlap(index.double()).to_dense()
        b = matern(colour.flatten(1) / math.sqrt(12)).to_dense()
    ours = kernel(*distances(index, colour, index, colour), scales)
    assert torch.allclose(ours, 0.25 * (a + b) + 0.5 * a * b, atol=1e-6)


def test_posterior_equals_the_dense_formula(data) -> None:
    index, colour, loss = data
    y, scales = quantiles(loss), torch.tensor([-0.2, 0.1, -3.0]).double()
    model = Model(index[:8], colour[:8], y[:8], scales)
    mean, deviation = model.predict(index[8:], colour[8:])
    k = kernel(*distances(index, colour, index, colour), scales).numpy()
    inverse = np.linalg.inv(k[:8, :8] + math.exp(-3) * np.eye(8))
    values = y[:8].numpy()
    variance = values @ inverse @ values / 8
    expected = k[8:, :8] @ inverse @ values
    left = 1 - np.einsum("ij,jk,ik->i", k[8:, :8], inverse, k[8:, :8])
    assert np.allclose(mean, expected)
    assert np.allclose(deviation, np.sqrt(variance * left))
    assert np.allclose(model.fitted, k[:8, :8] @ inverse @ values)


def test_fit_finds_scales_at_least_as_likely_as_the_true_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    t, truth = 40, torch.tensor([-0.5, -1.0, -6.0]).double()
    index = torch.stack([torch.randperm(6, generator=generator)[:4] for _ in range(t)])
    colour = torch.rand(t, 4, 1, generator=generator, dtype=torch.float64)
    eye = torch.eye(t, dtype=torch.float64)

    def covariance(scales: torch.Tensor) -> torch.Tensor:
        return kernel(*distances(index, colour, index, colour), scales) + scales[2].exp() * eye

    normal = torch.randn(t, generator=generator, dtype=torch.float64)
    y = torch.linalg.cholesky(covariance(truth)) @ normal

    def likelihood(scales: torch.Tensor) -> float:
        k = covariance(scales)
        variance = y @ torch.linalg.solve(k, y) / t
        drawn = torch.distributions.MultivariateNormal(torch.zeros_like(y), variance * k)
        return float(drawn.log_prob(y))

    fitted = Model(index, colour, y, first_scales(), fit=True).scales
    best = likelihood(fitted)
    assert best > likelihood(first_scales()) + 1
    assert best > likelihood(truth)
    low, high = (torch.tensor([v[i] for v in SCALES.values()]) for i in (1, 2))
    assert ((fitted >= low - 1e-9) & (fitted <= high + 1e-9)).all()
    for _ in range(100):
        elsewhere = low + (high - low) * torch.rand(3, generator=generator)
        assert likelihood(elsewhere.double()) < best + 0.5


def test_expected_improvement_equals_that_of_botorch_and_of_a_sample() -> None:
    analytic = pytest.importorskip("botorch.acquisition.analytic")
    mean, deviation = torch.tensor([-1.0, 0.0, 2.0]).double(), torch.tensor([0.5, 1, 3]).double()
    best = torch.tensor(0.3).double()
    got = expected_improvement(mean, deviation, best)
    # BoTorch maximises
    theirs = deviation * analytic._ei_helper((best - mean) / deviation)
    assert torch.allclose(got, theirs)
    sample = np.random.default_rng(0).normal(mean, deviation, (200_000, 3))
    assert np.allclose(got, np.maximum(0.3 - sample, 0).mean(0), atol=0.02)


def test_quantiles_depend_on_ranks_only() -> None:
    loss = torch.tensor([3.0, -1.0, 1e9, 3.0]).double()
    shares = torch.special.ndtr(quantiles(loss))
    assert torch.allclose(shares, torch.tensor([0.6, 0.2, 0.8, 0.6]).double())


# the trust region


def follow(region: Region, outcomes: str, failures: int = 2, pixels: int = 100) -> torch.Tensor:
    for outcome in outcomes:
        gone = region.update(torch.tensor([outcome == "+"]), failures, pixels)
    return gone


def test_region_grows_after_three_successes_and_shrinks_after_failures() -> None:
    region = Region.first(1, 100, torch.device("cpu"))
    follow(region, "++-++-")
    assert (float(region.radius), float(region.side)) == (20, 0.8)
    follow(region, "+++")
    assert (float(region.radius), float(region.side)) == (30, pytest.approx(1.2))
    follow(region, "+++" * 2)
    assert (float(region.radius), float(region.side)) == (30, 1.6)  # its limits
    follow(region, "--")
    assert (float(region.radius), float(region.side)) == (20, pytest.approx(1.6 / 1.5))
    follow(region, "-+-+")
    assert float(region.radius) == 20


def test_region_is_no_larger_than_the_number_of_edits_and_vanishes() -> None:
    region = Region.first(1, 3, torch.device("cpu"))
    assert float(region.radius) == 3
    assert not follow(region, "+++", pixels=3)
    assert float(region.radius) == 3
    assert not follow(region, "--" * 2, pixels=3)  # 3, 2, 1.33
    assert follow(region, "--", pixels=3)


@pytest.mark.parametrize("radius", [1, 2, 5])
def test_candidates_stay_in_the_region(radius) -> None:
    generator = torch.Generator().manual_seed(0)
    k, c, h = 5, 3, 12
    centre = torch.randperm(h, generator=generator)[:k]
    colour = torch.tensor([0.0, 51, 102, 204, 255]).double()[:, None].expand(k, c) / 255
    region = Neighbourhood(centre, colour, radius, 0.4, torch.arange(h))
    index, paint = centre, colour
    moves = []
    for turn in range(60):
        u = torch.rand(30, 1 + (2 + c) * k, generator=generator, dtype=torch.float64)
        most = 1 if turn % 2 else radius
        some, paints = region.vary(index, paint, most, u)
        assert all(len(set(row)) == k for row in some.tolist())
        distance = (some != centre).sum(1)
        assert int(distance.max()) <= radius
        moves.append(int(distance.max()))
        assert float((paints - colour).abs().max()) <= 0.2 + 0.51 / 255
        assert float(paints.min()) >= 0 and float(paints.max()) <= 1
        assert torch.equal(levels(paints).double(), (paints * 255).round())
        changed = (some != index) | (paints != paint).any(2)
        assert int(changed.sum(1).max()) <= most
        index, paint = some[0], paints[0]
    assert max(moves) == radius


def test_search_begins_anew_when_the_region_vanishes() -> None:
    attack = BayesOpt(2, 60, initial=3, candidates=8, refit=5, failures=2)
    problems = Problems.make(random_images(1, (1, 6, 6)), [0], ids=[0])
    search = begin(attack, problems, 0, 0)
    initial = []
    for turn in range(20):
        search.ask()
        initial.append(bool(search.initial()))
        loss = torch.tensor([1.0 + turn]).double()  # the first one stays the best
        search.tell(feedback(loss, torch.tensor([False]), loss[:, None]))
    # 3 random ones, then 2 failures for each of the radii 2 and 1.33, and again
    assert initial == [True] * 3 + [False] * 4 + [True] * 3 + [False] * 4 + [True] * 3 + [False] * 3


def test_grid_covers_the_image_with_few_places() -> None:
    assert grid(4, 6, 3, 1024).tolist() == list(range(24))
    assert grid(4, 6, 3, 6).tolist() == [7, 9, 11, 19, 21, 23]
    assert grid(4, 6, 12, 6).tolist() == list(range(24))  # twelve edits need more
    places = grid(224, 224, 200, 1024)
    assert 900 < len(places) <= 1024
    row, column = places // 224, places % 224
    assert row.unique().diff().unique().tolist() == [7]
    assert (int(row.min()), int(column.max())) == (3, 220)


# the attack


def test_first_candidates_are_random_edits() -> None:
    problems = Problems.make(random_images(40, (3, 5, 5)), [0] * 40, ids=range(40))
    edits = begin(BayesOpt(4, 10), problems, 0, 0).ask()
    assert all(len(set(row)) == 4 for row in edits.index.tolist())
    assert torch.equal(levels(edits.colour).float() / 255, edits.colour)
    assert torch.bincount(edits.index.flatten(), minlength=25).min() > 0
    assert 0.4 < float(edits.colour.mean()) < 0.6


def test_resuming_asks_the_given_edits_first() -> None:
    problems = Problems.make(torch.rand(2, 3, 5, 7), [0] * 2, ids=range(2))
    index = torch.tensor([[34, 2], [7, 6]])
    colour = problems.flat_images.gather(1, index[:, :, None].expand(-1, -1, 3))  # not on levels
    search = begin(BayesOpt(2, 20, initial=2, candidates=8), problems, 0, 0)
    edits = search.resume(Edits(index, colour))
    assert torch.equal(edits.render(problems.flat_images, problems.shape), problems.images)
    for turn in range(3):  # the given one is the best: the third candidate is near it
        loss = torch.full((2,), float(turn)).double()
        search.tell(feedback(loss, torch.tensor([False] * 2), loss[:, None]))
        edits = search.ask()
    assert not torch.equal(edits.index, index) or not torch.equal(edits.colour, colour)


def random_search(model, images, labels, targets, pixels: int, queries: int) -> np.ndarray:
    """Lowest cross-entropy to the targets among random edits."""
    generator = torch.Generator().manual_seed(0)
    n, c, h, w = images.shape
    best = torch.full((n,), math.inf, dtype=torch.float64)
    for _ in range(queries):
        painted = images.flatten(2).clone()
        for i in range(n):
            place = torch.randperm(h * w, generator=generator)[:pixels]
            painted[i][:, place] = torch.randint(0, 256, (c, pixels), generator=generator) / 255
        log_p = model.function(painted.view_as(images)).log_softmax(1)
        best = torch.minimum(best, -log_p.gather(1, targets[:, None])[:, 0])
    return best.numpy()


def test_beats_random_search_with_as_many_queries() -> None:
    model, n = integer_model((3, 12, 12), 5), 16
    images = random_images(n, (3, 12, 12), seed=2)
    labels = own_labels(model, images)
    targets = (labels + 1) % 5
    attack = BayesOpt(4, 60, initial=10, candidates=80, refit=25)
    result = attack(model.victim(), images, labels, targets)
    # a success stops the search: count it as no worse than the other
    mine = np.where(result.success.numpy(), 0, result.losses.numpy())
    other = random_search(model, images, labels, targets, 4, 60)
    assert (mine < other).mean() > 0.75
    assert mine.mean() < 0.8 * other.mean()


@pytest.mark.parametrize(("budget", "expected"), [(2, "failed"), (4, "success")])
def test_never_succeeds_with_fewer_pixels_than_it_takes(budget, expected) -> None:
    model = additive_model([8, 7, 6, 5, 4, 3, 2, 1, 1, 1], threshold=20, shape=(3, 4))
    attack = BayesOpt(budget, 150, candidates=40, refit=50)
    result = attack(model.victim(), grey_images(4, (3, 4)), 0, ids=range(4))
    assert result.status == [expected] * 4


def test_missing_botorch_is_said_before_any_query(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "botorch", None)
    model = integer_model((1, 4, 4), 2)
    with pytest.raises(InputError, match=r'pip install "brusle\[bayes\]"'):
        BayesOpt(1)(model.victim(), random_images(1, (1, 4, 4)), [0])
    assert model.seen == 0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"initial": 0}, "initial is 0: it must be an integer of at least 1"),
        ({"candidates": 3}, "candidates is 3: it must be an integer of at least 4"),
        ({"refit": 0}, "refit is 0"),
        ({"failures": 0}, "failures is 0"),
        ({"places": 0}, "places is 0"),
        ({"loss": "l2"}, "loss is 'l2': choose from"),
    ],
)
def test_bad_options(bad, message) -> None:
    with pytest.raises(InputError, match=message):
        BayesOpt(3, **bad)
