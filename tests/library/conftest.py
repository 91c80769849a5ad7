"""The ways in which rows with modifiers are computed."""

import pytest

import probe
from kernel_cases import small_tiles
from triton_softmax import arguments, plan
from triton_softmax.config import Device
from triton_softmax.plan import modified
from triton_softmax.plan.launch import Launch


@pytest.fixture(params=["whole", "loops", "chunks"])
def geometry(request, monkeypatch):
    """In a tile that holds a row; in tiles so small that rows of some dozen columns are walked
    along, in one launch or in two; or, where a test asks for it, without a kernel."""
    if request.param in ("loops", "chunks"):
        small_tiles(monkeypatch, 32, rows=2)
    if request.param == "loops":
        monkeypatch.setattr(plan, "device_of", lambda _: Device(1))
    if request.param == "operators":
        monkeypatch.setattr(arguments, "INTERPRETED", False)
        monkeypatch.delattr(Launch, "run")
    monkeypatch.setattr(modified, "CACHED", 0)
    probe.forget()
    yield request.param
    probe.forget()
