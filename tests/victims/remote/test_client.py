import threading
from collections.abc import Callable

import numpy as np
import torch
from asking import Sleeps, connect, totals
from hostile import Hostile, Request, response, scored, scores_of
from torch import Tensor

from brusle.victims.remote.terms import Terms

Served = Callable[..., Hostile]


def test_answers(served: Served, images: Tensor) -> None:
    server = served()
    victim = connect(f"oip:{server.url}/m?most=7&binary=off")
    scores = victim(images)
    assert torch.allclose(scores, torch.from_numpy(scores_of(images.numpy())))
    assert totals(victim) == (40, 40, 0, 0)
    assert server.images == 40 and len(server.calls) == 6
    assert victim.shape == (3, 4, 4)


def test_faults(served: Served, images: Tensor, sleeps: Sleeps) -> None:
    def answer(request: Request) -> bytes | None:
        kinds = [429, 500, 503, None, b"garbage\r\n\r\n", None]
        if request.number % 2:
            kind = kinds[request.number // 2 % 6]
            if not isinstance(kind, int):
                return kind
            return response({"error": "busy"}, kind)
        return scored(request)

    server = served(answer)
    victim = connect(f"oip:{server.url}/m?most=1&binary=off", Terms(concurrency=4), sleep=sleeps)
    consultation = victim.consult(images, torch.arange(40))
    assert torch.allclose(consultation.scores, torch.from_numpy(scores_of(images.numpy())))
    sent, answered, refused, lost = totals(victim)
    assert sent == server.images == answered + refused + lost
    assert answered == 40 and lost == int(consultation.lost.sum()) > 0


def test_many_threads_share_the_slots(served: Served, images: Tensor) -> None:
    server = served(delay=0.02)
    victim = connect(f"oip:{server.url}/m?most=1&binary=off", Terms(concurrency=3))
    found: dict[int, Tensor] = {}

    def ask(at: int) -> None:
        found[at] = victim(images[at : at + 2])

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(0, 40, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.most_at_once == 3
    scores = torch.cat([found[at] for at in sorted(found)])
    assert np.allclose(scores, scores_of(images.numpy()))
