"""The picture of a run: what is drawn, in which colour, and what it says about its bands."""

import pytest
from matplotlib.colors import to_hex
from stores import make_run, minimal, needing, rows_of, setting

from brusle.evaluation.statistics import Rate
from brusle.report.curves import COLOURS, MOST_BANDS, attack_colours, curve, figure, run_curves

FEW, MANY = rows_of([10] * 6, 6), rows_of([10] * 6 + [40] * 3, 3)


def caption(axes) -> str:
    return axes.get_legend().get_title().get_text()


def test_one_attack_has_one_colour_and_its_budgets_other_lines(tmp_path) -> None:
    parts = [
        (setting(attack, goal=goal, pixels=pixels), FEW)
        for goal in ("untargeted", "targeted")
        for pixels in (2, 5)
        for attack in ("BruSLe", "PixelBandit", "SparseRS")
    ]
    parts.append((setting("PixelBandit", pixels=9), FEW))
    run = make_run(tmp_path, parts)
    (axes,) = figure(run).axes
    lines = axes.get_lines()
    assert len(lines) == 13
    looks = {}
    for line, (made, _) in zip(lines, parts, strict=True):
        looks.setdefault(made["attack"], set()).add(to_hex(line.get_color()))
    assert looks == {
        "BruSLe": {COLOURS[0]}, "PixelBandit": {COLOURS[1]}, "SparseRS": {COLOURS[2]},
    }  # fmt: skip
    patterns = {}
    for line, (made, _) in zip(lines, parts, strict=True):
        place = (made["goal"], made["pixels"])
        patterns.setdefault(place, set()).add(str(line._dash_pattern))
    assert all(len(some) == 1 for some in patterns.values())
    assert len({some for one in patterns.values() for some in one}) == 5  # a line for each budget
    assert attack_colours(run.settings) == {"BruSLe": 0, "PixelBandit": 1, "SparseRS": 2}


def test_several_seeds_are_one_curve_with_mean_and_range(tmp_path) -> None:
    run = make_run(tmp_path, [(setting(), FEW), (setting(seed=1), MANY)])
    (found,) = run_curves(run)
    points = {point.at: point for point in found.points}
    assert set(points) == {0, 10, 40, 100} and found.seeds == 2
    for at, (one, two) in {0: (0, 0), 10: (6, 6), 40: (6, 9), 100: (6, 9)}.items():
        point = points[at]
        assert point.value == pytest.approx((one + two) / 24)
        assert (point.low, point.high) == (one / 12, two / 12)
    (axes,) = figure(run).axes
    assert len(axes.get_lines()) == 1 and len(axes.collections) == 1
    assert caption(axes) == (
        "Lines are means over 2 seeds. Bands go from the lowest to the highest seed."
    )


def test_the_band_of_one_seed_is_the_interval(tmp_path) -> None:
    run = make_run(tmp_path, [(setting(), FEW)])
    (found,) = run_curves(run)
    assert [(p.low, p.high) for p in found.points][1] == Rate(6, 12).interval
    (axes,) = figure(run).axes
    assert caption(axes) == "Bands are the 95 % interval." and len(axes.collections) == 1


def test_the_caption_is_true_where_there_are_both_kinds_of_bands_or_none(tmp_path) -> None:
    parts = [(setting(), FEW), (setting(seed=1), MANY), (setting("SparseRS"), MANY)]
    (axes,) = figure(make_run(tmp_path / "a", parts)).axes
    assert caption(axes) == (
        "Lines are means over 2 seeds. Their bands go from the lowest to the highest seed; the "
        "bands of single seeds are the 95 % interval."
    )
    parts = [(setting(pixels=p), FEW) for p in range(1, MOST_BANDS + 2)]
    (axes,) = figure(make_run(tmp_path / "b", parts)).axes
    assert caption(axes) == "So many curves are drawn without bands." and not axes.collections


def test_searches_for_the_fewest_pixels_show_robust_accuracy_over_pixels(tmp_path) -> None:
    run = make_run(tmp_path, [(minimal(), needing([1, 2, 2, 4], 4))])
    (axes,) = figure(run).axes
    assert axes.get_xlabel() == "pixels that may be changed"
    assert axes.get_ylabel() == "robust accuracy, %"
    (line,) = axes.get_lines()
    assert line.get_xdata().tolist() == [0, 1, 2, 4, 8]
    assert line.get_ydata() == pytest.approx([100, 87.5, 62.5, 50, 50])


def test_both_kinds_stand_side_by_side(tmp_path) -> None:
    run = make_run(tmp_path, [(minimal(), needing([1, 2], 4)), (setting(), FEW)])
    left, right = figure(run).axes
    assert (left.get_xlabel(), right.get_xlabel()) == (
        "queries per image", "pixels that may be changed",
    )  # fmt: skip
    assert len(left.get_lines()) == len(right.get_lines()) == 1
    curve(run, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_rows_has_an_empty_picture(tmp_path) -> None:
    run = make_run(tmp_path, [(setting(problems=5), [])])
    (axes,) = figure(run).axes
    assert not axes.get_lines()
