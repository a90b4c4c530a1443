"""A report as one HTML file: no scripts, and nothing that is fetched from elsewhere."""

from __future__ import annotations

import base64
import io
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PIL import Image

from brusle.errors import BrusleError
from brusle.evaluation.statistics import Rate
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import Record
from brusle.report import listings
from brusle.report.charts import Series, histogram, legend, step_chart
from brusle.report.comparison_page import section_body
from brusle.report.content import MEANINGS, Content, Group, pixels, pooled, rounded
from brusle.report.curves import MOST_BANDS, Curve, attack_colours, band_caption
from brusle.report.elements import bullets, document, listing_table, notice, table
from brusle.report.gallery import Example, class_name, panels, run_examples
from brusle.report.markup import Html, join, tag

_MOST_EXAMPLES = 24
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
    "Brackets are 95 % intervals: they say how far the number could be off because only these "
    "images were tried (Wilson score; for comparisons the paired bootstrap). What bands are "
    "is said below each chart.",
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
        "summary": ("Summary", listing_table(listings.summary(content))),
        "curves": ("Success over queries", _curves(content)),
        "grid": ("Success by queries and pixels", _grid(content)),
        "needed": ("Pixels needed", _needed(content)),
        "classes": ("By class", _classes(content)),
        "seeds": ("Over seeds", listing_table(listings.seeds(content), unequal)),
        "comparison": ("Attacks compared", _comparison(content)),
        "pixels": ("Pixels used", _pixels(content)),
        "gallery": ("Examples", _gallery(content, run)),
        "errors": ("Errors", listing_table(listings.errors(content))),
        "provenance": ("Where this comes from", _provenance(content)),
        "reading": ("How to read this", bullets(_READING)),
    }
    title = f"{content.victim} on {content.data}: robustness to sparse changes"
    return document(title, _top(content), sections)


def _top(content: Content) -> Html:
    # a percent sign stays with its number
    lines = [line.replace(" %", "\N{NO-BREAK SPACE}%") for line in content.headline()]
    return join(
        tag("p", "Robustness to a handful of changed pixels", class_="over"),
        tag("h1", f"{content.victim} on {content.data}"),
        tag("p", f"Run {content.name}", class_="faint"),
        notice("Unfinished", [content.state]) if content.state else "",
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
    return cards + [_needed_card(best) for best in content.sparsest()]


def _needed_card(best: Group) -> Html:
    setting, needed = best.setting, best.parts[0].summary.needed
    assert needed is not None
    median, limit = needed.median, setting.pixels
    low, high = (pixels(end, limit) for end in (median.low, median.high))
    ends = (median.low, median.high, median.value)
    bar = [100 * min(end, limit) / limit for end in ends]
    style = f"--low:{bar[0]:.1f}%;--high:{bar[1]:.1f}%;--at:{bar[2]:.1f}%"
    return tag(
        "div",
        tag("p", f"{setting.goal}: pixels needed, median"),
        tag("b", pixels(median.value, limit)),
        tag("div", tag("i"), tag("u"), class_="interval", style=style, aria_hidden="true"),
        tag("p", f"95 % interval {low} to {high}", class_="faint"),
        tag("p", f"{setting.attack}, at most {limit} pixels", class_="faint"),
        class_="card",
    )


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
    boxes = [notice(f"Warning: {topic}", [text]) for topic, text in content.warnings.items()]
    for name, found in content.flags().items():
        lines = [f"{setting.title}: {flag.text}." for setting, flag in found]
        shown = [MEANINGS[name], *lines[:3]]
        inner = [tag("p", line) for line in shown]
        if lines[3:]:
            more = tag("summary", f"{len(lines) - 3} more")
            inner.append(tag("details", more, *(tag("p", line) for line in lines[3:])))
        boxes.append(tag("div", tag("h3", f"Caution: {name}"), *inner, class_="notice"))
    boxes += [notice("Note", [note]) for note in content.about.get("notes", ())]
    if content.randomised:
        text = (
            "The victim is randomised: ASR counts first hits, and stable ASR those that more than "
            "half of several fresh answers repeat."
        )
        boxes.append(notice("Randomised victim", [text]))
    if not boxes:
        text = "No flag was raised: see docs/metrics.md for what is looked at."
        return tag("div", tag("p", text), class_="notice fine")
    return join(*boxes)


def _curves(content: Content) -> Html:
    figures = _figures(
        content,
        [group for group in content.groups if not group.minimal],
        lambda setting: f"{setting.goal}, {setting.pixels} pixels",
        "Success rate over queries",
        ("queries", "fooled, %"),
    )
    if not figures:
        return Html()
    text = (
        "A curve that still rises at its right end says that the limit, and not the victim, has "
        "ended the attack."
    )
    return join(tag("p", text), figures)


def _figures(
    content: Content,
    groups: Sequence[Group],
    place: Callable[[Record], str],
    title: str,
    axes: tuple[str, str],
) -> Html:
    """Curves in one chart for each ``place``; below each, what its bands are."""
    colours = attack_colours(part.setting for part in content.parts)
    places: dict[str, list[tuple[str, Curve]]] = {}
    for group in groups:
        parts = [part for part in group.parts if part.summary.attacked]
        if parts:
            curve = Curve.of([part.setting for part in parts], [part.steps for part in parts])
            name = f"{group.name}, {group.budget}" if group.limited or group.minimal else group.name
            places.setdefault(place(group.setting), []).append((name, curve))
    figures = []
    for heading, named in places.items():
        drawn: Counter[str] = Counter()  # an attack has one colour, and its settings other dashes
        series = []
        for name, curve in named:
            attack = curve.setting.attack
            series.append(Series(name, curve.points, colours[attack], drawn[attack]))
            drawn[attack] += 1
        bands = len(named) <= MOST_BANDS
        chart = step_chart(series, bands, title, axes)
        caption = tag("figcaption", band_caption([curve for _, curve in named], bands))
        figures.append(tag("figure", tag("h3", heading), chart, legend(series), caption))
    return tag("div", *figures, class_="charts") if figures else Html()


def _needed(content: Content) -> Html:
    groups = [group for group in content.groups if group.minimal]
    if not groups:
        return Html()
    figures = _figures(
        content,
        groups,
        lambda setting: setting.goal,
        "Robust accuracy over pixels",
        ("pixels that may be changed", "robust accuracy, %"),
    )
    text = (
        "These searches look for the fewest pixels and spend all their queries, so success over "
        "queries would say nothing. The curve is the share of all images that are classified "
        "correctly if at most so many pixels may be changed."
    )
    return join(
        listing_table(listings.needed(content)),
        tag("p", text),
        figures,
        listing_table(listings.robust_by_pixels(content)),
        listing_table(listings.needed_by_class(content)),
    )


def _comparison(content: Content) -> Html:
    return Html() if content.comparison is None else section_body(content.comparison)


def _grid(content: Content) -> Html:
    tables = []
    lines: dict[tuple[str, str], list[Group]] = {}
    for group in content.groups:
        if group.minimal or not group.asr.count:
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
    groups = [group for group in content.groups if not group.minimal and group.asr.count]
    if not groups:
        return Html()
    rates = {
        label: [
            pooled(p.by_label[label].asr for p in group.parts if label in p.by_label)
            for group in groups
        ]
        for label in sorted({c for group in groups for p in group.parts for c in p.by_label})
    }
    labels = listings.extremes({label: pooled(some).value for label, some in rates.items()})
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
    if len(froms) > listings.MOST_CLASSES or len(tos) > listings.MOST_CLASSES:
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


def _pixels(content: Content) -> Html:
    colours = attack_colours(part.setting for part in content.parts)
    figures = []
    for group in content.groups:
        if group.minimal:  # the pixels needed are told apart
            continue
        counts: dict[int, int] = {}
        for part in group.parts:
            for changed, count in part.pixels.items():
                counts[changed] = counts.get(changed, 0) + count
        allowed = group.setting.pixels
        fewer = sum(count for changed, count in counts.items() if changed < allowed)
        if fewer > _FEWER * sum(counts.values()):
            chart = histogram(dict(sorted(counts.items())), allowed, colours[group.setting.attack])
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
        return notice("No pictures", [text, str(error)])
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
        tag("details", tag("summary", title), tag("pre", *_lines(json.dumps(value, indent=2))))
        for title, value in more.items()
    ]
    return join(tag("div", *tables, class_="charts"), history, *folded)


def _lines(text: str) -> list[Html]:
    return [join(line, Html("\n")) for line in text.splitlines()]


def _session(session: Mapping[str, Any]) -> list[str]:
    known = {**session.get("provenance", {}), **session}
    return [str(known.get(key, "-")) for key in _SESSION.values()]


def _facts(facts: Mapping[str, Any], caption: str) -> Html:
    rows = [(name, "-" if value is None else str(value)) for name, value in facts.items()]
    return table(("fact", "value"), rows, caption)


def _pooled_cell(rates: Sequence[Rate | None]) -> Html:
    return _heat(pooled(rate for rate in rates if rate is not None))


def _heat(rate: Rate) -> Html:
    if not rate.count:
        return tag("td", "\N{MIDDLE DOT}", class_="none", title="not attacked")
    style = "heat hot" if rate.value > 0.5 else "heat"
    told = f"{rate.hits} of {rate.count}"
    shade = f"--v:{rate.value:.2f}"
    return tag("td", f"{100 * rate.value:.0f}", class_=style, style=shade, title=told)
