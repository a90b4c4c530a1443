import itertools

import pytest
import torch

from brusle import rng
from brusle.rng import Purpose

IDS = torch.arange(50)


def test_mix_is_splitmix64() -> None:
    # first outputs of the published generator for seed 0, as signed integers
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    gamma = 0x9E3779B97F4A7C15
    states = [(gamma * (i + 1)) % 2**64 for i in range(3)]
    signed = torch.tensor([s - 2**64 if s >= 2**63 else s for s in states])
    assert [x % 2**64 for x in rng.mix(signed).tolist()] == published


def test_numbers_depend_on_coordinates_and_nothing_else() -> None:
    whole = rng.bits(rng.streams(7, IDS), torch.arange(50), 3, 101)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    part = rng.bits(rng.streams(7, IDS[order[:9]]), order[:9], 3, 101)
    assert torch.equal(whole[order[:9]], part)
    # a shorter draw is the beginning of a longer one
    assert torch.equal(whole[:, :40], rng.bits(rng.streams(7, IDS), torch.arange(50), 3, 40))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_fewer_problems_or_numbers_are_a_part_of_more(count) -> None:
    many = rng.bits(rng.streams(3, torch.arange(4)), 2, 1, 6)
    for n in (0, 1, 4):
        assert torch.equal(rng.bits(rng.streams(3, torch.arange(n)), 2, 1, count), many[:n, :count])


def test_every_coordinate_matters() -> None:
    base = rng.bits(rng.streams(7, IDS[:1]), 4, 3, 64)
    others = [
        rng.bits(rng.streams(8, IDS[:1]), 4, 3, 64),
        rng.bits(rng.streams(7, IDS[1:2]), 4, 3, 64),
        rng.bits(rng.streams(7, IDS[:1], restart=1), 4, 3, 64),
        rng.bits(rng.streams(7, IDS[:1]), 5, 3, 64),
        rng.bits(rng.streams(7, IDS[:1]), 4, 2, 64),
    ]
    for other in others:
        assert (base == other).sum() == 0
    assert torch.equal(rng.streams(-1, IDS), rng.streams(2**64 - 1, IDS))


def test_uniform_and_exponential_have_their_moments() -> None:
    u = rng.uniform(rng.bits(rng.streams(0, IDS), 0, 0, 40_000))
    n = u.numel()
    assert u.min() > 0 and u.max() < 1
    assert abs(u.mean() - 1 / 2) < 4 * (1 / 12 / n) ** 0.5
    assert abs(u.var() - 1 / 12) < 4 * (1 / 180 / n) ** 0.5
    # neighbours, streams and steps are uncorrelated
    flat = u - 0.5
    for a, b in ((flat[:, 1:], flat[:, :-1]), (flat[1:], flat[:-1])):
        assert abs((a * b).mean()) * 12 < 4 / n**0.5
    e = rng.exponential(rng.bits(rng.streams(0, IDS), 0, 0, 40_000)).double()
    assert e.isfinite().all() and e.min() > 0
    assert abs(e.mean() - 1) < 4 / n**0.5
    assert abs((e > 3).double().mean() - torch.tensor(-3.0).exp()) < 4 * (0.05 * 0.95 / n) ** 0.5


def test_exponential_race_draws_by_weight() -> None:
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0])
    e = rng.exponential(rng.bits(rng.streams(3, torch.arange(60_000)), 0, 0, 4)) / weights
    first, second = rng.winners(e, 2).unbind(1)
    n = len(e)
    for i in range(4):
        p = float(weights[i]) / 10
        assert abs((first == i).double().mean() - p) < 4 * (p * (1 - p) / n) ** 0.5
    # without replacement: the second follows the weights that are left
    given = second[first == 3]
    p = 3 / 6
    assert abs((given == 2).double().mean() - p) < 4 * (p * (1 - p) / len(given)) ** 0.5


def test_ties_of_a_race_do_not_depend_on_how_many_win() -> None:
    generator = torch.Generator().manual_seed(0)
    race = torch.randint(0, 40, (300, 200), generator=generator).float()
    race[::3, 50:] = torch.inf
    expected = torch.tensor(
        [sorted(range(200), key=lambda i, row=row: (row[i], i)) for row in race.tolist()]
    )
    for count in (1, 2, 30, 199, 200):
        assert torch.equal(rng.winners(race, count), expected[:, :count])


def test_content_id_separates_parts() -> None:
    assert rng.content_id(b"ab", b"c") != rng.content_id(b"a", b"bc")
    assert 0 <= rng.content_id(b"x") < 2**63


def test_every_purpose_has_numbers_of_its_own() -> None:
    stream = rng.streams(5, IDS[:3])
    theirs = [rng.purpose(name) for name in ("mine", "yours", "")]
    drawn = {purpose: rng.bits(stream, 0, purpose, 8) for purpose in (*Purpose, *theirs)}
    assert len(drawn) == len(Purpose) + 3  # no two are equal
    for one, other in itertools.combinations(drawn.values(), 2):
        assert not (one == other).any()
    assert rng.purpose("mine") == theirs[0]  # the same wherever it is asked for


def test_no_step_of_one_purpose_is_a_step_of_another() -> None:
    """As tags next to each other once were: step 1 of one tag, step 0 of another."""
    stream, steps = rng.streams(5, IDS[:1]), torch.arange(2000)
    many = stream.expand(2000)
    first = [rng.bits(many, steps, purpose, 2) for purpose in Purpose]
    words = torch.stack(first).long()
    assert len((words[..., 0] << 31 | words[..., 1]).unique()) == len(Purpose) * 2000


def test_a_victims_noise_has_nothing_to_do_with_the_palette() -> None:
    stream = rng.streams(0, IDS)
    high, low = rng.bits(stream, 0, Purpose.PALETTE, 2).long().unbind(1)
    assert not (rng.seeds(stream, torch.zeros_like(IDS)) == (high << 31 | low)).any()


def test_the_choice_of_a_starting_image_is_not_sparse_evos_first_draw() -> None:
    stream = rng.streams(0, IDS)
    picks = [rng.bits(stream, 0, p, 1) for p in (Purpose.START_IMAGE, Purpose.START_CLASS)]
    evolution = [rng.bits(stream, 0, p, 1) for p in Purpose if p.name.startswith("SPARSE_EVO")]
    assert len(evolution) == 5
    for pick, draw in itertools.product(picks, evolution):
        assert not (pick == draw).any()
