"""Everyone who is measured: name in the data, label on the pages.

The one place where these stand. A new rung or library is a name here, and a call in `providers`.
"""

from __future__ import annotations

COPY = "copy"
CHOOSER = "triton_softmax"
EVERYWHERE = ("torch", "torch.compile", "liger", "flag_gems", "quack")
"""Libraries that suites ask unless they name others; the rest only where they have something."""
LIBRARIES = (*EVERYWHERE, "trl", "transformer_engine", "helion", "flashinfer")
RUNGS = (
    *("naive", "single_block", "three_loops", "two_loops"),
    *("packed_rows", "aligned_rows", "split_rows", "strided"),
)

PROVIDERS = (COPY, CHOOSER, *LIBRARIES, *RUNGS)
"""Everyone, in the order in which they run and are shown."""

PACKAGES = {
    **{"liger": "liger-kernel", "flag_gems": "flag-gems", "quack": "quack-kernels", "trl": "trl"},
    **{"transformer_engine": "transformer-engine", "helion": "helion"},
    "flashinfer": "flashinfer-python",
}
"""The distributions of other projects."""

LABELS = {
    **{"liger": "Liger", "flag_gems": "FlagGems", "quack": "QuACK", "trl": "TRL"},
    **{"transformer_engine": "TransformerEngine", "helion": "Helion", "flashinfer": "FlashInfer"},
}


def label_of(name: str) -> str:
    """What the pages call a provider; its name if it is none of ours.

    >>> label_of("flag_gems"), label_of("three_loops"), label_of("triton_softmax")
    ('FlagGems', 'three loops', 'triton_softmax')
    """
    return name.replace("_", " ") if name in RUNGS else LABELS.get(name, name)
