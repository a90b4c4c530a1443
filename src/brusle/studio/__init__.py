"""A page on this machine to watch searches live, and run folders as they are written.

with brusle.studio.Studio(victims=[my_model], runs=["runs/first"]) as studio:
    print(studio.url)  # to be opened in a browser
"""

from brusle.studio.server import Studio

__all__ = ["Studio"]
