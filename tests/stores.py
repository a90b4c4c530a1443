"""Run folders made by hand: every number in them is known."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brusle.evaluation.record import About, Row, Setting
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import Store

SESSION = {
    "began": "2026-01-02T03:04:05Z",
    "plan": {"limit": 20},
    "pairs": "0123456789abcdef",
    "provenance": {"brusle": "1.2.3", "torch": "9.9", "git_brusle": "abcdef123456"},
}
ABOUT = {
    "brusle": "1.2.3",
    "results": 2,
    "victim": "zoo:toy",
    "weights": "feed",
    "data": "arrays",
    "shape": [3, 4, 4],
    "classes": ["cat", "dog", "emu"],
    "randomised": False,
    "notes": [],
    "sessions": [SESSION],
}


def row(problem: int, status: str = "success", queries: int = 10, **more: Any) -> Row:
    values: dict[str, Any] = {
        "problem": problem,
        "image": f"image-{problem}",
        "label": problem % 3,
        "target": None,
        "status": status,
        "stable": status == "success",
        "queries": queries,
        **dict.fromkeys(("clean", "initial", "search", "verify", "lost", "backward"), 0),
        "pixels": 5,
        "clean_label": problem % 3,
        "final_label": (problem + 1) % 3,
        "loss": 0.0,
        "scores": b"",
        "edits": b"",
        "found_by": "",
        "error": "",
        "seconds": 0.0,
    }
    return Row(**values | more)


def rows_of(wins: Sequence[int], failures: int, limit: int = 100) -> list[Row]:
    """Successes after the given numbers of queries, then failures; problems 0, 1, ..."""
    done = [row(i, "success", q) for i, q in enumerate(wins)]
    return done + [row(len(done) + i, "failed", limit) for i in range(failures)]


def setting(attack: str = "BruSLe", **more: Any) -> Setting:
    usual = {"goal": "untargeted", "pixels": 5, "queries": 100, "needs": "scores"}
    return Setting(**{"attack": attack, "kind": attack, **usual, **more})


def minimal(attack: str = "minimal BruSLe", pixels: int = 8, **more: Any) -> Setting:
    """A search for the fewest pixels, as its kind says."""
    inner = {"kind": attack.split(" ")[1], "pixels": pixels, "queries": 20, "options": {}}
    options = {"attack": inner, "total": 100}
    return setting(attack, kind="Minimal", pixels=pixels, options=options, **more)


def needing(pixels: Sequence[int], failures: int) -> list[Row]:
    """Images that need so many pixels, then such that were not fooled; problems 0, 1, ..."""
    done = [row(i, "success", 100, pixels=p) for i, p in enumerate(pixels)]
    return done + [row(len(done) + i, "failed", 100, pixels=2) for i in range(failures)]


def make_run(
    folder: Path,
    parts: Sequence[tuple[Setting, Sequence[Row]]],
    originals: Any = None,
    **about: Any,
) -> Run:
    """A run folder with these settings and rows; ``problems`` of a setting is as many as rows."""
    with Store.write(folder) as store:
        store.write_about(About(**ABOUT | about))
        for made, rows in parts:
            problems = made.problems or len(rows)
            known = store.add_setting(made.model_copy(update={"problems": problems}))
            store.add_rows(known.number, rows)
            store.add_images({r.image: (r.label, r.image) for r in rows})
    return Run.open(folder, originals)
