"""A service that misbehaves as it is told, and counts what it receives."""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np

CLASSES = 5


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    number: int  # of the calls that hold images, from 0

    def pixels(self) -> np.ndarray:
        """The images of a request of the Open Inference Protocol, as JSON or as bytes."""
        head = self.headers.get("inference-header-content-length")
        tensor = json.loads(self.body[: int(head)] if head else self.body)["inputs"][0]
        raw = np.frombuffer(self.body[int(head) :], "<f4") if head else np.array(tensor["data"])
        return raw.reshape(tensor["shape"])


def scores_of(pixels: np.ndarray) -> np.ndarray:
    """Any function of an image: no two images have the same scores."""
    flat = pixels.reshape(len(pixels), -1).astype(np.float64)
    weights = np.sin(np.arange(flat.shape[1] * CLASSES)).reshape(-1, CLASSES)
    return flat @ weights


def response(body: bytes | str | dict | list, status: int = 200, **headers: str) -> bytes:
    """The bytes of a whole response."""
    content = (
        body
        if isinstance(body, bytes)
        else (body if isinstance(body, str) else json.dumps(body)).encode()
    )
    named = {"Content-Length": str(len(content))} | {
        k.replace("_", "-"): v for k, v in headers.items()
    }
    head = f"HTTP/1.1 {status} Said\r\n" + "".join(f"{k}: {v}\r\n" for k, v in named.items())
    return head.encode() + b"\r\n" + content


def scored(request: Request) -> bytes:
    """The right answer."""
    values = scores_of(request.pixels())
    tensor = {
        "name": "scores",
        "datatype": "FP64",
        "shape": list(values.shape),
        "data": values.ravel().tolist(),
    }
    return response({"model_name": "m", "outputs": [tensor]})


METADATA = {
    "name": "m",
    "inputs": [{"name": "images", "datatype": "FP32", "shape": [-1, 3, 4, 4]}],
    "outputs": [{"name": "scores", "datatype": "FP64", "shape": [-1, CLASSES]}],
}
Answer = Callable[[Request], bytes | Awaitable[bytes | None] | None]


@dataclass
class Hostile:
    """Answers each call with what ``answer`` returns; hangs up where that is None."""

    answer: Answer = scored
    metadata: bytes = response(METADATA)
    delay: float = 0.0
    calls: list[Request] = field(default_factory=list)
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    images: int = 0
    at_once: int = 0
    most_at_once: int = 0
    port: int = 0
    count_images: Callable[[Request], int] = lambda request: len(request.pixels())

    def __enter__(self) -> "Hostile":
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        started = asyncio.run_coroutine_threadsafe(self._start(), self.loop)
        self.port = started.result(5)
        return self

    def __exit__(self, *_: object) -> None:
        if not self.thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._stop(), self.loop).result(5)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _start(self) -> int:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**26)
        return self.server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self.server.close()
        others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {k.lower(): v for k, _, v in (one.partition(": ") for one in head[1:] if one)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if method == "GET":
            writer.write(response({}, 404) if path.endswith("/config") else self.metadata)
            await writer.drain()
            return True
        request = Request(method, path, headers, body, len(self.calls))
        self.calls.append(request)
        images = self.count_images(request)
        self.images += images
        self.arrivals.append((time.monotonic(), images))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.delay:
                await asyncio.sleep(self.delay)
            said = self.answer(request)
            if isinstance(said, Awaitable):
                said = await said
        finally:
            self.at_once -= 1
        if said is None:
            return False
        writer.write(said)
        await writer.drain()
        return b"Connection: close" not in said[:400]
