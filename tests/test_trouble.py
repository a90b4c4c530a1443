"""The victim's trouble: told from an image's, waited for, and no result."""

import errno
import http.server
import math
import pickle
import socket
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest
import torch
from models import integer_model, own_labels, random_images

import brusle
from brusle import rng
from brusle.attacks import BruSLe, Ensemble, Minimal, Pointwise, Restarts
from brusle.defences import make as defend
from brusle.errors import InputError, VictimError, VictimUnavailable
from brusle.evaluation.record import Row
from brusle.evaluation.storing.store import Store
from brusle.oracle import Oracle
from brusle.problems import Problems
from brusle.session import run
from brusle.trouble import Patience, find_trouble, patiently, tells_of_trouble
from brusle.verify import STABLE_DRAWS
from brusle.victim import traits
from brusle.victims import wrap

SHAPE, CLASSES, IMAGES, BATCH, SEED = (3, 8, 8), 5, 20, 6, 2


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch) -> None:
    """They take most of the time of a small run, and say nothing here."""
    monkeypatch.setattr("brusle.report.run_folder.write_pictures", lambda run, folder: None)


class Service(http.server.BaseHTTPRequestHandler):
    """Answers /503 with that status, and /503/7 with the wish to wait 7 seconds as well."""

    def do_GET(self) -> None:
        status, _, wait = self.path[1:].partition("/")
        self.send_response(int(status))
        if wait:
            self.send_header("Retry-After", wait.replace("_", " "))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def nobody() -> str:
    """An address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def with_urllib(url: str) -> None:
    urllib.request.urlopen(url, timeout=5)


def with_requests(url: str) -> None:
    pytest.importorskip("requests").get(url, timeout=5).raise_for_status()


def with_httpx(url: str) -> None:
    pytest.importorskip("httpx").get(url, timeout=5).raise_for_status()


def raised(call: Callable[[], None]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each client has its own
        call()
    return caught.value


@pytest.mark.parametrize("get", [with_urllib, with_requests, with_httpx])
def test_what_clients_raise(get, address) -> None:
    for status in (408, 425, 429, 500, 502, 503, 504):
        found = find_trouble(raised(lambda status=status: get(f"{address}/{status}")))
        assert found is not None and (found.kind, found.retry_after) == ("unavailable", None)
    for status in (401, 402, 403, 404, 407, 410):
        found = find_trouble(raised(lambda status=status: get(f"{address}/{status}")))
        assert found is not None and found.kind == "refused"
    for status in (400, 413, 415, 422):  # about what was sent
        assert find_trouble(raised(lambda status=status: get(f"{address}/{status}"))) is None
    found = find_trouble(raised(lambda: get(f"{address}/429/7")))
    assert found is not None and found.retry_after == 7
    date = formatdate(time.time() + 1000, usegmt=True).replace(" ", "_")
    found = find_trouble(raised(lambda: get(f"{address}/503/{date}")))
    assert found is not None and found.retry_after is not None and 900 < found.retry_after <= 1000
    found = find_trouble(raised(lambda: get(f"{address}/503/soon")))
    assert found is not None and found.retry_after is None
    found = find_trouble(raised(lambda: get(nobody())))
    assert found is not None and found.kind == "unavailable"


def test_what_cloud_clients_raise() -> None:
    google = pytest.importorskip("google.api_core.exceptions")
    assert find_trouble(google.TooManyRequests("quota")).kind == "unavailable"
    assert find_trouble(google.ServiceUnavailable("later")).kind == "unavailable"
    assert find_trouble(google.Unauthorized("who")).kind == "refused"
    assert find_trouble(google.InvalidArgument("image")) is None


def test_what_grpc_raises() -> None:
    grpc = pytest.importorskip("grpc")

    def ask(url: str) -> None:
        with grpc.insecure_channel(url.removeprefix("http://")) as channel:
            channel.unary_unary("/a/b")(b"", timeout=5)

    found = find_trouble(raised(lambda: ask(nobody())))
    assert found is not None and found.kind == "unavailable"


def test_what_botocore_raises() -> None:
    botocore = pytest.importorskip("botocore.exceptions")

    def answer(status: int, code: str = "InvalidImageFormatException") -> Exception:
        about = {"HTTPStatusCode": status, "HTTPHeaders": {"retry-after": "3"}}
        response = {"Error": {"Code": code}, "ResponseMetadata": about}
        return botocore.ClientError(response, "DetectLabels")

    found = find_trouble(answer(503))
    assert found is not None and (found.kind, found.retry_after) == ("unavailable", 3)
    assert find_trouble(answer(400)) is None
    found = find_trouble(answer(400, "ThrottlingException"))
    assert found is not None and found.kind == "unavailable"
    found = find_trouble(botocore.EndpointConnectionError(endpoint_url="x"))
    assert found is not None and found.kind == "unavailable"


class Status:
    """As gRPC has them: an enumeration behind a method."""

    def __init__(self, name: str) -> None:
        self.name = name


class LikeGrpc(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._name = name

    def code(self) -> Status:
        return Status(self._name)


def caused(cause: Exception) -> Exception:
    try:
        try:
            raise cause
        except Exception as error:
            raise ValueError("no scores") from error
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "unavailable"),
        (ConnectionResetError(), "unavailable"),
        (TimeoutError("late"), "unavailable"),
        (socket.gaierror(-2, "Name or service not known"), "unavailable"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "unavailable"),
        (BrokenProcessPool("a child died"), "unavailable"),
        (urllib.error.URLError(ConnectionRefusedError()), "unavailable"),
        (VictimUnavailable("maintenance"), "unavailable"),
        (LikeGrpc("RESOURCE_EXHAUSTED"), "unavailable"),
        (LikeGrpc("UNAUTHENTICATED"), "refused"),
        (torch.OutOfMemoryError("CUDA"), "memory"),
        (MemoryError(), "memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "memory"),
        (caused(ConnectionResetError()), "unavailable"),
        (caused(caused(MemoryError())), "memory"),
        (VictimError("answered with shape (3,)"), None),
        (LikeGrpc("INVALID_ARGUMENT"), None),
        (RuntimeError("out of luck"), None),
        (ValueError("bad pixel"), None),
        (FileNotFoundError(errno.ENOENT, "gone"), None),
        (OSError("cannot identify image file"), None),
        (AttributeError("'NoneType' object has no attribute 'code'"), None),
    ],
)
def test_kinds_of_trouble(error, kind) -> None:
    found = find_trouble(error)
    assert (found.kind if found else None) == kind


def test_stored_reasons() -> None:
    """What 0.1 has stored: `the victim raised` and the first line of the exception."""
    said = [
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "HTTPError: HTTP Error 429: Too Many Requests",
        "HTTPError: 503 Server Error: Service Unavailable for url: http://x/",
        "URLError: <urlopen error [Errno 111] Connection refused>",
        "ReadTimeout: HTTPConnectionPool(host='x', port=80): Read timed out. (read timeout=5)",
        "ConnectError: All connection attempts failed",
        "HTTPStatusError: Server error '502 Bad Gateway' for url 'http://x/'",
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
    ]
    assert [text for text in said if not tells_of_trouble(f"the victim raised {text}")] == []
    others = [
        "the victim raised RuntimeError: out of luck",
        "the victim raised ValueError: pixel 512 is out of range",
        "the victim raised HTTPError: HTTP Error 400: Bad Request",
        "the victim answered NaN or infinite scores",
        "after an 8-bit PNG round trip the victim says class 503",
        "60 noise images were all seen as the true class: give an adversarial starting image",
        "501 pixels differ from the original, 500 are allowed",
    ]
    assert [text for text in others if tells_of_trouble(text)] == []


def test_waits_double_and_are_bounded() -> None:
    waited: list[float] = []
    tries: list[int] = []

    def call() -> None:
        tries.append(1)
        raise ConnectionResetError("by peer")

    with pytest.raises(VictimUnavailable, match=r"^x does not answer \(ConnectionResetError: by "):
        patiently(call, Patience(sleep=waited.append), "x")
    assert waited == [1, 2, 4, 8, 16, 29] and sum(waited) == 60 and len(tries) == 7
    waited.clear()
    with pytest.raises(VictimUnavailable, match="tried 3 times in 3 s$"):
        patiently(call, Patience(waits=2, sleep=waited.append), "x")
    assert waited == [1, 2]
    with pytest.raises(InputError, match="must not be below 0"):
        Patience(waits=-1)


def test_the_victim_says_how_long() -> None:
    waited: list[float] = []
    asked = iter([5.0, 0.0, 20.0, 40.0])

    def call() -> None:
        raise VictimUnavailable("quota", retry_after=next(asked))

    with pytest.raises(VictimUnavailable, match=r"\(quota\).*it asks to wait 40 s$"):
        patiently(call, Patience(sleep=waited.append), "x")
    assert waited == [5, 2, 20]  # 40 more would be too long


def test_waiting_is_in_vain_if_it_is_refused(address) -> None:
    waited: list[float] = []
    with pytest.raises(VictimUnavailable, match="refuses to answer .*401.*check its address"):
        patiently(lambda: with_urllib(f"{address}/401"), Patience(sleep=waited.append), "x")
    assert waited == []


def test_unavailable_keeps_what_it_says_in_a_pickle() -> None:
    again = pickle.loads(pickle.dumps(VictimUnavailable("down", retry_after=3)))
    assert (str(again), again.retry_after) == ("down", 3)


class Diary:
    """The integer model behind a call that may fail; keeps the keys of what it has answered."""

    name, output, device = "diary", "logits", torch.device("cpu")

    def __init__(
        self, before: Callable[[int, int], None] = lambda call, images: None, noisy: bool = False
    ) -> None:
        self.model, self.before, self.randomised = integer_model(SHAPE, CLASSES), before, noisy
        self.calls, self.sent = 0, 0
        self.sizes: list[int] = []
        self.answered: list[list[int]] = []
        self.waited: list[float] = []
        self.patience = Patience(sleep=self.waited.append)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the oracle asks with keys")

    def draw(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.sent += len(images)
        self.sizes.append(len(images))
        self.before(self.calls, len(images))
        self.answered.append(keys.tolist())
        scores = self.model.function(images)
        if self.randomised:
            scores = scores + (keys % 7 == 0)[:, None] * torch.eye(CLASSES)[keys % CLASSES] * 40
        return scores


def data() -> tuple[torch.Tensor, torch.Tensor]:
    model, images = integer_model(SHAPE, CLASSES), random_images(IMAGES, SHAPE)
    labels = own_labels(model, images)
    labels[:2] = (labels[:2] + 1) % CLASSES  # not attacked
    return images, labels


ATTACKS = {
    "brusle": BruSLe(2, 12),
    "pointwise": Pointwise(20, 30),
    "restarts": Restarts(BruSLe(2, 6), 2),
    "ensemble": Ensemble([BruSLe(2, 6), BruSLe(2, 6, palette="uniform")]),
    "minimal": Minimal(BruSLe(3, 8), 16),
    "minimal-walk": Minimal(Pointwise(20, 30), 30),
}
CASES = [*((name, False) for name in ATTACKS), ("brusle", True), ("restarts", True)]


def evaluate(victim: Diary, attack, out: Path | None, **options) -> brusle.Run:
    options = {"batch_size": BATCH, "seed": SEED, "on_warning": lambda text: None} | options
    return brusle.evaluate(victim, data(), [attack], "untargeted", out, **options)


def stored(folder: Path) -> dict[int, Row]:
    """Rows without what trouble may change: the time, and images that were sent in vain."""
    with Store.read(folder) as store:
        rows = [row for setting in store.settings() for row in store.rows(setting.number)]
    return {row.problem: replace(row, seconds=0.0, lost=0) for row in rows}


@pytest.mark.parametrize(("name", "noisy"), CASES)
def test_trouble_now_and_then_changes_no_result(name, noisy, tmp_path, monkeypatch) -> None:
    # how many successes are verified in one call must not depend on the time
    monkeypatch.setattr("brusle.batching.SETTLE_WITHIN", math.inf)
    calm = Diary(noisy=noisy)
    evaluate(calm, ATTACKS[name], tmp_path / "calm")

    def often(call: int, images: int) -> None:
        if call % 3 == 1:
            raise TimeoutError("busy")

    stormy = Diary(often, noisy)
    run = evaluate(stormy, ATTACKS[name], tmp_path / "stormy")
    assert stored(tmp_path / "stormy") == stored(tmp_path / "calm")
    assert stormy.answered == calm.answered  # the same calls with the same noise: nothing is halved
    ledger, look = run.results[0].ledger, run.as_dict()  # the first look keeps its own books
    lost = int(ledger.lost.sum()) + look["preflight_lost"]
    assert int(ledger.total.sum()) + look["preflight_queries"] + lost == stormy.sent
    assert lost == stormy.sent - calm.sent > 0
    assert set(stormy.waited) == {1}  # each call has its own patience


def test_a_defence_is_as_patient_as_its_victim() -> None:
    victim = Diary()
    assert traits(defend("rnd:0.1", victim)).patience is victim.patience
    few = Patience(waits=1)
    assert traits(wrap(lambda x: x, output="logits", patience=few)).patience is few


def test_memory_that_runs_out_makes_calls_smaller() -> None:
    def small(call: int, images: int) -> None:
        if images > 3:
            raise torch.OutOfMemoryError("too much")

    images, labels = data()
    calm, tight = Diary(), Diary(small)
    problems = Problems.make(images, labels)
    expected = run(BruSLe(2, 12), calm, problems, batch_size=16)
    result = run(BruSLe(2, 12), tight, problems, batch_size=16)
    assert torch.equal(result.images, expected.images) and result.status == expected.status
    assert tight.sizes[:4] == [16, 8, 4, 2]  # 16 do not fit, and are never tried again
    assert max(tight.sizes[4:]) == 2 and tight.waited == []
    assert int(result.ledger.total.sum() + result.ledger.lost.sum()) == tight.sent
    assert torch.equal(result.ledger.total, expected.ledger.total)


def test_memory_that_does_not_do_for_one_image_is_the_victims_error() -> None:
    def never(call: int, images: int) -> None:
        raise MemoryError

    oracle = Oracle(Diary(never), 8, limit=0, batch_size=8)
    with pytest.raises(VictimUnavailable, match="out of memory on a single image"):
        oracle.ask(torch.arange(8), data()[0][:8], "clean")
    assert oracle.ledger.lost.tolist() == [4, 3, 2, 2, 1, 1, 1, 1]


def whose(problems: list[int]) -> dict[int, tuple[int, int]]:
    """Problem and number of the draw of every key that an attack can use."""
    count = 1 + 30 + 2 * STABLE_DRAWS
    ids = torch.tensor(problems).repeat_interleave(count)
    draws = torch.arange(count).repeat(len(problems))
    keys = rng.seeds(rng.streams(SEED, ids), draws).tolist()
    return dict(zip(keys, zip(ids.tolist(), draws.tolist(), strict=True), strict=True))


def finished(victim: Diary, rows: dict[int, Row]) -> set[int]:
    """Problems of which the victim has answered all queries of the attack, by its own diary."""
    owners = whose(list(rows))
    # keys that nobody owns are of the first look at the victim
    seen = Counter(owners[key] for call in victim.answered for key in call if key in owners)
    clean_pass = all(seen[problem, 0] for problem in rows)
    return {
        problem
        for problem, row in rows.items()
        if clean_pass and all(seen[problem, draw] for draw in range(1 + row.queries))
    }


@pytest.mark.parametrize(("name", "noisy"), CASES)
def test_ctrl_c_at_any_call_keeps_what_is_finished(name, noisy, tmp_path) -> None:
    calm = Diary(noisy=noisy)
    evaluate(calm, ATTACKS[name], tmp_path / "calm")
    expected = stored(tmp_path / "calm")
    partly = 0
    last = calm.calls
    early = last - 6 if "walk" in name or name == "pointwise" else last // 2  # not at the starts
    several = (1, 15, early, last * 2 // 3, last)  # at the first look, while it searches, ...
    for at in several if name == "brusle" else (early, last - 1):

        def ctrl_c(call: int, images: int, at: int = at) -> None:
            if call == at:
                raise KeyboardInterrupt

        victim, folder = Diary(ctrl_c, noisy), tmp_path / str(at)
        with pytest.raises(KeyboardInterrupt):
            evaluate(victim, ATTACKS[name], folder)
        kept = stored(folder)
        assert kept.items() <= expected.items()
        over = finished(victim, expected)
        if name == "minimal":  # which goes on with others before it settles
            assert kept.keys() <= over
        else:
            assert kept.keys() == over
        partly += 0 < len(kept) < IMAGES
        again = evaluate(Diary(noisy=noisy), ATTACKS[name], folder)
        assert stored(folder) == expected and again.resumed == len(kept)
    assert partly > 0


def test_a_second_ctrl_c_ends_at_once(tmp_path) -> None:
    calm = Diary()
    evaluate(calm, ATTACKS["brusle"], tmp_path / "calm")
    expected = stored(tmp_path / "calm")
    at = calm.calls // 2

    def ctrl_c(call: int, images: int) -> None:
        if call >= at:
            raise KeyboardInterrupt

    victim = Diary(ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        evaluate(victim, ATTACKS["brusle"], tmp_path / "run")
    assert victim.calls == at + 1  # the second call was to verify
    kept = stored(tmp_path / "run")
    over = finished(victim, expected)
    assert kept.items() <= expected.items() and kept.keys() < over
    assert {expected[problem].status for problem in over - kept.keys()} == {"success"}
    evaluate(Diary(), ATTACKS["brusle"], tmp_path / "run")
    assert stored(tmp_path / "run") == expected


@pytest.mark.parametrize("name", ATTACKS)
def test_trouble_that_does_not_end_stops_the_run_and_the_same_command_goes_on(
    name, tmp_path
) -> None:
    calm = Diary()
    evaluate(calm, ATTACKS[name], tmp_path / "calm")
    expected = stored(tmp_path / "calm")
    for at in (2, calm.calls) if name == "brusle" else (calm.calls * 2 // 3,):

        def down(call: int, images: int, at: int = at) -> None:
            if call >= at:
                raise ConnectionRefusedError("nobody listens")

        victim, folder = Diary(down), tmp_path / str(at)
        with pytest.raises(VictimUnavailable) as caught:
            evaluate(victim, ATTACKS[name], folder)
        kept = stored(folder)
        over = finished(victim, expected)
        assert kept.items() <= expected.items()
        assert not {"error", "unverified"} & {row.status for row in kept.values()}
        wanted = {p for p in over if expected[p].status in ("failed", "skipped")}
        assert (kept.keys() <= over) if name == "minimal" else (wanted <= kept.keys() <= over)
        assert sum(victim.waited) == 60  # once: what is finished is kept without asking
        said = "diary does not answer (ConnectionRefusedError: nobody listens)"
        assert str(caught.value) == f"{said}, tried 7 times in 60 s"
        assert caught.value.__notes__ == [f"{len(kept)} of {IMAGES} attacks are stored in {folder}"]
        evaluate(Diary(), ATTACKS[name], folder)
        assert stored(folder) == expected


def test_images_that_fail_are_still_found_by_halving() -> None:
    images, labels = data()

    def picky(batch: torch.Tensor) -> torch.Tensor:
        if bool((batch == images[7]).flatten(1).all(1).any()):
            raise ValueError("HTTP 400")
        return integer_model(SHAPE, CLASSES).function(batch)

    result = BruSLe(2, 5)(wrap(picky, output="logits"), images, labels)
    assert [i for i, s in enumerate(result.status) if s == "error"] == [7]
    assert "ValueError: HTTP 400" in result.errors[7]


def fail(folder: Path, problem: int, status: str, error: str) -> None:
    """Store that the attack on a problem came to this."""
    with Store.write(folder) as store:
        (old,) = [row for row in store.rows(1) if row.problem == problem]
        bad = replace(old, status="error", error="first")
        with store._guard():
            store._connection.execute("DELETE FROM rows WHERE problem = ?", (problem,))
        store.add_rows(1, [bad])
        store.add_rows(1, [replace(bad, status=status, error=error)])  # takes its place


def test_stored_errors_are_run_again(tmp_path) -> None:
    folder = tmp_path / "run"
    evaluate(Diary(), ATTACKS["brusle"], folder)
    expected = stored(folder)
    a, b, c, d = list(expected)[:4]
    fail(folder, a, "error", "the victim raised HTTPError: HTTP Error 429: Too Many Requests")
    fail(folder, b, "unverified", "the victim raised ConnectionResetError: by peer")
    fail(folder, c, "error", "the victim raised ValueError: bad pixel")
    fail(folder, d, "unverified", "after an 8-bit PNG round trip the victim says class 3")
    with Store.read(folder) as store:
        assert (store.retries().same_command, store.retries().retry_errors) == (2, 2)
    again = evaluate(Diary(), ATTACKS["brusle"], folder)
    assert again.resumed == IMAGES - 2
    now = stored(folder)
    assert {p for p in expected if now[p] != expected[p]} == {c, d}
    assert (now[c].status, now[d].status) == ("error", "unverified")
    again = evaluate(Diary(), ATTACKS["brusle"], folder, retry_errors=True)
    assert again.resumed == IMAGES - 2
    assert stored(folder) == expected


def test_a_stored_error_stays_until_its_row_is_there(tmp_path) -> None:
    folder = tmp_path / "run"
    evaluate(Diary(), ATTACKS["brusle"], folder)
    (a, *_) = stored(folder)
    fail(folder, a, "error", "the victim raised TimeoutError: late")
    before = stored(folder)

    def down(call: int, images: int) -> None:
        raise TimeoutError("late")

    with pytest.raises(VictimUnavailable) as caught:
        evaluate(Diary(down), ATTACKS["brusle"], folder)
    assert caught.value.__notes__ == [f"19 of 20 attacks are stored in {folder}"]
    assert stored(folder) == before


def test_nothing_is_asked_and_nothing_judged_of_no_images() -> None:
    calls: list[int] = []

    def logits(images: torch.Tensor) -> torch.Tensor:
        calls.append(len(images))
        return torch.zeros(len(images), 3) + torch.tensor([3.0, -1.0, 0.0])

    for output in ("logits", "probabilities"):
        victim = wrap(logits, output=output)
        assert victim(torch.zeros(0, 3, 4, 4)).shape == (0, 3)
    calls.clear()
    answers = Oracle(victim, 0, limit=0, batch_size=4).ask(
        torch.arange(0), torch.zeros(0, 3, 4, 4), "clean"
    )
    assert len(answers.values) == len(answers.labels) == 0 and calls == []


def test_a_victim_that_ends_the_program_is_an_error_of_the_victim() -> None:
    def leaves(images: torch.Tensor) -> torch.Tensor:
        raise SystemExit(0)

    images, labels = data()
    with pytest.raises(VictimError, match=r"tried to end the program \(exit code 0\)"):
        BruSLe(2, 5)(wrap(leaves, output="logits"), images, labels)
