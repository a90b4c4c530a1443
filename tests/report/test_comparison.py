import pytest
from stores import make_run, row, rows_of, setting

from brusle.errors import InputError
from brusle.evaluation.statistics import compare
from brusle.evaluation.store import Record
from brusle.report.comparison import across, compare_runs, match, within
from brusle.report.tables import estimate

BASE = rows_of([10] * 10, 10)  # 10 of 20, mean (10 * 10 + 10 * 100) / 20 = 55
OTHER = rows_of([10] * 10 + [60] * 6, 4)  # 16 of 20, mean (100 + 360 + 400) / 20 = 43


def record(attack="BruSLe", number=1, **more):
    return Record(number, **setting(attack, **more), problems=1)


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
    assert within(run, "pgd0") == within(run, "PGD0 steps=3") is not None
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
