"""A journal: what a victim has answered, and what was sent to it, in one SQLite file.

An answer is in the file before anybody sees it, known by the bytes of its image and the number of
the draw. Attacks are deterministic, so after a kill the same command gets the same answers from
here, and asks only for what is new. The file is a result, and was paid for: one that is damaged is
refused and left as it is.
"""

from brusle.journal.about import About
from brusle.journal.answers import Key, image_hashes
from brusle.journal.canary import Look
from brusle.journal.journal import FILE, Journal

__all__ = ["FILE", "About", "Journal", "Key", "Look", "image_hashes"]
