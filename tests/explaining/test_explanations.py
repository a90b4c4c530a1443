"""Explanations of results: what is in them is what happened, and nothing is booked for it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from models import additive_model, grey_images, integer_model, own_labels, random_images
from PIL import Image

import brusle
from brusle.attacks import BruSLe, PixelBandit, Pointwise, SparseRS
from brusle.errors import InputError, VictimUnavailable
from brusle.explaining.drawing import best_by, moments, sheet_of
from brusle.looking import look
from brusle.report.plots import new_figure
from brusle.report.style import LIGHT
from brusle.victims import wrap

SHAPE = (3, 8, 6)
HOSTILE = ["<script>alert(1)</script>", "$\\frac{1}{0}$", "a\x1b[2J\u202eb", "../../etc", "e" * 900]
ATTACK = BruSLe(pixels=4, queries=60)


@pytest.fixture
def model():
    return integer_model(SHAPE, 5)


def attacked(model, attack=ATTACK, shape=SHAPE, n=3, targeted=True, **options):
    images = random_images(n, shape)
    targets = model.function(images).argmin(1) if targeted else None
    return attack(model.victim(), images, own_labels(model, images), targets, **options)


def panels(explained) -> list[str]:
    return [panel.name for band in sheet_of(explained).bands for panel in band]


def test_arrays_are_those_of_the_result(model) -> None:
    result = attacked(model, trace=True)
    explained = brusle.explain(result, model.victim(), image=1, attack=ATTACK)
    np.testing.assert_array_equal(explained.original, result.problems.images[1])
    np.testing.assert_array_equal(explained.adversarial, result.images[1])
    np.testing.assert_array_equal(
        explained.changed, (result.images[1] != result.problems.images[1]).any(0)
    )
    assert explained.changed.sum() == result.pixels[1]
    assert explained.trace is result.traces[1]
    assert explained.labels == (int(result.clean_labels[1]), int(result.labels[1]))
    assert (explained.status, explained.queries) == (result.status[1], int(result.queries[1]))
    scores = model.function(torch.stack([result.problems.images[1], result.images[1]]))
    shares = scores.double().softmax(1).numpy()
    for top, said in zip(explained.tops, shares, strict=True):
        assert [label for label, _ in top] == (-said).argsort(kind="stable").tolist()
        np.testing.assert_allclose([s for _, s in top], np.sort(said)[::-1], atol=1e-6)


def test_panels_follow_from_what_is_known(model) -> None:
    pictures = ["original", "adversarial", "perturbation", "zoom"]
    labels, looks = ["labels-before", "labels-after"], ["look-before", "look-after"]
    result = attacked(model, trace=True)
    whole = brusle.explain(result, model.victim(), attack=ATTACK)
    thetas = [f"theta-{at}" for at in range(1, 1 + min(3, len(whole.trace.beliefs)))]
    synthetic = ["synthetic", "dissimilarity"]
    assert panels(whole) == [*pictures, "loss", *labels, *looks, *synthetic, *thetas]
    assert panels(brusle.explain(result)) == [*pictures, "loss", *labels, *thetas_of(result)]
    bare = attacked(model)
    assert panels(brusle.explain(bare)) == pictures
    assert panels(brusle.explain(bare, model.victim())) == [*pictures, *labels, *looks]
    assert panels(brusle.explain(bare, model.victim(), look="none")) == [*pictures, *labels]


def thetas_of(result) -> list[str]:
    return [f"theta-{at + 1}" for at in range(min(5, len(result.traces[0].beliefs)))]


def test_what_is_left_out_is_said_with_the_remedy(model) -> None:
    (note,) = brusle.explain(attacked(model)).notes
    assert "--trace" in note and "trace=True" in note
    assert brusle.explain(attacked(model, trace=True)).notes == ()


def test_where_it_looks_is_what_looking_says(model) -> None:
    result = attacked(model, trace=True)
    explained = brusle.explain(result, model.victim())
    images = torch.stack([result.problems.images[0], result.images[0]])
    expected = look(model.victim(), images, list(explained.labels))
    np.testing.assert_array_equal(explained.look.maps, expected.maps)
    assert explained.look.how == "occlusion" and explained.notes == (expected.note,)


@pytest.mark.parametrize("trace", [False, True])
def test_what_is_asked_is_counted_apart_from_the_attack(model, trace) -> None:
    result = attacked(model, trace=trace)
    booked, before = json.dumps(result.ledger.row(0)), model.seen
    explained = brusle.explain(result, model.victim())
    assert explained.asked == model.seen - before == explained.look.queries + (0 if trace else 2)
    assert json.dumps(result.ledger.row(0)) == booked
    assert brusle.explain(result).asked == 0 and model.seen == before + explained.asked


def test_a_victim_that_keeps_books_is_asked_only_if_that_is_wished(model) -> None:
    victim = model.victim()
    victim.consult = lambda *_, **__: pytest.fail("nobody allowed that")
    result = attacked(model)
    explained = brusle.explain(result, victim)
    assert explained.asked == 0 and explained.look is None and explained.tops is None
    assert "--look occlusion" in explained.notes[0]
    with pytest.raises(VictimUnavailable, match="nobody allowed that"):
        brusle.explain(result, victim, look="occlusion")


@pytest.mark.parametrize(
    ("shape", "attack"),
    [
        ((1, 9, 9), ATTACK),
        ((3, 5, 30), PixelBandit(4, 30)),
        ((4, 20, 6), ATTACK),
        ((2, 6, 6), SparseRS(4, 30)),
        ((3, 8, 6), Pointwise(4, 60)),
    ],
    ids=["one channel", "wide", "four channels", "two channels", "shrinks"],
)
def test_files_decode_and_have_the_right_size(tmp_path, shape, attack) -> None:
    model, dark = integer_model(shape, 5), shape[0] == 1
    by_scores = attack.behaviour.needs == "scores"
    result = attacked(model, attack, shape, 2, targeted=by_scores, trace=True)
    explained = brusle.explain(result, model.victim(), attack=attack)
    sheet, *parts, trace = explained.save(tmp_path, dark)
    assert trace == tmp_path / explained.file_name / "trace.json"
    assert json.loads(trace.read_text()) == json.loads(json.dumps(explained.trace.as_dict()))
    assert sheet == tmp_path / f"{explained.file_name}.png"
    assert [path.stem for path in parts] == panels(explained)
    assert {path.parent for path in parts} == {tmp_path / explained.file_name}
    for path in (sheet, *parts):
        with Image.open(path) as picture:
            picture.load()
            assert picture.format == "PNG"
            if path.stem in ("original", "adversarial", "synthetic"):
                assert picture.size == (shape[2], shape[1])
    corner = np.asarray(Image.open(sheet).convert("RGB"))[0, 0]
    assert (corner.max() < 60) == dark
    if shape[0] in (1, 3, 4):
        saved = np.asarray(Image.open(tmp_path / explained.file_name / "adversarial.png"))
        levels = (explained.adversarial * 255).round().astype(np.uint8).transpose(1, 2, 0)
        np.testing.assert_array_equal(saved.reshape(levels.shape), levels)


def test_losses_of_an_attack_that_shrinks_are_pixels() -> None:
    model = integer_model(SHAPE, 5)
    attack = Pointwise(4, 80)
    result = attacked(model, attack, targeted=False, trace=True)
    explained = brusle.explain(result, attack=attack)
    assert explained.loss == "changed pixels"
    assert brusle.explain(attacked(model), attack=ATTACK).loss == "loss"


def test_failures_show_the_best_so_far() -> None:
    model, image = additive_model([9, 8, 7], 1000, (9, 9)), grey_images(1, (9, 9))
    result = BruSLe(3, 30)(model.victim(), image, [0], trace=True)
    assert result.status == ["failed"]
    explained = brusle.explain(result, model.victim())
    sheet = sheet_of(explained)
    assert sheet.bands[0][1].title == "best so far" and "not fooled" in sheet.subtitle
    assert "\N{RIGHTWARDS ARROW}" not in sheet.title and explained.changed.any()


def test_an_image_that_was_not_attacked_has_only_itself_to_show(model, tmp_path) -> None:
    images = random_images(1, SHAPE)
    wrong = model.function(images).argmin(1)
    result = ATTACK(model.victim(), images, wrong, trace=True)
    assert result.status == ["skipped"]
    explained = brusle.explain(result, model.victim(), attack=ATTACK)
    assert panels(explained) == ["original", "labels-before", "look-before", *SYNTHETIC]
    assert "not attacked" in sheet_of(explained).subtitle
    assert "though it is" in sheet_of(explained).bands[0][0].caption
    explained.save(tmp_path)


SYNTHETIC = ["synthetic", "dissimilarity"]


def test_the_image_that_is_shown_without_a_wish_was_fooled(model) -> None:
    result = attacked(model, n=6)
    status = [*result.status]
    result.status[:] = ["skipped", "failed", "error", "success", "failed", "success"]
    assert brusle.explain(result).name == result.names[3]
    result.status[:] = ["skipped", "failed", "skipped", "failed", "skipped", "skipped"]
    assert brusle.explain(result).name == result.names[1]
    result.status[:] = status
    assert brusle.explain(result, image="00002").name == "00002"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image": 9}, "image 9: the result has 3"),
        ({"image": "none"}, "no image 'none': known are"),
        ({"look": "gradcam"}, "who looks"),
        ({"layer": "x"}, "who looks"),
    ],
)
def test_wrong_wishes_are_one_line(model, options, message) -> None:
    with pytest.raises(InputError, match=message):
        brusle.explain(attacked(model), **options)


def test_a_way_to_look_that_was_asked_for_must_be_there(model) -> None:
    with pytest.raises(InputError, match="no gradcam"):
        brusle.explain(attacked(model), model.victim(), look="gradcam")


def test_hostile_names_stay_text(model, tmp_path) -> None:
    victim = wrap(model.function, output="logits", classes=HOSTILE, name=HOSTILE[0])
    result = attacked(model, trace=True)
    explained = brusle.explain(result, victim)
    for name in HOSTILE:
        explained = replace(explained, name=name)
        path = tmp_path / "deep" / f"{explained.file_name}.png"
        assert path.resolve().parent == tmp_path / "deep" and len(path.name) < 200
    files = explained.save(tmp_path / "deep")
    assert all(tmp_path / "deep" in path.resolve().parents for path in files)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", HOSTILE[:3])
def test_hostile_names_stay_text_in_notebooks(model, name, monkeypatch) -> None:
    monkeypatch.setattr(brusle.report.notebooks, "png", lambda _: "picture")
    victim = wrap(model.function, output="logits", classes=[name] * 5, name=name)
    result = attacked(model)
    result.names = [name] * 3
    page = brusle.explain(result, victim, look="none")._repr_html_()
    assert page.count("<") == page.count(">") == 3  # div, img, and the end of the div
    assert "\x1b" not in page and "\u202e" not in page


def test_notebooks_get_a_small_picture_that_needs_nothing_else(model) -> None:
    page = brusle.explain(attacked(model, trace=True), model.victim())._repr_html_()
    assert page.startswith('<div><img src="data:image/png;base64,') and "http" not in page
    assert len(page) < 400_000


def test_moments_are_some_with_the_last(model) -> None:
    beliefs = list(range(9))
    assert moments(beliefs, 3) == [0, 4, 8] and moments(beliefs[:2], 5) == [0, 1]
    trace = attacked(model, trace=True).traces[0]
    for query in range(int(trace.queries.max()) + 1):
        best = trace.improvements[best_by(trace, query)]
        assert best.query <= query
        assert not [one for one in trace.improvements if best.query < one.query <= query]


def test_scores_that_an_attack_was_not_told_are_asked_for(model) -> None:
    attack = Pointwise(4, 60)
    result = attacked(model, attack, targeted=False, trace=True)
    assert brusle.explain(result, attack=attack).tops is None
    before = model.seen
    explained = brusle.explain(result, model.victim(), look="none")
    assert explained.asked == model.seen - before == 2
    at = list(result.names).index(explained.name)
    said = model.function(result.images[at][None])[0].double().softmax(0)
    assert explained.tops[1][0][1] == pytest.approx(float(said.max()), abs=1e-6)


@pytest.mark.parametrize(("shape", "lines"), [((3, 5, 30), 5), ((3, 7, 10), 7), ((3, 20, 6), 10)])
def test_there_are_as_many_labels_as_there_is_room_for(shape, lines) -> None:
    model = integer_model(shape, 12)
    explained = brusle.explain(attacked(model, shape=shape, trace=True))
    (panel,) = (p for band in sheet_of(explained).bands for p in band if p.name == "labels-after")
    axes = new_figure(3, 3).add_axes((0, 0, 1, 1))
    panel.draw(axes, LIGHT)
    named = [text for text in axes.texts if "class" in text.get_text()]
    assert len(named) == lines and axes.get_ylim() == (lines - 0.5, -0.5)


def test_a_word_in_a_trace_is_no_file_name(model, tmp_path) -> None:
    result = attacked(model, trace=True)
    odd = replace(result.traces[0], meaning="../../evil")
    result.traces[0] = replace(odd, improvements=odd.improvements[1:])  # no clean image
    explained = brusle.explain(result, image=0)
    assert "belief-1" in panels(explained)
    for path in explained.save(tmp_path / "a" / "b"):
        assert tmp_path / "a" / "b" in path.resolve().parents
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_victim_that_names_no_label_is_explained_by_the_true_one(model) -> None:
    result = attacked(model)
    result.labels[:] = -1
    explained = brusle.explain(result, model.victim())
    units = [panel.unit for band in sheet_of(explained).bands for panel in band if panel.unit]
    assert units[1] == f"fall if covered for class {explained.label}"
    assert sheet_of(explained).bands[0][1].caption == "seen as no label"


def test_a_target_outside_of_the_list_is_named(model) -> None:
    result = attacked(model, trace=True)
    first = result.traces[0].improvements[0]
    short = replace(first, labels=first.labels[:2], scores=first.scores[:2])
    trace = result.traces[0]
    result.traces[0] = replace(trace, improvements=(short, *trace.improvements[1:]))
    explained = brusle.explain(result, image=0)
    from brusle.explaining.drawing import _entries

    entries = _entries(explained, explained.tops[0])
    assert [entry.score is None for entry in entries] == [False, False, True]
    assert entries[-1].role == "target"
