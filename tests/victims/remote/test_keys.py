"""Keys are in no message, whatever goes wrong."""

import logging
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from asking import Sleeps, connect
from hostile_services import Hostile, Request, response
from torch import Tensor

import brusle
from brusle.errors import BrusleError
from brusle.serving import Server
from brusle.terms import Terms

Served = Callable[..., Hostile]
KEY = "k3y-Ab/c+d=e"  # written in another way in an address


def echo(status: int) -> Callable[[Request], bytes]:
    """Answers with everything that it was sent, as a service that debugs does."""
    return lambda r: response({"error": f"{r.path} {r.headers} {r.body[:40]!r}"}, status)


ANSWERS: dict[str, Callable[[Request], bytes | None]] = {
    "busy": echo(503),
    "refused": echo(403),
    "image": echo(400),
    "nonsense": lambda r: response(f"{r.path} {r.headers}"),
    "other format": lambda r: response([r.path, r.headers]),
    "redirect": lambda r: response("", 307, Location=f"http://example.com{r.path}"),
    "no HTTP": lambda r: f"{r.path} {r.headers}\r\n\r\n".encode(),
    "hangs up": lambda _: None,
    "encoding": lambda r: response("", Content_Encoding=r.headers["x-api-key"]),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_no_message_has_a_key(
    kind: str,
    tmp_path: Path,
    served: Served,
    images: Tensor,
    sleeps: Sleeps,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("THE_KEY", KEY)
    server = served(ANSWERS[kind], count_images=lambda _: 1)
    path = tmp_path / "service.yaml"
    template = {
        "url": server.url + "/${THE_KEY}/x?token=${THE_KEY}",
        "headers": {"X-Api-Key": "${THE_KEY}", "Authorization": "Bearer ${THE_KEY}"},
        "query": {"key": "${THE_KEY}"},
        "body": {"json": {"image": "{image.base64}"}},
        "answer": {"scores": "$.s", "labels": "$.l"},
    }
    path.write_text(yaml.safe_dump(template))
    victim = connect(f"rest:{path}", Terms(retries=1), sleep=sleeps)
    shown = [repr(victim), repr(victim.service), repr(vars(victim)), str(victim.explain(images[0]))]
    try:
        shown.append(str(victim.consult(images[:1], images[:1]).errors))
    except BrusleError as error:
        shown += traceback.format_exception(error)
    assert server.calls and KEY in str(server.calls[0].headers)
    shown += [record.getMessage() for record in caplog.records]
    forms = (KEY, "k3y-Ab%2Fc%2Bd%3De", "k3y-Ab/c%2Bd%3De")
    leaks = [text for text in shown if any(form in text for form in forms)]
    assert not leaks


def test_a_token_opens_a_tensor_service(monkeypatch: pytest.MonkeyPatch) -> None:
    net = brusle.load_victim("zoo:cifar10-resnet20")
    monkeypatch.setenv("SERVICE_TOKEN", KEY)
    for kind in ("oip", "tfserving"):
        with Server(net, kind, key=KEY) as server:
            joint = "&" if "?" in server.name else "?"
            victim = brusle.load_victim(f"{server.name}{joint}token=SERVICE_TOKEN")
            assert victim(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
            with pytest.raises(brusle.InputError, match="NO_SUCH_TOKEN"):
                brusle.load_victim(f"{server.name}{joint}token=NO_SUCH_TOKEN")
            with pytest.raises(brusle.VictimUnavailable, match="refuses to answer"):
                brusle.load_victim(server.name)(torch.zeros(1, 3, 32, 32))
