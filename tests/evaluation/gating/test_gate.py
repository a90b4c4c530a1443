"""Gates on run folders whose every row is known."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from entry import run as command
from junitparser import Error, Failure, JUnitXml
from stores import SESSION, make_run, minimal, needing, row, rows_of, setting

from brusle.errors import DataError, InputError
from brusle.evaluation import Gate, gate
from brusle.evaluation.gating import At
from brusle.evaluation.statistics import binomial
from brusle.evaluation.storing.store import Store


def robust_ones(folder: Path, robust: int, fooled: int, queries: int = 10, **about: object) -> Path:
    """A run of one setting; images that are fooled come first."""
    make_run(folder, [(setting(), rows_of([queries] * fooled, robust))], **about)
    return folder


@pytest.mark.parametrize(
    ("robust", "fooled", "result", "code"),
    [(75, 25, "pass", 0), (45, 55, "fail", 4), (60, 40, "undecided", 5), (1, 0, "undecided", 5)],
)
def test_a_verdict_has_an_exit_code_of_its_own(tmp_path, robust, fooled, result, code) -> None:
    folder = robust_ones(tmp_path, robust, fooled)
    verdict = gate(folder, "5px,100q", 60)
    (answer,) = verdict.answers
    assert verdict.result == answer.result == result
    assert (answer.counts, answer.images, answer.unknown) == ((robust, fooled), robust + fooled, 0)
    assert answer.low == binomial.lower_bound(robust, robust + fooled, 1 - 0.95)
    said = command("gate", folder, "--min-robust", 60, "--at", "5px,100q")
    assert said.returncode == code and verdict.text in said.stdout
    printed = command("gate", folder, "--min-robust", 60, "--at", "5px,100q", "--json")
    assert printed.returncode == code and json.loads(printed.stdout)["result"] == result
    assert bool(answer.advice) == (result == "undecided")


def test_images_are_fooled_within_the_queries_that_are_asked_for(tmp_path) -> None:
    make_run(tmp_path, [(setting(), rows_of([10, 20, 20, 90], 6))])
    for at, robust in (
        ("5px,9q", 10),
        ("5px,10q", 9),
        ("5px,20q", 7),
        ("5px, 100q", 6),
        ("5px", 6),
    ):
        assert gate(tmp_path, at, 50).answers[0].counts == (robust, 10 - robust), at


def test_skipped_unverified_and_errors_count_as_everywhere(tmp_path) -> None:
    rows = [row(0, "skipped"), row(1, "unverified", 30), row(2, "error"), row(3, "failed", 100)]
    make_run(tmp_path, [(setting(), rows)])
    (late,) = gate(tmp_path, "5px,100q", 50).answers
    assert late.counts == (1, 2) and late.unknown == 1 and late.value == pytest.approx(1 / 3)
    (early,) = gate(tmp_path, "5px,20q", 50).answers
    assert early.counts == (2, 1)


def test_an_image_is_robust_if_no_attack_seed_or_target_fooled_it(tmp_path) -> None:
    hits = {"BruSLe": {0, 1}, "SparseRS": {1, 2}}
    parts = [
        (setting(name, seed=seed), [row(i, "success" if i in mine | {seed + 5} else "failed")
                                    for i in range(10)])
        for name, mine in hits.items() for seed in (0, 1)
    ]  # fmt: skip
    targets = [
        row(100 + 3 * i + t, "success" if (i, t) == (0, 1) else "failed", image=f"image-{i}",
            target=t, label=i % 3)
        for i in range(10) for t in (1, 2)
    ]  # fmt: skip
    make_run(tmp_path, [*parts, (setting(goal="targeted"), targets)])
    assert gate(tmp_path, "5px", 50).answers[0].counts == (5, 5)  # 0, 1, 2 and of the seeds 5, 6
    assert gate(tmp_path, "5px", 50, attack="sparse-rs").answers[0].counts == (6, 4)
    assert gate(tmp_path, "5px", 50, goal="targeted").answers[0].counts == (9, 1)


def test_a_search_for_the_fewest_pixels_answers_for_each_number(tmp_path) -> None:
    make_run(tmp_path, [(minimal(), needing([1, 3, 3, 8], 2))])
    for pixels, robust in ((1, 5), (2, 5), (3, 3), (8, 2)):
        assert gate(tmp_path, At(pixels), 50).answers[0].counts == (robust, 6 - robust)
    assert gate(tmp_path, "3px,100q", 50).answers[0].counts == (3, 3)
    with pytest.raises(InputError, match="spends all its queries: give --at 3px,100q"):
        gate(tmp_path, "3px,50q", 50)
    with pytest.raises(InputError, match="no attack with 9 pixels"):
        gate(tmp_path, "9px", 50)


def test_errors_that_could_turn_a_verdict_leave_it_open(tmp_path) -> None:
    rows = rows_of([10] * 25, 75)
    make_run(tmp_path / "few", [(setting(), [*rows, row(200, "error")])])
    assert gate(tmp_path / "few", "5px", 60).result == "pass"
    many = [row(200 + i, "error") for i in range(30)]
    make_run(tmp_path / "many", [(setting(), [*rows, *many])])
    verdict = gate(tmp_path / "many", "5px", 60)
    assert verdict.result == "undecided" and "run them again" in verdict.answers[0].advice
    assert verdict.answers[0].value == 0.75 and any("failed on 30" in c for c in verdict.cautions)
    # fooled by one attack and an error of another is fooled
    other = [row(i, "error") for i in range(25)] + [row(i, "failed") for i in range(25, 100)]
    make_run(tmp_path / "two", [(setting(), rows), (setting("SparseRS"), other)])
    assert gate(tmp_path / "two", "5px", 60).answers[0].unknown == 0


def test_attacks_that_are_not_stored_may_be_anything(tmp_path) -> None:
    make_run(tmp_path, [(setting(problems=130), rows_of([10] * 25, 75))])
    with Store.write(tmp_path) as store:
        store.add_images({f"later-{i}": (0, f"later-{i}") for i in range(30)})
    verdict = gate(tmp_path, "5px", 60)
    assert verdict.result == "undecided" and verdict.answers[0].unknown == 30
    assert any("100 of 130 attacks are stored" in text for text in verdict.cautions)


def test_a_target_that_is_not_stored_may_be_anything(tmp_path) -> None:
    rows = [
        row(2 * i + t, "failed", image=f"image-{i}", target=t + 1, label=0)
        for i in range(20) for t in (0, 1)
    ][:-1]  # fmt: skip
    make_run(tmp_path, [(setting(goal="targeted", problems=40), rows)])
    (answer,) = gate(tmp_path, "5px", 60).answers
    assert answer.counts == (19, 0) and answer.unknown == 1


def test_all_conditions_must_hold_and_one_that_does_not_fails_the_gate(tmp_path) -> None:
    parts = [
        (setting(pixels=5), rows_of([10] * 20, 80)),
        (setting(pixels=9), rows_of([10] * 45, 55)),
    ]
    make_run(tmp_path, parts)
    at = ["5px", "9px"]
    assert gate(tmp_path, at, [70, 45]).result == "pass"
    assert gate(tmp_path, at, [70, 50]).result == "undecided"
    assert gate(tmp_path, at, 66).result == "fail"
    said = command(
        "gate", tmp_path, "--at", "5px", "--at", "9px", "--min-robust", 70, "--min-robust", 45
    )
    assert said.returncode == 0


def test_several_conditions_share_what_failures_are_allowed(tmp_path) -> None:
    """A gate that truly holds may fail by any of them, and passes falsely only if all do."""
    asked = Gate.of(["5px", "9px"], [60, 40], max_drop=5, confidence=90)
    assert len(asked.conditions) == 4 and asked.alphas == pytest.approx((0.1, 0.025))
    at = next(n for n in range(100) if binomial.at_most(60 - n, 100, 0.6) <= 0.05)
    robust_ones(tmp_path, 60 - at, 40 + at)
    assert gate(tmp_path, "5px", 60).result == "fail"
    assert gate(tmp_path, ["5px", "5px,99q"], 60).result == "undecided"


def paired(tmp_path: Path, lost: int, gained: int, both: int, neither: int) -> tuple[Path, Path]:
    """A baseline and a run with so many images of each kind."""
    fates = [(1, 0)] * lost + [(0, 1)] * gained + [(1, 1)] * both + [(0, 0)] * neither
    for at, name in enumerate(("before", "now")):
        rows = [row(i, "failed" if fate[at] else "success") for i, fate in enumerate(fates)]
        make_run(tmp_path / name, [(setting(), rows)], victim=name)
    return tmp_path / "before", tmp_path / "now"


@pytest.mark.parametrize(
    ("counts", "result"),
    [((3, 12, 80, 40), "pass"), ((40, 2, 60, 40), "fail"), ((10, 3, 80, 40), "undecided")],
)
def test_a_drop_is_judged_on_the_images_of_both_runs(tmp_path, counts, result) -> None:
    before, now = paired(tmp_path, *counts)
    verdict = gate(now, "5px", baseline=before, max_drop=5)
    (answer,) = verdict.answers
    assert answer.result == verdict.result == result and answer.counts == counts[:2]
    assert answer.value == pytest.approx((counts[0] - counts[1]) / sum(counts))
    said = command("gate", now, "--at", "5px", "--baseline", before, "--max-drop", 5)
    assert said.returncode == {"pass": 0, "fail": 4, "undecided": 5}[result]
    assert f"{counts[0]} lost and {counts[1]} gained" in said.stdout


def test_what_only_one_run_has_is_left_out_and_named(tmp_path) -> None:
    before, _ = paired(tmp_path, 5, 5, 50, 40)
    shared = [row(i, "failed") for i in range(50, 130)]
    extra = [row(i, "success") for i in range(50, 130)]
    make_run(tmp_path / "more", [(setting(), shared), (setting("SparseRS"), extra)])
    verdict = gate(tmp_path / "more", "5px", baseline=before, max_drop=5)
    assert verdict.answers[0].images == 50 and verdict.answers[0].counts == (0, 40)
    told = " ".join(verdict.cautions)
    assert "50 images are in both" in told and "30 are only in" in told and "50 only in" in told
    assert "SparseRS untargeted, 5 px is only in" in told


def test_runs_that_cannot_be_compared_are_refused(tmp_path) -> None:
    before, now = paired(tmp_path, 5, 5, 5, 5)
    other = [row(i, "failed") for i in range(500, 520)]
    make_run(tmp_path / "others", [(setting(), other)])
    make_run(tmp_path / "attack", [(setting("SparseRS"), rows_of([1], 9))])
    make_run(tmp_path / "limit", [(setting(queries=50), rows_of([1], 9))])
    for name, reason in (
        ("others", "no image in common"),
        ("attack", "no attack in common at 5px"),
        ("limit", "query limits .* differ: say where to compare, as in --at 5px,50q"),
    ):
        with pytest.raises(InputError, match=reason):
            gate(now, "5px", baseline=tmp_path / name, max_drop=5)
    assert gate(now, "5px,50q", baseline=tmp_path / "limit", max_drop=5).answers[0].images == 10
    for wrong in ({"baseline": before}, {"max_drop": 5}):
        with pytest.raises(InputError, match=r"needs both|asks for nothing"):
            gate(now, "5px", **wrong)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"at": "5px,101q"}, "had 100 queries, which says nothing about 101"),
        ({"at": "4px"}, "no attack with 4 pixels: give --at with one of its budgets .5px."),
        ({"at": "5px", "attack": "pgd0"}, "no attack 'pgd0': choose from BruSLe"),
        ({"at": "5px", "goal": "targeted"}, "no targeted attack at 5px: give --goal untargeted"),
        ({"at": "5 pixels"}, "as in 5px,300q"),
        ({"at": "0px"}, "fewer than 1 pixel"),
        ({"at": ""}, "as in 5px,300q"),
        ({"at": []}, "not where to measure"),
        ({"at": "5px", "min_robust": []}, "asks for nothing"),
        ({"at": "5px", "min_robust": [50, 60]}, "2 --min-robust for 1 --at"),
        ({"at": "5px", "min_robust": 100}, "between 0 and 100"),
        ({"at": "5px", "min_robust": float("nan")}, "between 0 and 100"),
        ({"at": "5px", "confidence": 5}, "between 50 and 100"),
        ({"at": "5px", "max_drop": -1}, "from 0 to below 100"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(tmp_path, options, reason) -> None:
    robust_ones(tmp_path, 6, 4)
    with pytest.raises(InputError, match=reason):
        gate(tmp_path, **{"min_robust": 60, **options})


def test_the_command_refuses_with_code_2(tmp_path) -> None:
    assert command("gate", tmp_path, "--at", "5px", "--min-robust", 60).returncode == 2
    robust_ones(tmp_path / "run", 6, 4)
    for words in ([], ["--at", "5px"], ["--at", "x", "--min-robust", 60], ["--min-robust", "many"]):
        said = command("gate", tmp_path / "run", *words)
        assert said.returncode == 2 and len(said.stderr.splitlines()[-1]) < 300


HOSTILE = 'net"><script>&]]>\x00\x1b[31m\ufffe\u202e`|*'


def test_junit_is_read_by_others_and_holds_any_name(tmp_path) -> None:
    parts = [(setting(pixels=p), rows_of([10] * n, 100 - n)) for p, n in ((1, 5), (2, 60), (3, 40))]
    make_run(tmp_path / "run", parts, victim=HOSTILE, warnings={HOSTILE: HOSTILE})
    file = tmp_path / "out" / "gate.xml"
    at = [word for p in (1, 2, 3) for word in ("--at", f"{p}px")]
    said = command("gate", tmp_path / "run", *at, "--min-robust", 60, "--junit", file)
    assert said.returncode == 4
    suites = JUnitXml.fromfile(str(file))
    (suite,) = suites
    assert (suites.tests, suites.failures, suites.errors, suites.skipped) == (3, 1, 1, 0)
    results = [[type(result) for result in case.result] for case in suite]
    assert results == [[], [Failure], [Error]]
    case = list(suite)[1]
    assert (
        case.name == "robust accuracy of at least 60 % at 2px" and "<script>&]]>" in case.classname
    )
    assert "40 of 100 images are robust" in case.result[0].message
    facts = {one.name: one.value for one in suite.properties()}
    assert facts["confidence"] == "95 %" and "\x00" not in facts["victim"]


def test_markdown_is_a_table_whatever_the_names(tmp_path) -> None:
    make_run(tmp_path / "run", [(setting(), rows_of([10] * 5, 95))], victim=HOSTILE)
    file = tmp_path / "gate.md"
    said = command("gate", tmp_path / "run", "--at", "5px", "--min-robust", 60, "--markdown", file)
    text = file.read_text(encoding="utf-8")
    assert said.returncode == 0 and "\N{WHITE HEAVY CHECK MARK} pass" in text
    assert "<script>" not in text and "95 of 100 images are robust: 95.0 %" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 3 and all(line.replace("\\|", "").count("|") == 4 for line in table)


def test_warnings_and_flags_of_the_run_are_told(tmp_path) -> None:
    late = rows_of([5] * 10 + [90] * 30, 60)
    make_run(tmp_path, [(setting(), late)], warnings={"range": "it wants 0 to 255"}, notes=["odd"])
    verdict = gate(tmp_path, "5px", 30)
    told = " | ".join(verdict.cautions)
    assert "range: it wants 0 to 255" in told and "odd" in told and "more queries would" in told
    assert any(line.startswith("caution   range") for line in verdict.lines())


def in_turn(folder: Path, rows: list, order: list[str]) -> Path:
    """A run whose images came in this order."""
    make_run(folder, [(setting(), rows)], sessions=[SESSION | {"until": ["something"]}])
    with Store.write(folder) as store:
        store.extend_sequence(order)
    return folder


def test_a_run_that_was_stopped_is_judged_by_bounds_that_allow_for_that(tmp_path) -> None:
    """What a fixed number of images would decide is not decided for who could stop any time."""
    rows = rows_of([10] * 31, 69)
    fixed = tmp_path / "fixed"
    make_run(fixed, [(setting(), rows)])
    spread = sorted((r.image for r in rows), key=lambda name: int(name[6:]) * 37 % 100)
    stopped = in_turn(tmp_path / "stopped", rows, spread)
    assert gate(fixed, "5px", 60).result == "pass"
    verdict = gate(stopped, "5px", 60)
    assert verdict.result == "undecided" and verdict.answers[0].in_turn
    assert verdict.answers[0].low < gate(fixed, "5px", 60).answers[0].low


def test_the_first_decision_of_a_run_in_turn_stands(tmp_path) -> None:
    rows = [row(i, "failed") for i in range(12)] + [row(i, "success") for i in range(12, 60)]
    names = [r.image for r in rows]
    (answer,) = gate(in_turn(tmp_path / "good-first", rows, names), "5px", 60).answers
    assert answer.result == "pass" and answer.images == 9 and answer.counts == (9, 0)
    (answer,) = gate(in_turn(tmp_path / "bad-first", rows, names[::-1]), "5px", 60).answers
    assert answer.result == "fail" and answer.images == 5


def test_images_in_turn_that_are_not_stored_may_be_anything(tmp_path) -> None:
    """Of a run that was killed, those are stored that were fooled soonest."""
    rows = [row(i, "success") for i in range(5)]
    folder = in_turn(tmp_path, rows, [r.image for r in rows])
    with Store.write(folder) as store:
        store.add_images({f"more-{i}": (0, f"more-{i}") for i in range(20)})
        store.extend_sequence([f"more-{i}" for i in range(20)])
    assert gate(folder, "5px", 60).result == "fail"  # five in turn decide
    reordered = [f"more-{i}" for i in range(20)] + [r.image for r in rows]
    other = in_turn(tmp_path / "other", rows, [])
    with Store.write(other) as store:
        store.add_images({f"more-{i}": (0, f"more-{i}") for i in range(20)})
        store.extend_sequence(reordered)
    assert gate(other, "5px", 60).result == "undecided"


def test_drops_of_runs_in_turn_need_the_same_order(tmp_path) -> None:
    rows = [row(i, "failed") for i in range(60)]
    names = [r.image for r in rows]
    one, same = in_turn(tmp_path / "1", rows, names), in_turn(tmp_path / "2", rows[:50], names[:50])
    (answer,) = gate(one, "5px", baseline=same, max_drop=20).answers
    assert answer.result == "pass" and answer.in_turn and answer.images < 50
    turned = in_turn(tmp_path / "3", rows, names[::-1])
    with pytest.raises(InputError, match="in another order"):
        gate(one, "5px", baseline=turned, max_drop=20)
    whole = tmp_path / "4"
    make_run(whole, [(setting(), rows)])
    assert gate(whole, "5px", baseline=one, max_drop=20).answers[0].in_turn


@pytest.mark.parametrize(
    "change",
    ["UPDATE sequence SET image = 'x' WHERE place = 0", "DELETE FROM sequence WHERE place = 1"],
)
def test_a_sequence_that_was_changed_is_refused(tmp_path, change) -> None:
    rows = [row(i, "failed") for i in range(3)]
    in_turn(tmp_path, rows, [r.image for r in rows])
    assert gate(tmp_path, "5px", 60).result == "undecided"
    with closing(sqlite3.connect(tmp_path / "results.sqlite")) as connection, connection:
        connection.execute(change)
    with pytest.raises(DataError, match="was changed|has gaps"):
        gate(tmp_path, "5px", 60)


def test_a_sequence_of_images_that_are_not_there_is_refused(tmp_path) -> None:
    rows = [row(i, "failed") for i in range(3)]
    in_turn(tmp_path, rows, ["elsewhere"])
    with pytest.raises(DataError, match="elsewhere"):
        gate(tmp_path, "5px", 60)
