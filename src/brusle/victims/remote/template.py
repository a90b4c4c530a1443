"""The file of a request template: what may stand in it; see ``template.yaml``."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonpath
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from brusle.errors import InputError
from brusle.names import hint
from brusle.scores import MISSING, Gives, Output
from brusle.terms import Pace, parse_price
from brusle.text import brief, shown
from brusle.victims.remote.options import as_aliases, parse_missing
from brusle.yaml_files import read_yaml

EACH = "$each"
PLACEHOLDER = re.compile(r"\{(images?)\.(\w+)\}")
_IN_JSON, _IN_FORMS = ("base64", "floats", "levels"), ("png",)


def template() -> str:
    """The commented file that a user begins with."""
    return files(__package__).joinpath("template.yaml").read_text(encoding="utf-8")


def _compiled(text: Any) -> Any:
    if not isinstance(text, str):
        raise PydanticCustomError("path", "write a JSONPath such as $.labels[*].name")
    try:
        return jsonpath.compile(text)
    except jsonpath.JSONPathError as error:
        reason = str(error).splitlines()[0]
    raise PydanticCustomError("path", "it is no JSONPath ({reason})", {"reason": reason})


def _images(value: Any) -> int:
    found = re.fullmatch(r"batch (\d{1,4})", str(value))
    if value != "one" and (found is None or int(found[1]) < 1):
        raise PydanticCustomError("images", "write one, or batch and a number, as in: batch 8")
    return int(found[1]) if found else 0


def _text(value: Any) -> Any:
    """Numbers stand for their text; YAML has a type for everything."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Path_ = Annotated[Any, BeforeValidator(_compiled)]
Texts = dict[str, Annotated[str, BeforeValidator(_text)]]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False)


class Body(_Strict):
    """The body of a request: one of the three.

    Attributes:
        tree: JSON with placeholders.
        multipart: fields of a form, with placeholders.
        raw: the image alone.
    """

    tree: Any = Field(None, alias="json")
    multipart: Texts | None = None
    raw: Literal["png"] | None = None

    @model_validator(mode="after")
    def _one(self) -> Body:
        if sum(part is not None for part in (self.tree, self.multipart, self.raw)) != 1:
            raise PydanticCustomError("body", "give one of json, multipart and raw")
        return self


class Answer(_Strict):
    """Where in an answer things stand, as JSONPath.

    Attributes:
        scores: of an image.
        labels: what they are of; None if of the classes in order.
        ids: what labels are matched by instead of their names.
        each: the nodes that stand for one image each.
        error: message of an error.
        code: of that error.
        version: of the model; from the beginning, not from a node of ``each``.
    """

    scores: Path_
    labels: Path_ = None
    ids: Path_ = None
    each: Path_ = None
    error: Path_ = None
    code: Path_ = None
    version: Path_ = None


class Template(_Strict):
    """A request template; names as in ``template.yaml``.

    Attributes:
        images: most images in one call; 0 is one, without lists around it.
    """

    url: str
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    headers: Texts = {}
    query: Texts = {}
    images: Annotated[int, BeforeValidator(_images)] = 0
    body: Body
    layout: Literal["hwc", "chw"] = "hwc"
    answer: Answer
    output: Output = "confidences"
    gives: Gives | None = None
    divide: PositiveFloat = 1.0
    missing: Annotated[str, BeforeValidator(_text)] = str(MISSING)
    classes: PositiveInt | tuple[str, ...] | str | None = None
    aliases: dict[str, Any] = {}
    size: PositiveInt | tuple[PositiveInt, PositiveInt] | None = None
    shape: tuple[PositiveInt, PositiveInt, PositiveInt] | None = None
    success: frozenset[int] = frozenset({200})
    retry: frozenset[int | str] = frozenset()
    rate: Annotated[str | None, AfterValidator(lambda text: text and str(Pace.parse(text)))] = None
    price: Annotated[str | None, BeforeValidator(_text)] = None

    @classmethod
    def read(cls, path: str) -> Template:
        """A template from a file; what is wrong with it is one short error."""
        values = read_yaml(path, "request template")
        try:
            made = cls(**values)
        except ValidationError as error:
            raise InputError(_wrong(path, error)) from None
        made._check(path)
        return made

    def _check(self, path: str) -> None:
        """Raise about what no single key is to blame for."""
        _check_placeholders(self, path)
        parse_missing(self.missing, path)
        as_aliases(self.aliases, path)
        if self.price is not None:
            parse_price(self.price)
        if self.images and self.answer.each is None:
            raise InputError(
                f"{path}: a batch needs answer.each, the JSONPath of each image's part"
            )
        if self.answer.ids is not None and self.answer.labels is None:
            raise InputError(f"{path}: ids are those of labels: give answer.labels, too")


def _wrong(path: str, error: ValidationError) -> str:
    """The first thing that is wrong with a template."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        parts: dict[str, type[BaseModel]] = {"body": Body, "answer": Answer}
        known = parts.get(str(first["loc"][0])) if len(first["loc"]) > 1 else None
        known = known or Template
        names = [field.alias or name for name, field in known.model_fields.items()]
        return f"{path} has no key {brief(place)}{hint(str(first['loc'][-1]), names)}"
    if first["type"] == "missing":
        return f"{path} lacks {place}: see brusle victim init for a whole template"
    given = "" if isinstance(first["input"], dict) else f" is {brief(first['input'])}"
    return shown(f"{path}: {place}{given}: {first['msg']}")


def _check_placeholders(template: Template, path: str) -> None:
    """Raise unless the body holds the image, in a way that can be written."""
    if template.body.raw is not None:
        if template.images:
            raise InputError(f"{path}: a raw body holds one image: write images: one")
        return
    form = template.body.multipart is not None
    known = _IN_FORMS if form else _IN_JSON
    found = list(_placeholders(template.body.multipart if form else template.body.tree))
    for word, kind, inside in found:
        if kind not in known:
            raise InputError(f"{path} has no {{{word}.{kind}}}{hint(kind, known)}")
        if word == "images" and (not template.images or inside):
            raise InputError(f"{path}: {{images.{kind}}} is for a batch: write {{image.{kind}}}")
        if word == "image" and template.images and not inside:
            raise InputError(
                f"{path}: {{image.{kind}}} in a batch stands below {EACH}, or write "
                f"{{images.{kind}}}"
            )
    if not found:
        word = "images" if template.images else "image"
        raise InputError(f"{path}: the body holds no image: write {{{word}.{known[0]}}} into it")


def _placeholders(node: Any, inside: bool = False) -> list[tuple[str, str, bool]]:
    """All placeholders below a node, and whether each is below ``$each``."""
    if isinstance(node, str):
        return [(found[1], found[2], inside) for found in PLACEHOLDER.finditer(node)]
    if isinstance(node, dict):
        pairs = [(value, inside or key == EACH) for key, value in node.items()]
    else:
        pairs = [(value, inside) for value in node] if isinstance(node, list) else []
    return [found for value, deep in pairs for found in _placeholders(value, deep)]


def folder_of(path: str) -> Path:
    """Where files that a template names are looked for."""
    return Path(path).resolve().parent
