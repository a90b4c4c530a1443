"""The card: numbers that can be counted by hand, and what a run does not show, in both states."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from entry import run as command
from pages import Reader
from stores import SESSION, make_run, minimal, needing, row, rows_of, setting

from brusle.evaluation.statistics import Rate
from brusle.evaluation.storing.digest import rows_digest
from brusle.evaluation.storing.runs import Run
from brusle.report.card import card_html, card_markdown, card_of
from brusle.report.card.facts import without_folders
from brusle.report.card.untested import FEW, untested

KEPT = Path(__file__).parents[1] / "fixtures" / "runs-0.1"
EVIL = "\"><script>alert(1)</script><img src=x onerror=alert(2)>|`code`'&amp;\n# x\x1b[31m"
PLAIN = rows_of([1] * 6, 4)


def said(folder, parts, **about) -> str:
    """All that the card of such a run says was not tested, in one text."""
    return "\n".join(untested(card_of(make_run(folder, parts, **about)).facts))


def session(**more):
    return SESSION | more


def of_classes(count: int, each: int = 1, **more):
    """Rows of so many classes, with so many images of each."""
    return [row(i, "failed", 100, label=i % count, **more) for i in range(count * each)]


TARGETED = [row(i, target=t, image=f"image-{i}") for i in range(3) for t in [(i + 1) % 3]]
BOTH = [replace(r, problem=9 + i, target=(r.label + 2) % 3) for i, r in enumerate(TARGETED)]
SPENT = {"sent": 10, "answered": 10}

# a part of a sentence; a run of which it is said, and one of which it is not
SENTENCES = {
    "Other threat models": ({}, None),
    "Other attacks on the system": ({}, None),
    "Images from elsewhere": ({}, None),
    "no attack used gradients": ({}, {"parts": [(setting(needs="gradients"), PLAIN)]}),
    "Attacks that follow scores": ({"parts": [(setting(needs="labels"), PLAIN)]}, {}),
    "nothing but the label on top": ({}, {"parts": [(setting(needs="labels"), PLAIN)]}),
    "made for the defence in particular (rnd:0.1 and jpeg:75)": (
        {"defences": ["rnd:0.1", "jpeg:75"]}, {},
    ),
    "average over the victim's random answers": (
        {"randomised": True}, {"randomised": True, "parts": [(setting(eot=2), PLAIN)]},
    ),
    "Other attacks than BruSLe": ({}, {"parts": [(setting(), PLAIN), (setting("Mine"), PLAIN)]}),
    "Targeted attacks, which": ({}, {"parts": [(setting(goal="targeted"), TARGETED)]}),
    "Untargeted attacks, for which": ({"parts": [(setting(goal="targeted"), TARGETED)]}, {}),
    "Most targets: 1 of 2 other classes": (
        {"parts": [(setting(goal="targeted"), TARGETED)]},
        {"parts": [(setting(goal="targeted"), TARGETED + BOTH)]},
    ),
    "More than 7 pixels or 100 queries": (
        {"parts": [(setting(pixels=7), PLAIN), (setting(), PLAIN)]}, {},
    ),
    "in 1 of 2 settings it still rose": (
        {"parts": [(setting(), rows_of([90] * 9, 1)), (setting("Mine"), PLAIN)]},
        {"parts": [(setting(), PLAIN), (setting("Mine"), PLAIN)]},
    ),
    "1 of 1 settings ran with one seed": (
        {}, {"parts": [(setting(), PLAIN), (setting(seed=1), PLAIN)]},
    ),
    "than the 10 that were chosen": ({}, {"sessions": [session(plan={"limit": None})]}),
    "3 classes (cat, dog and emu) with fewer than 10 images": (
        {}, {"parts": [(setting(), of_classes(3, FEW))]},
    ),
    "One class (emu) without any image": ({"parts": [(setting(), of_classes(2))]}, {}),
    "the image that is classified wrongly": (
        {"parts": [(setting(), [*PLAIN, row(10, "skipped", 0)])]}, {},
    ),
    "1 attack on which the victim failed": (
        {"parts": [(setting(), [*PLAIN, row(10, "error", 0, error="x")])]}, {},
    ),
    "no weights that can be hashed": ({"weights": ""}, {}),
    "its owner may change the model": ({"sessions": [session(spending=SPENT)]}, {}),
    "no first look at it is stored": ({}, {"sessions": [session(preflight_queries=8)]}),
    "What is missing: The run is unfinished": (
        {"parts": [(setting(problems=11), PLAIN)]}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", SENTENCES)
def test_what_was_not_tested_depends_on_the_run(tmp_path, sentence) -> None:
    usual = {"parts": [(setting(), PLAIN)]}
    where, elsewhere = SENTENCES[sentence]
    assert sentence in said(tmp_path / "yes", **usual | where)
    if elsewhere is not None:
        assert sentence not in said(tmp_path / "no", **usual | elsewhere)


def test_every_sentence_has_such_a_test() -> None:
    from brusle.report.card import untested as module

    # of goals there are two, one for each that may be missing
    assert len(SENTENCES) == len(module._SENTENCES) + 1


def test_the_worst_case_is_over_all_attacks_and_budgets(tmp_path) -> None:
    # both, one, the other, neither; wrong before, an error of one, refused by the check of one
    one = ["success", "success", "failed", "failed", "skipped", "error", "unverified"]
    two = ["success", "failed", "success", "failed", "skipped", "failed", "failed"]
    more = ["success", "success", "success", "success", "skipped", "success", "success"]

    def rows(statuses):
        return [
            row(i, status, error="x" if status == "error" else "")
            for i, status in enumerate(statuses)
        ]

    parts = [(setting(), rows(one)), (setting("Mine"), rows(two)), (setting(pixels=9), rows(more))]
    card = card_of(make_run(tmp_path, parts))
    low, high = card.facts.worst
    assert (low.pixels, low.attacks, low.robust, low.asr) == (5, 2, Rate(1, 6), Rate(3, 5))
    assert (high.pixels, high.attacks, high.robust, high.asr) == (9, 3, Rate(0, 7), Rate(6, 6))
    (lead,) = [line for line in card.lead if "together" in line]
    assert lead.startswith("All 3 settings together, untargeted and within 9 pixels: 0 of 7 images")


def test_the_worst_case_takes_only_what_all_settings_have(tmp_path) -> None:
    parts = [(setting(), rows_of([1], 3)), (setting("Mine", problems=4), rows_of([1], 1))]
    (worst,) = card_of(make_run(tmp_path, parts)).facts.worst
    assert worst.robust == Rate(1, 2)


def test_a_search_for_the_fewest_counts_where_it_found_few_enough(tmp_path) -> None:
    parts = [
        (minimal(), needing([2, 7], 1)),
        (setting(), [row(i, "failed", 100) for i in range(3)]),
    ]
    low, high = card_of(make_run(tmp_path, parts)).facts.worst
    assert (low.pixels, low.robust, low.asr) == (5, Rate(2, 3), Rate(1, 3))
    assert (high.pixels, high.robust, high.asr) == (8, Rate(1, 3), Rate(2, 3))


def test_what_a_search_for_the_fewest_could_not_prove_counts_where_it_was(tmp_path) -> None:
    refused = [row(0, "unverified", 100, pixels=7), row(1, "failed", 100)]
    parts = [(minimal(), refused), (setting(), [row(i, "failed", 100) for i in range(2)])]
    low, high = card_of(make_run(tmp_path, parts)).facts.worst
    assert (low.pixels, low.robust) == (5, Rate(2, 2))
    assert (high.pixels, high.robust, high.asr) == (8, Rate(1, 2), Rate(0, 2))


@pytest.mark.parametrize(
    ("plan", "python"),
    [
        ({"victim": "zoo:toy", "data": "sample", "attacks": ["brusle"]}, False),
        ({"victim": "ResNet"}, True),
        ({"victim": "zoo:toy", "data": "arrays"}, True),
        ({"victim": "zoo:toy", "attacks": ["BruSLe(pixels=2, queries=5)"]}, True),
        ({"victim": "zoo:toy", "attacks": {"targeted": ["brusle:palette=uniform"]}}, False),
        ({"victim": "zoo:toy", "attacks": {"targeted": ["Mine()"]}}, True),
        ({"victim": 5, "attacks": None, "data": [1], "pairs": {}, "limit": "x"}, False),  # by hand
    ],
)
def test_what_no_plan_can_name_is_said(tmp_path, plan, python) -> None:
    run = make_run(tmp_path, [(setting(), PLAIN)], sessions=[session(plan=plan)])
    assert ("made in Python" in card_markdown(card_of(run))) is python


def test_all_formats_say_the_same(tmp_path) -> None:
    card = card_of(make_run(tmp_path, [(setting(), PLAIN)], warnings={"range": "it is off"}))
    told = card.as_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    page, text = Reader(card_html(card)).text, card_markdown(card).replace("\\", "")
    for part in card.parts.values():
        assert part.heading in page and f"## {part.heading}" in text
        for line in (*part.text, *part.points, *part.facts.values(), *part.code.values()):
            assert line.replace("`", "") in page
            for piece in line.splitlines():
                assert " ".join(piece.split()) in " ".join(text.split())
    assert "Warning, range: it is off" in page
    assert told["worst_case"][0]["robust_accuracy"] == Rate(4, 10).as_dict()
    assert told["parts"]["provenance"]["facts"]["brusle"] == "1.2.3"


def test_the_card_has_the_hash_that_verify_prints(tmp_path) -> None:
    out = tmp_path / "run"
    small = (
        "--limit",
        "2",
        "--pixels",
        "3",
        "--queries",
        "20",
        "--goal",
        "untargeted",
        "--attack",
        "brusle",
    )
    assert command("evaluate", *small, "--out", out).returncode == 0
    digest = rows_digest(Run.open(out))
    told = json.loads(command("card", out, "--json").stdout)
    assert told["parts"]["provenance"]["facts"]["SHA-256 of the rows"] == digest
    assert f"SHA-256 of the rows: {digest}" in command("verify", out).stdout
    # and the plan in the card leads to the same rows
    (plan,) = told["parts"]["again"]["code"].values()
    (tmp_path / "plan.yaml").write_text(plan)
    again = tmp_path / "again"
    said = command("evaluate", "--config", tmp_path / "plan.yaml", "--out", again)
    assert said.returncode == 0 and rows_digest(Run.open(again)) == digest


def test_nothing_becomes_markup(tmp_path) -> None:
    names = {"victim": EVIL, "data": EVIL, "classes": [EVIL, "b", "c"], "notes": [EVIL]}
    sessions = [session(plan={"victim": EVIL, EVIL: [EVIL]}, provenance={EVIL: EVIL})]
    made = setting(EVIL, options={EVIL: EVIL})
    about = names | {"warnings": {EVIL: EVIL}, "sessions": sessions, "defences": [EVIL]}
    card = card_of(make_run(tmp_path, [(made, PLAIN)], **about))
    page = card_html(card)
    read = Reader(page)
    assert {tag for tag, _ in read.found} & {"script", "img", "iframe", "link", "object"} == set()
    assert "alert(1)" in read.text and "\x1b" not in page
    text = card_markdown(card)
    assert "\x1b" not in text
    for line in text.splitlines():
        if not line.startswith("    "):  # code, in which nothing is markup
            assert "<script" not in line.replace("\\<", "") and "<img" not in line.replace(
                "\\<", ""
            )
    assert sum(line.startswith("# ") for line in text.splitlines()) == 1


def test_the_page_needs_nothing_from_elsewhere(tmp_path) -> None:
    page = card_html(card_of(make_run(tmp_path, [(setting(), PLAIN)])))
    read = Reader(page)
    policies = [a["content"] for tag, a in read.found if a.get("http-equiv")]
    assert policies == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]
    for _, attributes in read.found:
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    assert "url(" not in page and "@import" not in page
    assert "prefers-color-scheme: dark" in page and "@media print" in page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("npz:/home/me/secret/a.npz", "npz:…/a.npz"),
        ("checkpoint:/home/me/net.pt?arch=resnet50", "checkpoint:…/net.pt?arch=resnet50"),
        ("folder:~/pictures", "folder:…/pictures"),
        ("onnx:../x/net.onnx", "onnx:…/net.onnx"),
        ("/home/me/a.npz", "…/a.npz"),
        ("cannot open '/home/me/a b.npz'", "cannot open '…/a b.npz'"),
        ("oip:http://models.example:8000/net", "oip:http://models.example:8000/net"),
        ("timm:hf_hub/net", "timm:hf_hub/net"),
        ("1 / 2", "1 / 2"),
        ("sample", "sample"),
    ],
)
def test_folders_are_left_out_and_addresses_are_not(text, shown) -> None:
    assert without_folders(text) == shown


def test_no_folder_is_in_the_card(tmp_path) -> None:
    secret = "/home/alice-x/projects/secret-product"
    about = {
        "victim": f"onnx:{secret}/net.onnx",
        "data": f"npz:{secret}/a.npz",
        "notes": [f"read from {secret}/a.npz"],
        "warnings": {"range": f"see {secret}/a.npz"},
        "sessions": [
            session(plan={"victim": f"onnx:{secret}/net.onnx", "pairs": f"{secret}/p.json"})
        ],
    }
    card = card_of(make_run(tmp_path / "run", [(setting(), PLAIN)], **about))
    for text in (card_html(card), card_markdown(card), json.dumps(card.as_dict())):
        assert "secret-product" not in text and "alice-x" not in text and str(tmp_path) not in text
    assert "write where your files are" in card_markdown(card)


def test_clauses_are_named_and_nothing_is_claimed(tmp_path) -> None:
    text = card_markdown(card_of(make_run(tmp_path, [(setting(), PLAIN)])))
    for number in ("1.1", "2.1", "2.5", "2.7", "2.13"):
        assert f"NIST AI RMF 1.0, MEASURE {number} |" in text
    for number in ("15(3)", "15(5)"):
        assert f"EU AI Act, Article {number} |" in text
    assert "does not show conformity" in text
    for word in ("complies", "compliant", "certif", "fulfil", "satisf", "guarantee"):
        assert word not in text.lower()


def test_seeds_and_a_randomised_victim(tmp_path) -> None:
    rows = [replace(r, stable=i < 2) for i, r in enumerate(PLAIN)]
    parts = [(setting(), rows), (setting(seed=1), rows)]
    card = card_of(make_run(tmp_path, parts, randomised=True))
    assert card.parts["trust"].facts["stable successes"].startswith("4 of 12 ")
    assert "2 seeds" in card_markdown(card) and "Over seeds" not in card.parts
    assert any("std" in table.headers for table in card.parts["results"].tables)


@pytest.mark.parametrize("name", sorted(path.name for path in KEPT.iterdir()))
def test_old_runs_have_a_card(tmp_path, name) -> None:
    folder = shutil.copytree(KEPT / name, tmp_path / name)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for ending in (".md", ".html", ".json"):
        assert command("card", folder, "--out", tmp_path / f"card{ending}").returncode == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert "## Not tested" in (tmp_path / "card.md").read_text()


def test_an_unfinished_run_says_so_and_one_that_has_not_begun_has_none(tmp_path) -> None:
    make_run(tmp_path / "half", [(setting(problems=20), PLAIN)]).store.close()
    assert command("card", tmp_path / "half").returncode == 0
    assert "Unfinished" in Reader((tmp_path / "half" / "card.html").read_text()).text
    make_run(tmp_path / "none", []).store.close()
    said = command("card", tmp_path / "none")
    assert said.returncode == 2 and "no attack has begun" in said.stderr
    assert command("card", tmp_path / "half", "--out", tmp_path / "card.docx").returncode == 2


def test_a_service_has_its_books(tmp_path) -> None:
    card = card_of(make_run(tmp_path, [(setting(), PLAIN)], sessions=[session(spending=SPENT)]))
    assert card.parts["provenance"].facts["books"] == "10 images were sent: 10 answered"


def test_without_weasyprint_it_is_said_how_to_get_it(tmp_path, monkeypatch) -> None:
    import sys

    make_run(tmp_path / "run", [(setting(), PLAIN)]).store.close()
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    said = command("card", tmp_path / "run", "--out", tmp_path / "card.pdf")
    assert said.returncode == 2 and not (tmp_path / "card.pdf").exists()
    assert said.stderr == (
        'error: a card as PDF needs the package weasyprint: pip install "brusle[pdf]"\n'
    )
