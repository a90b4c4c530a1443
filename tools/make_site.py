"""Build the documentation as a site.

    python tools/make_site.py             # build it in site/; fails if a link leads nowhere
    python tools/make_site.py --stage     # write only what it is built from, to build/docs
    python tools/make_site.py --llms      # write llms.txt anew, after the navigation has changed

The site is read without a network, from files or from any server: ``site/index.html``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from handbook import checking, overview
from handbook.staging import BUILD, ROOT, Staging

SITE = ROOT / "site"
_REMOTE = "https://unpkg.com/iframe-worker/shim"  # what zensical's offline plugin would load
_OWN = "assets/frame_worker.js"
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


def build() -> None:
    """Stage, build, and make what was built readable without a network."""
    Staging().stage()
    shutil.rmtree(SITE, ignore_errors=True)
    program = Path(sys.executable).with_name("zensical")
    command = [str(program), "build", "--strict", "--clean", "--config-file", "mkdocs.yml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stdout + done.stderr.partition("Traceback")[0]
        sys.exit(f"{_COLOUR.sub('', said)}the site is not built")
    for page in SITE.rglob("*.html"):
        own = Path(os.path.relpath(SITE / _OWN, page.parent)).as_posix()
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(_REMOTE, own), encoding="utf-8")
    for page in BUILD.rglob("*.md"):  # as Markdown, too, which llms.txt leads to
        target = SITE / page.relative_to(BUILD)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, target)
    (SITE / "llms.txt").write_text(overview.for_site(SITE), encoding="utf-8")


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stage", action="store_true", help="write build/docs only")
    parser.add_argument("--llms", action="store_true", help="write llms.txt only")
    asked = parser.parse_args()
    if asked.llms:
        overview.FILE.write_text(overview.for_repository(), encoding="utf-8")
        return
    if asked.stage:
        Staging().stage()
        return
    build()
    if wrong := [*checking.problems(SITE)]:
        sys.exit("\n".join([*wrong, f"{len(wrong)} problems: the site is not whole"]))
    print("the site is built and whole: open site/index.html")


if __name__ == "__main__":
    main()
