"""Optional packages: what is said without one names the extra of brusle that brings it."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from types import SimpleNamespace

import pytest

from brusle.errors import InputError, VictimError
from brusle.packages import EXTRAS, need, need_version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def brought(extra: str) -> set[str]:
    """The distributions that an extra names."""
    wanted = PROJECT["optional-dependencies"][extra]
    return {normal(re.split(r"[^\w.-]", text, maxsplit=1)[0]) for text in wanted}


@pytest.mark.parametrize(("module", "extra"), EXTRAS.items())
def test_the_extra_brings_the_package(module, extra) -> None:
    installed = packages_distributions().get(module)
    if installed is None:
        pytest.skip(f"{module} is not installed, so nothing says which distribution has it")
    assert brought(extra) & {normal(name) for name in installed}


@pytest.mark.parametrize(("module", "extra"), EXTRAS.items())
def test_the_extra_is_named(monkeypatch, module, extra) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(VictimError) as error:
        need(f"{module}.something", "That")
    assert str(error.value) == f'That needs the package {module}: pip install "brusle[{extra}]"'
    with pytest.raises(InputError):
        need(module, "This", InputError)


def test_one_place_knows_how_to_install() -> None:
    sources = (ROOT / "src").rglob("*.py")
    said = {p.name for p in sources if "pip install" in p.read_text(encoding="utf-8")}
    assert said == {"packages.py"}


@pytest.mark.parametrize(
    ("own", "oldest", "enough"),
    [
        ("3.9.2", (4,), False),
        ("4.0", (4,), True),
        ("0.9", (0, 13), False),
        ("0.13.0", (0, 13), True),
    ],
)
def test_a_package_that_is_too_old_is_named(own, oldest, enough) -> None:
    package = SimpleNamespace(__name__="skops", __version__=own)
    if enough:
        need_version(package, oldest, "is safe")
        return
    with pytest.raises(InputError) as error:
        need_version(package, oldest, "is safe", InputError)
    wanted = ".".join(map(str, oldest))
    assert str(error.value) == (
        f'skops {own} is too old, {wanted} or later is safe: pip install -U "brusle[sklearn]"'
    )


def test_the_tables_of_the_paper_need_no_extra() -> None:
    """Only one of them asks a service, which needs httpx."""
    code = "import sys; sys.modules['httpx'] = None; import brusle.evaluation.paper.jobs"
    subprocess.run([sys.executable, "-c", code], check=True)
