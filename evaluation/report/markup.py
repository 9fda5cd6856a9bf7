"""HTML in which text is escaped unless it was made here."""

import json
import re
from html import escape

from evaluation.captions import SEPARATORS

UNCLOSED = ("meta", "input")


class Markup(str):
    """HTML, as opposed to text that is still to be escaped."""


def tag(kind: str, /, *content: str | Markup | None, **attributes: object) -> Markup:
    """An element. Text is escaped, Markup is not, None is left out.

    An attribute that is True stands alone and one that is None or False is left out. `class_` is
    class, `for_` is for, and `data_x` is data-x.
    """
    words = [kind]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(key)
        elif value is not None and value is not False:
            words.append(f'{key}="{escape(str(value), quote=True)}"')
    head = f"<{' '.join(words)}>"
    return Markup(head if kind in UNCLOSED else f"{head}{join(*content)}</{kind}>")


def join(*content: str | Markup | None) -> Markup:
    """Texts and elements one after another."""
    kept = (part for part in content if part is not None)
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in kept))


def breakable(name: str) -> Markup:
    """A long name that may go on in the next line after its commas, colons and the like."""
    parts = re.split(SEPARATORS, name)
    return Markup("<wbr>".join(escape(part) for part in parts))


def data_block(identifier: str, value: object) -> Markup:
    """JSON for the page's scripts, without any character that could end or open an element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{identifier}">{text}</script>')
