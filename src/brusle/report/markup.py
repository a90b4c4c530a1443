"""HTML and SVG from pieces, so that a name can never become markup."""

from __future__ import annotations

import html

from brusle.text import shown

_VOID = ("img", "meta", "br")  # elements without content


class Html(str):
    """Text that is markup already; `tag` and `join` escape everything else."""

    __slots__ = ()


def tag(name: str, /, *content: object, **attributes: object) -> Html:
    """An element.

    Args:
        name: of the element.
        content: `Html` as it is, anything else escaped.
        attributes: values are escaped; one that is None or False is left out. ``class_`` is
            ``class``, and other underscores are hyphens.
    """
    words = [name]
    for key, value in attributes.items():
        if value is not None and value is not False:
            words.append(f'{key.strip("_").replace("_", "-")}="{_text(value)}"')
    if name in _VOID:
        return Html(f"<{' '.join(words)}>")
    return Html(f"<{' '.join(words)}>{join(*content)}</{name}>")


def join(*content: object) -> Html:
    """Pieces one after the other."""
    return Html("".join(x if isinstance(x, Html) else _text(x) for x in content))


def _text(content: object) -> str:
    return html.escape(shown(content))
