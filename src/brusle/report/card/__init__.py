"""A robustness card: what a run is evidence of, how it was got, and what was not tested.

It is made from the store alone. `card_of` has all that it says, and the other modules write it.
"""

from brusle.report.card.content import Card, Part, card_of
from brusle.report.card.writing import card_html, card_markdown, card_pdf

__all__ = ["Card", "Part", "card_html", "card_markdown", "card_of", "card_pdf"]
