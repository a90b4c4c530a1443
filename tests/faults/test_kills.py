"""Runs that are killed, again and again: nothing that was shown is lost, and each gets ahead."""

import multiprocessing
import random
import time
from pathlib import Path

import mortal
import pytest
from mortal import asked, calls
from stored import stored

from brusle.evaluation.record import Row
from brusle.evaluation.storing.pending import EVERY, FILE

pytestmark = pytest.mark.slow


def killed(count: int, folder: Path, log: Path, kind: str, delay: float) -> bool:
    """Run it and kill it after so many calls of the victim; False if it has ended before."""
    until = len(calls(log)) + count
    # a fork: to start Python and import torch would take longer than all the rest
    process = multiprocessing.get_context("fork").Process(
        target=mortal.live, args=(folder, log, kind, delay)
    )
    process.start()
    while process.is_alive() and len(calls(log)) < until:
        time.sleep(0.005)
    process.kill()
    process.join()
    assert process.exitcode in (0, -9)
    return process.exitcode != 0


@pytest.mark.parametrize("kind", mortal.ATTACKS)
def test_killed_at_random_and_the_rows_are_the_same(kind, tmp_path) -> None:
    mortal.run(tmp_path / "whole", tmp_path / "whole.log", kind)
    expected = stored(tmp_path / "whole")
    folder, log, delay = tmp_path / "run", tmp_path / "log", 0.02
    chance, kills = random.Random(kind), 0
    seen: dict[tuple[int, int], Row] = {}
    while killed(chance.randint(1, 15), folder, log, kind, delay):
        kills += 1
        if (folder / "results.sqlite").exists():
            now = stored(folder)
            assert seen.items() <= now.items() <= expected.items()
            seen = now
        assert kills < 100
    assert kills >= 2
    assert stored(folder) == expected
    # what was asked again: the clean images, and the answers of the last moment before a kill
    batch = mortal.IMAGES
    again = sum(count - 1 for count in asked(log).values())
    settings = len(mortal.ATTACKS[kind])
    each = (EVERY / delay + 3) * batch + 2 * settings * batch
    assert again <= kills * each
    assert not (folder / FILE).exists(), "nothing is pending"


# attacks of 60 queries; one that starts at an adversarial image has none here
LONG = ("brusle", "pixel-bandit", "restarts", "ensemble", "minimal")


@pytest.mark.parametrize("kind", [f"{name}-against-stubborn" for name in LONG])
def test_a_run_that_never_lives_as_long_as_an_attack_gets_ahead(kind, tmp_path) -> None:
    mortal.run(tmp_path / "whole", tmp_path / "whole.log", kind)
    expected = stored(tmp_path / "whole")
    assert {row.status for row in expected.values()} == {"failed"}
    folder, log = tmp_path / "run", tmp_path / "log"
    lives = 1
    # an attack takes 60 calls of the victim, and no life has more than 40
    while killed(40, folder, log, kind, 0.05):
        lives += 1
        assert lives < 25
    assert lives > 2
    assert stored(folder) == expected


@pytest.mark.parametrize("kind", ["brusle", "minimal", "restarts", "ensemble"])
def test_ctrl_c_costs_no_answer(kind, tmp_path) -> None:
    log = tmp_path / "log"
    mortal.run(tmp_path / "whole", tmp_path / "whole.log", kind)
    before = mortal.Mortal.draw

    def interrupted(self, images, keys):
        if len(calls(log)) == 17:
            raise KeyboardInterrupt
        return before(self, images, keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mortal.Mortal, "draw", interrupted)
        with pytest.raises(KeyboardInterrupt):
            mortal.run(tmp_path / "run", log, kind)
    assert (tmp_path / "run" / FILE).exists()
    done = stored(tmp_path / "run")
    mortal.run(tmp_path / "run", log, kind)
    assert stored(tmp_path / "run") == stored(tmp_path / "whole")
    again, once = asked(log), asked(tmp_path / "whole.log")
    # a first look and the clean images a second time, and nothing else
    assert sum((again - once).values()) <= 2 * (mortal.IMAGES - len(done))
