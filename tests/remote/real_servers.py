"""Inference servers that other people wrote, started for a test on a free port of this machine.

Each lives in a virtual environment of its own, which only ``make test-remote`` installs. What they
serve is in ``servers/``.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import httpx
import pytest

MODEL = "resnet"
LEVELS = "resnet-levels"  # Triton has the same net for 8-bit images with the channels last
MOST = 4  # images that Triton takes in one call, in its config.pbtxt

_DEMANDED = os.environ.get("BRUSLE_TEST_SERVERS")
_INSTALLED = Path(_DEMANDED or Path(__file__).parents[2] / ".venv-servers").resolve()
_SCRIPTS = Path(__file__).parent / "servers"
_PATIENCE = 60.0
_GRACE = 10.0


@dataclass(frozen=True)
class Command:
    """How a server is started.

    Attributes:
        arguments: the program and its arguments.
        variables: added to the environment.
    """

    arguments: list[str | Path]
    variables: dict[str, str] = field(default_factory=dict)


@contextmanager
def serving(name: str, net: Path, folder: Path) -> Iterator[str]:
    """Run a server while the context lasts.

    Args:
        name: ``"mlserver"``, ``"kserve"`` or ``"triton"``.
        net: the ONNX file to serve, as `MODEL`.
        folder: an empty one, for its log and what else it needs.

    Yields:
        Its address.
    """
    environment = _INSTALLED / name
    if not (environment / ".installed").exists():
        _missing(f"{name} is not installed in {environment}: run make test-remote")
    port = _free_port()
    command = _COMMANDS[name](environment, port, folder)
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command.arguments,
            env=_variables(environment, net) | command.variables,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that its children can be ended with it
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(process, f"{url}/v2/models/{MODEL}/ready", log)
        yield url
    finally:
        _end(process)


def _mlserver(environment: Path, port: int, folder: Path) -> Command:
    ports = {"MLSERVER_HTTP_PORT": str(port), "MLSERVER_GRPC_PORT": str(_free_port())}
    return Command([environment / "bin/mlserver", "start", _SCRIPTS / "mlserver"], ports)


def _kserve(environment: Path, port: int, folder: Path) -> Command:
    return Command([environment / "bin/python", _SCRIPTS / "kserve_server.py", str(port)])


def _triton(environment: Path, port: int, folder: Path) -> Command:
    """The binary in pytriton's wheel, which runs on the CPU where there is no GPU."""
    (packages,) = environment.glob("lib/python*/site-packages")
    server = packages / "pytriton/tritonserver"
    repository, backends = folder / "models", folder / "backends"
    for model in (MODEL, LEVELS):
        shutil.copytree(_SCRIPTS / "triton" / model, repository / model)
        (repository / model / "1").mkdir()
        # it imports only what lies beside the model
        for script in (_SCRIPTS / "triton/model.py", _SCRIPTS / "net.py"):
            shutil.copy(script, repository / model / "1")
    # the wheel has a stub for every Python; the right one belongs beside the backend
    shutil.copytree(server / "backends", backends)
    python = packages.parent.name.removeprefix("python")
    stub = server / "python_backend_stubs" / python / "triton_python_backend_stub"
    shutil.copy(stub, backends / "python")
    options = {
        "model-repository": repository,
        "backend-directory": backends,
        "http-address": "127.0.0.1",
        "http-port": port,
        "allow-grpc": "false",
        "allow-metrics": "false",
        "exit-timeout-secs": 3,
    }
    return Command(
        [server / "bin/tritonserver", *(f"--{name}={value}" for name, value in options.items())],
        {"LD_LIBRARY_PATH": str(packages / "nvidia_pytriton.libs")},
    )


_COMMANDS = {"mlserver": _mlserver, "kserve": _kserve, "triton": _triton}
NAMES = tuple(_COMMANDS)


def _variables(environment: Path, net: Path) -> dict[str, str]:
    """An environment in which the server's Python is the first, with the net and its reader."""
    return os.environ | {
        "BRUSLE_TEST_NET": str(net),
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(_SCRIPTS),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _missing(reason: str) -> NoReturn:
    """A server that was demanded must be there; else its tests are left out."""
    if _DEMANDED:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(process: subprocess.Popen[bytes], ready: str, log: Path) -> None:
    """Return when the server says that it is ready; fail with the end of its log if it does not."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.get(ready, timeout=5).is_success:
                return
        time.sleep(0.1)
    end = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
    pytest.fail(f"the server did not become ready; the end of its log:\n{end}", pytrace=False)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and its children: by a word, so that it tidies up, and then by force."""
    process.send_signal(signal.SIGTERM)
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    finally:
        with suppress(ProcessLookupError):  # all have left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
