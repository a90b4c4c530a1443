"""What a card says, part by part; how it looks is somebody else's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from brusle.evaluation.record import Setting
from brusle.evaluation.statistics import Rate
from brusle.evaluation.storing.digest import rows_digest
from brusle.evaluation.storing.runs import Run
from brusle.report import listings
from brusle.report.card import clauses
from brusle.report.card.facts import Facts, without_folders
from brusle.report.card.untested import untested
from brusle.report.content import MEANINGS, gather
from brusle.report.listings import Listing, TableCell
from brusle.report.wording import in_words, listed, span

_KNOWS = {
    "labels": "the label on top alone",
    "scores": "the victim's scores",
    "gradients": "the victim's gradients (white-box)",
}


@dataclass(frozen=True)
class Part:
    """A part of a card, written in the order of its attributes.

    Attributes:
        heading: what it is about.
        text: sentences.
        facts: values by name.
        tables: tables.
        points: a list.
        code: lines that can be copied, each with what is said before them.
    """

    heading: str
    text: tuple[str, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    tables: tuple[Listing, ...] = ()
    points: tuple[str, ...] = ()
    code: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        tables = [_table_as_dict(table) for table in self.tables]
        lists = {"text": list(self.text), "points": list(self.points), "tables": tables}
        return asdict(self) | lists


@dataclass(frozen=True)
class Card:
    """A robustness card.

    Attributes:
        title: of the whole.
        state: what to say if more results are to come; else empty.
        lead: the result in a few sentences.
        parts: all parts by a short name.
        facts: what they were made of.
    """

    title: str
    state: str
    lead: tuple[str, ...]
    parts: dict[str, Part]
    facts: Facts

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "title": self.title,
            "unfinished": self.state,
            "lead": list(self.lead),
            "parts": {name: part.as_dict() for name, part in self.parts.items()},
            "clean_accuracy": self.facts.content.clean.as_dict(),
            "worst_case": [
                asdict(w) | {"asr": w.asr.as_dict(), "robust_accuracy": w.robust.as_dict()}
                for w in self.facts.worst
            ],
        }


def card_of(run: Run, writing: bool = False) -> Card:
    """Read a run.

    Args:
        run: the run.
        writing: whether it is being written.
    """
    content = gather(run, writing)
    facts = Facts.of(run, content)
    parts = {
        "what": _what(facts),
        "how": _how(facts),
        "results": _results(facts),
        "trust": _trust(facts),
        "untested": Part("Not tested", points=_cut(untested(facts))),
        "clauses": Part(
            "Clauses that ask for this", (clauses.CAVEAT,), tables=(clauses.listing(facts),)
        ),
        "provenance": _provenance(facts, rows_digest(run)),
        "again": _again(facts),
    }
    title = without_folders(f"Robustness card: {content.victim}")
    lead = [*content.headline(), *_together(facts)]
    return Card(title, content.state, _cut(lead), parts, facts)


def _together(facts: Facts) -> list[str]:
    """For each goal what all attacks leave at the largest budget, if there are several."""
    largest = {worst.goal: worst for worst in facts.worst}
    return [
        f"All {worst.attacks} settings together, {worst.goal} and within {worst.pixels} pixels: "
        f"{in_words(worst.robust, 'images' if worst.goal == 'untargeted' else 'pairs')} withstood "
        f"every attack."
        for worst in largest.values()
        if worst.attacks > 1
    ]


def _what(facts: Facts) -> Part:
    about, content = facts.content.about, facts.content
    classes = f"{len(about.names)} with names" if about.names else "without names"
    values = {
        "victim": about.victim,
        "hash of the weights": about.weights or "unknown",
        "defences": ", then ".join(about.defences) or "none",
        "answers": "vary (randomised)" if about.randomised else "declared as not varying",
        "input": f"{' x '.join(map(str, about.shape))} (channels, height, width)",
        "classes": classes,
        "data": about.data,
        "images": f"{content.images}, of one class"
        if len(facts.per_class) == 1
        else f"{content.images}, of {len(facts.per_class)} classes",
        "chosen": _chosen(facts.plans[-1]),
        "labels": "those of the data"
        if about.labels_from == "data"
        else "the victim's own answers to the clean images",
        "hash of images and targets": content.sessions[-1].pairs,
    }
    return Part("What was tested", facts=_shown(values))


def _chosen(plan: Mapping[str, Any]) -> str:
    if plan.get("pairs"):
        return "by a list of images and targets (manifest)"
    if plan.get("limit") is None:
        return "all of the data"
    return f"at most {plan['limit']}, evenly over the classes"


def _how(facts: Facts) -> Part:
    settings = facts.settings
    knows = listed([words for needs, words in _KNOWS.items() if _needed(facts, needs)])
    pixels, queries = span(s.pixels for s in settings), span(s.queries for s in settings)
    text = (
        f"Threat model: somebody changes at most {pixels} pixels of an image, each to any colour "
        f"(a bound on l0), and may ask the victim {queries} times for it. The attacks used "
        f"{knows}.",
        f"Goal: {' and '.join(facts.goals)}. Untargeted attacks want any wrong class, targeted "
        f"ones a certain one. An image that is classified wrongly already is not attacked.",
        "Verification: brusle counts a success only if it was checked again by code that no attack "
        "owns: changed pixels, range of values, the label after a round trip through an 8-bit PNG.",
        "Queries are counted for each image in one place, which ends an attack at its limit; the "
        "clean image and the verification are beside it.",
    )
    headers = ["attack", "goal", "uses", "pixels", "queries", "seed", "options"]
    rows: list[list[TableCell]] = [
        [
            without_folders(s.name),
            s.goal,
            s.needs,
            str(s.pixels),
            str(s.queries),
            str(s.seed),
            without_folders(_options(s)),
        ]
        for s in settings
    ]
    caption = "Options that differ from the defaults of the version named below."
    return Part("How", text, tables=(Listing(caption, headers, rows, worded=3),))


def _needed(facts: Facts, needs: str) -> bool:
    return any(setting.needs == needs for setting in facts.settings)


def _options(setting: Setting) -> str:
    return json.dumps(setting.options, sort_keys=True) if setting.options else "-"


def _results(facts: Facts) -> Part:
    content = facts.content
    worst: list[list[TableCell]] = [
        [w.goal, str(w.pixels), str(w.attacks), w.robust, w.asr] for w in facts.worst
    ]
    clean: list[list[TableCell]] = [["before any attack", "0", "-", content.clean, "-"]]
    headers = ["goal", "at most so many pixels", "settings", "robust accuracy %", "ASR %"]
    caption = (
        "All attacks and seeds together, the worst case: an image (targeted: a pair of image and "
        "target) is robust if none of these settings succeeded, and counts if all have a result. "
        "Percent, with 95 % intervals; docs/metrics.md says how each number is counted."
    )
    together = Listing(caption, headers, [*clean, *worst])
    found = (together, listings.summary(content), listings.needed(content))
    tables = [table for table in (*found, listings.seeds(content)) if table.rows]
    return Part("Results", tables=tuple(tables))


def _trust(facts: Facts) -> Part:
    content = facts.content
    asked = sum(session.preflight_queries for session in content.sessions)
    stable = _stable(facts)
    values = {
        "errors of the victim": f"{facts.errors} (in no rate)",
        "successes that did not pass the check": f"{facts.unverified} (not counted)",
        "stable successes": stable,
        "first look at the victim": f"{asked} queries, {len(content.warnings)} warnings"
        if asked
        else "none is stored",
        "intervals": "95 %: Wilson score for rates; they say how far a number could be off because "
        "only these images were tried",
    }
    points = [f"Warning, {topic}: {text}" for topic, text in content.warnings.items()]
    for name, found in content.flags().items():
        setting, flag = found[0]
        more = f" and {len(found) - 1} more" if found[1:] else ""
        points.append(f"Caution, {name} ({setting.title}{more}): {flag.text}. {MEANINGS[name]}")
    points += [f"Note: {note}" for note in content.notes]
    return Part("Trust", facts=_shown(values), points=_cut(points or ["No flag was raised."]))


def _stable(facts: Facts) -> str:
    """Of a victim whose answers vary, how many successes can be repeated."""
    if not facts.content.randomised:
        return "not looked for: the victim's answers are declared as not varying"
    summaries = [report.summary for report in facts.content.settings]
    stable = sum(summary.stable.hits for summary in summaries if summary.stable)
    hits = sum(summary.asr.hits for summary in summaries)
    return f"{stable} of {hits} in most of several fresh answers"


def _provenance(facts: Facts, digest: str) -> Part:
    content = facts.content
    first, last = content.sessions[0], content.sessions[-1]
    values = {
        "run": content.name,
        "SHA-256 of the rows": digest,
        "sessions": f"{len(content.sessions)}, begun {first.began} to {last.began}"
        if len(content.sessions) > 1
        else f"one, begun {first.began}",
        **{name: value for name, value in last.provenance.items() if value is not None},
    }
    if content.about.spending is not None:
        values["books"] = content.about.spending.told()
    text = (
        "`brusle verify RUN` looks at every row, asks the victim again for every success, and "
        "prints the SHA-256 of the rows. It is a checksum and no signature. Software and machine "
        "are those of the last session.",
    )
    return Part("Provenance", text, _shown(values))


def _again(facts: Facts) -> Part:
    """How to get the same rows; folders of files are left out, as everywhere."""
    code = {}
    for number, plan in enumerate(facts.plans, 1):
        name = "plan.yaml" if len(facts.plans) == 1 else f"plan-{number}.yaml"
        said = f"Save this as {name}, then `brusle evaluate --config {name} --out again`"
        code[said] = _as_yaml(_plan_shown(plan))
    text = [
        "The same plan with the same version, weights and images gives the same rows, whatever the "
        "batch size, as far as the victim answers with the same labels: `brusle verify again` then "
        "prints the same SHA-256."
    ]
    if any(json.dumps("…/").strip('"') in said for said in code.values()):
        text.append("Folders are left out here (…/): write where your files are.")
    if any(map(_made_in_python, facts.plans)):
        text.append(
            "Some of this was made in Python, where a plan only describes it: give it to "
            "`brusle.evaluate` there."
        )
    return Part("The same again", tuple(text), code=code)


def _made_in_python(plan: Mapping[str, Any]) -> bool:
    """Whether a plan describes a victim, data or attacks instead of naming them."""
    nameless = any(":" not in victim for victim in _texts(plan.get("victim")))
    made = any("(" in attack for attack in _texts(plan.get("attacks")))
    return nameless or made or plan.get("data") == "arrays"


def _texts(value: Any) -> list[str]:
    """All texts in a part of a plan, which may be anything that JSON can be."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value
    return [x for one in inner for x in _texts(one)] if isinstance(value, dict | list) else []


def _as_yaml(plan: Mapping[str, Any]) -> str:
    """A line for each key, in JSON, which YAML can read."""
    lines = (f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in plan.items())
    return "{\n" + ",\n".join(lines) + "\n}"


def _plan_shown(value: Any) -> Any:
    if isinstance(value, str):
        return without_folders(value)
    if isinstance(value, Mapping):
        return {name: _plan_shown(mine) for name, mine in value.items()}
    return [_plan_shown(mine) for mine in value] if isinstance(value, list | tuple) else value


def _shown(values: Mapping[str, object]) -> dict[str, str]:
    return {name: without_folders(str(value)) for name, value in values.items()}


def _cut(lines: list[str]) -> tuple[str, ...]:
    return tuple(map(without_folders, lines))


def _table_as_dict(table: Listing) -> dict[str, Any]:
    rows = [[c.as_dict() if isinstance(c, Rate) else c for c in row] for row in table.rows]
    return {"caption": table.caption, "headers": table.headers, "rows": rows}
