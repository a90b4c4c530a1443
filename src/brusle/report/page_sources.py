"""The sections of a report that say what was attacked: examples, and where all comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from brusle.errors import BrusleError
from brusle.evaluation.record import Session
from brusle.evaluation.storing.runs import Run
from brusle.report.content import Content
from brusle.report.elements import notice, preformatted, table
from brusle.report.gallery import Example, panels, png, run_examples
from brusle.report.markup import Html, join, tag

_MOST_EXAMPLES = 24
_SESSION = {
    "began": "began",
    "images and targets": "pairs",
    "brusle": "brusle",
    "revision": "git_brusle",
    "torch": "torch",
    "device": "device",
}


def example_section(content: Content, run: Run) -> tuple[Html, list[str]]:
    """A few adversarial images beside their originals, and the keys of their rows."""
    fooled = [f.setting for f in content.families if f.summary.asr.hits][:_MOST_EXAMPLES]
    if not fooled:
        return Html(), []
    try:
        examples = run_examples(run, _MOST_EXAMPLES // len(fooled), fooled)
    except (BrusleError, OSError) as error:
        text = (
            "The original images cannot be read, so there are no pictures. Say where they are with "
            "--data, as in `brusle report RUN --data npz:FILE`."
        )
        return notice("No pictures", [text, str(error)]), []
    text = "Original, adversarial image, and the changed pixels in their new colours."
    shown = [_example(example) for example in examples]
    section = join(tag("p", text), tag("div", *shown, class_="gallery"))
    return section, [example.key for example in examples]


def _example(example: Example) -> Html:
    alts = (
        f"{example.name}, seen as {example.seen_before}",
        f"The same with a few changed pixels, seen as {example.seen_after}",
        "The changed pixels",
    )
    images = []
    for panel, alt in zip(panels(example), alts, strict=True):
        data = f"data:image/png;base64,{png(panel)}"
        images.append(tag("img", src=data, alt=alt, width=panel.width, height=panel.height))
    caption = tag(
        "figcaption",
        f"{example.seen_before} \N{RIGHTWARDS ARROW} ",
        tag("em", example.seen_after),
        tag("span", f" {example.name}", class_="faint"),
        tag("br"),
        tag("span", f"{example.attack}, {example.note}", class_="faint"),
    )
    return tag("figure", tag("div", *images, class_="panels"), caption, data_row=example.key)


def row_section() -> Html:
    """Where scripts let people look for rows, and at them."""
    text = (
        "Every image with every setting. Choose a row to see what was changed and, if the run kept "
        "a trace, how the search came to it."
    )
    return join(tag("p", text), tag("div", id="explorer"))


def provenance_section(content: Content) -> Html:
    """Victim, data, software, machine, plan and sessions."""
    about, sessions = content.about, content.sessions
    last = sessions[-1]
    facts = {
        "victim": content.victim,
        "hash of the weights": about.weights or "unknown",
        "data": content.data,
        "image shape": " x ".join(map(str, about.shape)),
    }
    if about.spending is not None:
        facts["books"] = about.spending.told()
    tables = [
        _facts(facts, "What was evaluated"),
        _facts(last.provenance, "Software and machine of the last session"),
    ]
    history = table(list(_SESSION), map(_session, sessions), f"Sessions: {len(sessions)}")
    more = {
        "Plan of the last session": last.plan,
        "Options of all attacks": {
            report.setting.title: report.setting.options for report in content.settings
        },
    }
    folded = [
        tag("details", tag("summary", title), preformatted(json.dumps(value, indent=2)))
        for title, value in more.items()
    ]
    return join(tag("div", *tables, class_="charts"), history, *folded)


def _session(session: Session) -> list[str]:
    known = {**session.provenance, **dict(session)}
    return [str(known.get(key, "-")) for key in _SESSION.values()]


def _facts(facts: Mapping[str, Any], caption: str) -> Html:
    rows = [(name, "-" if value is None else str(value)) for name, value in facts.items()]
    return table(("fact", "value"), rows, caption)
