"""Evaluations of a service: the rows of the local victim, its books, its labels, and the price."""

import json

import pytest
import torch
from click.testing import CliRunner

import brusle
from brusle.cli import cli
from brusle.errors import InputError
from brusle.evaluation.running.estimate import estimate
from brusle.evaluation.running.plan import Plan
from brusle.evaluation.storing.recheck import recheck
from brusle.serving import Server
from brusle.terms import Pace, Terms, parse_price

ATTACK = brusle.attacks.BruSLe(pixels=4, queries=25)
LIMIT = 5
OPTIONS = {"goal": "untargeted", "limit": LIMIT, "on_progress": None}
CHANGING = ("seconds", "lost")  # what depends on the day


@pytest.fixture(scope="module")
def net():
    return brusle.load_victim("zoo:cifar10-resnet20")


def rows(run) -> list[dict]:
    found = [row for setting in run.settings for row in run.stored(setting)]
    return [
        {name: value for name, value in vars(row).items() if name not in CHANGING}
        for row in sorted(found, key=lambda row: row.problem)
    ]


def test_rows_are_those_of_the_local_victim(net, tmp_path) -> None:
    with Server(net, "oip") as server:
        run = brusle.evaluate(server.name, "sample", ATTACK, out=tmp_path / "run", **OPTIONS)
        said = server.books.as_dict()
    # the service gets images one by one, and floats depend on the size of a call
    local = brusle.evaluate(net, "sample", ATTACK, batch_size=1, **OPTIONS)
    assert rows(run) == rows(local)
    spending = run.about.sessions[-1].spending
    asked = sum(row["clean"] + row["queries"] + row["verify"] for row in rows(run))
    assert spending is not None and spending.sent == spending.answered == said["answered"]
    assert spending.sent + spending.replayed == asked + run.about.sessions[-1].preflight_queries
    assert run.folder is not None and not (run.folder / "pending.sqlite").exists()


def test_a_list_of_labels_and_its_names(net, tmp_path) -> None:
    with Server(net, "google-vision") as server:
        run = brusle.evaluate(server.name, "sample", ATTACK, out=tmp_path / "run", **OPTIONS)
        victim = brusle.load_victim(server.name)
        served = recheck(tmp_path / "run", victim)
        before = server.books.as_dict()["received"]
        # from here on, nobody is asked
        again = recheck(tmp_path / "run", replay=True)
        replayed = brusle.evaluate(
            server.name, "sample", ATTACK, out=tmp_path / "b", replay=tmp_path / "run", **OPTIONS
        )
        assert server.books.as_dict()["received"] == before
    assert run.about.vocabulary[:10] == run.about.classes
    assert served.checked == again.checked > 0
    assert not served.failed and not again.failed
    assert rows(replayed) == rows(run)
    assert replayed.about.sessions[-1].spending is None


def test_a_recorded_local_victim_is_asked_once(net, tmp_path) -> None:
    asked = []

    def scores(images: torch.Tensor) -> torch.Tensor:
        asked.append(len(images))
        return net(images)

    victim = brusle.victims.wrap(scores, output="logits", name="net")
    first = brusle.evaluate(victim, "sample", ATTACK, out=tmp_path, record=True, **OPTIONS)
    before = sum(asked)
    other = brusle.attacks.BruSLe(pixels=4, queries=20)
    more = brusle.evaluate(victim, "sample", other, out=tmp_path, record=True, **OPTIONS)
    spending = more.about.sessions[-1].spending
    assert spending is not None
    assert spending.replayed >= LIMIT, "the clean images are known"
    assert sum(asked) - before == spending.sent
    assert first.about.sessions[0].spending is not None


def test_labels_need_names(net, tmp_path) -> None:
    images, labels = torch.rand(2, 3, 32, 32), [0, 1]
    with (
        Server(net, "google-vision") as server,
        pytest.raises(InputError, match="give data with class names"),
    ):
        brusle.evaluate(server.name, (images, labels), ATTACK, out=tmp_path, on_progress=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": brusle.Ray(2)}, "leave out --workers"),
        ({"defences": ["jpeg:75"]}, "a defence on this side does not defend"),
    ],
)
def test_what_does_not_fit_a_service_is_refused(net, tmp_path, options, message) -> None:
    with Server(net, "oip") as server, pytest.raises(InputError, match=message):
        brusle.evaluate(server.name, "sample", ATTACK, out=tmp_path, **OPTIONS | options)


def test_the_worst_case_is_what_an_unbreakable_victim_takes(net, tmp_path) -> None:
    plan = Plan.of(
        {"data": "sample", "goals": "untargeted", "attacks": "brusle", "pixels": 1, "limit": 4}
        | {"queries": 12}
    )
    with Server(net, "oip") as server:
        plan = plan.model_copy(update={"victim": server.name})
        terms = Terms(price=parse_price("2/1000"), rate=Pace.parse("600/min"))
        told = estimate(plan, tmp_path / "run", terms=terms)
        assert told.worst.queries == 4 + 4 * (12 + 1)  # clean once, the limit, one to verify
        assert told.worst.money == pytest.approx(0.002 * told.worst.queries)
        assert told.worst.seconds == pytest.approx(told.worst.queries / 10)
        assert told.expected.queries == 4 + 4 * (6 + 1)
        assert server.books.as_dict()["received"] == 0
        run = brusle.evaluate(plan, out=tmp_path / "run", terms=terms, on_progress=None)
        spending = run.about.sessions[-1].spending
        assert spending is not None and spending.sent <= told.worst.queries
        after = estimate(plan, tmp_path / "run", terms=terms)
    assert after.attacks == 0 and after.stored == 4
    assert "rows that are stored" in after.basis


def test_dry_run_and_check_on_the_command_line(net, tmp_path) -> None:
    with Server(net, "google-vision") as server:
        common = ["--victim", server.name, "--price", "1.5/1000"]
        dry = CliRunner().invoke(cli, ["evaluate", *common, "--limit", "3", "--dry-run", "--json"])
        assert dry.exit_code == 0, dry.output
        assert json.loads(dry.stdout)["worst"]["money"] > 0
        assert server.books.as_dict()["received"] == 0
        tried = CliRunner().invoke(cli, ["check", *common])
        assert server.books.as_dict()["received"] == 1
    assert tried.exit_code == 0, tried.output
    for part in ("POST http://127.0.0.1", "labelAnnotations", "understood", "worst case"):
        assert part in tried.output


def test_terms_are_refused_in_one_line() -> None:
    for text in ("0/s", "ten/min", "5", "5/fortnight", ""):
        with pytest.raises(InputError, match="write it as 1800/min"):
            Pace.parse(text)
    for text in ("free", "1/0", "-1", "nan", "inf"):
        with pytest.raises(InputError, match="write it as 1.5/1000"):
            parse_price(text)
    with pytest.raises(InputError, match="a budget needs a price"):
        Terms(budget=5)
    assert Terms(price=0.0015, budget=3).most == 2000
    assert Terms(price=0.1, budget=0.3, requests=5).most == 3
    assert str(Pace.parse("1800/min")) == "1800/min"
