"""The curves of a run: what is drawn, in which colour, and what it says about its bands."""

import re
from importlib.resources import files

import numpy as np
import pytest
from PIL import Image, ImageColor
from stores import make_run, minimal, needing, row, rows_of, setting

from brusle.evaluation.statistics import Rate
from brusle.report.charts import step_chart
from brusle.report.content import gather
from brusle.report.curve_sheet import sheet, write_curves
from brusle.report.curves import COLOURS, MOST_BANDS, attack_colours, run_charts
from brusle.report.page import report_page
from brusle.report.shapes import DASHES, Path, Text

FEW, MANY = rows_of([10] * 6, 6), rows_of([10] * 6 + [40] * 3, 3)


def paths(shapes, kind):
    return [shape for shape in shapes if isinstance(shape, Path) and shape.kind == kind]


def words(shapes):
    return [shape.words for shape in shapes if isinstance(shape, Text)]


def test_one_attack_has_one_colour_and_each_budget_its_chart(tmp_path) -> None:
    parts = [
        (setting(attack, goal=goal, pixels=pixels), FEW)
        for goal in ("untargeted", "targeted")
        for pixels in (2, 5)
        for attack in ("BruSLe", "PixelBandit", "SparseRS")
    ]
    parts.append((setting("PixelBandit", pixels=9), FEW))
    run = make_run(tmp_path, parts)
    found = run_charts(run)
    assert [chart.heading for chart in found] == [
        "untargeted, 2 pixels", "untargeted, 5 pixels", "targeted, 2 pixels",
        "targeted, 5 pixels", "untargeted, 9 pixels",
    ]  # fmt: skip
    looks = {(curve.name, curve.colour) for chart in found for curve in chart.curves}
    assert looks == {("BruSLe", 0), ("PixelBandit", 1), ("SparseRS", 2)}
    assert sum(len(chart.curves) for chart in found) == 13
    assert attack_colours(run.settings) == {"BruSLe": 0, "PixelBandit": 1, "SparseRS": 2}


def test_settings_of_an_attack_in_one_chart_have_other_dashes(tmp_path) -> None:
    parts = [(setting(), FEW), (setting(queries=500), FEW), (setting(eot=4), FEW)]
    parts += [(minimal(pixels=p), needing([1, 2], 4)) for p in (8, 9)]
    budget, fewest = run_charts(make_run(tmp_path, parts))
    assert [(curve.name, curve.dashes) for curve in budget.curves] == [
        ("BruSLe, 5 px, 100 queries", 0), ("BruSLe, 5 px, 500 queries", 1), ("BruSLe, eot 4", 2),
    ]  # fmt: skip
    assert [(curve.name, curve.dashes) for curve in fewest.curves] == [
        ("minimal BruSLe, 8 px", 0), ("minimal BruSLe, 9 px", 1),
    ]  # fmt: skip
    assert budget.limit == 500 and len(set(DASHES)) == len(DASHES)


def test_several_seeds_are_one_curve_with_mean_and_range(tmp_path) -> None:
    run = make_run(tmp_path, [(setting(), FEW), (setting(seed=1), MANY)])
    (chart,) = run_charts(run)
    (found,) = chart.curves
    points = {point.at: point for point in found.points}
    assert set(points) == {0, 10, 40, 100} and found.seeds == 2
    for at, (one, two) in {0: (0, 0), 10: (6, 6), 40: (6, 9), 100: (6, 9)}.items():
        point = points[at]
        assert point.value == pytest.approx((one + two) / 24)
        assert (point.low, point.high) == (one / 12, two / 12)
    shapes = step_chart(chart)
    assert len(paths(shapes, "line")) == len(paths(shapes, "band")) == 1
    assert chart.caption == (
        "Lines are means over 2 seeds. Bands go from the lowest to the highest seed."
    )


def test_the_band_of_one_seed_is_the_interval(tmp_path) -> None:
    (chart,) = run_charts(make_run(tmp_path, [(setting(), FEW)]))
    assert [(p.low, p.high) for p in chart.curves[0].points][1] == Rate(6, 12).interval
    assert chart.caption == "Bands are the 95 % interval."
    assert len(paths(step_chart(chart), "band")) == 1


def test_the_caption_is_true_where_there_are_both_kinds_of_bands_or_none(tmp_path) -> None:
    parts = [(setting(), FEW), (setting(seed=1), MANY), (setting("SparseRS"), MANY)]
    (chart,) = run_charts(make_run(tmp_path / "a", parts))
    assert chart.caption == (
        "Lines are means over 2 seeds. Their bands go from the lowest to the highest seed; the "
        "bands of single seeds are the 95 % interval."
    )
    parts = [(setting(f"attack {i}"), FEW) for i in range(MOST_BANDS + 1)]
    (chart,) = run_charts(make_run(tmp_path / "b", parts))
    assert chart.caption == "So many curves are drawn without bands."
    assert not paths(step_chart(chart), "band")


def test_searches_for_the_fewest_pixels_show_robust_accuracy_over_pixels(tmp_path) -> None:
    run = make_run(tmp_path, [(minimal(), needing([1, 2, 2, 4], 4))])
    (chart,) = run_charts(run)
    assert chart.axes == ("pixels that may be changed", "robust accuracy, %")
    (curve,) = chart.curves
    assert [point.at for point in curve.points] == [0, 1, 2, 4, 8]
    assert [point.value for point in curve.points] == pytest.approx([1, 0.875, 0.625, 0.5, 0.5])


def test_both_kinds_stand_on_one_sheet(tmp_path) -> None:
    run = make_run(tmp_path, [(minimal(), needing([1, 2], 4)), (setting(), FEW)])
    left, right = run_charts(run)
    assert (left.axes[0], right.axes[0]) == ("queries", "pixels that may be changed")
    assert len(left.curves) == len(right.curves) == 1
    shapes, (width, height) = sheet([left, right], "title")
    said = words(shapes)
    for text in ("title", left.heading, right.heading, left.caption, "BruSLe", *left.axes):
        assert text in said
    assert len(paths(shapes, "line")) == 2 * 2  # each with a sample beside its name
    places = [spot for path in shapes if isinstance(path, Path) for spot in path.corners]
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places)
    write_curves(run, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_and_the_picture_draw_the_same_lines(tmp_path) -> None:
    """The corners of every curve of the page are those on the sheet, each in its place."""
    run = make_run(tmp_path, [(setting(), MANY), (minimal(), needing([1, 2], 4))])
    found = run_charts(run)
    page = report_page(gather(run), run)
    drawn = re.findall(r'd="M([^"Z]+)" class="line', page)
    assert len(drawn) == len(found) == 2
    for text, chart in zip(drawn, found, strict=True):
        (line,) = paths(step_chart(chart), "line")
        corners = [tuple(map(float, spot.split())) for spot in text.split("L")]
        assert corners == line.corners
    on_sheet = paths(sheet(found, "")[0], "line")
    longest = [line for line in on_sheet if len(line.corners) > 2]
    for line, chart in zip(longest, found, strict=True):
        (here,) = paths(step_chart(chart), "line")
        moved = {(round(a - c, 3), round(b - d, 3))
                 for (a, b), (c, d) in zip(line.corners, here.corners, strict=True)}  # fmt: skip
        assert len(moved) == 1


def test_the_picture_has_a_curve_in_its_colour_where_it_belongs(tmp_path) -> None:
    run = make_run(tmp_path, [(setting(), rows_of([1] * 12, 0))])  # all at once: up, and along
    write_curves(run, tmp_path / "curve.png")
    picture = np.asarray(Image.open(tmp_path / "curve.png").convert("RGB"), dtype=int)
    assert picture.shape[1] == 2 * (460 + 2 * 20)  # two dots for one, and margins
    near = np.abs(picture - ImageColor.getrgb(COLOURS[0])).sum(2) < 30
    rows, columns = np.nonzero(near[: 2 * (44 + 24 + 280)])  # without the legend
    assert rows.min() == pytest.approx(2 * (44 + 24 + 12), abs=4)  # 100 %
    assert columns.max() == pytest.approx(2 * (20 + 460 - 12), abs=4)  # the limit


def test_long_names_are_folded_and_many_charts_left_out(tmp_path) -> None:
    long = "word " * 25
    parts = [(setting(long, pixels=p), FEW) for p in range(1, 30)]
    found = run_charts(make_run(tmp_path, parts))
    said = words(sheet(found, "x" * 500)[0])
    assert max(map(len, said)) <= 2 * 48 and "29 pixels" not in " ".join(said)
    assert said[-1] == "5 more charts are in `brusle report`."
    assert sum(text.startswith("word") for text in said) == 2 * 24


def test_the_colours_of_the_page_are_those_of_pictures() -> None:
    style = files("brusle.report").joinpath("page.css").read_text()
    light = re.findall(r"--c(\d): (#\w+);", style.split("@media")[0])
    assert dict(light) == {str(at): colour for at, colour in enumerate(COLOURS)}
    dashes = dict(re.findall(r"svg \.d(\d) \{ stroke-dasharray: ([\d ]+); \}", style))
    assert dashes == {str(at): " ".join(map(str, some)) for at, some in enumerate(DASHES) if some}


def test_a_run_without_rows_has_a_picture_that_says_so(tmp_path) -> None:
    run = make_run(tmp_path, [(setting(problems=5), [])])
    assert run_charts(run) == []
    assert words(sheet([], "title")[0]) == ["title", "Nothing has been attacked yet."]
    write_curves(run, tmp_path / "curve.png")
    skipped = make_run(tmp_path / "skipped", [(setting(), [row(0, "skipped", 0)])])
    assert run_charts(skipped) == []
