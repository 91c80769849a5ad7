"""Which kernel a usual shape gets on an H200, as the library's own planner says, for the page
"Which kernel". The page's front matter lists the shapes, by names as `softmax_bench.tune` takes
them."""

from __future__ import annotations

from pathlib import Path

from softmax_bench import tune
from softmax_site import kernel_map
from triton_softmax.config import Device

ROOT = Path(__file__).resolve().parents[3]
PAGE = "kernels/which-kernel.md"
H200 = Device(132, nvidia=True)

HEAD = "| what | call | kernel | programs | warps of each |\n|---|---|---|--:|--:|"


def line(what: str, name: str, pages: dict[str, str]) -> str:
    """Return a line of the table.

    Args:
        what: what the shape is, in words.
        name: the name of the case, such as softmax/backward/float32/7500x4500/dim0.
        pages: the page of each kernel.
    """
    case = tune.named(name)
    problem = tune.problem_of(case, H200)
    choice = problem.library()
    shape = " × ".join(f"{n:,}" for n in case.shape)
    along = f", dim {case.dim}" if case.dim not in (-1, len(case.shape) - 1) else ""
    operation = case.op.replace("_", "-").replace("logsumexp", "log-sum-exp")
    backward = ", backward," if case.direction == "backward" else ""
    kernel = f"[`{choice.kernel}`]({pages[choice.kernel]}.md)"
    call = f"{operation}{backward} of {shape} {case.dtype}{along}"
    return f"| {what} | {call} | {kernel} | {problem.programs(choice):,} | {choice.num_warps} |"


def generate() -> dict[str, str]:
    """Return the table, by the path of its file."""
    pages = {entry.kernel: entry.page for entry in kernel_map.entries(ROOT)}
    usual = kernel_map.front_matter(ROOT, PAGE, "usual")
    lines = [line(each["what"], each["case"], pages) for each in usual]
    return {"docs/_computed/usual-shapes.md": "\n".join([HEAD, *lines]) + "\n"}
