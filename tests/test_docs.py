"""What the documentation says can be done, as far as a test can see it."""

import re
import tomllib
from pathlib import Path

import pytest

import brusle
from brusle.names import Name

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}


@pytest.mark.parametrize("page", TEXTS)
def test_names_of_the_package_resolve_after_import_brusle(page) -> None:
    names = set(re.findall(r"(?<![\w/.-])brusle(?:\.[a-zA-Z]\w*)+", TEXTS[page]))
    for name in sorted(names):
        thing: object = brusle
        for part in name.split(".")[1:]:
            if part in ("py", "md", "git"):
                break  # the name of a file
            thing = getattr(thing, part)


@pytest.mark.parametrize("page", TEXTS)
def test_links_to_files_and_headings_lead_somewhere(page) -> None:
    here = ROOT if page == "README.md" else ROOT / "docs"
    for target in re.findall(r"\]\(([^)\s]+)\)", TEXTS[page]):
        if target.startswith("http"):
            continue
        file, _, heading = target.partition("#")
        assert (here / (file or page)).exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", TEXTS[Path(file or page).name], re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}
            assert heading in anchors, target


def test_every_extra_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for_developers = {"bench", "browser", "dev", "docs", "interop", "package"}
    extras = set(project["optional-dependencies"]) - for_developers
    section = TEXTS["README.md"].partition("## Install")[2].partition("## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([\w-]+)`", "".join(row.split("|")[1] for row in rows))) == extras


def first_column(page: str) -> list[list[str]]:
    """The names in the first column of the tables of a page, row by row."""
    rows = (line.split("|")[1] for line in TEXTS[page].splitlines() if line.startswith("| `"))
    return [re.findall(r"`([^`]+)`", row) for row in rows]


def test_every_attack_of_the_table_is_made_by_its_name() -> None:
    specs = [name for row in first_column("attacks.md") for name in row]
    assert {Name.parse(spec).kind for spec in specs} == set(brusle.attacks.names.REGISTRY.kinds)
    for spec in specs:
        if Name.parse(spec).kind in brusle.attacks.ATTACKS:  # tests/interop makes the others
            assert brusle.attacks.make(spec, 3, 50).pixels == 3
    assert brusle.attacks.make("brusle:palette=uniform,colours=2", 3, 50) == brusle.attacks.make(
        "brusle?palette=uniform&colours=2", 3, 50
    )


def test_every_way_to_write_a_defence_is_the_same_defence() -> None:
    victim = brusle.load_victim("zoo:cifar10-resnet20", "cpu")
    rows = first_column("defences.md")
    assert {Name.parse(row[0]).kind for row in rows} == set(brusle.defences.DEFENCES)
    for first, *others in rows:
        for other in others:
            made = brusle.defences.make(other, victim)
            assert made == brusle.defences.make(first, victim) and made.label == first


def test_every_kind_of_victim_and_data_is_explained() -> None:
    for kind in brusle.victims.registry.REGISTRY.kinds:
        assert re.search(rf"\*\*`{kind}:", TEXTS["victims.md"]), kind
    kinds = {Name.parse(name).kind for row in first_column("data.md") for name in row}
    assert kinds >= set(brusle.data.registry.REGISTRY.kinds)


@pytest.mark.parametrize("page", TEXTS)
def test_names_on_command_lines_are_names(page) -> None:
    registries = {
        "attack": brusle.attacks.names.REGISTRY,
        "defence": brusle.defences.REGISTRY,
        "victim": brusle.victims.registry.REGISTRY,
    }
    for option, quoted, plain in re.findall(
        r'--(attack|defence|victim) (?:"([^"]+)"|([a-z0-9][\w:=,.?&-]*\w))', TEXTS[page]
    ):
        name = Name.parse(quoted or plain)
        if name.kind not in ("mine", "salt-and-pepper"):  # plugins
            registries[option].find(name)
