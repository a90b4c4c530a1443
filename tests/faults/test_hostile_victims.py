"""A bench of victims that do what a victim should not: right rows or a clear line, no harm done."""

import json
import os
import random
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import hostile

import brusle
from brusle.attacks import BruSLe
from brusle.calls import call
from brusle.data import save_image
from brusle.errors import InputError, VictimError, VictimUnavailable
from brusle.evaluation import check, choose
from brusle.victims import load_victim, timed, wrap
from brusle.victims.fingerprints import fingerprint

pytestmark = pytest.mark.slow

LEVELS = torch.randint(0, 256, (8, *hostile.SHAPE), generator=torch.Generator().manual_seed(1))
IMAGES = LEVELS / 255
LABELS = hostile.NET(IMAGES).argmax(1)
ATTACK = BruSLe(3, 30)
SLOW = {"sleeps", "busy"}


def evaluate(victim, out=None, **options) -> brusle.Run:
    options = {"on_warning": lambda text: None, "seed": 3} | options
    return brusle.evaluate(victim, (IMAGES, LABELS), [ATTACK], "untargeted", out, **options)


def rows(run: brusle.Run) -> list[tuple]:
    (setting,) = run.settings
    stored = sorted(run.stored(setting), key=lambda row: row.problem)
    return [(row.problem, row.status, row.queries, row.edits) for row in stored]


@pytest.fixture(scope="module")
def expected() -> list[tuple]:
    return rows(evaluate(wrap(lambda x: hostile.NET(x).detach(), output="logits")))


@pytest.fixture
def unchanged():
    """The caller's settings are as they were."""
    before = settings()
    yield
    after = settings()
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)
    assert after == before


def settings() -> tuple:
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        os.getcwd(),
        sys.stdout,
    )


@pytest.fixture
def few_descriptors():
    """The leak ends soon."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = set(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) + 40, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for number in set(os.listdir("/proc/self/fd")) - before:
        try:
            leaked = os.readlink(f"/proc/self/fd/{number}") == os.devnull
        except OSError:
            continue
        if leaked:
            os.close(int(number))


IN_PROCESS = [kind for kind in hostile.GOOD if kind != "new threads"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("timeout", [None, 30])
@pytest.mark.parametrize("kind", IN_PROCESS)
def test_rows_are_those_of_the_net(kind, timeout, expected) -> None:
    assert rows(evaluate(hostile.victim(kind), timeout=timeout)) == expected


@pytest.mark.usefixtures("unchanged", "few_descriptors")
@pytest.mark.parametrize("timeout", [None, 30])
@pytest.mark.parametrize("kind", hostile.BAD)
def test_a_clear_error(kind, timeout, tmp_path) -> None:
    if kind in SLOW:
        timeout = 0.2
    with pytest.raises(VictimError) as caught:
        evaluate(hostile.victim(kind), tmp_path / "run", timeout=timeout)
    text = str(caught.value)
    assert hostile.BAD[kind][1] in text and "\n" not in text
    # what can be over next time is not stored as a result
    (note,) = caught.value.__notes__
    assert note.startswith("0 of 8 attacks are stored")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("timeout", [None, 30])
@pytest.mark.parametrize("kind", hostile.SOME)
def test_images_that_it_fails_on_are_errors(kind, timeout, expected) -> None:
    found = rows(evaluate(hostile.victim(kind), timeout=timeout))
    wrong = [row for row in found if row[1] == "error"]
    assert 0 < len(wrong) < 8
    assert all(row in expected for row in found if row not in wrong)


@pytest.mark.usefixtures("unchanged")
def test_ctrl_c_is_no_error_of_the_victim() -> None:
    victim = wrap(hostile.raising(KeyboardInterrupt()), output="logits")
    for timeout in (None, 30):
        with pytest.raises(KeyboardInterrupt):
            evaluate(victim, timeout=timeout)


def test_a_module_that_loses_its_weights_in_the_middle(expected) -> None:
    found = rows(evaluate(hostile.Deleting(), batch_size=2))
    assert {row[1] for row in found} <= {"success", "failed", "error"}
    assert any(row[1] == "error" for row in found)
    assert all(row in expected for row in found if row[1] != "error")


def test_a_module_that_replaces_its_weights_in_the_middle() -> None:
    (note,) = evaluate(hostile.Learning()).notes
    assert note.startswith("the weights of Learning changed while it was attacked")
    assert evaluate(hostile.Net()).notes == []


@pytest.mark.parametrize("name", ["brusle", "pixel-bandit", "sparse-rs", "pgd0", "one-pixel"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_rows_do_not_depend_on_the_callers_default_type(name, dtype) -> None:
    attack, net = brusle.attacks.make(name, 3, 30), hostile.Net()
    usual = attack(net, IMAGES, LABELS)
    torch.set_default_dtype(dtype)
    try:
        found = attack(net, IMAGES, LABELS)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.status == usual.status and found.images.equal(usual.images)


def test_reseeding_is_the_victims_own_business() -> None:
    torch.manual_seed(5), np.random.seed(5), random.seed(5)  # noqa: NPY002
    before = torch.random.get_rng_state()
    evaluate(wrap(lambda x: hostile.NET(x).detach(), output="logits"), timeout=30)
    assert torch.random.get_rng_state().equal(before)


CALLS = {
    "attack": lambda victim, data: ATTACK(victim, IMAGES, LABELS),
    "pairs": lambda victim, data: choose(data, victim),
}
UNFIT = ["sleeps", "sys.exit", "os._exit", "BaseException", "mute"]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("ask", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("kind", UNFIT)
def test_other_ways_to_ask(ask, kind, place) -> None:
    with pytest.raises(VictimError, match=hostile.BAD[kind][1]):
        ask(timed(hostile.victim(kind), 0.2), f"npz:{place / 'data.npz'}")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("kind", [kind for kind in UNFIT if kind not in SLOW])
def test_a_check_says_what_is_wrong(kind, place) -> None:
    found = check(timed(hostile.victim(kind), 0.2), f"npz:{place / 'data.npz'}")
    assert found.failed


# the time limit


def test_a_timed_victim_is_the_bare_one_in_all_else(expected) -> None:
    victim = brusle.load_victim("zoo:cifar10-resnet20", "cpu")
    patient = timed(victim, 30)
    assert fingerprint(patient) == fingerprint(victim) != ""
    assert patient.name == victim.name and timed(victim, None) is victim
    noisy = brusle.defences.make("rnd:0.1", timed(victim, 30))
    assert noisy.patience.call == 30 and noisy.randomised
    assert timed(brusle.defences.make("rnd:0.1", victim), 30).randomised
    assert rows(evaluate(hostile.Net(), timeout=30)) == expected
    for bad in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="it must be above 0"):
            timed(victim, bad)


@pytest.mark.parametrize("attack", [brusle.attacks.PGD0(3, 10), brusle.attacks.BruSLe(3, 20)])
def test_gradients_and_noise_with_a_time_limit(attack) -> None:
    net = hostile.Net()
    for model in (net, brusle.defences.make("rnd:0.1", brusle.victims.as_victim(net))):
        if attack.behaviour.needs == "gradients" and model is not net:
            continue
        bare, limited = (
            attack(victim, IMAGES, LABELS)
            for victim in (model, timed(brusle.victims.as_victim(model), 30))
        )
        assert bare.status == limited.status and bare.images.equal(limited.images)
        assert bare.ledger.total.equal(limited.ledger.total)


def test_a_victim_that_hangs_now_and_then_is_asked_again(expected) -> None:
    calls, release = [], threading.Event()

    def function(x):
        calls.append(threading.current_thread())
        if len(calls) in (2, 3):
            release.wait()
        return hostile.NET(x).detach()

    patience = brusle.Patience(first=0, call=0.5)
    try:
        found = rows(evaluate(wrap(function, output="logits", patience=patience)))
    finally:
        release.set()
    assert found == expected
    assert len(set(calls)) == 3, "one thread, and one more for each that hangs"


def test_a_module_that_hangs_is_given_back_by_the_last() -> None:
    entered, release = threading.Event(), threading.Event()

    class Hanging(hostile.Net):
        def forward(self, x):
            if not entered.is_set():
                entered.set()
                release.wait()
            self.seen = self.training
            return super().forward(x)

    module = Hanging().train()
    victim = brusle.victims.as_victim(module)
    with pytest.raises(TimeoutError):
        call(lambda: victim(IMAGES), 0.2)
    victim(IMAGES)
    assert not module.seen and not module.training, "somebody still has it"
    release.set()
    until = time.monotonic() + 30
    while not module.training:
        assert time.monotonic() < until, "it is not given back"
        time.sleep(0.01)


def test_modes_of_torch_follow_the_call() -> None:
    def modes():
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_num_threads()

    with torch.no_grad():
        assert call(modes, 30) == (False, False, torch.get_num_threads())
    with torch.inference_mode():
        assert call(modes, 30)[1]
    assert call(modes, 30)[:2] == (True, False)
    assert call(lambda: call(modes, 30), 30)[0], "calls may be nested"


# the command line, where standard output, exit codes and the end of the process count


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    np.savez(folder / "data.npz", images=IMAGES.numpy(), labels=LABELS.numpy())
    save_image(IMAGES[0], folder / "one.png")
    return folder


def brusle_command(place: Path, *arguments: str, kind: str) -> subprocess.CompletedProcess[str]:
    paths = [str(Path(__file__).parent), *sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    victim = ("--victim", f"python:hostile:make?kind={kind}", "--device", "cpu")
    command = [sys.executable, "-c", "from brusle.cli import main; main()", *arguments, *victim]
    return subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=300
    )


DATA = ("--data", "npz:data.npz")
COMMANDS = {
    "evaluate": (*DATA, "--goal", "untargeted", "--queries", "20", "--pixels", "3"),
    "attack": ("one.png", "--queries", "20", "--pixels", "3"),
    "check": DATA,
    "pairs": DATA,
}


@pytest.mark.parametrize("kind", ["noisy", "prints"])
@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_victim_prints_is_no_json(name, kind, place) -> None:
    done = brusle_command(place, name, *COMMANDS[name], "--json", kind=kind)
    assert done.returncode in (0, 1), done.stderr
    json.loads(done.stdout)
    for text in ("printed", "to the first stdout", "to the descriptor", "by a process", "in C"):
        assert text in done.stderr


ENDINGS = {
    "sys.exit": "tried to end the program",
    "os._exit": "tried to end the program",
    "exits early": "SystemExit: 0",
    "exits early and hard": "SystemExit: 0",
    "plague": "Plague: at once",
    "BaseException": "Plague",
    "sleeps": "no answer within 1 s",
}
EVERYWHERE = ("os._exit", "exits early and hard", "sleeps")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name in COMMANDS
        for kind in ENDINGS
        if kind in EVERYWHERE or name == "check"
    ],
)
def test_no_end_is_taken_for_a_result(name, kind, place) -> None:
    done = brusle_command(place, name, *COMMANDS[name], "--timeout", "1", kind=kind)
    assert done.returncode == 3
    assert ENDINGS[kind] in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["new threads", "exit in a thread", "wanders", "folder"])
def test_the_command_ends_and_its_files_are_where_they_should_be(kind, place, tmp_path) -> None:
    out = os.path.relpath(tmp_path / "run", place)
    done = brusle_command(place, "evaluate", *COMMANDS["evaluate"], "--out", out, kind=kind)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "rows.csv").exists()


def test_a_factory_that_exits_is_an_error_in_python_too(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    here = os.getcwd()
    for kind in ("exits early", "exits early and hard", "plague"):
        with pytest.raises(VictimError, match="failed: (SystemExit: 0|Plague: at once)"):
            load_victim(f"python:hostile:make?kind={kind}")
    load_victim("python:hostile:make?kind=wanders")
    assert os.getcwd() == here


def test_os_exit_is_itself_again() -> None:
    evaluate(hostile.victim("numpy"))
    evaluate(hostile.victim("numpy"), timeout=30)
    code = "import os, brusle.calls as c; c.call(int); c.call(int, 9); os._exit(7)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 7


def test_unavailable_is_what_a_timeout_is() -> None:
    with pytest.raises(VictimUnavailable, match=r"sleeps does not answer \(TimeoutError: no ans"):
        evaluate(hostile.victim("sleeps"), timeout=0.2)
