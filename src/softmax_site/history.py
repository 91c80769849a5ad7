"""When each page was last changed, by the history of the repository, and a feed of that."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

FEED = "feed.xml"
LONGEST = 30
"""Entries of the feed."""


class Change(NamedTuple):
    """The last commit that changed a page."""

    time: str
    """In the form of ISO 8601."""
    subject: str


def last_changes(root: Path) -> dict[str, Change]:
    """The last change of each file below `docs`, by its path there, newest first; none where the
    history is not, as in a copy without it or in a clone of the last commit alone."""
    asked = ("git", "-C", str(root), "log", "--format=%x00%cI %s", "--name-only", "--relative=docs")
    try:
        if (root / ".git/shallow").exists():
            return {}
        log = subprocess.run([*asked, "--", "docs"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    found: dict[str, Change] = {}
    for commit in log.stdout.split("\0")[1:]:
        head, *paths = commit.strip().split("\n")
        for path in filter(None, paths):
            found.setdefault(path, Change(*head.split(" ", 1)))
    return found


def feed(pages: Iterable[Any], changes: dict[str, Change], config: Any) -> str:
    """The pages that were changed last, as Atom."""
    of_path = {each.file.src_uri: each for each in pages}
    found = [(of_path[path], change) for path, change in changes.items() if path in of_path]
    lines = ['<?xml version="1.0" encoding="utf-8"?>', '<feed xmlns="http://www.w3.org/2005/Atom">']
    lines += [f"<title>{escape(config.site_name)}</title>", f"<id>{config.site_url}</id>"]
    lines.append(f'<link rel="self" href="{config.site_url}{FEED}"/>')
    lines.append(f"<author><name>{escape(config.site_name)}</name></author>")
    lines.append(f"<updated>{found[0][1].time}</updated>")
    for page, change in found[:LONGEST]:
        address = page.canonical_url
        lines.append(
            f'<entry><title>{escape(page.title)}</title><link href="{address}"/>'
            f"<id>{address}</id><updated>{change.time}</updated>"
            f"<summary>{escape(change.subject)}</summary></entry>"
        )
    return "\n".join([*lines, "</feed>"]) + "\n"
