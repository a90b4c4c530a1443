"""What a page has of each row: all facts, and of pictures and traces what there is room for."""

import base64
import io
import json
import zlib

import numpy as np
import pytest
from explored import CLASS_NAMES, IMAGES, REASON, explored_run, final_levels
from PIL import Image
from stores import make_run, row, rows_of, setting
from tampering import tamper

from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.traces import pack, unpack
from brusle.report import exploring
from brusle.report.charts import hover_values
from brusle.report.curves import Chart, Curve, Point, run_charts
from brusle.report.exploring import Has, explore
from brusle.report.gallery import row_key

ROOMY = 10_000_000


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return explored_run(tmp_path_factory.mktemp("explored") / "run")


def pairs(run: Run):
    return [(one, row) for one in run.settings for row in run.stored(one)]


def test_the_facts_are_those_of_the_rows(run) -> None:
    facts = explore(run, [], ROOMY).facts
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["names"] == list(CLASS_NAMES) and facts["left"] == 0
    columns = facts["rows"]
    assert {len(column) for column in columns.values()} == {len(pairs(run))} == {5 * IMAGES}
    for at, (one, row_) in enumerate(pairs(run)):
        told = {name: column[at] for name, column in columns.items()}
        assert told["key"] == row_key(one, row_)
        assert facts["settings"][told["setting"]]["number"] == one.number
        assert facts["images"][told["image"]] == row_.image
        assert facts["statuses"][told["status"]] == row_.status
        assert facts["errors"][told["error"]] == row_.error
        known = ("label", "target", "queries", "pixels")
        assert [told[name] for name in known] == [getattr(row_, name) for name in known]
        assert (told["before"], told["after"]) == (row_.clean_label, row_.final_label)
    assert {row_.status for _, row_ in pairs(run)} == set(facts["statuses"])
    assert REASON in facts["errors"]


def test_pictures_edits_and_traces_are_those_of_the_rows(run) -> None:
    found = explore(run, [], ROOMY)
    traced = 0
    for at, (one, row_) in enumerate(pairs(run)):
        assert found.facts["rows"]["picture"][at] == Has.HERE
        image = found.facts["rows"]["image"][at]
        file = io.BytesIO(base64.b64decode(found.pictures[image]))
        drawn = np.asarray(Image.open(file)).copy()
        packed = base64.b64decode(found.edits[at])
        count = len(packed) // 7
        positions = np.frombuffer(packed[: 4 * count], "<u4")
        drawn.reshape(-1, 3)[positions] = np.frombuffer(packed[4 * count :], "u1").reshape(-1, 3)
        assert np.array_equal(drawn, final_levels(run, one, row_).numpy())
        kept = run.trace(one, row_)
        assert found.facts["rows"]["trace"][at] == (Has.NONE if kept is None else Has.HERE)
        if kept is not None:
            traced += 1
            text = zlib.decompress(base64.b64decode(found.traces[at]))
            assert json.loads(text) == json.loads(json.dumps(kept.as_dict()))
    assert traced == len(found.traces) == 4 * (IMAGES - 1)


def test_what_there_is_no_room_for_is_left_out_and_said_so(run) -> None:
    whole = explore(run, [], ROOMY)
    sizes = {
        name: sum(map(len, getattr(whole, name).values()))
        for name in ("pictures", "edits", "traces")
    }
    for room in (0, 5_000, 20_000, 30_000):
        found = explore(run, [], room)
        taken = sum(
            len(text)
            for kept in (found.pictures, found.edits, found.traces)
            for text in kept.values()
        )
        assert taken <= room
        columns = found.facts["rows"]
        for at, (image, picture, trace) in enumerate(
            zip(columns["image"], columns["picture"], columns["trace"], strict=True)
        ):
            assert picture == (Has.HERE if at in found.edits else Has.LEFT_OUT)
            assert at not in found.edits or image in found.pictures
            had = whole.facts["rows"]["trace"][at]
            assert trace == (Has.HERE if at in found.traces else Has.LEFT_OUT if had else Has.NONE)
        assert columns["key"] == whole.facts["rows"]["key"]
    assert sum(sizes.values()) > 30_000


def test_examples_come_first_then_the_settings_in_turn(run) -> None:
    found = pairs(run)
    wanted = [at for at, (one, row_) in enumerate(found) if row_.image == "image-07"]
    room = 2_500
    some = explore(run, [row_key(*found[at]) for at in wanted], room)
    names = [some.facts["images"][at] for at in some.pictures]
    assert names[0] == "image-07" and 0 < len(names) < IMAGES
    plain = explore(run, [], room)
    assert [plain.facts["images"][at] for at in plain.pictures] == sorted(plain.facts["images"])[
        : len(plain.pictures)
    ]
    traced = explore(run, [], 30_000)
    settings = [found[at][0].number for at in traced.traces]
    assert settings[:4] == [1, 2, 3, 4] and len(settings) < len(explore(run, [], ROOMY).traces)


def test_rows_beyond_a_number_are_counted(run, monkeypatch) -> None:
    monkeypatch.setattr(exploring, "MOST_ROWS", 20)
    facts = explore(run, [], ROOMY).facts
    assert len(facts["rows"]["key"]) == 20 and facts["left"] == 5 * IMAGES - 20
    assert [facts["rows"]["setting"].count(at) for at in range(5)] == [4] * 5


def test_originals_that_cannot_be_read_are_told(tmp_path) -> None:
    run = make_run(tmp_path, [(setting(), rows_of([10, 20], 1))])
    found = explore(run, [], ROOMY)
    assert found.facts["rows"]["picture"] == [Has.UNREADABLE] * 3
    assert found.pictures == found.edits == found.traces == {}


def copied(run: Run, folder) -> None:
    folder.mkdir()
    (folder / "results.sqlite").write_bytes((run.folder / "results.sqlite").read_bytes())


def test_damage_is_told_and_spoils_no_other_row(run, tmp_path) -> None:
    copied(run, tmp_path / "copy")
    one = run.settings[0]
    first, second, third = (r for r in run.stored(one)[:3])
    other = pack(run.trace(one, second))
    unlike = f"setting = {one.number} AND problem = "
    tamper(tmp_path / "copy", "traces", f"{unlike}{first.problem}", trace=b"none")
    tamper(tmp_path / "copy", "traces", f"{unlike}{third.problem}", trace=other)
    tamper(tmp_path / "copy", "rows", f"{unlike}{second.problem}", edits=b"1234567")
    opened = Run.open(tmp_path / "copy", run._data)
    columns = explore(opened, [], ROOMY).facts["rows"]
    by_key = {key: at for at, key in enumerate(columns["key"])}
    a, b, c = (by_key[row_key(one, r)] for r in (first, second, third))
    assert columns["trace"][a] == columns["trace"][c] == Has.DAMAGED
    assert columns["picture"][b] == columns["trace"][b] == Has.DAMAGED
    assert columns["picture"][a] == columns["picture"][c] == Has.HERE
    assert columns["trace"].count(Has.DAMAGED) == 3
    assert columns["picture"].count(Has.DAMAGED) == 1
    unpack(other, run.shape)


def test_names_are_text_that_can_be_shown(tmp_path) -> None:
    evil = "a\u202eb\x1b[31m\n</script>"
    rows = [row(0, image=evil, error=evil * 200, status="error")]
    facts = explore(make_run(tmp_path, [(setting(evil), rows)], classes=[evil]), [], 0).facts
    safe = "a\\u202eb\\x1b[31m\\n</script>"
    assert facts["names"] == facts["images"] == [safe]
    assert facts["settings"][0]["attack"] == safe
    assert facts["settings"][0]["title"].startswith(safe)
    assert len(facts["errors"][1]) < 600 and facts["errors"][1].startswith(safe)


def test_titles_name_the_query_limit_where_there_are_several(tmp_path) -> None:
    def titles(*limits: int) -> list[str]:
        parts = [(setting(queries=limit), rows_of([10], 1, limit)) for limit in limits]
        run = make_run(tmp_path / str(len(limits)), parts)
        return [one["title"] for one in explore(run, [], 0).facts["settings"]]

    assert titles(100) == ["BruSLe untargeted, 5 px"]
    assert titles(100, 500) == [
        "BruSLe untargeted, 5 px, 100 queries",
        "BruSLe untargeted, 5 px, 500 queries",
    ]


def test_values_to_hover_over_are_those_of_the_steps(run) -> None:
    for chart in run_charts(run):
        told = hover_values(chart)
        assert told["marks"] == list(range(41)) and told["limit"] == 40
        assert [one["name"] for one in told["curves"]] == [curve.name for curve in chart.curves]
        for one, curve in zip(told["curves"], chart.curves, strict=True):
            for mark, text in zip(told["marks"], one["values"], strict=True):
                step = [point for point in curve.points if point.at <= mark][-1]
                value, low, high = (100 * x for x in (step.value, step.low, step.high))
                assert text == f"{value:.1f} % [{low:.0f}, {high:.0f}]"


def test_marks_are_few_and_curves_end_where_they_end() -> None:
    def curve(name: str, limit: int, seeds: int = 1) -> Curve:
        return Curve(name, [Point(0, 0, 0, 0), Point(limit, 0.5, 0.25, 0.75)], seeds)

    chart = Chart("untargeted", False, (curve("long", 10_000), curve("short", 100, 2)))
    told = hover_values(chart)
    assert told["marks"][0] == 0 and told["marks"][-1] == 10_000 and len(told["marks"]) == 405
    long, short = (one["values"] for one in told["curves"])
    assert long[-1] == "50.0 % [25, 75]" and None not in long
    assert [value is None for value in short] == [mark > 100 for mark in told["marks"]]
    assert told["brackets"] == (
        "Brackets go from the lowest to the highest seed; those of single seeds are the 95 % "
        "interval."
    )
