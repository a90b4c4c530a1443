"""Ray clusters that want a token, that are not there, and that die.

Every test has a home folder and ports of its own, so that nobody's cluster is disturbed.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import hostile

import brusle
from brusle.errors import InputError
from brusle.evaluation.running import ray_cluster
from brusle.evaluation.storing.store import Store

pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.ray]
IMAGES = torch.rand(40, *hostile.SHAPE, generator=torch.Generator().manual_seed(1))
MAIN = "from brusle.evaluation.running import ray_cluster as r; r.SILENCE = 6; r.WAIT = {wait}; "
MAIN += "from brusle.cli import main; main()"


def environment(home: Path) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return ours | {"HOME": str(home), "PYTHONPATH": paths, "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    labels = hostile.NET(IMAGES).argmax(1)
    np.savez(folder / "data.npz", images=IMAGES.numpy(), labels=labels.numpy())
    return folder


@pytest.fixture
def homes(tmp_path) -> tuple[Path, Path]:
    """A fresh one, and one in which Ray has left its token."""
    fresh, used = tmp_path / "fresh", tmp_path / "used"
    fresh.mkdir()
    (used / ".ray").mkdir(parents=True)
    (used / ".ray" / "auth_token").write_text("0123456789abcdef" * 4)
    return fresh, used


def evaluation(place: Path, home: Path, out: Path, *options: str, wait: float = 20) -> list[str]:
    return [
        *(sys.executable, "-c", MAIN.format(wait=wait), "evaluate", "--out", str(out)),
        *("--victim", "python:hostile:make?kind=slow", "--data", f"npz:{place / 'data.npz'}"),
        *("--goal", "untargeted", "--queries", "60", "--pixels", "1", "--batch-size", "2"),
        *options,
    ]


def evaluate(place: Path, home: Path, out: Path, *options: str, wait: float = 20):
    command = evaluation(place, home, out, *options, wait=wait)
    return subprocess.run(
        command, env=environment(home), capture_output=True, text=True, timeout=200
    )


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """``ray start --head``, as documented."""

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        ray = Path(sys.executable).parent / "ray"
        command = [str(ray), "start", "--head", f"--port={self.port}", "--num-cpus=2", "--block"]
        # a short path: those of sockets must be
        self.folder = tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True)
        command += ["--include-dashboard=false", f"--temp-dir={self.folder.name}"]
        self.log = home / "head.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, env=environment(home), stdout=log, stderr=log, start_new_session=True
            )

    def __enter__(self) -> str:
        until = time.monotonic() + 90
        while "This command will now block" not in self.log.read_text():
            assert time.monotonic() < until and self.process.poll() is None, self.log.read_text()
            time.sleep(0.2)
        found = re.search(rf"(\d+\.\d+\.\d+\.\d+:{self.port})", self.log.read_text())
        assert found is not None
        return found[1]

    def __exit__(self, *_) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.folder.cleanup()


def joining(address: str) -> tuple[str, ...]:
    return "--address", address, "--limit", "4"


def test_the_documented_cluster(place, homes, tmp_path) -> None:
    fresh, used = homes
    local = evaluate(place, fresh, tmp_path / "local", "--workers", "1", "--limit", "4")
    assert local.returncode == 0, local.stderr
    assert not (fresh / ".ray" / "auth_token").exists(), "a local run leaves no token"
    for home in homes:
        with Cluster(home) as address:
            # who has a token may join a cluster without
            done = evaluate(place, used, tmp_path / home.name / "run", *joining(address))
            assert done.returncode == 0, done.stderr
            if home is used:
                done = evaluate(place, fresh, tmp_path / "refused", *joining(address))
                assert done.returncode == 2
                assert "wants another token: copy ~/.ray/auth_token" in done.stderr
                assert len(done.stderr.strip().splitlines()) < 4


def test_an_address_where_nobody_is(monkeypatch) -> None:
    monkeypatch.setattr(ray_cluster, "WAIT", 4)
    arguments = (hostile.Net(), (IMAGES, hostile.NET(IMAGES).argmax(1)))
    with pytest.raises(InputError, match=r"^nobody listens at 127.0.0.1:\d+: is it the address"):
        brusle.evaluate(*arguments, engine=brusle.Ray(address=f"127.0.0.1:{free_port()}"))
    with pytest.raises(InputError, match=r"^there is no Ray cluster at nonsense"):
        brusle.evaluate(*arguments, engine=brusle.Ray(address="nonsense"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(InputError, match=r"did not let us in within 4 s\): see its address"):
            brusle.evaluate(*arguments, engine=brusle.Ray(address=address))


def child(parent: int, name: str) -> int:
    """The process of a command that was started with ``name``."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
            command = (status.parent / "cmdline").read_text().split("\0")[0]
        except OSError:
            continue
        if f"PPid:\t{parent}\n" in text and command.endswith(name):
            return int(status.parent.name)
    raise AssertionError(f"there is no {name}")


def count(folder: Path) -> int:
    try:
        with Store.read(folder) as store:
            return sum(len(list(store.rows(setting.number))) for setting in store.settings())
    except brusle.BrusleError:
        return 0


@pytest.mark.parametrize("part", ["gcs_server", "raylet"])
def test_a_cluster_that_dies(part, place, homes, tmp_path) -> None:
    fresh, out = homes[0], tmp_path / "run"
    command = evaluation(place, fresh, out, "--workers", "1")
    process = subprocess.Popen(
        command,
        env=environment(fresh),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    until = time.monotonic() + 120
    while not count(out):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.2)
    os.kill(child(process.pid, part), signal.SIGKILL)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 3, said
    stored = count(out)
    assert "error: the Ray cluster has died: its " in said
    assert f"{stored} of 80 attacks are stored" in said and "the same command goes on" in said
    assert 0 < stored < 80
