import asyncio
import time

import pytest

from brusle.terms import Pace
from brusle.victims.remote.pace import Pacer


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def most_in_a_window(left: list[tuple[float, int]], seconds: float) -> int:
    return max(sum(n for t, n in left if start <= t <= start + seconds) for start, _ in left)


def departures(pace: Pace, sizes: list[int], recent=()) -> list[tuple[float, int]]:
    clock = Clock()
    left: list[tuple[float, int]] = []

    async def go() -> None:
        pacer = Pacer(pace, recent, clock, clock.sleep)
        for size in sizes:
            await pacer.turn(size)
            left.append((clock(), size))

    asyncio.run(go())
    return left


@pytest.mark.parametrize("text", ["1/s", "2/s", "10/s", "1800/min"])
def test_no_window_has_more(text: str) -> None:
    pace = Pace.parse(text)
    left = departures(pace, [1] * min(2500, 3 * pace.images))
    assert most_in_a_window(left, pace.seconds + 0.09) <= pace.images
    rate = len(left) / (left[-1][0] - left[0][0])
    assert rate > 0.5 * pace.images / pace.seconds


@pytest.mark.parametrize("sizes", [[10] * 5, [3, 7, 10, 1, 4, 4, 4] * 3])
def test_batches_count_by_their_images(sizes: list[int]) -> None:
    left = departures(Pace(10, 1.0), sizes)
    assert most_in_a_window(left, 1.09) <= 10


def test_takes_up_after_a_restart() -> None:
    now = time.time()
    burst = [(now - 0.2, 4), (now - 0.1, 4)]
    left = departures(Pace(10, 1.0), [1] * 10, burst)
    before = [(1000.0 - 0.2, 4), (1000.0 - 0.1, 4)]
    assert most_in_a_window(before + left, 1.0) <= 10
    assert left[0][0] > 1000.0


def test_first_come_first_served() -> None:
    clock = Clock()
    order: list[int] = []

    async def go() -> None:
        pacer = Pacer(Pace(2, 1.0), (), clock, clock.sleep)

        async def one(number: int) -> None:
            await pacer.turn(1)
            order.append(number)

        await asyncio.gather(*(one(number) for number in range(9)))

    asyncio.run(go())
    assert order == list(range(9))
