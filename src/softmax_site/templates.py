"""HTML that stands in files of its own, below `templates/`, with places for values."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_environment = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_environment.filters["e"] = escape


def filled(template: str, **values: Any) -> str:
    """A template with its values; those that are functions are called in it."""
    return _environment.get_template(f"{template}.html").render(values)
