"""What notebooks show: the numbers of the result, pictures, and no names that become markup."""

from html.parser import HTMLParser

import numpy as np
import pytest
from models import integer_model, own_labels, random_images
from stores import make_run, row, setting

import brusle
from brusle.notebooks import html_of
from brusle.outcomes import HIT

SHAPE = (3, 8, 6)
HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e\"'&"
TAGS = {"div", "p", "b", "img", "table", "caption", "span", "thead", "tbody", "tr", "th", "td"} | {
    "small",
    "ul",
    "li",
}


class Reader(HTMLParser):
    """Which elements are there, what they say, and what attributes they have."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data) -> None:
        self.text += f"{data} "


def read(thing) -> Reader:
    page = thing._repr_html_()
    assert len(page) < 200_000
    found = Reader(page)
    assert set(found.tags) <= TAGS
    for name, value in found.attributes:
        assert not name.startswith("on") and "javascript" not in (value or "")
        assert name != "src" or value.startswith("data:image/png;base64,")
    return found


@pytest.fixture
def result():
    model, images = integer_model(SHAPE, 5), random_images(7, SHAPE)
    return brusle.attacks.BruSLe(4, 30)(model.victim(), images, own_labels(model, images))


def test_a_result_shows_its_numbers_and_a_few_images(result) -> None:
    found = read(result)
    assert repr(result) in found.text and "5 of 7 images" in found.text
    assert found.tags.count("tr") == 1 + 5
    first = result.status.index(HIT)
    assert f"{int(result.queries[first])}" in found.text
    assert found.tags.count("img") == sum(
        3 if int(result.pixels[at]) else 2
        for at in sorted(range(7), key=lambda at: result.status[at] != HIT)[:5]
    )


def test_names_stay_text(result) -> None:
    result.names = [HOSTILE] * 7
    found = read(result)
    assert "<script>alert(1)</script>" in found.text
    assert "\x1b" not in found.text and "\u202e" not in found.text


def test_a_run_shows_its_table_and_examples(tmp_path) -> None:
    run = brusle.evaluate(
        attacks=brusle.attacks.BruSLe(4, 40), limit=4, goal="untargeted", out=tmp_path / "run",
        on_progress=None,
    )  # fmt: skip
    found = read(run)
    (summary,) = run.summaries()
    assert "zoo:cifar10-resnet20 on 4 images of sample" in found.text
    assert f"{100 * summary.asr.value:.1f}" in found.text and str(tmp_path) in found.text
    assert found.tags.count("img") == (3 if summary.asr.hits else 0)


def test_a_run_of_hostile_names_without_its_images(tmp_path) -> None:
    parts = [(setting(HOSTILE, kind="x"), [row(0, image=HOSTILE), row(1)])]
    run = make_run(tmp_path / "run", parts, victim=HOSTILE, data="arrays", classes=[HOSTILE])
    found = read(run)
    assert "img" not in found.tags and "script" not in found.tags
    assert found.text.count("<script>alert(1)</script>") >= 2


def test_what_cannot_be_read_is_left_to_its_repr(tmp_path) -> None:
    run = make_run(tmp_path / "run", [(setting(), [row(0)])])
    run.store.close()
    assert run._repr_html_() is None and "nothing to read" in repr(run)
    assert html_of("anything else") is None


def test_arrays_without_images_do_no_harm(result) -> None:
    empty = brusle.AttackResult(
        result.problems[:0], result.attack, 0, [], result.images[:0],
        **{name: getattr(result, name)[:0] for name in (
            "queries", "labels", "clean_labels", "losses", "scores", "times", "stable",
        )},
        ledger=result.ledger, randomised=False,
    )  # fmt: skip
    assert "img" not in read(empty).tags and np.isnan(empty.asr())
