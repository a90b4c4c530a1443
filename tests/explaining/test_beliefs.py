"""What a search believed, drawn or saved."""

import numpy as np
import pytest
from models import integer_model, own_labels, random_images
from PIL import Image

import brusle
from brusle.attacks import BruSLe, Minimal, PixelBandit, Restarts, SparseRS
from brusle.errors import InputError
from brusle.explaining.beliefs import require_beliefs, write_beliefs
from brusle.explaining.drawing import sheet_of_beliefs
from brusle.search import Round

SHAPE = (3, 8, 6)


def explained(attack=None, shape=SHAPE, **options):
    attack = attack or PixelBandit(3, 60)
    model, images = integer_model(shape, 5), random_images(1, shape, seed=2)
    aim = model.function(images).argmin(1)
    labels = own_labels(model, images)
    return brusle.explain(attack(model.victim(), images, labels, aim, trace=True, **options))


@pytest.mark.parametrize("attack", [PixelBandit(3, 60), BruSLe(3, 60), Restarts(BruSLe(3, 20), 3)])
def test_numbers_are_those_of_the_search(tmp_path, attack) -> None:
    seen = {}

    def watch(one: Round) -> None:
        painted = one.candidates.render(flat, SHAPE)[0].clone()
        seen[int(one.queries[0])] = (one.search.belief()[0].view(SHAPE[1:]).clone(), painted)

    flat = random_images(1, SHAPE, seed=2).flatten(2).transpose(1, 2)
    case = explained(attack, on_round=watch)
    write_beliefs(case, tmp_path / "b.NPZ")
    with np.load(tmp_path / "b.NPZ", allow_pickle=False) as stored:
        assert set(stored) == {"queries", "values", "best", "original", "meaning"}
        for query, values, best in zip(
            stored["queries"], stored["values"], stored["best"], strict=True
        ):
            belief = seen[query][0].numpy()
            assert np.abs(values - belief).max() <= np.ptp(belief) / 63 / 2 + 1e-6
            found = [one for one in case.trace.improvements if one.query <= query][-1]
            np.testing.assert_array_equal(best, seen[found.query][1].numpy())
        np.testing.assert_array_equal(stored["original"], case.original)


@pytest.mark.parametrize("shape", [(1, 5, 5), (4, 6, 70)])
def test_a_picture_has_panels_for_some_moments(tmp_path, shape) -> None:
    case = explained(shape=shape)
    names = [panel.name for band in sheet_of_beliefs(case).bands for panel in band]
    count = min(3, len(case.trace.beliefs))
    assert names == ["original", "adversarial", *(f"effect-{at + 1}" for at in range(count))]
    write_beliefs(case, tmp_path / "b.png", dark=True)
    with Image.open(tmp_path / "b.png") as picture:
        picture.load()
        assert picture.format == "PNG" and picture.getpixel((0, 0))[0] < 60


@pytest.mark.parametrize("attack", [SparseRS(3), Restarts(SparseRS(3), 2)])
def test_attacks_without_belief_are_refused(attack) -> None:
    with pytest.raises(InputError, match="keeps no map .*: take brusle and pixel-bandit"):
        require_beliefs(attack)


@pytest.mark.parametrize("attack", [BruSLe(3), Minimal(PixelBandit(3), 900)])
def test_attacks_with_one_are_not(attack) -> None:
    require_beliefs(attack)


def test_what_was_not_attacked_has_none(tmp_path) -> None:
    model, images = integer_model(SHAPE, 5), random_images(1, SHAPE)
    wrong = model.function(images).argmin(1)
    result = PixelBandit(3)(model.victim(), images, wrong, trace=True)
    with pytest.raises(InputError, match="was not attacked"):
        write_beliefs(brusle.explain(result), tmp_path / "none.png")
    with pytest.raises(InputError, match="in the format of its name: name it .png, .npz"):
        write_beliefs(explained(), tmp_path / "b.pdf")
    assert not list(tmp_path.iterdir())
