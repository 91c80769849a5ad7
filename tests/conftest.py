"""Fixtures that the tests of the documentation and of the browser share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The site, built strictly once in a run."""
    from site_build import build

    target = tmp_path_factory.mktemp("site") / "site"
    result = build(target)
    assert result.returncode == 0, result.stdout + result.stderr
    return target
