"""Films are read back: what they show, for how long, and that nothing in a name or trace harms."""

import json
import math
import shutil
import stat
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from models import integer_model, own_labels, random_images
from PIL import Image

import brusle
from brusle.attacks import L0HSJA, BruSLe, PixelBandit, SparseRS
from brusle.errors import DataError, InputError
from brusle.report.film import Film, film_of_result, write_film
from brusle.report.film.frames import BELIEF, BIG, HEIGHT, LOSSES, WIDTH, frames
from brusle.report.panels import Scale, levels
from brusle.report.panels.maps import map_picture
from brusle.report.style import DARK, LIGHT
from brusle.tracing import TOP, Belief, Improvement, Trace

CLASSES = ("ant", "bee", "cat", "dog")


def attacked(shape, attack) -> Film:
    """The film of a short search."""
    model, images = integer_model(shape, 4), random_images(1, shape)
    return filmed(attack(model.victim(), images, own_labels(model, images), trace=True), CLASSES)


def filmed(result, names) -> Film:
    film = film_of_result(result, names, "an image", "a victim")
    assert film is not None and torch.equal(film.image(film.last), result.images[0])
    return film


@pytest.fixture(scope="module")
def film() -> Film:
    """A search that takes a while, and succeeds."""
    victim, sample = brusle.load_victim("zoo:cifar10-resnet20", "cpu"), brusle.data.load("sample")
    at = sample.names.index("test-0000")
    images, labels = sample.images[at : at + 1], sample.labels[at : at + 1]
    result = PixelBandit(20, 100)(victim, images, labels, [1], trace=True)
    assert result.success[0] and result.queries[0] > 30
    return filmed(result, victim.classes)


def big(picture: Image.Image | np.ndarray) -> np.ndarray:
    """What is in the large panel, without its frame."""
    left, top, width, height = BIG
    inner = (left + 4, top + 4, left + width - 4, top + height - 4)
    shown = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    return np.asarray(shown.convert("RGB").crop(inner))


def expected(image: torch.Tensor) -> np.ndarray:
    """The same of an image, whose side divides that of the panel."""
    times = BIG[2] // image.shape[2]
    return np.kron(levels(image), np.ones((times, times, 1), np.uint8))[4:-4, 4:-4]


def read(path: Path) -> tuple[list[Image.Image], list[int]]:
    with Image.open(path) as file:
        assert file.size == (WIDTH, HEIGHT)
        assert file.n_frames == 1 or file.info["loop"] == 0
        shown, lengths = [], []
        for at in range(file.n_frames):
            file.seek(at)
            file.load()
            lengths.append(file.info.get("duration", 0))
            shown.append(file.convert("RGB"))
    return shown, lengths


def test_a_webp_begins_with_the_clean_image_and_ends_with_the_adversarial_one(film, tmp_path):
    made = write_film(film, tmp_path / "film.webp", 3)
    shown, lengths = read(tmp_path / "film.webp")
    assert np.array_equal(big(shown[0]), expected(film.original))
    assert np.array_equal(big(shown[-1]), expected(film.image(film.last)))
    assert not np.array_equal(big(shown[0]), big(shown[-1]))
    assert len(shown) == made.frames > 10 and sum(lengths) == 3000 and made.seconds == 3
    assert lengths[0] >= 250 and lengths[-1] >= 850  # time to look
    assert made.size == (tmp_path / "film.webp").stat().st_size < 2 * 2**20


def test_a_gif_shows_changed_pixels_in_their_colours(film, tmp_path) -> None:
    write_film(film, tmp_path / "film.gif", 1, dark=True)
    shown, lengths = read(tmp_path / "film.gif")
    assert sum(lengths) == 1000
    assert shown[-1].getpixel((2, 2)) == tuple(bytes.fromhex(DARK.paper[1:]))
    times = BIG[2] // 32
    last = film.trace.improvements[-1]
    for position, colour in zip(last.positions.tolist(), last.levels.tolist(), strict=True):
        row, column = divmod(position, 32)
        at = (BIG[0] + column * times + times // 2, BIG[1] + row * times + times // 2)
        assert np.abs(np.subtract(shown[-1].getpixel(at), colour)).max() <= 8
    # and the rest is near what it was
    gap = np.abs(big(shown[0]).astype(int) - expected(film.original))
    assert gap.mean() < 16


@pytest.mark.skipif(not shutil.which("ffprobe"), reason="ffmpeg is not installed")
def test_an_mp4_is_the_same_film(film, tmp_path) -> None:
    path = tmp_path / "http:film.mp4"  # a name, and no address
    made = write_film(film, path, 1)
    asked = "stream=width,height,pix_fmt,nb_frames,duration"
    command = ["ffprobe", "-v", "error", "-show_entries", asked, "-of", "json", f"file:{path}"]
    (stream,) = json.loads(subprocess.check_output(command))["streams"]
    assert (stream["width"], stream["height"], stream["pix_fmt"]) == (WIDTH, HEIGHT, "yuv420p")
    assert math.isclose(float(stream["duration"]), 1) and int(stream["nb_frames"]) == 20
    assert made.size == path.stat().st_size
    raw = ["ffmpeg", "-v", "error", "-i", f"file:{path}", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    data = subprocess.check_output([*raw, "pipe:1"])
    shown = np.frombuffer(data, np.uint8).reshape(-1, HEIGHT, WIDTH, 3)
    for picture, image in ((shown[0], film.original), (shown[-1], film.image(film.last))):
        assert np.abs(big(picture).astype(int) - expected(image)).mean() < 12


@pytest.fixture(scope="module")
def shown(film) -> list[tuple[int, np.ndarray]]:
    """Frames, and after how many queries they are."""
    queries = [moment.query for moment in film.moments(2)]
    return list(zip(queries, frames(film, queries, LIGHT), strict=True))


def test_every_frame_is_what_was_known_then(film, shown) -> None:
    queries = [query for query, _ in shown]
    assert len(set(map(film.best, queries))) > 5  # pixels come and go
    for query, picture in shown:
        image = film.trace.image(film.best(query), film.original)
        differs = (big(picture) != expected(image)).any(2)
        # but for marks around what is new, and none at the end
        assert differs.mean() < (0.2 if query < film.last else 1e-9)
        found = film.trace.improvements[film.best(query)]
        later = film.trace.improvements[film.best(query) + 1 :]
        assert found.query <= query or query >= film.last
        assert query >= film.last or all(one.query > query for one in later)


def test_the_belief_lies_underneath_and_the_loss_grows(film, shown) -> None:
    assert film.trace.meaning == "effect" and len(film.trace.beliefs) > 2
    last = film.belief(film.last)
    assert last is film.trace.beliefs[-1] and film.belief(0) is None
    maps = [part(picture, BELIEF) for _, picture in shown]
    changed = [not np.array_equal(*pair) for pair in pairwise(maps)]
    beliefs = [film.belief(query) for query, _ in shown]
    assert changed == [one is not other for one, other in pairwise(beliefs)]
    assert any(changed)
    drawn = [_pixels_of(part(picture, LOSSES), LIGHT.accent) for _, picture in shown]
    assert drawn == sorted(drawn) and drawn[0] < drawn[len(drawn) // 2] < drawn[-1]


def test_the_map_is_the_one_that_panels_draw(film, shown) -> None:
    picture, scale = shown[-1][1], Scale.around_zero(*(one.values for one in film.trace.beliefs))
    own = map_picture(film.trace.beliefs[-1].values, scale, LIGHT, film.original)
    drawn = part(picture, BELIEF)
    middles = drawn[3::7, 3::7]  # of 32 x 32 pixels, 7 times as large
    assert np.abs(middles.astype(int) - own)[1:-1, 1:-1].max() <= 1


def part(picture: np.ndarray, box) -> np.ndarray:
    left, top, width, height = box
    return picture[top : top + height, left : left + width]


def _pixels_of(picture: np.ndarray, colour: str) -> int:
    return int((np.abs(picture.astype(int) - [*bytes.fromhex(colour[1:])]).max(2) < 30).sum())


@pytest.mark.parametrize("seconds", [1, 1.234, 4, 7.77, 60])
def test_moments_go_from_the_first_query_to_the_last_in_the_given_time(film, seconds) -> None:
    moments = film.moments(seconds)
    queries = [moment.query for moment in moments]
    assert queries == sorted(set(queries)) and queries[0] == 0 and queries[-1] == film.last
    total = sum(moment.milliseconds for moment in moments)
    assert abs(total - 1000 * seconds) <= 5 and all(m.milliseconds % 10 == 0 for m in moments)
    assert min(moment.milliseconds for moment in moments) > 0 and len(moments) <= 152


@pytest.mark.parametrize("seconds", [0, 0.99, 61, math.nan, -math.inf])
def test_films_are_neither_endless_nor_nothing(film, seconds, tmp_path) -> None:
    with pytest.raises(InputError, match="a film takes 1 to 60 seconds, not"):
        write_film(film, tmp_path / "film.webp", seconds)
    assert not list(tmp_path.iterdir())


def improvement(query: int, positions: list[int], top=((0, 0.75), (2, 0.25)), loss=1.0):
    labels, scores = [label for label, _ in top], [score for _, score in top]
    return Improvement(
        query, 0, loss, np.array(positions, np.int64),
        np.full((len(positions), 3), 255, np.uint8),
        np.array(labels, np.int64), np.array(scores, np.float64),
    )  # fmt: skip


def by_hand(
    *found: Improvement, beliefs=(), meaning="", target=None, queries=(), losses=()
) -> Film:
    clean = improvement(0, [], loss=math.nan)
    trace = Trace(
        (3, 8, 8), meaning, (clean, *found), np.array(queries, np.int64),
        np.array(losses, np.float64), tuple(beliefs),
    )  # fmt: skip
    image = random_images(1, (3, 8, 8))[0]
    return Film(image, trace, CLASSES, 0, target, "title", "ending", fooled=True)


def test_half_of_the_time_goes_over_queries_and_half_over_improvements() -> None:
    film = by_hand(*[improvement(q, [q]) for q in range(1, 11)], improvement(50, [60]))
    moments = film.moments(60)
    early = sum(moment.milliseconds for moment in moments[1:] if moment.query <= 10)
    # ten of eleven improvements come in the first fifth of the queries
    assert early == pytest.approx(36_000 * (10 / 11 + 1 / 5) / 2, rel=0.05)


@pytest.mark.parametrize(
    "film",
    [
        by_hand(improvement(1, [5])),
        by_hand(improvement(2**53, [5]), queries=[1, 2**53], losses=[1e100, -1e100]),
        by_hand(improvement(0, [5])),
        by_hand(improvement(3, [])),  # nothing was changed after all
        by_hand(improvement(3, [5], top=())),  # nothing was named
        by_hand(improvement(3, [5], top=((7, 1e100),), loss=math.nan)),
        by_hand(improvement(3, [*range(64)])),
        by_hand(
            improvement(3, [5]), meaning="a kind of its own $x", beliefs=[
                Belief.of(2, np.zeros((8, 8), np.float32)),
                Belief.of(3, np.full((8, 8), -1e30, np.float32)),
            ],
        ),
        by_hand(
            improvement(3, [5]), meaning="theta",
            beliefs=[Belief.of(2, np.ones((8, 8), np.float32))],
        ),
    ],
    ids=["one query", "2**53", "no query", "nothing", "silent", "huge", "all", "belief", "theta"],
)  # fmt: skip
def test_strange_searches_have_a_film_too(film, tmp_path) -> None:
    write_film(film, tmp_path / "film.webp", 1)
    shown, lengths = read(tmp_path / "film.webp")
    assert len(shown) == 1 or sum(lengths) == 1000
    assert np.array_equal(big(shown[-1]), expected(film.image(film.last)))


@pytest.mark.parametrize(
    ("shape", "attack"),
    [((1, 28, 28), SparseRS(6, 20)), ((3, 224, 224), BruSLe(6, 8)), ((3, 12, 32), BruSLe(6, 8))],
)
def test_other_images(shape, attack, tmp_path) -> None:
    film = attacked(shape, attack)
    write_film(film, tmp_path / "film.webp", 1)
    shown, _ = read(tmp_path / "film.webp")
    image = film.image(film.last)
    if shape[1] == shape[2]:
        assert np.array_equal(big(shown[-1]), expected(image))
    else:  # as wide as the panel, in its middle
        times = BIG[2] // shape[2]
        high = shape[1] * times
        top = BIG[1] + (BIG[3] - high) // 2
        drawn = np.asarray(shown[-1])[top : top + high, BIG[0] : BIG[0] + BIG[2]]
        middles = drawn[times // 2 :: times, times // 2 :: times]
        assert np.array_equal(middles[1:-1, 1:-1], levels(image)[1:-1, 1:-1])


def entries(film: Film, query: int) -> list[tuple[str, float | None, str, bool]]:
    return [(one.name, one.score, one.role, one.at_most) for one in film.entries(query)]


def test_labels_stay_in_their_places() -> None:
    film = by_hand(
        improvement(2, [1], top=((2, 0.5), (0, 0.3), (3, 0.2))),
        improvement(4, [2], top=((3, 0.9), (0, 0.1))),
        target=3,
    )
    assert entries(film, 0) == [
        ("ant", 0.75, "true", False), ("dog", None, "target", False), ("cat", 0.25, "", False)
    ]  # fmt: skip
    assert [one[0] for one in entries(film, 3)] == ["ant", "dog", "cat"]
    # a label that has left a list is not shown, unless it is the one that matters
    assert entries(film, 4) == [("ant", 0.1, "true", False), ("dog", 0.9, "target", False)]


def test_of_many_classes_the_others_are_at_most_as_high_as_the_tenth() -> None:
    many = [(label, 0.3 - label / 50) for label in range(TOP)]
    other = [(label + TOP, 0.2 - label / 50) for label in range(TOP)]
    film = by_hand(improvement(2, [1], top=many), improvement(4, [1], top=other), target=1)
    film = replace(film, names=())
    last = entries(film, 4)
    assert last[0] == ("class 0", min(score for _, score in other), "true", True)
    assert last[1][2:] == ("target", True) and last[2] == ("class 10", 0.2, "", False)


def test_of_attacks_that_see_labels_only_the_label_is_shown() -> None:
    film = attacked((3, 8, 8), L0HSJA(8, 60))
    middle = [one for one in film.trace.improvements[1:-1] if len(one.top) == 1]
    assert middle
    (entry,) = film.entries(middle[0].query)
    assert entry.score == 1 and entry.name == CLASSES[middle[0].top[0][0]]


HOSTILE = "$\\frac{ <b>x</b> \x1b[31m \u202e\r\n" + "\N{COLLISION SYMBOL}" * 200


def test_hostile_names_are_text(film, tmp_path, recwarn) -> None:
    evil = replace(film, names=[HOSTILE] * 4, title=HOSTILE, ending=HOSTILE)
    write_film(evil, tmp_path / "film.webp", 1)
    shown, _ = read(tmp_path / "film.webp")
    assert np.array_equal(big(shown[-1]), expected(film.image(film.last)))
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]


def test_formats_that_cannot_be_written(film, tmp_path, monkeypatch) -> None:
    with pytest.raises(InputError, match=r"name it \.webp, \.gif, \.mp4"):
        write_film(film, tmp_path / "film.avi")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="MP4 needs ffmpeg, which is not installed"):
        write_film(film, tmp_path / "film.mp4")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("script", ["exit 3", "echo no codec >&2; echo more >&2; exit 1"])
def test_an_ffmpeg_that_fails_leaves_nothing_behind(film, tmp_path, monkeypatch, script) -> None:
    fake = tmp_path / "bin" / "ffmpeg"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    with pytest.raises(DataError, match=r"ffmpeg cannot write the film \(no ") as error:
        write_film(film, tmp_path / "out" / "film.mp4", 1)
    assert "\n" not in str(error.value) and not list((tmp_path / "out").iterdir())


def test_a_film_that_is_interrupted_leaves_nothing_behind(film, tmp_path, monkeypatch) -> None:
    from brusle.report.film import files

    def broken(*_):
        yield np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "frames", broken)
    kinds = ["webp", "gif", *(["mp4"] if shutil.which("ffmpeg") else [])]
    for kind in kinds:
        with pytest.raises(KeyboardInterrupt):
            write_film(film, tmp_path / f"film.{kind}", 1)
    assert not list(tmp_path.iterdir())


def test_names_are_those_of_brusle() -> None:
    assert brusle.report.film.write_film is write_film
