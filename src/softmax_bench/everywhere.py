"""All shipped kernels compiled ahead of time, for GPUs and by Tritons that are not at hand:
`python -m softmax_bench compile-everywhere`.

Public calls are recorded on each GPU: of those that were measured one for each kernel, operation
and element type, and some that nobody measured. What the installed Triton makes of their kernels
goes into a file: for each GPU, Triton and kind of kernel a line, of the first of its kind that is
launched. Runs by another Triton or for other GPUs add to the file.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from softmax_bench.launches import cell_of, measured, read
from softmax_bench.roster import CHOOSER
from softmax_bench.schema import ROOT, DataError, check_writable, load, write

FILE = "docs/benchmarks/compiled.json"
FORMAT = "triton-softmax-compiled/1"

DEPTH = 4
"""Of the lines."""

FIELDS = ("registers", "spill_bytes", "shared_bytes", "load_bits", "store_bits")
"""What a line says, of `Compilation`, after the number of the kind."""


MORE = {
    "float64": """
x = torch.empty(1000, 4097, dtype=torch.float64, requires_grad=True)
y = log_softmax(x, 1)
torch.autograd.grad(y, x, y.detach())
""",
    "masked scores": """
x = torch.empty(2, 8, 512, 4096, dtype=torch.bfloat16, requires_grad=True)
mask = torch.ones(1, 1, 512, 4096, dtype=torch.bool)
sink, scale = (torch.ones(*shape, requires_grad=True) for shape in ((8,), (2, 8, 512, 1)))
y = softmax(x, scale=scale, where=mask, sink=sink)
torch.autograd.grad(y, (x, scale, sink), y.detach())
""",
    "losses": """
x = torch.empty(64, 50_257, dtype=torch.bfloat16, requires_grad=True)
t, w = torch.zeros(64, dtype=torch.int64), torch.ones(50_257, dtype=torch.bfloat16)
cross_entropy(x, t, w, label_smoothing=0.1, z_loss=1e-3).backward()
cross_entropy(x, t, label_smoothing=0.1).backward()
cross_entropy(x, t, softcap=30.0).backward()
cross_entropy(x, x.detach()).backward()
""",
    "ranks": """
x = torch.empty(64, 65_536, dtype=torch.bfloat16, requires_grad=True)
t, w = torch.zeros(64, dtype=torch.int64), torch.ones(2 * 65_536, dtype=torch.bfloat16)
group = ranks(2)
y, z = softmax(x, 1, group=group), log_softmax(x, 1, group=group)
torch.autograd.grad(y, x, y.detach())
torch.autograd.grad(z, x, y.detach())
lse = logsumexp(x, 1, group=group)
torch.autograd.grad(lse, x, lse.detach())
cross_entropy(x, t, group=group, label_smoothing=0.1, z_loss=1e-3).backward()
cross_entropy(x, t, w, group=group, reduction="none").sum().backward()
cross_entropy(x, x.detach(), group=group)
sum(each.sum() for each in token_logprobs(x, t, group=group, return_entropy=True)).backward()
""",
    "tokens": """
for n_rows in (4096, 8):
    x = torch.empty(n_rows, 151_936, dtype=torch.bfloat16, requires_grad=True)
    t, kept = torch.zeros(n_rows, dtype=torch.int64), torch.ones(n_rows, dtype=torch.bool)
    sum(each.sum() for each in selective_log_softmax_and_entropy(x, t, 0.7, kept)).backward()
""",
}
"""Calls that nobody measured, as statements."""


def sample() -> list[dict]:
    """The measured rows in which a kernel, operation, direction and element type comes first."""
    launches, seen, found = read(ROOT).today, set(), []
    for row in (row for rows in measured().values() for row in rows):
        if row["provider"] == CHOOSER and row["suite"] not in ("compiles", "invariant"):
            of_row = (row["op"], row.get("direction"), row.get("dtype"))
            kinds = {(each.kernel, *of_row) for each in launches[cell_of(row)]}
            if not kinds <= seen:
                seen |= kinds
                found.append(row)
    return found


def kind_of(kernel: Any) -> str:
    """A kernel's function, operation, type of what it reads, and part where there are two."""
    first = kernel.source.signature["in_ptrs"]
    while isinstance(first, tuple):
        first = first[0]
    how = kernel.constants.get("HOW")
    both = getattr(how, "publish", True), getattr(how, "write", True)
    part = {(True, False): "publish", (False, True): "write"}.get(both)
    of = (kernel.source.fn.__name__, kernel.constants.get("OP"), first.removeprefix("*"), part)
    return " ".join(str(each) for each in of if each)


def kernels(gpu: str) -> list[Any]:
    """What Triton would compile for all calls on a GPU, each once."""
    from softmax_bench import compilation, recording

    recorder, found = recording.recorder(), []
    with recording.on(gpu):
        for row in sample():
            found += recorder.kernels_of(recording.call_of(row))
        for text in MORE.values():
            found += recorder.kernels_of(compilation.call_from(text))
    return list({id(each): each for each in found}.values())


def run(gpus: list[str], out: Path, frontend: bool, patterns: list[str]) -> str:
    """The command: how many kernels were compiled, in words.

    Args:
        gpus: names of `GPUS`.
        out: the file in which the lines of this Triton for these GPUs take the place of those that
            were there.
        frontend: only ask Triton's frontend, which needs no code generator; nothing is written.
        patterns: only kinds that fit one of them are compiled; the lines of others stay.

    Raises:
        DataError: Triton refuses a kernel; the message says which. Or none fits the patterns.
            Nothing is written.
    """
    import triton

    from softmax_bench.compilation import compilation_of, lowered

    data: dict[str, Any] = {"format": FORMAT, "kinds": [], "lines": {}}
    if not frontend:
        if out.exists():
            data = load(out, "compiled")
        check_writable(out)
    release, taken, kinds, refused = triton.__version__, 0, data["kinds"], []
    if triton.knobs.runtime.interpret:
        raise DataError("TRITON_INTERPRET is set, and the interpreter compiles nothing")

    def asked(kind: str) -> bool:
        return any(fnmatchcase(kind, each) for each in patterns)

    of_gpus = data["lines"].setdefault(release, {})
    for gpu in gpus:
        before = {kinds[at]: line for at, *line in of_gpus.get(gpu, [])}
        lines: dict[str, list[int]] = {kind: before[kind] for kind in before if not asked(kind)}
        for kernel in kernels(gpu):
            if not asked(kind := kind_of(kernel)):
                continue
            try:
                if frontend:
                    lowered(kernel, "ttir")
                elif kind not in lines:
                    made = compilation_of(kernel)
                    lines[kind] = [getattr(made, field) for field in FIELDS]
                taken += 1
            except Exception as error:  # the compiler's errors are of many kinds
                while error.__cause__ is not None:  # the last one says what is wrong
                    error = error.__cause__
                said = " ".join(str(error).split())[-200:]
                refused.append(f"Triton {release}, {gpu}, {kind}: {said}")
        kinds += [kind for kind in lines if kind not in kinds]
        of_gpus[gpu] = sorted([kinds.index(kind), *line] for kind, line in lines.items())
        print(f"Triton {release}, {gpu}: {taken} kernels", flush=True)
    if refused or not taken:
        raise DataError("\n".join(refused) or f"no kind of kernel fits {', '.join(patterns)}")
    if not frontend:
        every = [found for of in data["lines"].values() for found in of.values()]
        used = sorted({at for found in every for at, *_ in found})
        data["kinds"] = [kinds[at] for at in used]
        for found in every:
            found[:] = [[used.index(at), *line] for at, *line in found]
        write(out, data, DEPTH)
    return f"{taken} kernels, none refused"
