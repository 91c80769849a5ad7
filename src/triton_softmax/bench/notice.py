"""Python-Markdown extension: says when a measurement is out of date, at the moment the site is
built.

A line `<!-- measured: {"utc": …, "sources": {…}} -->`, as the generated fragments carry it, becomes
nothing while all is well, and a warning when an implementation's source has changed since, or when
the measurement is older than 90 days.
"""

from __future__ import annotations

import json
import os
import re
from datetime import datetime, timezone
from pathlib import Path

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

from triton_softmax.bench import sources

OLD_DAYS = 90
_MARKER = re.compile(r"^(?P<indent> *)<!-- measured: (?P<data>\{.*\}) -->$")


def today() -> datetime:
    """The time of the build; `SOURCE_DATE_EPOCH` sets it, for builds that can be repeated."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch:
        return datetime.fromtimestamp(int(epoch), timezone.utc)
    return datetime.now(timezone.utc)


def notices(
    measured: dict, now: datetime, package: Path = sources.PACKAGE
) -> list[tuple[str, str]]:
    """Title and text of each thing a reader must know about a measurement."""
    found = []
    if measured["utc"] is None:
        return found
    then = datetime.strptime(measured["utc"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    day = then.strftime("%Y-%m-%d")
    changed = [
        name for name, sha in measured["sources"].items() if sources.hash_of(name, package) != sha
    ]
    if changed:
        names = ", ".join(f"`{name}`" for name in changed)
        found.append(
            (
                f"Changed since measured on {day}",
                f"The source of {names} has changed since these numbers were taken; they describe the earlier code.",
            )
        )
    age = (now - then).days
    if age > OLD_DAYS:
        text = f"These numbers were taken on {day}, {age} days before this page was built."
        found.append(("Measured long ago", text))
    return found


class _Notices(Preprocessor):
    def __init__(self, md: Markdown, package: Path):
        super().__init__(md)
        self.package = package

    def run(self, lines: list[str]) -> list[str]:
        out = []
        for line in lines:
            match = _MARKER.match(line)
            if match is None:
                out.append(line)
                continue
            indent = match["indent"]
            for title, text in notices(json.loads(match["data"]), today(), self.package):
                out += [f'{indent}!!! warning "{title}"', "", f"{indent}    {text}", ""]
        return out


class NoticeExtension(Extension):
    """Registers the preprocessor behind the one that includes snippets."""

    def __init__(self, **kwargs: object):
        self.config = {"package": [str(sources.PACKAGE), "The package whose sources are hashed"]}
        super().__init__(**kwargs)

    def extendMarkdown(self, md: Markdown) -> None:
        """Called by Python-Markdown."""
        md.preprocessors.register(
            _Notices(md, Path(self.getConfig("package"))), "measurement-notices", 31
        )


def makeExtension(**kwargs: object) -> NoticeExtension:
    """Called by Python-Markdown."""
    return NoticeExtension(**kwargs)
