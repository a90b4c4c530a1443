"""Who imports whom in ``src/brusle``: draws the layers, finds imports that go up or in a circle.

    python tools/import_graph.py            # print the drawing and what is wrong with the imports
    python tools/import_graph.py --write    # put the drawing where the documentation has it
    python tools/import_graph.py --check    # fail if that is stale, or an import goes up or round

Imports are read from the source, not run, and those inside of functions count like others. Those
under ``if TYPE_CHECKING`` never run, so they are marked apart and cannot close a circle; upward,
they are refused as well. That a module runs the ``__init__`` of the packages around it does not
count.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "design.md"
BEGIN, END = "<!-- import graph: begin -->", "<!-- import graph: end -->"


@dataclass(frozen=True)
class Layer:
    """Modules that belong together.

    Attributes:
        name: a package or module, without the ``brusle.`` in front; it holds what is below it and
            has no layer of its own.
        beside: layers of the same level that it may import.
    """

    name: str
    beside: tuple[str, ...] = ()


CORE, TOP = Layer("core"), Layer("brusle")  # modules that no other layer holds; the package itself
LEVELS = (  # the lowest first: a layer may import those of lower levels
    (CORE,),
    (
        Layer("attacks"),
        Layer("data"),
        Layer("zoo"),
        Layer("victims", beside=("data", "zoo")),
        Layer("defences", beside=("victims",)),
        Layer("looking", beside=("defences", "victims")),
    ),
    (Layer("serving"), Layer("interop"), Layer("evaluation.record")),
    (Layer("evaluation.statistics"),),
    (Layer("evaluation.storing"),),
    (Layer("evaluation.gating"),),
    (Layer("evaluation.running"),),
    (Layer("evaluation.paper"),),
    (Layer("evaluation"),),
    (Layer("report"),),
    (Layer("explaining"), Layer("studio"), Layer("testing")),
    (Layer("cli"),),
    (TOP,),
)
LAYERS = {layer.name: layer for level in LEVELS for layer in level}
HEIGHT = {layer.name: height for height, level in enumerate(LEVELS) for layer in level}


class When(Enum):
    """When an import is run; the value stands for it in the drawing."""

    LOADED = "x"
    CALLED = "o"
    NEVER = "t"


@dataclass(frozen=True)
class Import:
    """One module imports another."""

    importer: str
    imported: str
    line: int
    when: When

    def __str__(self) -> str:
        return f"{self.importer} -> {self.imported}"


def layer_of(module: str) -> Layer:
    """The layer that holds ``module``: the one of the longest name."""
    inside = module.removeprefix("brusle").removeprefix(".")
    if not inside:
        return TOP
    parts = inside.split(".")
    names = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((LAYERS[name] for name in names if name in LAYERS), CORE)


def goes_up(found: Import) -> bool:
    """Whether an import leads to a higher layer, or to one beside that it must not know."""
    importer, imported = layer_of(found.importer), layer_of(found.imported)
    if importer == imported:
        return False
    same = HEIGHT[importer.name] == HEIGHT[imported.name]
    if same:
        return imported.name not in importer.beside
    return HEIGHT[imported.name] > HEIGHT[importer.name]


def imports_of(source: Path) -> list[Import]:
    """All imports between the modules of the package in the folder ``source``."""
    files = {_module_name(path, source): path for path in sorted(source.rglob("*.py"))}
    return [found for module, path in files.items() for found in _imports(module, path, files)]


def _module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(module: str, path: Path, known: Mapping[str, Path]) -> Iterator[Import]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node, when in _statements(ast.parse(path.read_text(encoding="utf-8")), When.LOADED):
        for name in sorted(_imported(node, package, known)):
            if name in known and name != module:
                yield Import(module, name, node.lineno, when)


def _statements(node: ast.AST, when: When) -> Iterator[tuple[ast.Import | ast.ImportFrom, When]]:
    """The imports below ``node``, and when each is run."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, when
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _statements(child, When.NEVER if when is When.NEVER else When.CALLED)
        elif isinstance(child, ast.If) and _is_type_checking(child.test):
            yield from _statements(ast.Module(child.body, []), When.NEVER)
            yield from _statements(ast.Module(child.orelse, []), when)
        else:
            yield from _statements(child, when)


def _is_type_checking(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in (getattr(test, "id", None), getattr(test, "attr", None))


def _imported(
    node: ast.Import | ast.ImportFrom, package: str, known: Mapping[str, Path]
) -> set[str]:
    """The modules that one statement names; ``from brusle import x`` may name ``brusle.x``."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    base = ".".join([*above, *([node.module] if node.module else [])])
    inner = {alias.name: f"{base}.{alias.name}" for alias in node.names}
    return {path if path in known else base for path in inner.values()}


def circles(imports: Iterable[Import]) -> list[tuple[str, ...]]:
    """Groups of modules that import each other, directly or through others, when they run."""
    graph: dict[str, set[str]] = {}
    for found in imports:
        if found.when is not When.NEVER:
            graph.setdefault(found.importer, set()).add(found.imported)
    reached = {module: _reached(module, graph) for module in graph}
    groups = {
        tuple(sorted(other for other in reach if module in reached.get(other, ())))
        for module, reach in reached.items()
        if module in reach
    }
    return sorted(groups)


def _reached(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    """What ``start`` imports, directly or through others."""
    found: set[str] = set()
    waiting = list(graph.get(start, ()))
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += graph.get(module, ())
    return found


def drawing(imports: Iterable[Import]) -> str:
    """A table of layers, the highest first: a mark where the row's layer imports the column's.

    As long as all imports go down, all marks are on the right of the dots.
    """
    marks: dict[tuple[str, str], set[When]] = {}
    for found in imports:
        pair = layer_of(found.importer).name, layer_of(found.imported).name
        marks.setdefault(pair, set()).add(found.when)
    used = {name for pair in marks for name in pair}
    names = [name for name in reversed(LAYERS) if name in used]
    width = max(map(len, names), default=0)
    lines = [f"{'':{width}}     " + " ".join(f"{at:2}" for at in range(1, len(names) + 1))]
    for at, row in enumerate(names, 1):
        cells = (_cell(row, column, marks) for column in names)
        lines.append(f"{row:{width}}  {at:2} " + " ".join(f"{cell:>2}" for cell in cells).rstrip())
    key = "x: when it is loaded   o: only in functions   t: only for type checkers"
    return "\n".join([*lines, "", key])


def _cell(row: str, column: str, marks: Mapping[tuple[str, str], set[When]]) -> str:
    if row == column:
        return "."
    return next((when.value for when in When if when in marks.get((row, column), ())), "")


def written(page: str, picture: str) -> str:
    """The text of a page with the drawing between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"the page has no lines {BEGIN} and {END}: add them")
    return f"{before}{BEGIN}\n```text\n{picture}\n```\n{END}{after}"


def is_stale(imports: Iterable[Import]) -> bool:
    """Whether the documentation shows another drawing."""
    page = PAGE.read_text(encoding="utf-8")
    return written(page, drawing(imports)) != page


def faults(imports: list[Import]) -> list[str]:
    """A line for each import that goes up, and for each circle."""
    lines = [
        f"{found} (line {found.line}) goes up from {layer_of(found.importer).name} to "
        f"{layer_of(found.imported).name}"
        for found in imports
        if goes_up(found)
    ]
    return lines + [f"circle: {', '.join(circle)}" for circle in circles(imports)]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.relative_to(ROOT)}")
    parser.add_argument("--check", action="store_true", help="fail if it is stale")
    args = parser.parse_args()
    imports = imports_of(ROOT / "src" / "brusle")
    picture, wrong = drawing(imports), faults(imports)
    if args.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), picture), encoding="utf-8")
    elif not args.check:
        print(picture)
    elif is_stale(imports):
        wrong.append(f"{PAGE.name} is stale: run python tools/import_graph.py --write")
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
