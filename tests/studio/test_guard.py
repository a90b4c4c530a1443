"""Who gets an answer of the studio, and what every answer says to the browser."""

import socket

import httpx
import pytest

from brusle.studio import Studio, guard

FILES = ("/", "/studio.js", "/page.css", "/trace_view.js")
QUESTIONS = ("/api/offers", "/api/runs", "/api/victims/0", "/api/nothing")


@pytest.fixture(scope="module")
def stranger(bundled):
    with httpx.Client(base_url=bundled.base_url) as client:
        yield client


@pytest.fixture(scope="module")
def port(bundled) -> int:
    return bundled.studio.port


@pytest.mark.parametrize("path", [*FILES, *QUESTIONS, "/nothing", "/?token=", "/?token=%ff"])
def test_without_the_token_nothing_is_said(stranger, path) -> None:
    answer = stranger.get(path)
    assert answer.status_code == 401 and "set-cookie" not in answer.headers
    assert answer.text == "the token is missing or wrong: open the address that brusle printed\n"
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert stranger.request(method, path).status_code == 401


def test_what_is_nearly_the_token_is_none(stranger, bundled, monkeypatch) -> None:
    token, compared = bundled.studio.token, []
    same = guard.hmac.compare_digest

    def compare(given: bytes, secret: bytes) -> bool:
        compared.append(given)
        return same(given, secret)

    monkeypatch.setattr(guard.hmac, "compare_digest", compare)
    for wrong in (token[:-1], token + "a", token.swapcase(), "a" * len(token), "ä"):
        assert stranger.get("/", params={"token": wrong}).status_code == 401
        header = wrong.encode("utf-8")
        assert stranger.get("/", headers={"X-Brusle-Token": header}).status_code == 401
        assert any(wrong[:8].encode() in given for given in compared)  # in constant time


def test_the_address_lets_the_page_in_and_the_page_alone_knows_the_token(stranger, bundled) -> None:
    with httpx.Client(base_url=bundled.base_url) as browser:
        welcome = browser.get(bundled.studio.url)
        cookie = welcome.headers["set-cookie"]
        assert welcome.status_code == 303
        assert welcome.headers["location"] == f"/#token={bundled.studio.token}"
        for word in ("HttpOnly", "SameSite=strict", "Path=/"):
            assert word in cookie
        assert bundled.studio.token not in cookie and "Max-Age" not in cookie
        for path in FILES:
            assert browser.get(path).status_code == 200
        for path in QUESTIONS:  # a cookie goes to every port of this machine: it is not enough
            assert browser.get(path).status_code == 401
        assert browser.post("/api/attacks", json={}).status_code == 401
    stolen = {"Cookie": cookie.replace("=", "=x", 1)}
    assert stranger.get("/", headers=stolen).status_code == 401
    assert stranger.get("/", headers={"Cookie": b"a=;;=\x80"}).status_code == 401


def test_each_studio_has_a_token_of_its_own_that_nobody_guesses(bundled) -> None:
    tokens = {Studio().token for _ in range(3)} | {bundled.studio.token}
    assert len(tokens) == 4 and min(map(len, tokens)) >= 43  # 32 random bytes


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example:{port}", "localhost", "127.0.0.1", "127.0.0.1:1", ""],
)
def test_another_host_is_refused_though_the_token_is_right(bundled, port, host) -> None:
    answer = bundled.get(bundled.studio.url, headers={"Host": host.format(port=port)})
    assert answer.status_code == 421 and "set-cookie" not in answer.headers
    answer = bundled.get("/api/offers", headers={"Host": host.format(port=port)})
    assert answer.status_code == 421 and "zoo" not in answer.text


def test_a_request_without_a_host_or_with_two_is_refused(bundled, port) -> None:
    head = f"GET /api/offers HTTP/1.0\r\nX-Brusle-Token: {bundled.studio.token}\r\n"
    for hosts in ("", f"Host: 127.0.0.1:{port}\r\nHost: evil.example\r\n"):
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(f"{head}{hosts}\r\n".encode())
            answer = raw.makefile("rb").read()
        assert b" 421 " in answer.splitlines()[0] or b" 400 " in answer.splitlines()[0]
        assert b"zoo" not in answer


@pytest.mark.parametrize(
    "said",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "127.0.0.1:{port}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},  # a server on another port of this machine
        {"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "cross-site"},
    ],
)
def test_another_page_is_refused_though_the_token_is_right(bundled, port, said) -> None:
    headers = {name: value.format(port=port) for name, value in said.items()}
    for path in ("/", f"/?token={bundled.studio.token}", "/api/offers"):
        answer = bundled.get(path, headers=headers)
        assert answer.status_code == 403 and "zoo" not in answer.text
        assert "set-cookie" not in answer.headers
    assert bundled.post("/api/attacks", json={}, headers=headers).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LocalHost:{port}"])
def test_our_own_page_is_answered(bundled, port, host) -> None:
    host = host.format(port=port)
    ours = {"Host": host, "Origin": f"http://{host.lower()}", "Sec-Fetch-Site": "same-origin"}
    assert bundled.get("/api/offers", headers=ours).status_code == 200
    assert bundled.get("/api/offers", headers={"Sec-Fetch-Site": "none"}).status_code == 200


def test_every_answer_tells_the_browser_to_trust_nothing_else(bundled, stranger) -> None:
    answers = [bundled.get(path) for path in (*FILES, *QUESTIONS)]
    answers += [stranger.get("/"), bundled.get("/", headers={"Host": "evil"})]
    answers += [bundled.post("/api/attacks", content=b"x"), bundled.get(bundled.studio.url)]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        for rule in (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data: blob:",
            "connect-src 'self'",
            "frame-ancestors 'none'",
        ):
            assert rule in policy.split("; ")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_a_question_that_a_form_could_send_is_refused(bundled, kind) -> None:
    body = b'{"victim": 0, "data": 0, "row": 0}'
    answer = bundled.post("/api/images/data", content=body, headers={"Content-Type": kind})
    assert answer.status_code == 400 and "send it as application/json" in answer.json()["error"]


def test_it_listens_on_this_machine_only(port) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port))
    with pytest.raises(TypeError):
        Studio(host="0.0.0.0")


def test_the_page_loads_the_scripts_that_are_handed_out(bundled) -> None:
    page = bundled.get("/").text
    from brusle.report.scripts import TRACE_VIEW
    from brusle.studio.app import SCRIPTS

    wanted = [f'<script defer src="{name}"></script>' for name in (*TRACE_VIEW, *SCRIPTS)]
    assert [line for line in page.splitlines() if line.startswith("<script")] == wanted
    assert "style=" not in page and "onclick" not in page and "://" not in page
