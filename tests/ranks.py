"""Several ranks over gloo, for tests: started once, asked many times, and each time with a limit.

`python tests/ranks.py ADDRESS N` imports everything once and forks N processes, which wait for
commands. Each holds a process group of the first 1, 2, … of them, and meshes.
"""

from __future__ import annotations

import datetime
import importlib
import math
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

TIMEOUT = 20
"""Seconds after which a rank gives up waiting for another."""

LIMIT = 60
"""Seconds after which a test gives up waiting for a rank."""

MESHES = ((2,), (3,), (4,), (8,), (2, 2), (2, 4))
"""Shapes of meshes of the first ranks."""


class Failed(AssertionError):
    """What a rank had to say."""


class Ranks:
    """A pool of ranks. Used as a context, it leaves nothing behind.

    Args:
        n: how many.
        module: of the functions that are called.
    """

    def __init__(self, n: int, module: str):
        self.n, self.module = n, module
        self.broken = False
        self.folder = tempfile.TemporaryDirectory()
        address = str(Path(self.folder.name) / "ranks")
        command = [sys.executable, __file__, address, str(n), module]
        self.connections: dict[int, Connection] = {}
        with Listener(address, "AF_UNIX") as listener:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self.process = subprocess.Popen(command, env=environment, start_new_session=True)
            # Accepting has no limit of its own.
            listener._listener._socket.settimeout(LIMIT)  # pyright: ignore
            for _ in range(n):
                connection = listener.accept()
                self.connections[connection.recv()] = connection

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self.connections.values():
            connection.close()
        try:
            self.process.wait(timeout=0 if self.broken else TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        self.folder.cleanup()

    def ask(self, function: str, *arguments: Any, world: int | None = None, **more: Any) -> list:
        """What the function returns on each of the first `world` ranks, which are a group.

        Raises:
            Failed: with the traceback of every rank that raised, or died, or did not answer.
        """
        ranks = range(world or self.n)
        assert not self.broken, "a rank did not answer before"
        for rank in ranks:
            self.connections[rank].send((function, len(ranks), arguments, more))
        found, trouble = [], []
        for rank in ranks:
            try:
                if not self.connections[rank].poll(1 if self.broken else LIMIT):
                    self.broken = True
                    raise TimeoutError(f"no answer within {LIMIT} s")
                ok, answer = self.connections[rank].recv()
            except (EOFError, OSError) as error:
                ok, answer = False, f"{type(error).__name__}: {error}"
            (found if ok else trouble).append(answer if ok else f"rank {rank}: {answer}")
        if trouble:
            raise Failed("\n".join(trouble))
        return found


def serve(rank: int, n: int, address: str, module: str) -> None:
    """Answer commands until the connection closes."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    time = datetime.timedelta(seconds=TIMEOUT)
    warnings.filterwarnings("ignore", category=RuntimeWarning)  # of NumPy, in the interpreter
    store = f"file://{address}.store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=n, timeout=time)
    groups = {size: dist.new_group(list(range(size)), timeout=time) for size in range(1, n + 1)}
    functions = importlib.import_module(module)
    for shape in MESHES:  # all ranks of the world take part in making one
        if math.prod(shape) <= n:
            functions.mesh_of(shape)
    with Client(address, "AF_UNIX") as connection:
        connection.send(rank)
        while True:
            try:
                name, world, arguments, more = connection.recv()
            except (EOFError, OSError):
                break
            try:
                answer = getattr(functions, name)(groups[world], *arguments, **more)
                connection.send((True, answer))
            except BaseException:
                connection.send((False, traceback.format_exc()))


def main() -> None:
    address, n, module = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    importlib.import_module(module)
    children = []
    for rank in range(n):
        child = os.fork()
        if child == 0:
            try:
                serve(rank, n, address, module)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)  # of a group whose members are gone nobody can take leave
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    os._exit(0)  # without taking down what was imported, piece by piece


if __name__ == "__main__":
    main()
