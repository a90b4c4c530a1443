"""Evaluations on several processes and machines, some of which die."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

import brusle
from brusle.attacks import BruSLe
from brusle.errors import InputError, VictimUnavailable
from brusle.evaluation.running.ray_worker import Order, open_once
from brusle.evaluation.running.victim import VictimSpec
from brusle.victims.fingerprints import fingerprint

sys.path.insert(0, str(Path(__file__).parent))
import survivor
from stored import stored
from survivor import entries, lines, owners


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("local")
    survivor.evaluate(folder / "run", folder / "log")
    return stored(folder / "run")


@pytest.fixture
def two_nodes(monkeypatch):
    """A cluster of two nodes with one core each."""
    import ray
    from ray.cluster_utils import Cluster

    here = Path(__file__).parent
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(here), str(here.parent), *sys.path]))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    yield nodes
    ray.shutdown()
    nodes.shutdown()


class Killer(threading.Thread):
    """Kills a node while it works, and remembers what the world was like then."""

    def __init__(self, nodes, folder: Path, log: Path, after: int) -> None:
        super().__init__(daemon=True)
        self.nodes, self.folder, self.log, self.after = nodes, folder, log, after
        self.node = nodes.add_node(num_cpus=1)
        self.over = threading.Event()
        self.done: Counter[int] = Counter()
        self.asked = 0

    def run(self) -> None:
        (raylet,) = self.node.all_processes["raylet"]
        while len(lines(self.log)) < self.after or not self._works(raylet.process.pid):
            if self.over.wait(0.01):
                return
        self.nodes.remove_node(self.node, allow_graceful=False)
        self.asked = len(lines(self.log))
        self.done = Counter(problem for _, problem in stored(self.folder))

    def _works(self, raylet: int) -> bool:
        """Whether the last to ask the victim was a child of this process."""
        _, process = entries(self.log)[-1]
        status = Path(f"/proc/{process}/status")
        return status.exists() and f"PPid:\t{raylet}\n" in status.read_text()


@pytest.mark.slow
@pytest.mark.ray
def test_a_node_dies_and_the_rows_are_the_same(two_nodes, expected, tmp_path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    killer = Killer(two_nodes, folder, log, after=700)
    killer.start()
    engine = brusle.Ray(address=two_nodes.address)
    victim = survivor.Logging(log, delay=0.03, together=2)
    survivor.evaluate(folder, log, victim, engine=engine)
    killer.over.set()
    killer.join()
    assert 0 < sum(killer.done.values()) < 80, "nothing was killed mid-run"
    assert stored(folder) == expected
    whose = owners(sorted({problem for _, problem in expected}))
    again = Counter(whose[key] for key in lines(log)[killer.asked :])
    # a goal has two settings for each problem: with both stored, nobody may ask again
    finished = [problem for problem, count in killer.done.items() if count == 2]
    assert finished and not [problem for problem in finished if again[problem]]
    # what the node was working on was begun anew
    ledgers = sum(sum(sizes(row)) for row in expected.values())
    assert len(lines(log)) > ledgers


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize(("workers", "batch_size"), [(1, 64), (2, 3)])
def test_the_rows_do_not_depend_on_workers_and_batch(
    workers, batch_size, expected, tmp_path
) -> None:
    run = survivor.evaluate(
        tmp_path / "run", tmp_path / "log", batch_size=batch_size, engine=brusle.Ray(workers)
    )
    assert stored(tmp_path / "run") == expected
    asked = Counter(run.results[0].ledger.total.tolist())
    assert asked == Counter(sum(sizes(row)) for key, row in expected.items() if key[0] == 1)


def sizes(row) -> tuple[int, ...]:
    return (row.clean, row.initial, row.search, row.verify)


@pytest.mark.slow
@pytest.mark.ray
def test_the_caller_is_killed_and_another_engine_goes_on(expected, tmp_path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    command = [sys.executable, survivor.__file__, str(folder), str(log), "2"]
    process = subprocess.Popen(command)
    while process.poll() is None and len(lines(log)) < 800:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = stored(folder)
    assert 0 < len(before) < 80 and before.items() <= expected.items()
    run = survivor.evaluate(folder, tmp_path / "other")
    assert run.resumed == len(before)
    assert stored(folder) == expected


class Deadly(survivor.Logging):
    """Takes its worker with it when it sees one certain image."""

    def draw(self, images, keys):
        bad = survivor.data()[0][3]
        if self.away and bool(
            (images[:, :, 1:] == bad[:, 1:]).flatten(1).float().mean(1).gt(0.9).any()
        ):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().draw(images, keys)


@pytest.mark.slow
@pytest.mark.ray
def test_an_image_that_kills_every_worker(two_nodes, tmp_path) -> None:
    arguments = (Deadly(tmp_path / "log"), survivor.data(), [BruSLe(3, 40)], "untargeted")
    options = {"out": tmp_path / "run", "batch_size": 2, "seed": 2}
    engine = brusle.Ray(address=two_nodes.address)
    with pytest.raises(VictimUnavailable, match="a worker died 3 times on the same . images"):
        brusle.evaluate(*arguments, engine=engine, **options)
    kept = stored(tmp_path / "run")
    whole = survivor.evaluate(tmp_path / "whole", tmp_path / "other")
    assert kept and kept.items() <= stored(tmp_path / "whole").items()
    assert whole.resumed == 0


class Down(survivor.Logging):
    """Goes down, for all processes, after so many queries."""

    patience = brusle.Patience(waits=0)

    def draw(self, images, keys):
        if len(lines(self.log)) > 700:
            raise ConnectionRefusedError("nobody listens")
        return super().draw(images, keys)


@pytest.mark.slow
@pytest.mark.ray
def test_a_victim_that_goes_down_stops_all_workers(two_nodes, expected, tmp_path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    engine = brusle.Ray(address=two_nodes.address)
    with pytest.raises(VictimUnavailable, match="logging does not answer") as caught:
        survivor.evaluate(folder, log, Down(log), engine=engine)
    kept = stored(folder)
    assert caught.value.__notes__ == [f"{len(kept)} of 80 attacks are stored in {folder}"]
    assert 0 < len(kept) < 80 and kept.items() <= expected.items()  # no error rows
    run = survivor.evaluate(folder, tmp_path / "other")
    assert run.resumed == len(kept) and stored(folder) == expected


@pytest.mark.slow
@pytest.mark.ray
def test_errors_of_workers_arrive_as_they_are(two_nodes, tmp_path) -> None:
    data = survivor.data()
    engine = brusle.Ray(address=two_nodes.address)
    attack = brusle.attacks.PGD0(3, 10)
    victim = survivor.Logging(tmp_path / "log")
    with pytest.raises(InputError, match=r"^PGD0 is a white-box attack and needs gradients"):
        brusle.evaluate(victim, data, [attack], "untargeted", engine=engine)


def net(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))


def test_workers_refuse_what_would_mix() -> None:
    spec = VictimSpec(net(0))
    weights = fingerprint(spec.open())
    victim = open_once(Order("a", spec, weights, brusle.__version__))
    assert open_once(Order("a", spec, weights, brusle.__version__)) is victim  # opened once
    with pytest.raises(InputError, match="has other weights on a worker's machine"):
        open_once(Order("b", VictimSpec(net(1)), weights, brusle.__version__))
    with pytest.raises(InputError, match=r"a worker has brusle \S+, this is 9: install the same"):
        open_once(Order("c", spec, weights, "9"))


def test_without_ray(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r'the package ray: pip install "brusle\[ray\]"'):
        brusle.evaluate(limit=1, engine=brusle.Ray(2))
    with pytest.raises(InputError, match="workers is 0"):
        brusle.Ray(0)
