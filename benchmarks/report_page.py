"""How large the page of a report gets, and how soon it opens in Chromium.

    python benchmarks/report_page.py            1000 images x 4 settings, 32 x 32 and 224 x 224
    python benchmarks/report_page.py --quick    50 images

The rows are made up, and written by the classes that write real ones: every attack changes pixels
at random, half of them succeed, and all have traces of the usual length. Time is counted from the
start of the navigation to the end of loading, and until the first rows are drawn; the median of
some visits. Needs the extra ``browser``, and Chromium.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from playwright.sync_api import Browser, sync_playwright
from torch import Tensor
from torch.nn.functional import interpolate

from brusle.evaluation.record import About, Row, Session, Setting
from brusle.evaluation.storing.manifest import image_hash
from brusle.evaluation.storing.rows import pack_edits
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import Store
from brusle.evaluation.storing.traces import pack
from brusle.problems import Problems
from brusle.report import gather, report_page
from brusle.tracing import Belief, Improvement, Trace

CLASSES, ATTACKS, QUERIES = 10, ("BruSLe", "SparseRS", "PixelBandit", "SparseEvo"), 500
IMPROVEMENTS, MAPS = 24, (5, 20, 50, 100, 200, 500)
VISITS = 5
WATCH = """
new MutationObserver((_, watcher) => {
  if (!document.querySelector("table.rows tbody tr")) return;
  watcher.disconnect();
  requestAnimationFrame(() => setTimeout(() => (window.rowsDrawn = performance.now())));
}).observe(document, { childList: true, subtree: true });
"""


def photographs(count: int, side: int, numbers: torch.Generator) -> Tensor:
    """Images that are about as hard to compress as photographs."""
    images = torch.zeros(count, 3, side, side)
    for cells, weight in ((4, 0.6), (side // 4, 0.25), (side, 0.15)):
        noise = torch.rand(count, 3, cells, cells, generator=numbers)
        images += weight * interpolate(noise, (side, side), mode="bilinear")
    return (images * 255).round() / 255


def traced(image: Tensor, pixels: int, queries: int, numbers: np.random.Generator) -> Trace:
    """A search that exchanges a tenth of its pixels with each improvement."""
    c, h, w = image.shape
    marks = np.sort(numbers.choice(np.arange(1, queries + 1), min(IMPROVEMENTS, queries), False))
    own = (image.flatten(1).T * 255).round().byte().numpy()
    order, step = numbers.permutation(h * w), max(1, pixels // 10)
    found = [_improvement(0, 3.0, order[:0], own, numbers)]
    for at, mark in enumerate(marks.tolist()):
        held = np.sort(order[at * step : at * step + pixels])
        found.append(_improvement(mark, 2.5 - at / 10, held, own, numbers))
    losses = [float(f"{x:.5g}") for x in 2 + numbers.random(min(queries, 512))]
    asked = np.linspace(1, queries, len(losses)).astype(np.int64)
    cells = min(32, h)
    beliefs = [
        Belief.of(mark, (numbers.random((cells, cells)) ** 4).astype(np.float32))
        for mark in (*(m for m in MAPS if m < queries), queries)
    ]
    return Trace((c, h, w), "theta", tuple(found), asked, np.array(losses), tuple(beliefs))


def _improvement(
    query: int, loss: float, held: np.ndarray, own: np.ndarray, numbers: np.random.Generator
) -> Improvement:
    scores = np.sort(numbers.dirichlet(np.ones(CLASSES)))[::-1].round(6)
    labels = numbers.permutation(CLASSES)
    return Improvement(query, 0, loss, held.astype(np.int64), 255 - own[held], labels, scores)


def made_row(
    problems: Problems, at: int, pixels: int, fooled: bool, numbers: np.random.Generator
) -> tuple[Row, bytes]:
    """A row with its trace."""
    image, label = problems.images[at], int(problems.labels[at])
    queries = int(numbers.integers(20, QUERIES)) if fooled else QUERIES
    trace = traced(image, pixels, queries, numbers)
    edits = pack_edits(image, trace.image(-1, image))
    row = Row(
        problem=int(problems.ids[at]),
        image=f"image-{at:04}",
        label=label,
        target=None,
        status="success" if fooled else "failed",
        stable=fooled,
        queries=queries,
        **dict.fromkeys(("clean", "initial", "search", "verify", "lost", "backward"), 0),
        pixels=len(edits) // 7,
        clean_label=label,
        final_label=(label + fooled) % CLASSES,
        loss=0.0,
        scores=b"",
        edits=edits,
        found_by="",
        error="",
        seconds=0.1,
    )
    return row, pack(trace)


def write_run(folder: Path, count: int, side: int) -> None:
    """A run folder, and its images beside it."""
    images = photographs(count, side, torch.Generator().manual_seed(0))
    labels = torch.arange(count) % CLASSES
    problems = Problems.make(images, labels)
    pixels = max(5, side * side // 250)
    facts = {"brusle": "0", "results": 1, "weights": "", "randomised": False}
    session = Session(began="2026-01-01T00:00:00Z", plan={}, pairs="", provenance={})
    names = tuple(f"class-{c}" for c in range(CLASSES))
    about = About(
        victim="made up",
        data="arrays",
        shape=(3, side, side),
        classes=names,
        sessions=(session,),
        **facts,
    )
    numbers = np.random.default_rng(0)
    with Store.write(folder) as store:
        store.write_about(about)
        store.add_images(
            {f"image-{i:04}": (int(labels[i]), image_hash(images[i])) for i in range(count)}
        )
        for attack in ATTACKS:
            plain = {"goal": "untargeted", "queries": QUERIES, "needs": "scores"}
            setting = Setting(attack=attack, kind=attack, pixels=pixels, problems=count, **plain)
            number = store.add_setting(setting).number
            made = [made_row(problems, i, pixels, i % 2 == 0, numbers) for i in range(count)]
            traces = {row.problem: trace for row, trace in made}
            store.add_rows(number, [row for row, _ in made], traces)
    arrays = {"images": (images * 255).round().byte().numpy(), "labels": labels.numpy()}
    np.savez(folder / "images.npz", names=[f"image-{i:04}" for i in range(count)], **arrays)


def visit(browser: Browser, page: Path) -> tuple[float, float]:
    """Seconds until the page has loaded, and until its first rows are drawn."""
    tab = browser.new_page()
    tab.add_init_script(WATCH)
    tab.goto(page.as_uri())
    tab.wait_for_function("window.rowsDrawn")
    loaded = tab.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    drawn = tab.evaluate("window.rowsDrawn")
    tab.close()
    return loaded / 1000, drawn / 1000


def measure(browser: Browser, folder: Path, count: int, side: int) -> str:
    """Size and times, for people."""
    write_run(folder, count, side)
    page = folder / "report.html"
    began = time.perf_counter()
    run = Run.open(folder, f"npz:{folder / 'images.npz'}")
    with run.store:
        page.write_text(report_page(gather(run), run))
    took = time.perf_counter() - began
    visits = [visit(browser, page) for _ in range(VISITS)]
    loaded, drawn = (statistics.median(times) for times in zip(*visits, strict=True))
    size = page.stat().st_size / 1e6
    return (
        f"{size:.1f} MB, written in {took:.1f} s; loaded after {loaded:.2f} s, first rows drawn "
        f"after {drawn:.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    count = 50 if parser.parse_args().quick else 1000
    chromium = os.environ.get("BRUSLE_TEST_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as place:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for side in (32, 224):
            line = measure(browser, Path(place) / str(side), count, side)
            print(f"{count} images x {len(ATTACKS)} settings, {side} x {side}: {line}", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
