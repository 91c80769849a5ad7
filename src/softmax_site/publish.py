"""The command `python -m softmax_site.publish RUN`: put a run in the place of the published data.

One run is published at a time. What follows from the data is made anew: what its calls launch
today, which claims and numbers of the pages it does not bear out, the README, and the pictures. The
pages themselves follow when they are built. Chromium has to be there.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from softmax_bench import launches, schema
from softmax_site import rendered, source
from softmax_site.benchmarks import quoted, values
from softmax_site.equations import without_fences
from softmax_site.figures.__main__ import main as draw

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = "measurements.json"
RENDERED = re.compile(r"^ *(\[\[rendered (.+)\]\])$")


def unsaid(root: Path) -> dict[str, list[tuple[str, str]]]:
    """What the pages below a folder say that the data do not bear out: for each page what is
    written there, and what is wrong with it."""
    names, there = quoted.load(root), rendered.load(root).fragments
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted((root / "docs").rglob("*.md")):
        page = found.setdefault(path.relative_to(root).as_posix(), [])
        for line in without_fences(path.read_text("utf8")).splitlines():
            page.extend(values.faults(line, names))
            include = RENDERED.match(line)
            if include and include[2] not in there:
                page.append((include[1], "not measured"))
    return {page: faults for page, faults in found.items() if faults}


def report(found: dict[str, list[tuple[str, str]]]) -> str:
    """What people have to write anew, as the text of a proposal."""
    if not found:
        return "Every sentence of the pages is borne out by the new data.\n"
    lines = [f"{values.UNSAID} lists what the pages say and the new data do not bear out. A remark"]
    lines += ["stands in its place until the sentence is written anew and the entry removed:", ""]
    for page, faults in found.items():
        lines.append(f"- [ ] `{page}`")
        lines += [f"    - `{what}`: {why}" for what, why in faults]
    return "\n".join(lines) + "\n"


def publish(run: Path, root: Path = ROOT) -> str:
    """Put a run in the place of the data; return what people have to write anew.

    Raises:
        DataError: the file is no run, or breaks the schema.
        CalledProcessError: `softmax_bench replay` has failed, and said why.
    """
    data, folder = schema.load(run), root / launches.DATA
    for old in folder.glob("*.json"):
        old.unlink()
    schema.write(folder / PUBLISHED, data)
    # In a process of its own: it needs the library, which the site does without.
    replay = (sys.executable, "-m", "softmax_bench", "replay", "--update")
    subprocess.run(replay, cwd=root, check=True, stdout=subprocess.DEVNULL)
    (root / values.UNSAID).unlink(missing_ok=True)
    source.forget()
    if found := unsaid(root):
        each = {what for faults in found.values() for what, _ in faults}
        schema.write(root / values.UNSAID, sorted(each), depth=1)
    source.forget()
    draw()
    return report(found)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m softmax_site.publish", description=__doc__)
    parser.add_argument("run", type=Path, help="the file that `softmax_bench run` wrote")
    try:
        print(publish(parser.parse_args(arguments).run), end="")
    except schema.DataError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
