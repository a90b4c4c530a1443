"""A report as one HTML file: no scripts, and nothing that is fetched from elsewhere."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from brusle.errors import BrusleError
from brusle.evaluation.metrics import Rate
from brusle.evaluation.runs import Run
from brusle.report import listings
from brusle.report.charts import COLOURS, Series, histogram, legend, success_chart
from brusle.report.content import MEANINGS, Content, Group, pooled, rounded
from brusle.report.gallery import Example, class_name, panels, run_examples
from brusle.report.listings import Cell, Listing
from brusle.report.markup import Html, join, tag

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_MOST_BANDS = 3  # more would cover each other
_MOST_CLASSES = 30  # of more, the extremes are shown
_MOST_EXAMPLES = 24
_LONG = 40  # text that may take several lines
_FEWER = 0.05  # a share of successes with fewer pixels than allowed that is worth a picture
_SESSION = {
    "began": "began",
    "images and targets": "pairs",
    "brusle": "brusle",
    "revision": "git_brusle",
    "torch": "torch",
    "device": "device",
}
_READING = (
    "ASR (attack success rate): of the images that the victim classifies correctly, the share that "
    "was fooled. Robust accuracy: of all images, the share that is classified correctly to the "
    "end.",
    "Brackets and bands are 95 % intervals: they say how far the number could be off because only "
    "these images were tried (Wilson score; for comparisons the paired bootstrap).",
    "Mean and median queries count a failure as the query limit. Over successes only they flatter "
    "a weak attack, which has only the easy images.",
    "The area under the curve of success over queries is between 0 (never a success) and 1 (all at "
    "once).",
    "Errors are in no denominator; successes that did not pass the independent check count as "
    "failures of the attack.",
)


def page(content: Content, run: Run) -> str:
    """The whole page.

    Args:
        content: what it says.
        run: where the pictures come from.
    """
    unequal = [f"{line.group.title}: {line.problem}" for line in content.seeds if line.problem]
    sections = {
        "summary": ("Summary", _listing(listings.summary(content))),
        "curves": ("Success over queries", _curves(content)),
        "grid": ("Success by queries and pixels", _grid(content)),
        "classes": ("By class", _classes(content)),
        "seeds": ("Over seeds", _listing(listings.seeds(content), unequal)),
        "comparison": (
            "Attacks compared",
            _listing(listings.comparison(content), listings.comparison_remarks(content)),
        ),
        "pixels": ("Pixels used", _pixels(content)),
        "gallery": ("Examples", _gallery(content, run)),
        "errors": ("Errors", _listing(listings.errors(content))),
        "provenance": ("Where this comes from", _provenance(content)),
        "reading": ("How to read this", _bullets(_READING)),
    }
    shown = {key: both for key, both in sections.items() if both[1]}
    links = [tag("a", title, href=f"#{key}") for key, (title, _) in shown.items()]
    body = tag(
        "body",
        tag("header", _top(content)),
        tag("nav", *links, aria_label="Sections"),
        tag(
            "main",
            *(
                tag("section", tag("h2", title), inner, id=key)
                for key, (title, inner) in shown.items()
            ),
        ),
    )
    return "<!doctype html>\n" + tag("html", _head(content), body, lang="en") + "\n"


def _head(content: Content) -> Html:
    style = Path(__file__).with_name("page.css").read_text()
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", f"{content.victim} on {content.data}: robustness to sparse changes"),
        tag("style", Html(style)),
    )


def _top(content: Content) -> Html:
    # a percent sign stays with its number
    lines = [line.replace(" %", "\N{NO-BREAK SPACE}%") for line in content.headline()]
    return join(
        tag("p", "Robustness to a handful of changed pixels", class_="over"),
        tag("h1", f"{content.victim} on {content.data}"),
        tag("p", f"Run {content.name}", class_="faint"),
        _notice("Unfinished", [content.state]) if content.state else "",
        tag("div", *(tag("p", line) for line in lines), class_="lead"),
        tag("div", *_cards(content), class_="cards"),
        _flags(content),
    )


def _cards(content: Content) -> list[Html]:
    cards = [_card("clean accuracy", content.clean, "before any attack")]
    for best in content.strongest():
        setting, summary = best.setting, best.parts[0].summary
        with_what = f"{setting.attack}, {setting.pixels} pixels, {setting.queries} queries"
        if setting.goal == "untargeted":
            cards.append(_card("robust accuracy", summary.robust, with_what))
        cards.append(_card(f"{setting.goal} success rate", summary.asr, with_what))
    return cards


def _card(title: str, rate: Rate, text: str) -> Html:
    if not rate.count:
        return tag("div", tag("p", title), tag("b", "-"), tag("p", text), class_="card")
    low, high = (100 * end for end in rate.interval)
    bar = f"--low:{low:.1f}%;--high:{high:.1f}%;--at:{100 * rate.value:.1f}%"
    return tag(
        "div",
        tag("p", title),
        tag("b", f"{rounded(rate)} %"),
        tag("div", tag("i"), tag("u"), class_="interval", style=bar, aria_hidden="true"),
        tag("p", f"95 % interval {low:.0f} to {high:.0f} %", class_="faint"),
        tag("p", text, class_="faint"),
        class_="card",
    )


def _flags(content: Content) -> Html:
    boxes = [_notice(f"Warning: {topic}", [text]) for topic, text in content.warnings.items()]
    for name, found in content.flags().items():
        lines = [f"{setting.title}: {flag.text}." for setting, flag in found]
        shown = [MEANINGS[name], *lines[:3]]
        inner = [tag("p", line) for line in shown]
        if lines[3:]:
            more = tag("summary", f"{len(lines) - 3} more")
            inner.append(tag("details", more, *(tag("p", line) for line in lines[3:])))
        boxes.append(tag("div", tag("h3", f"Caution: {name}"), *inner, class_="notice"))
    boxes += [_notice("Note", [note]) for note in content.about.get("notes", ())]
    if content.randomised:
        text = (
            "The victim is randomised: ASR counts first hits, and stable ASR those that more than "
            "half of several fresh answers repeat."
        )
        boxes.append(_notice("Randomised victim", [text]))
    if not boxes:
        text = "No flag was raised: see docs/metrics.md for what is looked at."
        return tag("div", tag("p", text), class_="notice fine")
    return join(*boxes)


def _curves(content: Content) -> Html:
    colours = _colours(content)
    places: dict[tuple[str, int], list[Group]] = {}
    for group in content.groups:
        if group.asr.count:
            places.setdefault((group.setting.goal, group.setting.pixels), []).append(group)
    figures = []
    for (goal, pixels), groups in places.items():
        series = [
            Series(part.setting.name, part.steps, colours[group.name], part is not group.parts[0])
            for group in groups
            for part in group.parts
            if part.summary.attacked
        ]
        chart = success_chart(series, len(groups) <= _MOST_BANDS)
        keys = dict.fromkeys((group.name, colours[group.name]) for group in groups)
        heading = tag("h3", f"{goal}, {pixels} pixels")
        figures.append(tag("figure", heading, chart, legend(list(keys))))
    if not figures:
        return Html()
    text = (
        "A curve that still rises at its right end says that the limit, and not the victim, has "
        "ended the attack. The band is the 95 % interval; thin lines are further seeds."
    )
    return join(tag("p", text), tag("div", *figures, class_="charts"))


def _grid(content: Content) -> Html:
    tables = []
    lines: dict[tuple[str, str], list[Group]] = {}
    for group in content.groups:
        if not group.asr.count:
            continue
        lines.setdefault((group.name, group.setting.goal), []).append(group)
    for (name, goal), groups in lines.items():
        marks = sorted({mark for group in groups for part in group.parts for mark in part.grid})
        rows = [
            (
                group.budget,
                *(_pooled_cell([part.grid.get(mark) for part in group.parts]) for mark in marks),
            )
            for group in sorted(groups, key=lambda group: group.setting.pixels)
        ]
        headers = ("pixels", *map(str, marks))
        tables.append(table(headers, rows, f"{name}, {goal}: ASR % within so many queries"))
    if not tables:
        return Html()
    text = "Of several seeds, the mean." if content.seeds else ""
    return join(tag("p", text) if text else "", tag("div", *tables, class_="charts"))


def _classes(content: Content) -> Html:
    names = list(content.about.get("classes", ()))
    groups = [group for group in content.groups if group.asr.count]
    if not groups:
        return Html()
    rates = {
        label: [
            pooled(p.by_label[label].asr for p in group.parts if label in p.by_label)
            for group in groups
        ]
        for label in sorted({c for group in groups for p in group.parts for c in p.by_label})
    }
    labels = _extremes({label: pooled(some) for label, some in rates.items()})
    headers = ("true class", *(group.title for group in groups))
    rows = [(class_name(names, c), *(_heat(rate) for rate in rates[c])) for c in labels]
    left_out = ""
    if len(labels) < len(rates):
        left_out = f" Of {len(rates)} classes, those fooled least and most; --json has all."
    found = [table(headers, rows, f"ASR % of each true class.{left_out}")]
    maps = [_map(group, names) for group in groups if group.setting.goal == "targeted"]
    maps = [made for made in maps if made]
    if maps:
        text = "From the true class (row) to the target class (column), ASR in %."
        found.append(join(tag("p", text), tag("div", *maps, class_="maps")))
    return join(*found)


def _map(group: Group, names: Sequence[str]) -> Html:
    moves = {move for part in group.parts for move in part.moves}
    froms, tos = sorted({a for a, _ in moves}), sorted({b for _, b in moves})
    if len(froms) > _MOST_CLASSES or len(tos) > _MOST_CLASSES:
        return tag("p", f"{group.title}: too many classes for a map; --json has all.")
    rows = [
        (
            class_name(names, a),
            *(_pooled_cell([part.moves.get((a, b)) for part in group.parts]) for b in tos),
        )
        for a in froms
    ]
    headers = ("from / to", *(class_name(names, b) for b in tos))
    return table(headers, rows, group.title, kind="map")


def _listing(listing: Listing, remarks: Sequence[str] = ()) -> Html:
    made = table(listing.headers, listing.rows, listing.caption) if listing.rows else ""
    return join(made, _bullets(remarks))


def _pixels(content: Content) -> Html:
    colours = _colours(content)
    figures = []
    for group in content.groups:
        counts: dict[int, int] = {}
        for part in group.parts:
            for pixels, count in part.pixels.items():
                counts[pixels] = counts.get(pixels, 0) + count
        allowed = group.setting.pixels
        fewer = sum(count for pixels, count in counts.items() if pixels < allowed)
        if fewer > _FEWER * sum(counts.values()):
            chart = histogram(dict(sorted(counts.items())), allowed, colours[group.name])
            figures.append(tag("figure", tag("h3", group.title), chart))
    return tag("div", *figures, class_="charts") if figures else Html()


def _gallery(content: Content, run: Run) -> Html:
    fooled = [g.setting for g in content.groups if g.parts[0].summary.asr.hits][:_MOST_EXAMPLES]
    if not fooled:
        return Html()
    try:
        examples = run_examples(run, _MOST_EXAMPLES // len(fooled), fooled)
    except (BrusleError, OSError) as error:
        text = (
            "The original images cannot be read, so there are no pictures. Say where they are with "
            "--data, as in `brusle report RUN --data npz:FILE`."
        )
        return _notice("No pictures", [text, str(error)])
    text = "Original, adversarial image, and the changed pixels in their new colours."
    shown = [_example(example) for example in examples]
    return join(tag("p", text), tag("div", *shown, class_="gallery"))


def _example(example: Example) -> Html:
    alts = (
        f"{example.name}, seen as {example.seen_before}",
        f"The same with a few changed pixels, seen as {example.seen_after}",
        "The changed pixels",
    )
    images = [
        tag("img", src=_data(panel), alt=alt, width=panel.width, height=panel.height)
        for panel, alt in zip(panels(example), alts, strict=True)
    ]
    caption = tag(
        "figcaption",
        f"{example.seen_before} \N{RIGHTWARDS ARROW} ",
        tag("em", example.seen_after),
        tag("span", f" {example.name}", class_="faint"),
        tag("br"),
        tag("span", f"{example.attack}, {example.note}", class_="faint"),
    )
    return tag("figure", tag("div", *images, class_="panels"), caption)


def _data(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _provenance(content: Content) -> Html:
    about = content.about
    sessions = list(about.get("sessions", ()))
    last = sessions[-1] if sessions else {}
    facts = {
        "victim": content.victim,
        "hash of the weights": about.get("weights") or "unknown",
        "data": content.data,
        "image shape": " x ".join(map(str, about.get("shape", ()))),
    }
    tables = [
        _facts(facts, "What was evaluated"),
        _facts(last.get("provenance", {}), "Software and machine of the last session"),
    ]
    history = table(list(_SESSION), map(_session, sessions), f"Sessions: {len(sessions)}")
    more = {
        "Plan of the last session": last.get("plan", {}),
        "Options of all attacks": {
            part.setting.title: part.setting.options for part in content.parts
        },
    }
    folded = [
        tag("details", tag("summary", title), tag("pre", json.dumps(value, indent=2)))
        for title, value in more.items()
    ]
    return join(tag("div", *tables, class_="charts"), history, *folded)


def _session(session: Mapping[str, Any]) -> list[str]:
    known = {**session.get("provenance", {}), **session}
    return [str(known.get(key, "-")) for key in _SESSION.values()]


def _facts(facts: Mapping[str, Any], caption: str) -> Html:
    rows = [(name, "-" if value is None else str(value)) for name, value in facts.items()]
    return table(("fact", "value"), rows, caption)


def table(
    headers: Sequence[str], rows: Iterable[Sequence[Cell]], caption: str, kind: str | None = None
) -> Html:
    """A table that scrolls by itself on a narrow screen.

    Args:
        headers: of the columns.
        rows: cells, a whole ``td`` as `Html`, or text, or a rate. The first heads its row.
        caption: what it shows.
        kind: a class of the style sheet.
    """
    head = [tag("th", text, scope="col") for text in headers]
    body = [tag("tr", tag("th", first, scope="row"), *map(_cell, rest)) for first, *rest in rows]
    made = tag(
        "table",
        tag("caption", tag("span", caption)),
        tag("thead", tag("tr", *head)),
        tag("tbody", *body),
        class_=kind,
    )
    return tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cell(content: Cell) -> Html:
    if isinstance(content, Html):
        return content
    if isinstance(content, str):
        return tag("td", content, class_="text" if len(content) > _LONG else None)
    if not content.count:
        return tag("td", "-")
    low, high = (f"{100 * end:.0f}" for end in content.interval)
    return tag("td", tag("b", f"{100 * content.value:.1f}"), " ", tag("small", f"[{low}, {high}]"))


def _pooled_cell(rates: Sequence[Rate | None]) -> Html:
    return _heat(pooled(rate for rate in rates if rate is not None))


def _heat(rate: Rate) -> Html:
    if not rate.count:
        return tag("td", "\N{MIDDLE DOT}", class_="none", title="not attacked")
    style = "heat hot" if rate.value > 0.5 else "heat"
    told = f"{rate.hits} of {rate.count}"
    shade = f"--v:{rate.value:.2f}"
    return tag("td", f"{100 * rate.value:.0f}", class_=style, style=shade, title=told)


def _notice(title: str, lines: Sequence[str]) -> Html:
    return tag("div", tag("h3", title), *(tag("p", line) for line in lines), class_="notice")


def _bullets(lines: Sequence[str]) -> Html:
    return tag("ul", *(tag("li", line) for line in lines)) if lines else Html()


def _colours(content: Content) -> dict[str, int]:
    names = dict.fromkeys(group.name for group in content.groups)
    return {name: at % COLOURS for at, name in enumerate(names)}


def _extremes(rates: Mapping[int, Rate]) -> list[int]:
    """All classes, or those with the lowest and highest rates if there are too many."""
    if len(rates) <= _MOST_CLASSES:
        return list(rates)
    known = [label for label, rate in rates.items() if not math.isnan(rate.value)]
    known.sort(key=lambda label: rates[label].value)
    half = _MOST_CLASSES // 2
    return list(dict.fromkeys(known[:half] + known[-half:]))
