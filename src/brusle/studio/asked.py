"""What the page may ask for, as JSON that is checked before anything is done with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError
from starlette.requests import Request

from brusle.attacks import ATTACKS
from brusle.errors import InputError
from brusle.serving.hosting import whole_body

MOST_BYTES = 16 * 2**20  # of an image file
MOST_QUERIES = 100_000  # of an attack: more is an evaluation's business
_LARGEST = 4 * MOST_BYTES // 3 + 2**16  # bytes of a body: a file in base64, and some words
_Pace = Annotated[float, Field(ge=0, le=10_000)]
_Text = Annotated[str, Field(max_length=1000)]
Asked = TypeVar("Asked", bound=BaseModel)


class _Question(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class DataImage(_Question):
    """An image of the data.

    Attributes:
        victim: the number of the victim that it is for.
        data: the number of the data.
        row: its number there.
    """

    victim: NonNegativeInt
    data: NonNegativeInt
    row: NonNegativeInt


class FileImage(_Question):
    """An image file of the user's.

    Attributes:
        victim: the number of the victim that it is for.
        name: what it is called.
        content: its bytes, in base64.
        size: side of a square to frame it to, whatever the victim says.
    """

    victim: NonNegativeInt
    name: _Text
    content: str
    size: Annotated[int, Field(ge=2, le=1024)] | None = None


class Attempt(_Question):
    """An attack on an image.

    Attributes:
        image: its number, as `DataImage` or `FileImage` got it.
        attack: name of the attack.
        options: its options, as in ``palette=uniform,colours=2``.
        minimal: find the fewest pixels.
        pixels: most pixels to change.
        queries: most queries.
        seed: same seed, same result.
        target: number of the class to reach; None is any other class.
        pace: queries in a second; 0 is as fast as it goes.
    """

    image: NonNegativeInt
    attack: _Text
    options: _Text = ""
    minimal: bool = False
    pixels: Annotated[int, Field(ge=1, le=2**20)] = 20
    queries: Annotated[int, Field(ge=1, le=MOST_QUERIES)] = 500
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = 0
    target: NonNegativeInt | None = None
    pace: _Pace = 0

    @property
    def spec(self) -> str:
        """The attack with its options, as on the command line."""
        if self.attack not in ATTACKS:  # a plugin is code, and the page runs none
            raise InputError(f"{self.attack!r} is none of {', '.join(ATTACKS)}: choose one")
        return f"{self.attack}:{self.options}" if self.options else self.attack


class Change(_Question):
    """What a running attack is to do.

    Attributes:
        do: wait, go on, ask one more query and wait, end, or go at another pace.
        pace: queries in a second; 0 is as fast as it goes.
    """

    do: Literal["pause", "go", "step", "end", "pace"]
    pace: _Pace = 0


class Folder(_Question):
    """A run folder that the user has typed."""

    path: _Text


class Page(_Question):
    """Which part of a long list is wanted.

    Attributes:
        start: number of the first.
        setting: number of the setting, in a run.
        victim: number of the victim, of data.
    """

    start: NonNegativeInt = 0
    setting: PositiveInt | None = None
    victim: NonNegativeInt | None = None


async def read_json(request: Request, kind: type[Asked]) -> Asked:
    """What the body of a request asks for; raises if it is something else."""
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said != "application/json":
        raise InputError("a question to the studio is JSON: send it as application/json")
    body = await whole_body(request, _LARGEST)
    if body is None:
        raise InputError(f"that is above {MOST_BYTES >> 20} MB: make the image smaller")
    with _explained():
        return kind.model_validate_json(body)


def read_query(request: Request) -> Page:
    """What stands behind the question mark of an address."""
    given = {name: _number(text) for name, text in request.query_params.items()}
    with _explained():
        return Page.model_validate(given)


def _number(text: str) -> Any:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text


@contextmanager
def _explained() -> Iterator[None]:
    """Pydantic's complaints in a line."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the question"
        raise InputError(f"{where}: {first['msg']}") from error
