import pytest
from asking import opened

from brusle.errors import InputError
from brusle.terms import Terms
from brusle.victims.remote.authorisation import is_loopback, require_authorised
from brusle.victims.remote.masking import keep_secret, line, masked


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:80/x", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:8000", True),
        ("http://localhost/x", True),
        ("http://192.168.0.1", False),
        ("http://10.0.0.1", False),
        ("http://0.0.0.0", False),
        ("http://no-such-host.invalid", False),
        ("http://127.0.0.1.example.invalid", False),
    ],
)
def test_loopback(url: str, here: bool) -> None:
    assert is_loopback(url) == here


def test_a_name_with_one_address_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [(2, 1, 6, "", (address, 0)) for address in ("127.0.0.1", "192.0.2.7")]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: both)
    assert not is_loopback("http://both.example")


def test_others_need_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRUSLE_AUTHORISED", raising=False)
    url = "https://192.0.2.7:8000/m?key=abc"
    with pytest.raises(InputError) as caught:
        require_authorised(url, Terms())
    assert str(caught.value) == (
        "https://192.0.2.7:8000 is not on this machine: test only what you own or are authorised "
        "to test, and say so with --i-am-authorised"
    )
    require_authorised(url, Terms(authorised=True))
    monkeypatch.setenv("BRUSLE_AUTHORISED", "1")
    require_authorised(url, Terms())


def test_connecting_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRUSLE_AUTHORISED", raising=False)
    with pytest.raises(InputError, match="is not on this machine"):
        opened("oip:http://192.0.2.7/m").connect()


def test_masking() -> None:
    keep_secret("s3cr/et+key")
    text = "GET https://x.org/a?key=other&b=1 with s3cr/et+key or s3cr%2Fet%2Bkey failed"
    assert masked(text) == "GET https://x.org/a with *** or *** failed"
    assert line("a\nb\x1b[31m s3cr/et+key") == "a b\\x1b[31m ***"
