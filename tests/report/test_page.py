"""The report: numbers that can be counted by hand, and names that cannot become markup."""

import base64
import hashlib
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from pages import Reader
from PIL import Image
from stores import make_run, minimal, needing, row, rows_of, setting
from tampering import tamper

from brusle.data import Dataset
from brusle.errors import InputError
from brusle.evaluation.statistics import Estimate, Rate
from brusle.evaluation.storing.manifest import image_hash
from brusle.evaluation.storing.rows import pack_edits
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import Store
from brusle.problems import Problems
from brusle.report.charts import curves_svg, forest, histogram, ticks
from brusle.report.comparison import compare_runs
from brusle.report.comparison_page import comparison_page
from brusle.report.content import gather
from brusle.report.curves import Chart, Curve, Point
from brusle.report.markdown import comparison_markdown, report_markdown
from brusle.report.markup import Html, join, tag
from brusle.report.page import report_page
from brusle.report.scripts import REPORT, script
from brusle.report.wording import in_words, listed, rounded

EVIL = "\"><script>alert(1)</script><img src=x onerror=alert(2)>|'&amp;"


def read(run: Run, writing: bool = False) -> Reader:
    return Reader(report_page(gather(run, writing), run))


# untargeted: 20 images, of which 2 skipped and 1 error; 9 successes, 7 failures, 1 unverified
MIXED = [
    *(row(i, "success", 10 * (i + 1)) for i in range(9)),
    *(row(9 + i, "failed", 100) for i in range(7)),
    row(16, "unverified", 50, error="the label changes"),
    *(row(17 + i, "skipped", 0) for i in range(2)),
    row(19, "error", 3, error="out of memory"),
]


def test_numbers_are_those_that_can_be_counted(tmp_path) -> None:
    run = make_run(tmp_path, [(setting(), MIXED)])
    (line,) = read(run).table("ASR %")
    low, high = (f"{100 * end:.0f}" for end in Rate(9, 17).interval)
    assert line["ASR %"] == f"52.9 [{low}, {high}]"
    low, high = (f"{100 * end:.0f}" for end in Rate(7, 19).interval)
    assert line["robust accuracy %"] == f"36.8 [{low}, {high}]"
    assert line["attacked / all"] == "17 / 20"
    mean = (450 + 8 * 100) / 17
    assert line["mean queries"] == f"{mean:.0f}" and line["median queries"] == "90"
    assert line["mean of successes"] == line["median of successes"] == "50"
    assert line["area under curve"] == f"{1 - mean / 100:.3f}"
    assert line["pixels used / allowed"] == "5.0 / 5"


def test_json_has_the_same_numbers(tmp_path) -> None:
    told = gather(make_run(tmp_path, [(setting(), MIXED)])).as_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    (part,) = told["settings"]
    assert part["summary"]["asr"] == Rate(9, 17).as_dict()
    assert part["summary"]["robust_accuracy"] == Rate(7, 19).as_dict()
    assert told["clean_accuracy"] == Rate(17, 19).as_dict()
    assert [part["asr_within"][q]["hits"] for q in ("5", "10", "20", "50", "100")] == [
        0,
        1,
        2,
        5,
        9,
    ]
    assert part["pixels_of_successes"] == {"5": 9}
    # labels are problems modulo 3: successes 0..8 are 3 of each class
    assert {c: s["asr"]["hits"] for c, s in part["by_label"].items()} == dict.fromkeys("012", 3)
    assert part["troubles"] == [
        {"status": "error", "reason": "out of memory", "count": 1},
        {"status": "unverified", "reason": "the label changes", "count": 1},
    ]
    assert set(part["flags"]) == {"not-converged", "errors"}


def test_headline_says_what_happened(tmp_path) -> None:
    parts = [(setting("SparseRS"), MIXED), (setting(), rows_of([1] * 12, 8))]
    said = gather(make_run(tmp_path, parts)).headline()
    assert said[0].startswith("zoo:toy was attacked on 20 images of arrays by SparseRS and BruSLe.")
    assert "BruSLe with 5 pixels was the strongest" in said[2]
    assert in_words(Rate(12, 20), "attacked images") in said[2]
    assert in_words(Rate(8, 20), "images") in said[2]
    assert in_words(Rate(1, 2), "x") == "1 of 2 x (50 %, 95 % interval 9 to 91 %)"
    assert [listed(x) for x in (["a"], ["a", "b"], ["a", "b", "c"])] == [
        "a",
        "a and b",
        "a, b and c",
    ]


def test_flags_and_errors_are_told_with_reasons(tmp_path) -> None:
    read_ = read(make_run(tmp_path, [(setting(), MIXED)], notes=["mind the step"]))
    assert "Caution: not-converged" in read_.text and "Caution: errors" in read_.text
    assert "Read the reasons below" in read_.text and "mind the step" in read_.text
    lines = read_.table("reason")
    assert {(line["status"], line["images"], line["reason"]) for line in lines} == {
        ("error", "1", "out of memory"),
        ("unverified", "1", "the label changes"),
    }


def test_a_run_without_doubts_says_so(tmp_path) -> None:
    text = read(make_run(tmp_path, [(setting(), rows_of([1] * 12, 8))])).text
    assert "No flag was raised" in text and "Caution" not in text and "Unfinished" not in text


def test_a_randomised_victim_has_a_stable_rate(tmp_path) -> None:
    rows = [replace(r, stable=i < 4) for i, r in enumerate(MIXED)]
    (line,) = read(make_run(tmp_path, [(setting(), rows)], randomised=True)).table("ASR %")
    assert line["stable ASR %"].startswith(f"{100 * 4 / 17:.1f} ")


def test_grid_and_classes_pool_the_seeds(tmp_path) -> None:
    one, two = rows_of([10] * 6, 6), rows_of([10] * 9, 3)
    found = read(make_run(tmp_path, [(setting(), one), (setting(seed=1), two)]))
    (line,) = found.table("pixels")
    assert (line["pixels"], line["5"], line["10"], line["100"]) == ("5 px", "0", "62", "62")
    cat, _, _ = found.table("true class")  # problems 0, 3, 6, 9 are cats: 2 and 3 successes
    assert cat == {"true class": "cat", "BruSLe untargeted, 5 px": f"{100 * 5 / 8:.0f}"}
    spreads = {line["metric"]: line for line in found.table("std")}
    asr = spreads["ASR %"]
    assert [asr[x] for x in ("seeds", "min", "mean", "max", "std")] == [
        "2", "50.0", "62.5", "75.0", f"{25 / 2**0.5:.2f}",
    ]  # fmt: skip
    assert spreads["mean queries"]["min"] == f"{(90 + 300) / 12:.1f}"


def test_limits_are_told_apart(tmp_path) -> None:
    parts = [(setting(), rows_of([10], 3)), (setting(queries=500), rows_of([10, 400], 2, 500))]
    run = make_run(tmp_path, parts)
    titles = ["BruSLe untargeted, 5 px, 100 queries", "BruSLe untargeted, 5 px, 500 queries"]
    assert [report.family.title for report in gather(run).families] == titles
    short, long = read(run).table("pixels")
    assert (short["pixels"], short["100"], short["500"]) == (
        "5 px, 100 queries",
        "25",
        "\N{MIDDLE DOT}",
    )
    assert (long["pixels"], long["100"], long["500"]) == ("5 px, 500 queries", "25", "50")


def test_seeds_on_other_problems_are_not_mixed(tmp_path) -> None:
    parts = [(setting(), rows_of([10] * 6, 6)), (setting(seed=1), rows_of([10] * 6, 7))]
    found = read(make_run(tmp_path, parts))
    assert "the seeds were run on different problems (12, 13 rows)" in found.text


def test_targets_get_a_map_from_class_to_class(tmp_path) -> None:
    wins = [True, True, False, True, False, False]
    moves = [(0, 1), (0, 1), (0, 2), (1, 0), (2, 0), (2, 0)]
    rows = [
        row(i, "success" if won else "failed", 10, label=a, target=b)
        for i, (won, (a, b)) in enumerate(zip(wins, moves, strict=True))
    ]
    run = make_run(tmp_path, [(setting(goal="targeted"), rows)])
    found = {line["from / to"]: line for line in read(run).table("from / to")}
    dot = "\N{MIDDLE DOT}"
    assert [found["cat"][c] for c in ("cat", "dog", "emu")] == [dot, "100", "0"]
    assert [found[c]["cat"] for c in ("dog", "emu")] == ["100", "0"]
    (part,) = gather(run).as_dict()["settings"]
    assert {(m["label"], m["target"]): (m["hits"], m["count"]) for m in part["from_to"]} == {
        (0, 1): (2, 2), (0, 2): (0, 1), (1, 0): (1, 1), (2, 0): (0, 2),
    }  # fmt: skip


def test_of_many_classes_the_extremes_are_shown(tmp_path) -> None:
    rows = [row(i, "success" if i < 20 else "failed", 10, label=i) for i in range(50)]
    found = read(make_run(tmp_path, [(setting(), rows)], classes=[]))
    names = [line["true class"] for line in found.table("true class")]
    assert len(names) == 30 and "Of 50 classes" in found.text
    assert names[:15] == [f"class {i}" for i in range(20, 35)]
    assert names[15:] == [f"class {i}" for i in range(5, 20)]


def test_attacks_of_a_run_are_compared(tmp_path) -> None:
    other = rows_of([10] * 10 + [60] * 6, 4)
    parts = [(setting(), rows_of([10] * 10, 10)), (setting("SparseRS"), other)]
    (line,) = read(make_run(tmp_path, parts)).table("difference in points")
    assert (line["ASR % of BruSLe"], line["ASR %"], line["pairs"]) == ("50.0", "80.0", "20")
    assert line["difference in points"].startswith("+30.0* [")
    assert line["ratio of mean queries"].startswith(f"{43 / 55:.2f}* [")


def test_unfinished_and_written_runs_say_so(tmp_path) -> None:
    some = setting(problems=40)
    run = make_run(tmp_path, [(some, rows_of([1] * 12, 8)), (setting("SparseRS"), [])])
    text = read(run).text
    assert "The run is unfinished: 20 of 40 attacks are stored, and 1 of 2 settings" in text
    assert "20 / 20 of 40" in text
    assert "A run is writing at this moment" in read(run, writing=True).text
    assert "**Unfinished.** The run is unfinished" in report_markdown(gather(run))


def test_a_setting_without_rows_does_no_harm(tmp_path) -> None:
    run = make_run(tmp_path, [(setting(problems=5), []), (setting("SparseRS", problems=5), [])])
    content = gather(run)
    json.dumps(content.as_dict(), allow_nan=False)
    assert "0 of 10 attacks are stored" in read(run).text
    assert "none of 0 images" in report_markdown(content)


def test_a_store_without_settings_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="no attack has begun"):
        gather(make_run(tmp_path, []))


def test_without_originals_there_are_no_pictures(tmp_path) -> None:
    found = read(make_run(tmp_path, [(setting(), MIXED)]))
    assert "cannot be read, so there are no pictures" in found.text and "--data" in found.text
    assert not [attributes for name, attributes in found.found if name == "img"]


def pictured(folder, name="<b>one</b>", **about):
    """A run of one success, with its image."""
    image = (torch.arange(48).view(3, 4, 4) / 255).float()
    changed = image.clone()
    changed[:, 1, 2] = torch.tensor([1.0, 0.0, 1.0])
    problem = int(Problems.make(image[None], [0], None).ids[0])
    edits = pack_edits(image, changed)
    won = row(problem, image=name, label=0, edits=edits, pixels=1, clean_label=0, final_label=1)
    data = Dataset("arrays", image[None], torch.tensor([0]), (), (name,))
    run = make_run(folder, [(setting(**about.pop("setting", {})), [won])], data, **about)
    tamper(folder, "images", sha256=image_hash(image))
    return run, changed


def test_pictures_are_the_images(tmp_path) -> None:
    run, changed = pictured(tmp_path)
    pictures = [attributes for name, attributes in read(run).found if name == "img"]
    assert [bool(attributes["alt"]) for attributes in pictures] == [True] * 3
    data = pictures[1]["src"].removeprefix("data:image/png;base64,")
    shown = Image.open(io.BytesIO(base64.b64decode(data))).resize((4, 4), Image.Resampling.NEAREST)
    assert np.array_equal(np.asarray(shown), (changed * 255).byte().permute(1, 2, 0).numpy())


def evil_run(folder):
    session = {"began": EVIL, "plan": {EVIL: EVIL}, "provenance": {EVIL: EVIL}, "pairs": EVIL}
    facts = dict.fromkeys(("victim", "weights", "data", "brusle"), EVIL)
    run, _ = pictured(
        folder,
        EVIL,
        setting={"attack": EVIL, "options": {EVIL: EVIL}},
        classes=[EVIL] * 3,
        notes=[EVIL],
        sessions=[session],
        **facts,
    )
    with Store.write(folder) as store:
        other = setting("other " + EVIL, goal="targeted", problems=3)
        record = store.add_setting(other)
        broken = row(5, "error", error=EVIL, image=EVIL + "2", target=1)
        store.add_rows(record.number, [broken, row(6, image=EVIL + "3", target=2, pixels=1)])
    return Run.open(folder, run._data)


def test_names_cannot_become_markup(tmp_path) -> None:
    run = evil_run(tmp_path / "run")
    found = read(run)  # the elements are balanced
    allowed = {
        *("html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section"),
        *(
            "h1",
            "h2",
            "h3",
            "p",
            "a",
            "div",
            "span",
            "b",
            "i",
            "u",
            "em",
            "small",
            "br",
            "ul",
            "li",
        ),
        *("table", "caption", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "img"),
        *("details", "summary", "pre", "svg", "g", "path", "line", "text", "rect", "script"),
    }
    assert {name for name, _ in found.found} <= allowed
    assert len([name for name, _ in found.found if name == "img"]) <= 3
    facts = found.data()["row-data"]
    assert facts["names"] == [EVIL] * 3 and EVIL in facts["images"]
    assert [text for attributes, text in found.scripts if not attributes] == [
        script(name) for name in REPORT
    ]
    for _, attributes in found.found:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png;base64,"))
    # victim, class, attack, image, error, note, plan: told as they are
    assert found.text.count(EVIL) > 20
    assert EVIL in [line["reason"] for line in found.table("reason")]


def test_evil_names_do_no_harm_in_pictures(tmp_path) -> None:
    run, _ = pictured(tmp_path, EVIL, classes=[EVIL] * 3)
    pictures = [attributes for name, attributes in read(run).found if name == "img"]
    assert pictures[0]["alt"] == f"{EVIL}, seen as {EVIL}" and len(pictures) == 3


def test_markdown_keeps_names_as_they_are(tmp_path) -> None:
    text = report_markdown(gather(evil_run(tmp_path / "run")))
    assert "<script" not in text.replace("\\<", "")
    tables = [block for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 2  # summary and errors; a pipe in a name opens no column
    for table in tables:
        assert len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1


def test_the_page_is_self_contained_and_accessible(tmp_path) -> None:
    run, _ = pictured(tmp_path)
    text = report_page(gather(run), run)
    assert "http:" not in text and "https:" not in text and "url(" not in text
    assert "default-src &#x27;none&#x27;" in text and "prefers-color-scheme: dark" in text
    found = Reader(text)
    (policy,) = [a["content"] for _, a in found.found if a.get("http-equiv")]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert set(rules) == {"default-src", "img-src", "style-src", "script-src"}
    digests = [hashlib.sha256(script(name).encode()).digest() for name in REPORT]
    hashes = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    assert rules["script-src"].split() == hashes
    assert dict(found.found)["html"] == {"lang": "en"}
    for name, attributes in found.found:
        if name == "th":
            assert attributes["scope"] in ("col", "row")
        if name == "svg":
            assert attributes["aria-label"] and attributes["role"] == "img"
    targets = {attributes.get("id") for _, attributes in found.found}
    assert {a["href"][1:] for name, a in found.found if name == "a" if a["href"]} <= targets


def test_provenance_is_told(tmp_path) -> None:
    text = read(make_run(tmp_path, [(setting(), MIXED)])).text
    for fact in (
        "feed",
        "abcdef123456",
        "2026-01-02T03:04:05Z",
        "0123456789abcdef",
        '"limit": 20',
    ):
        assert fact in text


def test_a_histogram_is_shown_where_fewer_pixels_are_used(tmp_path) -> None:
    rows = [row(i, "success", 5, pixels=1 + i % 5) for i in range(15)]
    assert "Pixels used" in read(make_run(tmp_path / "a", [(setting(), rows)])).text
    assert "Pixels used" not in read(make_run(tmp_path / "b", [(setting(), MIXED)])).text


def test_histogram_heights() -> None:
    found = Reader(histogram({1: 2, 3: 4}, 3, 0)).found
    heights = [float(a["height"]) for name, a in found if name == "rect"]
    assert heights[1] == 0 and heights[2] == pytest.approx(2 * heights[0], abs=0.1)
    many = Reader(histogram({90: 1, 100: 1}, 100, 0)).found
    assert len([name for name, _ in many if name == "rect"]) == 34  # three pixels to a bar


def test_a_curve_goes_from_left_to_right_through_its_steps() -> None:
    steps = [Point(0, 0, 0, 0.5), Point(50, 0.5, 0.2, 0.8), Point(100, 0.5, 0.2, 0.8)]
    chart = curves_svg(Chart("untargeted", False, (Curve("x", steps),)))
    drawn = Reader(chart).found
    assert "Success rate over queries. x 50 % at 100" in chart
    band, line = (a for name, a in drawn if name == "path" and a["class"] != "rule")
    points = [tuple(map(float, p.split())) for p in line["d"][1:].split("L")]
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = points
    assert x1 == x2 == (x0 + x3) / 2 and y0 == y1 and y2 == y3 == 12 + (y0 - 12) / 2
    assert band["d"].endswith("Z")


@pytest.mark.parametrize(
    ("most", "expected"),
    [(1, [0, 1]), (5, [0, 1, 2, 3, 4, 5]), (7, [0, 2, 4, 6]), (100, [0, 20, 40, 60, 80, 100])],
)
def test_ticks(most, expected) -> None:
    assert ticks(most) == expected
    assert all(2 <= len(ticks(n)) <= 6 for n in range(1, 3000, 7))


def test_tag_escapes_all_but_markup() -> None:
    made = tag("p", "<", Html("<br>"), 1, class_="a\"'&", aria_label=None, hidden=False)
    assert made == '<p class="a&quot;&#x27;&amp;">&lt;<br>1</p>'
    assert join("<", tag("br")) == "&lt;<br>"


def test_not_quite_all_is_not_100() -> None:
    shares = {Rate(299, 300): "99.7", Rate(300, 300): "100", Rate(1, 300): "0.3", Rate(0, 9): "0"}
    assert {rate: rounded(rate) for rate in shares} == shares
    assert rounded(Rate(37, 60)) == "62"


def test_searches_for_the_fewest_pixels_have_their_own_section(tmp_path) -> None:
    rows = [*needing([1, 2, 2, 4], 2), row(6, "skipped", 0), row(7, "error", 0)]
    run = make_run(tmp_path, [(minimal(), rows)])
    found = read(run)
    (line,) = found.table("a quarter needs")
    # the six attacked need 1, 2, 2, 4, and two more than 8
    low, high = (f"{100 * end:.0f}" for end in Rate(4, 6).interval)
    assert line["ASR %"] == f"66.7 [{low}, {high}]" and line["attacked / all"] == "6 / 8"
    assert line["a quarter needs"].startswith("2 [") and line["median"].startswith("2 [")
    assert line["three quarters need"] == "> 8 [2, > 8]"
    assert line["mean of fooled"] == "2.2 (4 fooled)"
    assert line["mean, at least"] == f"{(1 + 2 + 2 + 4 + 9 + 9) / 6:.1f}"
    (curve,) = found.table("1")
    low, high = (f"{100 * end:.0f}" for end in Rate(3, 7).interval)
    assert curve["2"] == f"42.9 [{low}, {high}]" and curve["8"].startswith("28.6 [")
    by_class = {line["true class"]: line for line in found.table("true class")}
    assert by_class["cat"]["minimal BruSLe untargeted, 8 px"].startswith("1 [")  # needs 1 and 4
    assert by_class["dog"]["minimal BruSLe untargeted, 8 px"].startswith("2 [")  # 2 and > 8
    for title in ("Success over queries", "Success by queries", "Pixels used", "not-converged"):
        assert title not in found.text
    said = found.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "half of the 6 attacked images need 2 (95 % interval 1 to more than 8)" in said
    assert "Robust accuracy over pixels. minimal BruSLe, 8 px 29 % at 8" in found.text
    assert "median2" in found.text.replace(" ", "")  # the card


def test_a_run_with_both_kinds_shows_both(tmp_path) -> None:
    parts = [(setting(), MIXED), (minimal(), needing([1, 2, 2, 4], 8))]
    run = make_run(tmp_path, parts)
    found = read(run)
    assert [line["attack"] for line in found.table("area under curve")] == ["BruSLe"]
    assert [line["attack"] for line in found.table("a quarter needs")] == ["minimal BruSLe"]
    assert "Success over queries" in found.text and "Pixels needed" in found.text
    text = report_markdown(gather(run))
    assert "## Summary" in text and "## Pixels needed" in text
    assert "## Robust accuracy by pixels" in text and "## Pixels needed by class" in text
    told = gather(run).as_dict()
    json.dumps(told, allow_nan=False)
    fixed, search = told["settings"]
    assert (fixed["minimal"], fixed["summary"]["pixels_needed"]) == (False, None)
    assert search["minimal"] and search["asr_within"] == {}
    needed = search["summary"]["pixels_needed"]
    assert (needed["lower_quartile"]["value"], needed["median"]["value"]) == (2, None)
    assert [search["by_label"][c]["pixels_needed"]["mean_of_fooled"] for c in "012"] == [2.5, 2, 2]


def test_seeds_of_searches_vary_in_pixels_and_not_in_queries(tmp_path) -> None:
    parts = [(minimal(), needing([1] * 6, 6)), (minimal(seed=1), needing([3] * 6, 6))]
    spreads = {line["metric"]: line for line in read(make_run(tmp_path, parts)).table("std")}
    assert set(spreads) == {"ASR %", "robust accuracy %", "mean pixels needed"}
    assert [spreads["mean pixels needed"][x] for x in ("min", "mean", "max")] == [
        "5.0", "5.5", "6.0",
    ]  # fmt: skip


def test_the_sparsest_search_is_in_the_headline(tmp_path) -> None:
    parts = [(minimal("minimal PGD0"), needing([4] * 6, 2)), (minimal(), needing([3] * 6, 4))]
    said = gather(make_run(tmp_path, parts)).headline()
    assert len(said) == 3 and said[2].startswith("Untargeted, minimal BruSLe looked for")


def test_curves_of_an_attack_have_one_colour_in_all_charts(tmp_path) -> None:
    parts = [
        (setting("BruSLe", pixels=2), MIXED),
        (setting("SparseRS", pixels=2), MIXED),
        (setting("SparseRS", pixels=5), MIXED),
        (setting("SparseRS", pixels=5, eot=4), MIXED),
    ]
    found = read(make_run(tmp_path, parts)).found
    lines = [a["class"] for name, a in found if name == "path" and "line" in a["class"]]
    assert lines == ["line c0 d0", "line c1 d0", "line c1 d0", "line c1 d1"]
    keys = [a["class"] for name, a in found if name == "i" and a.get("class")]
    assert keys == ["c0 d0", "c1 d0", "c1 d0", "c1 d1"]


def test_seeds_are_one_curve_and_the_caption_says_what_its_band_is(tmp_path) -> None:
    parts = [(setting(), MIXED), (setting(seed=1), MIXED)]
    found = read(make_run(tmp_path / "a", parts))
    assert len([1 for name, a in found.found if name == "path" and "line" in a["class"]]) == 1
    assert "means over 2 seeds. Bands go from the lowest to the highest seed." in found.text
    several = [(setting(f"attack {i}"), MIXED) for i in range(5)]
    found = read(make_run(tmp_path / "b", several))
    assert "So many curves are drawn without bands." in found.text
    assert not [1 for name, a in found.found if name == "path" and "band" in a["class"]]
    assert "95 % interval." not in found.text


def test_a_comparison_as_a_page(tmp_path) -> None:
    parts = [(setting(EVIL), rows_of([10] * 10, 10)), (minimal(), needing([4] * 12, 8))]
    more = [(setting(EVIL), rows_of([10] * 16, 4)), (minimal(), needing([2] * 12, 8))]
    runs = [make_run(tmp_path / "a", parts), make_run(tmp_path / "b", more, victim=EVIL)]
    sections = compare_runs(runs)
    text = comparison_page(sections, runs)
    assert "http:" not in text and "https:" not in text and "url(" not in text
    assert "default-src &#x27;none&#x27;" in text and "prefers-color-scheme: dark" in text
    found = Reader(text)
    assert "script" not in {name for name, _ in found.found}
    for verdict in sections[0].verdicts:
        assert verdict.text in found.text
    (line,) = [x for x in found.table("robust accuracy, difference") if x["setting"]]
    assert (line["ASR % of base"], line["ASR %"]) == ("50.0", "80.0")
    assert (line["robust accuracy % of base"], line["robust accuracy %"]) == ("50.0", "20.0")
    assert line["robust accuracy, difference"].startswith("-30.0* [")
    (line,) = found.table("difference in pixels")
    assert (line["median of base"], line["median"]) == ("4", "2")
    assert line["difference in pixels"].startswith("-1.2* [")
    assert "note: the victims differ" in found.text
    assert len([1 for name, _ in found.found if name == "circle"]) == 2
    text = comparison_markdown(sections)
    assert "<script" not in text.replace("\\<", "") and "difference in pixels" in text


def test_a_forest_has_its_estimates_where_they_are() -> None:
    lines = [("a", Estimate(10, -5, 20), 0), ("b" * 90, Estimate(-10, -20, 0), 1)]
    found = Reader(forest(lines, "change")).found
    spans = [a for name, a in found if name == "line" and "line" in a["class"]]
    (zero,) = (float(a["x1"]) for name, a in found if name == "line" and "zero" in a["class"])
    ends = [(float(a["x1"]) - zero, float(a["x2"]) - zero) for a in spans]
    dots = [float(a["cx"]) - zero for name, a in found if name == "circle"]
    unit = ends[0][1] / 20
    assert ends[0][0] == pytest.approx(-5 * unit, abs=0.2)
    assert ends[1] == pytest.approx((-20 * unit, 0), abs=0.2)
    assert dots == pytest.approx([10 * unit, -10 * unit], abs=0.2)
    assert "bbbb\N{HORIZONTAL ELLIPSIS}<" in forest(lines, "change")  # the table has all of it


def test_what_needs_scripts_is_hidden_without_them(tmp_path) -> None:
    found = read(make_run(tmp_path, [(setting(), MIXED)])).found
    scripted = [(name, a) for name, a in found if "data-scripted" in a]
    assert [(name, a.get("id") or a["href"]) for name, a in scripted] == [
        ("a", "#rows"),
        ("section", "rows"),
    ]
    assert all("hidden" in attributes for _, attributes in scripted)
    assert not [name for name, _ in found if name in ("button", "input", "select", "canvas")]
