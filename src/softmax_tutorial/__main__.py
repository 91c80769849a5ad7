"""`python -m softmax_tutorial`: the ladder on this computer's GPU.

Each rung has to give the right answer before it is timed, with a cold L2 cache, by Triton's
`do_bench`. In the interpreter, which has no speed of its own, only answers are checked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import triton

import triton_softmax
from softmax_tutorial.ladder import RUNGS
from softmax_tutorial.ladder_table import DTYPE, LADDER, SHAPE, committed, report
from triton_softmax.operations.softmax import SOFTMAX
from triton_softmax.plan import plan_of

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 1024
"""Rows that are compared with float64 at a time, which take twice the memory."""

NO_GPU = """There is no GPU here that PyTorch and Triton can use, so there is nothing to time.

* With an NVIDIA GPU, install PyTorch for CUDA: `python -c "import torch; torch.zeros(1).cuda()"`
  has to work.
* Without one, open the notebook of the page "On your GPU" in Colab or on any rented GPU.
* To see the same kernels give the right answers on this computer, in Triton's interpreter:

      TRITON_INTERPRET=1 PYTHONPATH=src python -m softmax_tutorial --shape 4x1000"""


def calls(x: torch.Tensor) -> dict[str, Callable[[], torch.Tensor]]:
    """Who is timed, by the names of `LADDER`."""
    y = torch.empty_like(x)
    found: dict[str, Callable[[], torch.Tensor]] = {
        name: partial(rung.softmax_forward, x) for name, rung in RUNGS.items()
    }
    found["copy"] = lambda: y.copy_(x)
    found["split_rows"] = lambda: plan_of(SOFTMAX, (x,), -1, kernel="split_rows")(x)
    found["triton_softmax"] = lambda: triton_softmax.softmax(x)
    return {name: found[name] for name in LADDER}


def check(name: str, call: Callable[[], torch.Tensor], x: torch.Tensor) -> None:
    """Compare an answer with softmax in float64.

    Raises:
        AssertionError: they differ by more than rounding.
    """
    result, label = call(), LADDER.get(name, name)
    for begin in range(0, len(x), AT_ONCE):
        rows = slice(begin, begin + AT_ONCE)
        expected = x[rows] if name == "copy" else torch.softmax(x[rows].double(), -1)
        torch.testing.assert_close(
            result[rows].double(), expected.double(), atol=1e-7, rtol=1e-4,
            msg=lambda text: f"{label} gives a wrong answer, and is not timed.\n{text}",
        )  # fmt: skip


def timer() -> Callable[[Callable], float] | None:
    """Return what takes the median microseconds of a call; None where there is no GPU."""
    if not torch.cuda.is_available():
        return None
    return lambda call: 1e3 * triton.testing.do_bench(call, return_mode="median")


def shape(text: str) -> tuple[int, int]:
    """Rows and columns, as `4x1000`."""
    rows, cols = map(int, text.split("x"))
    if rows < 1 or cols < 1:
        raise ValueError
    return rows, cols


def run(
    asked: tuple[int, int],
    time: Callable[[Callable], float] | None,
    **more: Callable[[torch.Tensor], torch.Tensor],
) -> dict[str, float]:
    """Check the ladder on a matrix, time it, and print the table.

    Args:
        asked: rows and columns.
        time: takes the microseconds of a call; None to check the answers alone.
        more: further softmaxes, by the names that their rows have.

    Returns:
        The microseconds of all that ran, by name.

    Raises:
        AssertionError: an answer is wrong.
    """
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(asked, dtype=getattr(torch, DTYPE), device=device)
    timed, failed = {}, []
    everyone = calls(x) | {name: partial(call, x) for name, call in more.items()}
    for name, call in everyone.items():
        try:
            check(name, call, x)
            if time:
                timed[name] = time(call)
        except AssertionError:
            raise
        except Exception as error:  # an older GPU, or a smaller one, may lack what one rung needs
            label = LADDER.get(name, name)
            failed.append(f"{label} does not run here: {type(error).__name__}: {error}")
    if not time:
        ran = len(everyone) - len(failed)
        print(f"{ran} of {len(everyone)} answers were computed, and agree with float64.")
    else:
        environment = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
        environment["triton"] = triton.__version__
        beside = committed(ROOT) if asked == SHAPE else {}
        print(report(timed, environment, asked, moved=2 * x.nbytes, beside=beside))
    if failed:
        print("", *failed, sep="\n")
    return timed


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 where there is nothing to run on."""
    parser = argparse.ArgumentParser("python -m softmax_tutorial", description=main.__doc__)
    parser.add_argument("--shape", type=shape, default=SHAPE, help="rows and columns, as 4x1000")
    asked, time = parser.parse_args(arguments).shape, timer()
    if not time and not triton.knobs.runtime.interpret:
        print(NO_GPU, file=sys.stderr)
        return 1
    run(asked, time)
    return 0


if __name__ == "__main__":
    sys.exit(main())
