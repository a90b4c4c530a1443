import pytest
from stores import make_run, minimal, needing, row, rows_of, setting

from brusle.errors import InputError
from brusle.evaluation.statistics import compare
from brusle.report.comparison import across, compare_runs, within
from brusle.report.matching import match
from brusle.report.tables import varied
from brusle.report.wording import estimate

BASE = rows_of([10] * 10, 10)  # 10 of 20, mean (10 * 10 + 10 * 100) / 20 = 55
OTHER = rows_of([10] * 10 + [60] * 6, 4)  # 16 of 20, mean (100 + 360 + 400) / 20 = 43


def record(attack="BruSLe", number=1, **more):
    return setting(attack, number=number, problems=1, **more)


def test_a_line_has_the_numbers_that_can_be_counted(tmp_path) -> None:
    first = make_run(tmp_path / "a", [(setting(), BASE)])
    other = make_run(tmp_path / "b", [(setting(), OTHER)])
    (section,) = compare_runs([first, other])
    (line,) = section.lines
    assert [(rate.hits, rate.count) for rate in line.rates] == [(10, 20), (16, 20)]
    assert line.found is not None
    assert line.found.difference.value == pytest.approx(0.3)
    assert line.found.ratio.value == pytest.approx(43 / 55)
    assert line.found == compare(OTHER, BASE, 100)
    told = line.as_dict()
    assert told["difference_excludes_0"] and told["ratio_excludes_1"]
    assert (told["pairs"], told["queries"], told["problem"]) == (20, 100, None)
    assert (section.notes, section.unmatched) == ((), ())


def test_success_is_compared_where_it_is_asked_for(tmp_path) -> None:
    first = make_run(tmp_path / "a", [(setting(), BASE)])
    other = make_run(tmp_path / "b", [(setting(), OTHER)])
    (line,) = across(first, other, queries=59).lines
    assert [rate.hits for rate in line.rates] == [10, 10]
    told = line.as_dict()
    assert told["difference"]["value"] == 0 and not told["difference_excludes_0"]
    assert told["ratio_of_queries"]["value"] == pytest.approx(43 / 55)
    (line,) = across(first, other, queries=101).lines
    assert line.found is None and "give a number from 1 to the limit 100" in line.problem


def test_problems_that_one_did_not_attack_do_not_count(tmp_path) -> None:
    skipped = [row(0, "skipped", 0), row(1, "error", 3), *OTHER[2:], row(77)]
    first = make_run(tmp_path / "a", [(setting(), BASE)])
    (line,) = across(first, make_run(tmp_path / "b", [(setting(), skipped)])).lines
    assert [(rate.hits, rate.count) for rate in line.rates] == [(8, 18), (14, 18)]
    assert line.found is not None and line.found.pairs == 18


def test_the_smaller_limit_counts_for_both(tmp_path) -> None:
    late = rows_of([10] * 10 + [150] * 6, 4, limit=200)
    first = make_run(tmp_path / "a", [(setting(), BASE)])
    other = make_run(tmp_path / "b", [(setting(queries=200), late)])
    section = across(first, other)
    (line,) = section.lines
    assert [rate.hits for rate in line.rates] == [10, 10]
    assert line.found is not None and line.found.ratio.value == 1
    assert section.notes == ("the query limits differ: 100 and 200, compared at 100",)


def test_what_differs_is_said(tmp_path) -> None:
    first = make_run(tmp_path / "a", [(setting(), BASE)])
    about = {"victim": "zoo:other", "weights": "beef", "data": "sample", "brusle": "2.0"}
    more = {"problems": 30}
    other = make_run(tmp_path / "b", [(setting(**more), OTHER)], **about)
    notes = across(first, other).notes
    assert notes[:4] == (
        "the victims differ: zoo:toy and zoo:other",
        "the weights differ: feed and beef",
        "the data differ: arrays and sample",
        "the versions of brusle differ: 1.2.3 and 2.0",
    )
    assert notes[4].startswith(f"{tmp_path / 'b'} is unfinished in 1 of 1 settings")


def test_settings_are_matched_by_all_that_names_them() -> None:
    first = [record(number=1), record(number=2, seed=1), record("SparseRS", 3)]
    second = [record("SparseRS", 1), record(number=2, seed=1), record(number=3)]
    assert match(first, second) == [
        (first[0], second[2]),
        (first[1], second[1]),
        (first[2], second[0]),
    ]


def test_the_same_limit_is_preferred_and_no_setting_is_used_twice() -> None:
    first = [record(number=1, queries=500), record(number=2)]
    second = [record(number=1), record(number=2, queries=900), record(number=3, queries=950)]
    assert match(first, second) == [(first[0], second[1]), (first[1], second[0])]


def test_other_names_are_matched_if_there_is_no_choice() -> None:
    first = [record(), record(number=2, pixels=9), record("SparseRS", 3, pixels=9)]
    second = [record("SparseRS", seed=4), record("PGD0", 2, pixels=9)]
    assert match(first, second) == [(first[0], second[0])]


def test_what_has_no_counterpart_is_named(tmp_path) -> None:
    first = make_run(tmp_path / "a", [(setting(), BASE), (setting(pixels=9), BASE)])
    other = make_run(tmp_path / "b", [(setting(), OTHER), (setting(goal="targeted"), OTHER)])
    assert across(first, other).unmatched == (
        f"BruSLe untargeted, 9 px: only in {tmp_path / 'a'}",
        f"BruSLe targeted, 5 px: only in {tmp_path / 'b'}",
    )


def test_too_few_images_spoil_their_line_alone(tmp_path) -> None:
    first = make_run(tmp_path / "a", [(setting(), BASE[:9]), (setting(pixels=9), BASE)])
    other = make_run(tmp_path / "b", [(setting(), OTHER), (setting(pixels=9), OTHER)])
    few, enough = across(first, other).lines
    assert few.found is None and "a comparison needs 10 images" in few.problem
    assert [rate.hits for rate in few.rates] == [9, 9]
    assert few.as_dict()["difference"] is None
    assert enough.found is not None and not enough.problem


def test_attacks_of_a_run_against_the_first_or_a_named_one(tmp_path) -> None:
    parts = [
        (setting(), BASE),
        (setting("SparseRS"), OTHER),
        (setting("SparseRS", seed=1), OTHER),
        (setting("PGD0 steps=3"), OTHER),
    ]
    run = make_run(tmp_path, parts)
    (section,) = compare_runs([run])
    assert section.baseline == "BruSLe"
    assert [section.label(line) for line in section.lines] == [
        "SparseRS untargeted, 5 px",
        "PGD0 steps=3 untargeted, 5 px",
    ]
    assert section.unmatched == ("SparseRS untargeted, 5 px, seed 1: BruSLe was not run so",)
    for name in ("sparse-rs", "SparseRS"):
        (section,) = compare_runs([run], name)
        assert section.baseline == "SparseRS" and len(section.lines) == 2
        assert section.lines[0].rates[0].hits == 16
    assert within(run, "pgd0").as_dict() == within(run, "PGD0 steps=3").as_dict()
    with pytest.raises(InputError, match="no run holds an attack 'foo': choose from BruSLe, Spar"):
        compare_runs([run], "foo")


def test_several_runs_are_compared_with_the_first_and_within(tmp_path) -> None:
    parts = [(setting(), BASE), (setting("SparseRS"), OTHER)]
    runs = [
        make_run(tmp_path / name, some)
        for name, some in zip("abc", (parts[:1], parts, parts), strict=True)
    ]
    a, b, c = (tmp_path / name for name in "abc")
    assert [section.title for section in compare_runs(runs)] == [
        f"{b} against {a}",
        f"{c} against {a}",
        f"{b}: attacks against BruSLe",
        f"{c}: attacks against BruSLe",
    ]


def test_a_run_with_one_attack_has_nothing_to_compare(tmp_path) -> None:
    run = make_run(tmp_path, [(setting(), BASE), (setting(pixels=9), BASE)])
    with pytest.raises(InputError, match="fewer than two attacks: give another run"):
        compare_runs([run])


def test_an_interval_that_excludes_the_neutral_value_gets_a_star() -> None:
    found = compare(OTHER, BASE, 100)
    low, high = 100 * found.difference.low, 100 * found.difference.high
    assert estimate(found.difference, 0, "+.1f", 100) == f"+30.0* [{low:+.1f}, {high:+.1f}]"
    same = compare(BASE, BASE, 100)
    assert estimate(same.ratio, 1, ".2f") == "1.00 [1.00, 1.00]"
    assert estimate(same.difference, 0, "+.1f") == "+0.0 [+0.0, +0.0]"


def test_robust_accuracy_counts_what_is_wrong_from_the_start(tmp_path) -> None:
    """On 12 more images that the second victim gets wrong, only robust accuracy changes."""
    more = [row(20 + i, "failed", 100) for i in range(12)]
    wrong = [row(20 + i, "skipped", 0) for i in range(11)] + [row(31, "error", 0)]
    first = make_run(tmp_path / "a", [(setting(), BASE + more)])
    other = make_run(tmp_path / "b", [(setting(), BASE + wrong)])
    (line,) = across(first, other).lines
    assert [(side.asr.hits, side.asr.count) for side in line.sides] == [(10, 20)] * 2
    # 31 without error in both; 10 + 11 stand in the first, 10 in the second
    assert [(side.robust.hits, side.robust.count) for side in line.sides] == [(21, 31), (10, 31)]
    assert line.found is not None and line.found.difference.value == 0
    assert line.found.robust.value == pytest.approx(-11 / 31)
    told = line.as_dict()
    assert told["robust_difference_excludes_0"] and not told["difference_excludes_0"]
    # 11 of 31 decide: binomial(31, 11 / 31) / 31 lies in [6/31, 16/31] in 95 % of cases
    assert line.found.robust.low == pytest.approx(-16 / 31, abs=1 / 31)
    assert line.found.robust.high == pytest.approx(-6 / 31, abs=1 / 31)


def test_robust_accuracy_at_some_queries(tmp_path) -> None:
    first = make_run(tmp_path / "a", [(setting(), BASE)])
    other = make_run(tmp_path / "b", [(setting(), OTHER)])
    (line,) = across(first, other, queries=59).lines
    assert [side.robust.hits for side in line.sides] == [10, 10]  # six fall after 60
    (line,) = across(first, other).lines
    assert [side.robust.hits for side in line.sides] == [10, 4]
    assert line.found is not None and line.found.robust.value == pytest.approx(-0.3)


def test_all_seeds_are_pooled_with_mean_and_spread(tmp_path) -> None:
    base = [rows_of([10] * hits, 20 - hits) for hits in (10, 12, 8)]
    other = [rows_of([10] * hits, 20 - hits) for hits in (12, 18, 12)]
    first = make_run(tmp_path / "a", [(setting(seed=s), base[s]) for s in range(3)])
    second = make_run(tmp_path / "b", [(setting(seed=s), other[s]) for s in (2, 1, 0)])
    section = across(first, second)
    (line,) = section.lines
    assert section.label(line) == "BruSLe untargeted, 5 px, 3 seeds"
    assert [(rate.hits, rate.count) for rate in line.rates] == [(30, 60), (42, 60)]
    assert line.found is not None and (line.found.pairs, line.found.images) == (60, 20)
    assert line.found.difference.value == pytest.approx(12 / 60)
    found = line.seeds["difference"]  # 0.1, 0.3 and 0.2 of twenty
    assert (found.min, found.mean, found.max) == pytest.approx((0.1, 0.2, 0.3))
    assert found.std == pytest.approx(0.1) and found.seeds == 3
    means = [
        (10 * a + 100 * (20 - a), 10 * b + 100 * (20 - b)) for a, b in ((10, 12), (12, 18), (8, 12))
    ]
    ratios = [b / a for a, b in means]
    assert line.seeds["ratio"].mean == pytest.approx(sum(ratios) / 3)
    told = line.as_dict()
    assert told["seeds"] == [0, 1, 2] and told["over_seeds"]["difference"]["seeds"] == 3
    assert (told["baseline"], told["other"]) == ("BruSLe", "BruSLe")


def test_seeds_narrow_no_interval_by_being_counted_as_images(tmp_path) -> None:
    parts = [(setting(), BASE), (setting("SparseRS"), OTHER)]
    again = [(made.model_copy(update={"seed": 1}), rows) for made, rows in parts]
    (one,) = compare_runs([make_run(tmp_path / "a", parts)])[0].lines
    (two,) = compare_runs([make_run(tmp_path / "b", parts + again)])[0].lines
    assert one.found is not None and two.found is not None
    assert (one.found.pairs, two.found.pairs) == (20, 40)
    assert one.found.difference == two.found.difference and one.found.ratio == two.found.ratio
    assert one.seeds == {} and two.seeds["difference"].std == 0


def test_a_seed_without_rows_has_no_change_to_show(tmp_path) -> None:
    first = make_run(tmp_path / "a", [(setting(), BASE), (setting(seed=1), BASE)])
    second = make_run(tmp_path / "b", [(setting(), OTHER), (setting(seed=1), [])])
    (line,) = across(first, second).lines
    assert varied(line, "difference", "+.1f") == "-"


def test_seeds_that_one_run_lacks_are_named(tmp_path) -> None:
    first = make_run(tmp_path / "a", [(setting(seed=s), BASE) for s in range(3)])
    second = make_run(tmp_path / "b", [(setting(seed=s), OTHER) for s in (1, 2)])
    section = across(first, second)
    assert len(section.lines) == 1 and section.lines[0].as_dict()["seeds"] == [1, 2]
    assert section.unmatched == (f"BruSLe untargeted, 5 px: only in {tmp_path / 'a'}",)


def test_the_only_attacks_of_two_runs_are_matched_seed_by_seed() -> None:
    first = [record(number=1 + s, seed=s) for s in range(3)]
    second = [record("SparseRS", 1 + s, seed=s) for s in (2, 1)]
    assert match(first, second) == [(first[1], second[1]), (first[2], second[0])]


def verdict(section) -> str:
    (found,) = section.verdicts
    return found.text


def interval(found, form, scale=1.0) -> str:
    return f"[{scale * found.low:{form}}, {scale * found.high:{form}}]"


def test_the_verdict_says_what_all_lines_say_together(tmp_path) -> None:
    """Two settings in which the other run succeeds more often, and one that says nothing."""
    first = make_run(tmp_path / "a", [(setting(pixels=p), BASE) for p in (5, 6, 7)])
    pairs = [(setting(pixels=5), OTHER), (setting(pixels=6), OTHER), (setting(pixels=7), BASE)]
    other = make_run(tmp_path / "b", pairs)
    section = across(first, other)
    (found,) = section.verdicts
    whole = found.found
    # 12 of 60 pairs more; queries (55 + 55 + 55) against (43 + 43 + 55), in 20 pairs each
    assert whole.difference.value == pytest.approx(0.2) and whole.pairs == 60
    assert whole.ratio.value == pytest.approx(141 / 165)
    assert found.text == (
        f"In {tmp_path / 'b'}, attacks succeed more often than in {tmp_path / 'a'}: +20.0 points "
        f"{interval(whole.difference, '+.1f', 100)}, with 0.85 times the queries "
        f"{interval(whole.ratio, '.2f')}; success is higher in 2 of 3 settings, lower in none."
    )
    back = across(other, first).verdicts[0]
    assert "attacks succeed less often than in" in back.text and "-20.0 points" in back.text
    assert back.text.endswith("success is higher in 0 of 3 settings, lower in 2.")
    assert section.as_dict()["verdicts"][0]["text"] == found.text


def test_a_verdict_without_a_difference_claims_none(tmp_path) -> None:
    """As many successes; then as many, but sooner."""
    turned = [row(19 - i, r.status, r.queries) for i, r in enumerate(BASE)]
    sooner = [row(i, r.status, min(r.queries, 5) if i < 10 else 100) for i, r in enumerate(BASE)]
    parts = [(setting(), BASE), (setting("PGD0"), turned), (setting("SparseRS"), sooner)]
    (section,) = compare_runs([make_run(tmp_path, parts)])
    level, quicker = section.verdicts
    assert level.text.startswith("PGD0 and BruSLe cannot be told apart: +0.0 points [-")
    assert quicker.text.startswith("SparseRS needs fewer queries than BruSLe: 0.95 times the quer")
    assert quicker.text.endswith("success rates cannot be told apart: +0.0 points [+0.0, +0.0].")
    assert [(v.better, v.worse, v.lines) for v in section.verdicts] == [(0, 0, 1)] * 2


def test_lines_that_could_not_be_compared_are_not_in_the_verdict(tmp_path) -> None:
    first = make_run(tmp_path / "a", [(setting(), BASE[:9]), (setting(pixels=9), BASE)])
    other = make_run(tmp_path / "b", [(setting(), OTHER), (setting(pixels=9), OTHER)])
    (found,) = across(first, other).verdicts
    assert found.lines == 1 and found.found.pairs == 20 and "settings" not in found.text
    few = make_run(tmp_path / "c", [(setting(), OTHER[:4])])
    assert across(few, other).verdicts == ()


def test_searches_for_the_fewest_pixels_are_compared_by_pixels(tmp_path) -> None:
    one = [(minimal(), needing([4] * 12, 8))]
    two = [(minimal(queries=300), needing([2] * 12 + [8] * 4, 4))]
    first, other = make_run(tmp_path / "a", one), make_run(tmp_path / "b", two)
    section = across(first, other, queries=7)
    (line,) = section.lines
    # not fooled within 8 pixels counts as 9
    means = (12 * 4 + 8 * 9) / 20, (12 * 2 + 4 * 8 + 4 * 9) / 20
    assert [side.effort for side in line.sides] == pytest.approx(means)
    assert [side.median for side in line.sides] == [4, 2]
    assert [(rate.hits, rate.count) for rate in line.rates] == [(12, 20), (16, 20)]
    assert line.found is not None
    assert line.found.excess.value == pytest.approx(means[1] - means[0])
    assert line.found.ratio.value == pytest.approx(means[1] / means[0])
    told = line.as_dict()
    assert told["queries"] is told["ratio_of_queries"] is None
    assert told["pixels_needed"]["other_median"] == 2
    assert told["pixels_needed"]["difference"]["value"] == pytest.approx(means[1] - means[0])
    assert section.notes == (
        "the query limits differ: 100 and 300, which searches for the fewest pixels spend",
        "--queries does not matter to searches for the fewest pixels",
    )
    assert verdict(section) == (
        f"In {tmp_path / 'b'}, attacks need fewer pixels than in {tmp_path / 'a'}: 0.77 times the "
        f"pixels {interval(line.found.ratio, '.2f')}, -1.4 in the mean "
        f"{interval(line.found.excess, '+.1f')}."
    )


def test_a_search_for_the_fewest_pixels_is_matched_with_another_only(tmp_path) -> None:
    first = make_run(tmp_path / "a", [(setting(pixels=8), BASE)])
    other = make_run(tmp_path / "b", [(minimal(), needing([4] * 12, 8))])
    section = across(first, other)
    assert section.lines == () and len(section.unmatched) == 2
    both = make_run(tmp_path / "c", [(minimal(), needing([4] * 12, 8)), (setting(pixels=8), BASE)])
    assert len(across(other, both).lines) == len(across(first, both).lines) == 1
    same = [(minimal(), needing([4] * 12, 8)), (minimal("minimal SparseRS"), needing([4] * 12, 8))]
    (section,) = compare_runs([make_run(tmp_path / "d", same)])
    assert verdict(section) == (
        "Whether minimal SparseRS or minimal BruSLe needs fewer pixels cannot be told: 1.00 times "
        "the pixels [1.00, 1.00], +0.0 in the mean [+0.0, +0.0]."
    )
