"""A Ray cluster: joined or started, asked before it is joined, and watched while it works.

Ray waits long for what is gone, and then ends the process itself.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brusle.calls import call
from brusle.environment import environment
from brusle.errors import InputError, VictimUnavailable, first_line
from brusle.packages import need

if TYPE_CHECKING:
    from types import ModuleType

LOOK = 2.0  # seconds between two looks at the cluster
WAIT = 20.0  # seconds for a cluster to let us in
SILENCE = 15.0  # seconds of a dead cluster, before we say so
_REFUSED = re.compile("Unauthenticated|InvalidAuthToken|AuthenticationError")


class ClusterDied(VictimUnavailable):
    """Nobody is left to work."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the Ray cluster has died: {reason}")


def import_ray() -> ModuleType:
    """Ray, which need not be installed."""
    ray: ModuleType = need("ray", "an evaluation by several workers", InputError)
    need("ray.exceptions", "an evaluation by several workers", InputError)
    return ray


@contextmanager
def connected(ray: ModuleType, workers: int | None, address: str | None) -> Iterator[None]:
    """In a cluster: the one that this process is in, the one at the address, or one of our own."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # whom it tests is nobody's business
    options: dict[str, Any] = {"address": address}
    if address is None:
        # a victim made in Python is found where this process finds it
        path = {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}}
        options = {
            "num_cpus": workers,
            "include_dashboard": False,
            "runtime_env": path,
        }
    with _token(address):
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", **options)
        except (ValueError, RuntimeError, OSError, ray.exceptions.RayError) as error:
            raise InputError(
                f"Ray does not start ({first_line(error)}): see its address and its logs"
            ) from error
        try:
            yield
        except ClusterDied:
            with suppress(TimeoutError):  # it may wait for the dead
                call(ray.shutdown, LOOK)
            raise
        except BaseException:
            ray.shutdown()
            raise
        ray.shutdown()


@contextmanager
def _token(address: str | None) -> Iterator[None]:
    """What Ray's authentication needs; the user's own settings win.

    Since 2.60, Ray writes a token into the home folder for a cluster on this machine, and from then
    on ``ray start --head`` asks for it. A cluster of ours gets a token of its own and leaves none
    behind. One at an address is asked whether it wants a token: Ray would not show it by itself.
    """
    mode, secret = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"
    values: dict[str, str] = {}
    if address is not None:
        values[mode] = _admission(address)
    elif mode not in os.environ:
        values[mode] = "token"
        if not _has_token():
            values[secret] = secrets.token_hex(32)
    try:
        with environment(values):
            _read_token_again()
            yield
    finally:
        _read_token_again()


def _admission(address: str) -> str:
    """The authentication mode in which a cluster lets us in; raise if there is none."""
    if ":" in address and not address.startswith("ray://") and not _listens(address):
        raise InputError(f"nobody listens at {address}: is it the address of a Ray cluster?")
    chosen = os.environ.get("RAY_AUTH_MODE")
    reason = ""
    for mode in [chosen] if chosen else ["disabled", "token"]:
        if mode == "token" and not _has_token():
            break
        reason = _knock(address, mode)
        if not reason:
            return mode
        if not _REFUSED.search(reason):
            raise InputError(f"there is no Ray cluster at {address} ({reason}): see its address")
    raise InputError(
        f"the Ray cluster at {address} wants another token: copy ~/.ray/auth_token of its first "
        f"machine, or set RAY_AUTH_TOKEN"
    )


def _knock(address: str, mode: str) -> str:
    """Why a cluster does not let us in, or empty; asked by a process, since Ray may wait long."""
    script = "import sys, ray; ray.init(sys.argv[1], log_to_driver=False); ray.shutdown()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, address],
        env=os.environ | {"RAY_AUTH_MODE": mode},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stderr is not None
    late = threading.Timer(WAIT, process.kill)
    late.start()
    reason = "it does not say why"
    for line in process.stderr:
        reason = line.strip() or reason
        if _REFUSED.search(line):
            process.kill()  # it would try again for a while
            break
    process.stderr.close()
    code = process.wait()
    in_time = late.is_alive()
    late.cancel()
    if code == 0:
        return ""
    known = _REFUSED.search(reason) or in_time
    return reason if known else f"it did not let us in within {WAIT:.0f} s"


def _has_token() -> bool:
    """Whether Ray would find a token."""
    file = os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token"
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or Path(file).is_file()


def _read_token_again() -> None:
    """Ray keeps what it has read for the whole process; older ones know no tokens."""
    with suppress(ImportError, AttributeError):
        raylet: Any = import_module("ray._raylet")
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()


class Pulse:
    """Whether the processes live without which a cluster is dead: its head, and this machine's.

    Ray would wait for them, and then end this process without a word of ours.

    Attributes:
        silent: one of them did not listen when it was last looked at.
    """

    def __init__(self, ray: ModuleType) -> None:
        context = ray.get_runtime_context()
        (here,) = (node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
        raylet = f"{here['NodeManagerAddress']}:{here['NodeManagerPort']}"
        self._parts = {context.gcs_address: "head", raylet: "process on this machine"}
        self.silent = False
        self._heard = self._looked = time.monotonic()

    def check(self) -> None:
        """Look now and then; raise if one has been silent for too long."""
        now = time.monotonic()
        if now < self._looked + LOOK:
            return
        self._looked = now
        dead = [f"{what} at {where}" for where, what in self._parts.items() if not _listens(where)]
        self.silent = bool(dead)
        if not dead:
            self._heard = now
        elif now > self._heard + SILENCE:
            raise ClusterDied(f"its {dead[0]} has not answered for {SILENCE:.0f} s")


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=LOOK).close()
    except (OSError, ValueError):
        return False
    return True
