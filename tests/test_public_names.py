"""The names that other people's code relies on: one list, which Python and type checkers read."""

import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from mypy import api

import brusle
from brusle import version

SOURCE = Path(brusle.__file__).parent
PUBLIC = {
    "AttackResult", "AutoAttack", "BrusleError", "DataError", "Explanation", "InputError", "Local",
    "Pace", "Patience", "Plan", "Ray", "Run", "Terms", "VictimError", "VictimUnavailable",
    "__version__", "attacks", "check", "data", "defences", "evaluate", "evaluation", "explain",
    "explaining", "interop", "load_victim", "looking", "minimise", "report", "serving", "studio",
    "testing", "victims", "zoo",
}  # fmt: skip


def test_every_public_name_resolves_to_what_it_says() -> None:
    assert set(brusle.__all__) == set(dir(brusle)) == PUBLIC and len(brusle.__all__) == len(PUBLIC)
    for name in PUBLIC - {"__version__"}:
        thing = getattr(brusle, name)
        own = thing.__name__.rpartition(".")[2] if isinstance(thing, ModuleType) else thing.__name__
        assert own == name
    everything: dict[str, object] = {}
    exec("from brusle import *", everything)
    assert everything.keys() - {"__builtins__"} == PUBLIC
    with pytest.raises(AttributeError, match="module 'brusle' has no attribute 'evalute'"):
        _ = brusle.evalute
    with pytest.raises(ImportError, match="cannot import name 'evalute'"):
        exec("from brusle import evalute")


@pytest.mark.parametrize("name", ["report", "evaluation", "evaluation.storing", "trouble"])
def test_modules_are_reached_through_the_package_alone(name: str) -> None:
    parts = "".join(f"\nthing = thing.{part}" for part in name.split("."))
    code = f"import brusle\nthing = brusle{parts}\nassert thing.__name__ == 'brusle.{name}'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_import_is_quick_because_it_imports_little() -> None:
    code = "import sys; before = set(sys.modules); import brusle\n" + (
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new - sys.stdlib_module_names))"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert answer.stdout == b"brusle\n"


def test_the_version_is_the_one_that_is_built() -> None:
    assert brusle.__version__ == version.__version__
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    assert SOURCE.parents[1] / project["tool"]["hatch"]["version"]["path"] == Path(version.__file__)


def test_type_checkers_see_the_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uses = "\n".join(f"brusle.{name}" for name in sorted(PUBLIC))
    user = tmp_path / "user.py"
    user.write_text(
        f"import brusle\n{uses}\nreveal_type(brusle.DataError())\nbrusle.evalute\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("MYPYPATH", str(SOURCE.parent))
    # what is behind the other names costs a minute, and mypy on the whole package looks at it
    options = ("--strict", "--follow-imports=skip", "--explicit-package-bases")
    files = (SOURCE / "__init__.py", SOURCE / "errors.py", user)
    said, _, _ = api.run([*options, f"--cache-dir={tmp_path}", "--config-file=", *map(str, files)])
    lines = [line.partition(": ")[2] for line in said.splitlines() if line.startswith(str(user))]
    assert lines == [
        'note: Revealed type is "brusle.errors.DataError"',
        'error: Module has no attribute "evalute"; maybe "evaluate"?  [attr-defined]',
    ], said
