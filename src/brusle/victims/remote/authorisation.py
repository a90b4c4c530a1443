"""Who may be tested: what is on this machine, and what the user says that they may test."""

from __future__ import annotations

import ipaddress
import os
import socket
from urllib.parse import urlsplit

from brusle.errors import InputError
from brusle.terms import Terms


def require_authorised(url: str, terms: Terms) -> None:
    """Raise unless the user may test what answers at ``url``."""
    if terms.authorised or os.environ.get("BRUSLE_AUTHORISED") == "1" or is_loopback(url):
        return
    raise InputError(
        f"{origin(url)} is not on this machine: test only what you own or are authorised to "
        f"test, and say so with --i-am-authorised"
    )


def is_loopback(url: str) -> bool:
    """Whether all addresses of the host of ``url`` are this machine's own."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass  # a name
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(entry[4][0])).is_loopback for entry in found)


def check_url(url: str, where: str) -> str:
    """``url`` without a slash at the end; raise if it is none that brusle sends images to.

    Args:
        url: what a user gives.
        where: the name of the victim, or a file, for messages.
    """
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or any(c.isspace() or not c.isprintable() for c in url):
        raise InputError(f"{where} needs an address such as http://127.0.0.1:8000/resnet")
    if "@" in parts.netloc:
        raise InputError(f"the address of {where.partition('//')[0]} has a password: take it out")
    return url.rstrip("/")


def origin(url: str) -> str:
    """Scheme, host and port of ``url``."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
