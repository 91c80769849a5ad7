"""Our kernels where other packages compute a softmax: one line puts them in, one takes them out.

Each function installs at once and returns a `Handle`. Importing this package imports none of the
packages that it serves.
"""

from .aten import torch_operators
from .handle import Handle
from .transformers import patch_transformers
from .trl import patch_trl

__all__ = ["Handle", "patch_transformers", "patch_trl", "torch_operators"]
