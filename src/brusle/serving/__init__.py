"""Any victim behind an HTTP server that imitates a service: to rehearse an attack, and for tests.

with brusle.serving.Server(victim, "google-vision", fail=0.1) as server:
    server.url, server.books.as_dict()
"""

from brusle.serving.server import Server, in_background

__all__ = ["Server", "in_background"]
