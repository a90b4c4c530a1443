"""The paper's attack on a service: rows, sums beside the paper's, resumption, and files."""

import json
from dataclasses import replace
from typing import ClassVar

import pytest

from brusle.errors import InputError
from brusle.evaluation.paper import stand_in
from brusle.evaluation.paper.photographs import paper_effort
from brusle.evaluation.paper.presets import preset
from brusle.evaluation.paper.reproduce import reproduce
from brusle.journal import Journal
from brusle.report.reproduction import all_blocks, introduction, markdown, notes, picture
from brusle.serving import Server

SMALL = {"data": "sample", "limit": 3, "queries": 40, "pixels": [20]}


def small_preset():
    """The preset with the bundled net behind the service."""
    whole = preset("google-cloud-vision")
    part = whole.parts[0].model_copy(update={"victim": "zoo:cifar10-resnet20"})
    return whole.model_copy(update={"parts": (part,)})


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return reproduce(small_preset(), out=tmp_path_factory.mktemp("run"), **SMALL)


def test_every_attack_on_every_photograph(done) -> None:
    (outcome,) = done.outcomes
    album = outcome.album
    assert len(album.photographs) == outcome.pairs == 3 and not outcome.errors
    assert outcome.job.victim.startswith("google-vision:stand-in(zoo:cifar10-resnet20")
    for photograph in album.photographs:
        assert photograph.answer[0][0] == photograph.label
        assert photograph.target in dict(photograph.answer[1:])
        assert [one.attack for one in photograph.tries] == ["BruSLe", "Sparse-RS", "PixelBandit"]
        for one in photograph.tries:
            assert one.fooled == (one.answer[0][0] == photograph.target)
            assert (one.image != photograph.image).any(0).sum() <= 20
    for line in album.efforts:
        mine = [t for p in album.photographs for t in p.tries if t.attack == line.attack]
        queries = sorted(one.queries if one.fooled else 40 for one in mine)
        assert line.ours.successes == sum(one.fooled for one in mine)
        assert (line.ours.total, line.ours.median) == (sum(queries), queries[1])
        assert line.ours.mean == pytest.approx(sum(queries) / 3)


class Watched(Server):
    """A server that can be looked at after the run that has started it."""

    started: ClassVar[list[Server]] = []

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.started.append(self)


def test_an_interrupted_run_goes_on_at_another_port(done, tmp_path, monkeypatch) -> None:
    """Nothing is asked for twice, by the books of all servers."""
    monkeypatch.setattr(stand_in, "Server", Watched)
    monkeypatch.setattr(Watched, "started", [])

    def interrupt(setting, progress) -> None:
        if progress.finished:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(small_preset(), out=tmp_path, on_progress=interrupt, **SMALL)
    second = reproduce(small_preset(), out=tmp_path, **SMALL)
    third = reproduce(small_preset(), out=tmp_path, **SMALL)
    assert 0 < second.outcomes[0].resumed < third.outcomes[0].resumed == 9
    for again in (second, third):
        assert again.outcomes[0].album.as_dict() == done.outcomes[0].album.as_dict()
    asked = [server.books.as_dict()["answered"] for server in Watched.started]
    with Journal(tmp_path / "service" / "journal.sqlite", reading=True) as journal:
        assert sum(asked) == journal.books.totals.sent
    assert asked[0] and asked[1] and not asked[2]
    assert len({server.port for server in Watched.started}) == 3
    whole = done.folder / "service" / "journal.sqlite"
    with Journal(whole, reading=True) as journal:
        assert sum(asked) == journal.books.totals.sent  # as many as without the interruption


def test_what_the_paper_took() -> None:
    """By hand from the paper's two tables: five failures of Sparse-RS count as the limit."""
    mine = preset("google-cloud-vision")
    ours, sparse_rs = (
        paper_effort(mine, mine.parts[0], attack, 250, 5000) for attack in ("BruSLe", "Sparse-RS")
    )
    assert (ours.photographs, ours.successes, ours.total) == (10, 10, 15_899)
    assert (ours.mean, ours.median) == (1589.9, (983 + 1800) / 2)
    assert (sparse_rs.successes, sparse_rs.total) == (5, 34_554)
    assert (sparse_rs.mean, sparse_rs.median) == (3455.4, (4660 + 5000) / 2)
    early = paper_effort(mine, mine.parts[0], "BruSLe", 250, 1000)
    assert (early.successes, early.total) == (5, 99 + 328 + 490 + 899 + 983 + 5 * 1000)
    for attack, pixels, limit in (
        ("PixelBandit", 250, 5000),
        ("BruSLe", 200, 5000),
        ("BruSLe", 250, 6000),
    ):
        assert paper_effort(mine, mine.parts[0], attack, pixels, limit) is None


def test_tables_and_files(done, tmp_path) -> None:
    (outcome,) = done.outcomes
    photographs, sums = all_blocks(outcome)
    assert photographs.headers == (
        "20 pixels", "label -> target", "BruSLe", "Sparse-RS", "PixelBandit"
    )  # fmt: skip
    for photograph, row in zip(outcome.album.photographs, photographs.rows, strict=True):
        said = [str(one.queries) if one.fooled else "> 40" for one in photograph.tries]
        assert row[0] == photograph.name and list(row[2:]) == said
    assert [row[:2] for row in sums.rows] == [
        (f"{name}, 20 pixels", "ours") for name in ("BruSLe", "Sparse-RS", "PixelBandit")
    ]
    assert "The paper's photographs and targets are others" in introduction(done)
    assert any("passed over" in note for note in notes(outcome))
    assert photographs.rows[0][0] in markdown(done)
    written = json.loads((done.folder / "reproduction.json").read_text())["parts"][0]
    assert written["efforts"][0]["paper"] is None and written["numbers"] == []
    assert written["photographs"][0]["answer"][0][0] == written["photographs"][0]["label"]
    assert picture(done, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_papers_sums_stand_beside_ours(done) -> None:
    (outcome,) = done.outcomes
    whole, first = preset("google-cloud-vision"), outcome.album.efforts[0]
    paper = paper_effort(whole, whole.parts[0], "BruSLe", 250, 5000)
    album = replace(outcome.album, efforts=(replace(first, paper=paper),))
    _, sums = all_blocks(replace(outcome, album=album))
    assert sums.rows[1] == (
        "BruSLe, 20 pixels", "paper", "10 of 10", "15899", "1589.9", "1391.5"
    )  # fmt: skip


def test_a_service_of_somebody_else_needs_a_word(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("BRUSLE_AUTHORISED", raising=False)
    monkeypatch.setenv("GOOGLE_API_KEY", "none")
    with pytest.raises(InputError, match="say so with --i-am-authorised"):
        reproduce("google-cloud-vision", victim="google-vision:", data="sample", out=tmp_path / "r")
    assert not (tmp_path / "r").exists()
