"""Any service over HTTP, by a template of its requests: ``rest:FILE.yaml``, see ``template.yaml``.

The file is data: it runs nothing, and of the environment it gets the variables that it names, in
its address, headers and query only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote_plus, urlencode

import httpx
import numpy as np
import torch

from brusle.names import Name
from brusle.replies import Reply
from brusle.terms import Pace, Terms, parse_price
from brusle.victims.options import take_classes, whole_framing
from brusle.victims.remote.authorisation import check_url
from brusle.victims.remote.connecting import Unconnected
from brusle.victims.remote.masking import from_environment, is_telling, keep_secret, line
from brusle.victims.remote.options import as_aliases, parse_missing
from brusle.victims.remote.pixels import laid_out
from brusle.victims.remote.service import (
    JSON,
    About,
    Call,
    Failure,
    Images,
    Response,
    Service,
    as_json,
    base64_png,
    labelled,
    of_code,
    png,
)
from brusle.victims.remote.template import EACH, PLACEHOLDER, Template, folder_of

_VARIABLE = re.compile(r"\$\{(\w+)\}")


class Rest(Service):
    """What a template says."""

    kind = "rest"

    def __init__(self, name: str, template: Template, about: About) -> None:
        address, _, query = template.url.partition("?")
        said = template.model_dump(mode="json", exclude={"url", "headers", "query", "answer"})
        paths = {key: str(path) for key, path in template.answer if path is not None}
        super().__init__(address, about, template.images or 1, template=said, answer=paths)
        self._name, self._template, self._query = name, template, query
        self.success = template.success
        self.retry = frozenset(code for code in template.retry if isinstance(code, int))

    def unlock(self) -> None:
        """Put variables of the environment where the template names them."""
        template = self._template
        address = self._filled(template.url.partition("?")[0])
        self.address = check_url(address, self._name)
        self.headers = {key: self._filled(value) for key, value in template.headers.items()}
        for key, value in self.headers.items():
            if is_telling(key):
                keep_secret(value)
                keep_secret(value.rpartition(" ")[2])  # behind a word such as Bearer
        own = self._filled(template.url.partition("?")[2], quote_plus)
        given = urlencode({key: self._filled(value) for key, value in template.query.items()})
        self._query = "&".join(filter(None, (own, given)))

    def _filled(self, text: str, written: Callable[[str], str] = str) -> str:
        """A text with the values of variables, as they are written there."""
        return _VARIABLE.sub(lambda found: written(from_environment(found[1], self._name)), text)

    def request(self, images: Images) -> Call:
        """As in `Service`."""
        template, url = self._template, self.address + (f"?{self._query}" if self._query else "")
        if template.body.raw is not None:
            headers, content = {"Content-Type": "image/png"}, png(images[0])
        elif template.body.multipart is not None:
            headers, content = _form(template.body.multipart, images)
        else:
            headers, content = JSON, as_json(self._written(template.body.tree, images))
        return Call(template.method, url, headers | self.headers, content)

    def _written(self, node: Any, images: Images) -> Any:
        """A part of the body, with the images in it."""
        if isinstance(node, dict):
            if set(node) == {EACH}:
                return [self._written(node[EACH], image[None]) for image in images]
            return {key: self._written(value, images) for key, value in node.items()}
        if isinstance(node, list):
            return [self._written(value, images) for value in node]
        if not isinstance(node, str):
            return node
        found = PLACEHOLDER.fullmatch(node)
        if found is None:
            return PLACEHOLDER.sub(lambda one: str(self._value(one, images)), node)
        return self._value(found, images)

    def _value(self, placeholder: re.Match[str], images: Images) -> Any:
        """What stands for a placeholder."""
        several, kind = placeholder[1] == "images", placeholder[2]
        if kind == "base64":
            values: Sequence[Any] = [base64_png(image) for image in images]
        else:
            layout, numbers = f"n{self._template.layout}", {"levels": "uint8"}.get(kind, "float32")
            values = laid_out(images, layout, numbers).tolist()  # type: ignore[arg-type]
        return values if several else values[0]

    def replies(self, response: Response, count: int) -> list[Reply]:
        """As in `Service`."""
        said, answer = response.json(), self._template.answer
        self._refuse_errors(said)
        nodes = [said] if answer.each is None else answer.each.findall(said)
        version = _first(answer.version, said)
        replies = [self._reply(node) for node in nodes]
        return [replace(one, version="" if version is None else str(version)) for one in replies]

    def _refuse_errors(self, node: Any) -> None:
        """Raise if there is an error in an answer, or in a part of it."""
        message = _first(self._template.answer.error, node)
        if message in (None, "", False, [], {}):
            return
        code, reason = _first(self._template.answer.code, node), line(str(message))
        if code in self._template.retry:
            raise Failure("busy", f"{code}: {reason}")
        raise of_code(code if isinstance(code, int | str) else None, reason)

    def _reply(self, node: Any) -> Reply:
        answer = self._template.answer
        self._refuse_errors(node)
        scores = np.array(_flat(answer.scores.findall(node)), np.float64) / self._template.divide
        if answer.labels is None:
            if len(scores) < 2:
                raise Failure("nonsense", f"its answer has no scores at {answer.scores}")
            return Reply(scores.reshape(-1))
        labels = _flat(answer.labels.findall(node))
        if answer.ids is None:
            return labelled(labels, scores.tolist())
        return labelled(_flat(answer.ids.findall(node)), scores.tolist(), labels)


def _first(path: Any, node: Any) -> Any:
    """What a path leads to first; None if to nothing."""
    found = [] if path is None else path.findall(node)
    return found[0] if found else None


def _flat(found: list[Any]) -> list[Any]:
    """What a path leads to, also if that is one list of all."""
    return found[0] if len(found) == 1 and isinstance(found[0], list) else found


def _form(fields: dict[str, str], images: Images) -> tuple[dict[str, str], bytes]:
    """A form with the images as files, and its headers."""
    text = {key: value for key, value in fields.items() if not PLACEHOLDER.fullmatch(value)}
    files = [
        (key, ("image.png", png(image), "image/png"))
        for key in fields
        if key not in text
        for image in images
    ]
    request = httpx.Request("POST", "http://form", data=text, files=files)
    return {"Content-Type": request.headers["Content-Type"]}, request.read()


def open_rest(name: Name, device: torch.device) -> Unconnected:
    """The service that the template of ``name`` describes."""
    name.done()
    template = Template.read(name.rest)
    service = Rest(name.text, template, _about(template, name.rest))

    def with_hints(terms: Terms) -> Terms:
        rate = Pace.parse(template.rate) if template.rate and terms.rate is None else terms.rate
        price = parse_price(template.price) if template.price and not terms.price else terms.price
        return replace(terms, rate=rate, price=price)

    return Unconnected(name.text, service, device, with_hints)


def _about(template: Template, path: str) -> About:
    """What the template says of the service."""
    labels = template.answer.labels is not None
    classes = template.classes
    if isinstance(classes, str):
        named = Name(path, "rest", path, {"classes": str(folder_of(path) / classes)})
        classes = take_classes(named)
    size = template.size
    sides = (size, size) if isinstance(size, int) else size
    about = About(
        output=template.output,
        gives=template.gives or ("partial" if labels else "scores"),
        classes=classes if isinstance(classes, tuple) else None,
        width=classes if isinstance(classes, int) else None,
        labelled=labels,
        aliases=as_aliases(template.aliases, path),
        missing=parse_missing(template.missing, path),
        framing=whole_framing(sides) if sides else None,
    )
    return about if template.shape is None else about.of_shape(template.shape)
