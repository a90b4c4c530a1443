"""Runs in experiment trackers: MLflow, Weights & Biases, TensorBoard.

What is written is what a run's store holds. A run is in a tracker once: logged again, it is found
there, and one that has got more rows takes the place of what was logged before, or says what it
replaces.
"""

from brusle.report.tracking.entries import Entries
from brusle.report.tracking.logged import Logged
from brusle.report.tracking.trackers import Tracker, log, open_trackers

__all__ = ["Entries", "Logged", "Tracker", "log", "open_trackers"]
