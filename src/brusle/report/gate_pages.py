"""What a gate has found, for people and for continuous integration: Markdown and JUnit's XML."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from brusle.evaluation.gating import Answer, Verdict
from brusle.report.markdown import plain
from brusle.text import shown

_NOT_IN_XML = re.compile("[\ufffe\uffff]")  # which no page may hold, not even escaped
_SIGNS = {
    "pass": "\N{WHITE HEAVY CHECK MARK} pass",
    "fail": "\N{CROSS MARK} fail",
    "undecided": "\N{WARNING SIGN} too few images",
}


def gate_markdown(verdict: Verdict) -> str:
    """For the summary of a job."""
    against = f", compared with {verdict.baseline}" if verdict.baseline else ""
    rows = ["| | asked | measured |", "|---|---|---|"]
    rows += [
        f"| {_SIGNS[answer.result]} | {plain(answer.condition.title)} | "
        f"{plain('; '.join(_found(answer)))} |"
        for answer in verdict.answers
    ]
    attacks = dict.fromkeys(name for answer in verdict.answers for name in answer.about)
    blocks = [
        f"## {_SIGNS[verdict.result]}: {plain(verdict.victim)} on {plain(verdict.data)}",
        f"{plain(verdict.text)}. Run {plain(verdict.run)}{plain(against)}.",
        "\n".join(rows),
        f"Attacks: {plain('; '.join(attacks))}.",
        "\n".join(f"- {plain(text)}" for text in verdict.cautions),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def gate_junit(verdict: Verdict) -> str:
    """One test case for each condition.

    What does not hold is a failure. Too few images are an error and not a skipped test, since
    a pipeline takes skipped tests for passed ones.
    """
    results = [answer.result for answer in verdict.answers]
    counts = {
        "tests": str(len(results)),
        "failures": str(results.count("fail")),
        "errors": str(results.count("undecided")),
        "skipped": "0",
    }
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "brusle gate", **counts})
    facts = {name: getattr(verdict, name) for name in ("run", "victim", "data", "baseline")}
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in {**facts, "confidence": f"{verdict.confidence:g} %"}.items():
        if value:
            ElementTree.SubElement(properties, "property", name=name, value=_text(value))
    for answer in verdict.answers:
        _case(suite, verdict, answer)
    if verdict.cautions:
        ElementTree.SubElement(suite, "system-out").text = _lines(list(verdict.cautions))
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + (
        ElementTree.tostring(suites, encoding="unicode") + "\n"
    )


def _case(suite: ElementTree.Element, verdict: Verdict, answer: Answer) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        {"classname": _text(verdict.victim), "name": answer.condition.title, "time": "0"},
    )
    if answer.result != "pass":
        kind = "failure" if answer.result == "fail" else "error"
        words = {"failure": "not robust enough", "error": "too few images to tell"}[kind]
        wrong = ElementTree.SubElement(case, kind, type=words, message=_text(answer.measured))
        wrong.text = _lines(_found(answer))
    ElementTree.SubElement(case, "system-out").text = _lines([*_found(answer), *answer.about])


def _found(answer: Answer) -> list[str]:
    return [text for text in (answer.measured, answer.advice) if text]


def _lines(texts: list[str]) -> str:
    return "\n".join(map(_text, texts))


def _text(text: str) -> str:
    """What XML may hold, on one line."""
    return _NOT_IN_XML.sub("\ufffd", shown(text))
