"""What a reader must know about a measurement, decided when the site is built.

Nothing while all is well; a warning when some of the calls that were measured launch something else
today, or when the measurement is older than 90 days.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from softmax_site.benchmarks.page import Measured

OLD_DAYS = 90


def today() -> datetime:
    """The time of the build; `SOURCE_DATE_EPOCH` sets it, for builds that can be repeated."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch:
        return datetime.fromtimestamp(int(epoch), UTC)
    return datetime.now(UTC)


def notices(measured: Measured, now: datetime) -> list[tuple[str, str]]:
    """Title and text of each thing a reader must know about a measurement."""
    found = []
    then = datetime.strptime(measured.utc, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    day = then.strftime("%Y-%m-%d")
    if measured.changed:
        text = (
            f"{measured.changed} of the {measured.calls} calls of ours behind these numbers launch "
            "something else today. [Which](/benchmarks/environment.md#what-is-launched-today)"
        )
        found.append((f"Changed since measured on {day}", text))
    age = (now - then).days
    if age > OLD_DAYS:
        text = f"These numbers were taken on {day}, {age} days before this page was built."
        found.append(("Measured long ago", text))
    return found


def markdown(measured: Measured) -> str:
    """The notices as admonitions; empty while all is well."""
    found = notices(measured, today())
    return "".join(f'!!! warning "{title}"\n\n    {text}\n\n' for title, text in found)


def briefly(text: str, measured: Measured) -> str:
    """A short fragment, whose last line says so if its number is of an earlier launch, or old."""
    if not notices(measured, today()):
        return text
    return text.replace("</span></p>", ", before the last change</span></p>")
