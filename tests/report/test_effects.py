"""The effects that PixelBandit expects, followed from outside."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from driving import Driven
from models import integer_model, own_labels, random_images
from PIL import Image

from brusle.attacks import BruSLe, Minimal, PixelBandit, Restarts
from brusle.attacks.pixel_bandit.effects import EffectMaps, follow
from brusle.errors import InputError
from brusle.problems import Problems
from brusle.report.effects import draw, save
from brusle.scores import Scores
from brusle.search import Feedback
from brusle.victims import wrap

SHAPE = (3, 8, 6)
ATTACK = PixelBandit(pixels=3, queries=40)


def followed(shape=SHAPE, attack=ATTACK, seed=0, target=True, **options):
    """A model, an image, its label and a target that is not reached at once, and what follows."""
    model = integer_model(shape, 5)
    image = random_images(1, shape, seed)
    label = int(own_labels(model, image)[0])
    aim = int(model.function(image)[0].argmin()) if target else None
    result, maps = follow(attack, model.victim(), image[0], label, aim, **options)
    return model, image, label, aim, result, maps


def told_again(model, image, label, aim, attack, rounds):
    """The search that asks the same model, round by round, without the loop."""
    problems = Problems.make(image, [label], [aim])
    search = Driven(attack.start(problems, 0, 0), 1)
    for _ in range(rounds):
        edits = search.ask()
        scores = model.function(edits.render(problems.flat_images, problems.shape))
        loss = -scores.double().log_softmax(1)[:, aim]
        search.tell(Feedback(loss, scores.argmax(1) == aim, Scores(scores)))
    return search


def test_maps_are_those_of_a_search_that_is_told_the_same() -> None:
    model, image, label, aim, result, maps = followed(seed=2, after=(4, 9))
    assert result.queries.tolist() == [maps.moments[-1].queries] and maps.moments[-1].queries > 9
    assert [moment.queries for moment in maps.moments[:-1]] == [4, 9]
    for moment in maps.moments:
        search = told_again(model, image, label, aim, ATTACK, moment.queries)
        expected = search.expected_effects()[0].view(8, *SHAPE[1:]).numpy()
        assert moment.effects.shape == (8, 8, 6) and np.abs(expected).max() > 0
        np.testing.assert_array_equal(moment.effects, expected)
        assert moment.pixels.shape == (3, 2) and moment.paint.shape == (3, 3)
        places = moment.pixels @ (SHAPE[2], 1)
        assert places.tolist() == search.best_pixel[0].tolist()


def test_the_attack_is_the_same_as_without_a_follower() -> None:
    model, image, label, aim, result, maps = followed()
    asked = model.seen
    alone = ATTACK(model.victim(), image, [label], [aim])
    assert asked == model.seen - asked
    assert result.attack == alone.attack and result.attack.label == ATTACK.label
    assert result.status == alone.status and result.queries.tolist() == alone.queries.tolist()
    assert torch.equal(result.images, alone.images) and torch.equal(maps.final, alone.images[0])


def test_the_best_mask_at_the_end_makes_the_final_image() -> None:
    _, image, _, _, _, maps = followed()
    painted = image[0].clone()
    last = maps.moments[-1]
    for (row, column), paint in zip(last.pixels.tolist(), last.paint, strict=True):
        painted[:, row, column] = torch.from_numpy(paint)
    assert torch.equal(painted, maps.final) and not torch.equal(painted, maps.original)


def test_the_strongest_effect_leaves_out_the_colour_that_a_pixel_has() -> None:
    white = torch.ones(1, 1, 4, 4)
    model = integer_model((1, 4, 4), 3)
    label = int(own_labels(model, white)[0])
    _, maps = follow(PixelBandit(2, 5, initial=5), model.victim(), white[0], label)
    (moment,) = maps.moments
    black, own = moment.effects
    assert maps.colours.tolist() == [[0], [1]]
    assert np.isnan(own).all() and np.array_equal(moment.strongest, black)


def test_averaged_answers_count_as_queries() -> None:
    model, image = integer_model(SHAPE, 5), random_images(1, SHAPE)
    label, aim = int(own_labels(model, image)[0]), int(model.function(image)[0].argmin())
    victim = wrap(model.function, output="logits", randomised=True)
    result, maps = follow(ATTACK, victim, image[0], label, aim, after=(9,), eot=2)
    assert maps.moments[0].queries == 10  # the first round that has spent so many
    assert maps.moments[-1].queries == int(result.queries[0]) > 10


def test_an_image_that_is_wrong_already_has_no_maps(tmp_path) -> None:
    model, image = integer_model(SHAPE, 5), random_images(1, SHAPE)
    wrong = int(model.function(image)[0].argmin())
    result, maps = follow(ATTACK, model.victim(), image[0], wrong)
    assert result.status == ["skipped"] and maps.moments == ()
    with pytest.raises(InputError, match="was not attacked"):
        draw(maps, tmp_path / "none.png")


def test_what_came_before_an_error_of_the_victim_is_kept() -> None:
    model, image = integer_model(SHAPE, 5), random_images(1, SHAPE)
    label, aim = int(own_labels(model, image)[0]), int(model.function(image)[0].argmin())
    scores, calls = model.function, []

    def breaks(images):
        calls.append(len(images))
        if len(calls) > 6:
            raise RuntimeError("out of order")
        return scores(images)

    model.function = breaks
    result, maps = follow(ATTACK, model.victim(), image[0], label, aim, after=(3, 9))
    assert result.status == ["error"]
    assert [moment.queries for moment in maps.moments] == [3]
    assert np.isfinite(maps.moments[0].strongest).all()


@pytest.mark.parametrize(
    "attack", [BruSLe(3, 40), Restarts(ATTACK, 2), Minimal(ATTACK, 80)], ids=lambda a: a.label
)
def test_other_attacks_are_refused_before_the_first_query(attack) -> None:
    model, image = integer_model(SHAPE, 5), random_images(1, SHAPE)
    with pytest.raises(InputError, match="take pixel-bandit, without restarts"):
        follow(attack, model.victim(), image[0], 0)
    assert model.seen == 0


@pytest.mark.parametrize("shape", [(3, 8, 6), (1, 5, 5), (4, 6, 70)])
def test_a_picture_can_be_read_and_has_a_panel_for_each_moment(tmp_path, shape) -> None:
    *_, maps = followed(shape, replace(ATTACK, queries=12), after=(4, 8), target=False)
    draw(maps, tmp_path / "all.png", "title")
    draw(replace(maps, moments=maps.moments[:1]), tmp_path / "one.png", "title")
    every, one = (Image.open(tmp_path / f"{name}.png") for name in ("all", "one"))
    every.load()
    assert every.format == "PNG" and every.height == one.height
    panels = 2 + len(maps.moments)
    assert (every.width - one.width) == pytest.approx((panels - 3) * 325, abs=2)


def test_pixels_of_the_mask_are_framed_in_their_colour(tmp_path) -> None:
    *_, maps = followed()
    magenta = replace(maps.moments[-1], paint=np.tile(np.float32([1, 0, 1]), (3, 1)))
    bare = replace(magenta, pixels=magenta.pixels[:0], paint=magenta.paint[:0])
    counts = []
    grey = torch.full_like(maps.original, 0.5)
    for name, moment in (("framed", magenta), ("bare", bare)):
        draw(EffectMaps(grey, grey, maps.colours, (moment,)), tmp_path / f"{name}.png")
        drawn = np.asarray(Image.open(tmp_path / f"{name}.png").convert("RGB"))
        counts.append(int((drawn == (255, 0, 255)).all(2).sum()))
    assert counts[0] > 30 and counts[1] == 0


def test_numbers_can_be_read_back(tmp_path) -> None:
    *_, maps = followed(after=(4,))
    save(maps, tmp_path / "maps.NPZ")
    with np.load(tmp_path / "maps.NPZ") as stored:
        assert stored["queries"].tolist() == [moment.queries for moment in maps.moments]
        for name in ("effects", "pixels", "paint"):
            values = [getattr(moment, name) for moment in maps.moments]
            np.testing.assert_array_equal(stored[name], np.stack(values))
        np.testing.assert_array_equal(stored["original"], maps.original.numpy())
        np.testing.assert_array_equal(stored["final"], maps.final.numpy())
        np.testing.assert_array_equal(stored["colours"], maps.colours)


def test_a_name_that_says_another_format_is_refused(tmp_path) -> None:
    *_, maps = followed(after=(4,))
    for write, name in ((draw, "a.pdf"), (draw, "a.npz"), (save, "a.png"), (save, "a")):
        with pytest.raises(InputError, match=f"cannot write .*{name} in the format of its name"):
            write(maps, tmp_path / name)
    assert not list(tmp_path.iterdir())
