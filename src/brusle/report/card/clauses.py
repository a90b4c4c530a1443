"""Which clauses ask for what a card holds, in neutral words: evidence, and no judgement.

The clauses are paraphrased; the sources are NIST AI 100-1 (AI RMF 1.0, January 2023) and
Regulation (EU) 2024/1689, whose Article 15 is about AI systems of high risk.
"""

from __future__ import annotations

from dataclasses import dataclass

from brusle.report.card.facts import Facts
from brusle.report.listings import Listing

CAVEAT = (
    "The card gives evidence that somebody who looks into these clauses may use. It does not show "
    "conformity with any of them, it says nothing about whether a clause applies, and each asks "
    "for more than a test of one kind. The clauses are paraphrased; their own text counts."
)
_NIST, _EU = "NIST AI RMF 1.0", "EU AI Act"


@dataclass(frozen=True)
class Clause:
    """A clause that asks for something that the card has.

    Attributes:
        source: the document.
        number: of the clause.
        asks: what it asks for, in our words.
        here: what the card has of it, with the name of its part.
    """

    source: str
    number: str
    asks: str
    here: str


def clauses(facts: Facts) -> list[Clause]:
    """All of them; what there is depends on the run."""
    content = facts.content
    seeds = max(len(family.seeds) for family in content.families)
    varied = f", {seeds} seeds" if seeds > 1 else ""
    settings = f"{len(facts.settings)} settings on {content.images} images"
    return [
        Clause(
            _NIST,
            "MEASURE 1.1",
            "ways to measure are chosen, and what is not measured is documented",
            "Not tested: the list, derived from the run",
        ),
        Clause(
            _NIST,
            "MEASURE 2.1",
            "test sets, metrics and tools of the tests are documented",
            "How; Provenance: data and images with hashes, attacks with options, versions",
        ),
        Clause(
            _NIST,
            "MEASURE 2.5",
            "validity and reliability are demonstrated, and limits of generalisation documented",
            "Results: accuracy before any attack, with its interval; Not tested",
        ),
        Clause(
            _NIST,
            "MEASURE 2.7",
            "security and resilience are evaluated and documented",
            f"Results: {settings}, against changes of few pixels alone",
        ),
        Clause(
            _NIST,
            "MEASURE 2.13",
            "how effective the metrics and the process of testing are is evaluated",
            f"Trust: intervals{varied}, separate verification, flags",
        ),
        Clause(
            _EU,
            "Article 15(3)",
            "levels of accuracy and the metrics for it are declared in the instructions for use",
            "Results: accuracy before any attack on these images, which may be declared",
        ),
        Clause(
            _EU,
            "Article 15(5)",
            "resilience against third parties who try to alter use, outputs or performance; where "
            "appropriate, measures against, among others, inputs made to mislead the model "
            "(adversarial examples, model evasion)",
            "Results: how far such inputs mislead this model, for changes of few pixels. Data and "
            "model poisoning and attacks on confidentiality were not looked at",
        ),
    ]


def listing(facts: Facts) -> Listing:
    """They, as a table."""
    rows = [[f"{c.source}, {c.number}", c.asks, c.here] for c in clauses(facts)]
    headers = ["clause", "asks that", "evidence in this card"]
    return Listing("", headers, [[*row] for row in rows], worded=3)
