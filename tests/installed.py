"""Packages that offer plugins, as pip would leave them."""

from pathlib import Path


def install(folder: Path, module: str, code: str, **groups: dict[str, str]) -> None:
    """Write a module and its distribution into ``folder``.

    Args:
        folder: to be put on ``sys.path``.
        module: the module's name, which is also that of the distribution.
        code: its content.
        **groups: entry points behind ``brusle.``: kinds, and names in the module, or
            ``module:name`` of another one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = []
    for group, points in groups.items():
        lines.append(f"[brusle.{group}]")
        for kind, name in points.items():
            lines.append(f"{kind} = {name if ':' in name else f'{module}:{name}'}")
    (info / "entry_points.txt").write_text("\n".join(lines))
