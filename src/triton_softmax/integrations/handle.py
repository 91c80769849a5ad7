"""The handle that every integration returns: it counts what our kernels answered, and takes them
out again.

A `Replacement` is what an integration puts in the place of something of another package. It
stands while any of its handles is active; of several handles the last that is active answers, and
counts.
"""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

# One lock for all: installing is rare, and handles of one replacement may go in any thread.
LOCK = threading.RLock()


class Handle:
    """What an integration returns: ours is in until `remove()`, or until its `with` block ends.

    Attributes:
        calls: How often ours answered, by the name of what it stands in for. Kept, and no longer
            changed, after `remove()`. Not exact under `torch.compile`.
        active: Whether ours is still in by this handle.
        options: Those of the integration.
    """

    def __init__(self, replacement: "Replacement", **options: Any):
        self.options = options
        self._calls: Counter[str] = Counter()
        self.active = True
        self._replacement = replacement
        replacement.add(self)

    def count(self, name: str) -> None:
        """Count one more call of `name` that ours answered; nothing after `remove()`."""
        with LOCK:
            if self.active:
                self._calls[name] += 1

    @property
    def calls(self) -> dict[str, int]:
        return dict(self._calls)

    def remove(self) -> None:
        """Take ours out; do nothing the second time."""
        with LOCK:
            if self.active:
                self.active = False
                self._replacement.drop(self)

    def __enter__(self) -> "Handle":
        """The same handle.

        Raises:
            RuntimeError: The handle was removed.
        """
        if not self.active:
            raise RuntimeError("this handle was removed: install again for a new one")
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Replacement:
    """Ours in the place of another's: `install` runs before the first handle, `uninstall` after the
    last."""

    def __init__(self, install: Callable[[], None], uninstall: Callable[[], None]):
        self._install = install
        self._uninstall = uninstall
        # The process's, not a thread's, and alive though nobody else keeps them. Never changed in
        # place: `answering` reads it without the lock.
        self.handles: tuple[Handle, ...] = ()

    def add(self, handle: Handle) -> None:
        with LOCK:
            if not self.handles:
                self._install()
            self.handles += (handle,)

    def drop(self, handle: Handle) -> None:
        with LOCK:
            self.handles = tuple(each for each in self.handles if each is not handle)
            if not self.handles:
                self._uninstall()

    def answering(self) -> Handle | None:
        """The handle that answers now: the last that is still in."""
        handles = self.handles
        return handles[-1] if handles else None
