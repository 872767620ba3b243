"""A fresh sample project for each test, and what some of them need of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.project import SampleProject


@pytest.fixture
def fresh(tmp_path: Path) -> SampleProject:
    """A project without a store; pip has to bring the wheel."""
    return SampleProject(tmp_path)


@pytest.fixture
def project(fresh: SampleProject) -> SampleProject:
    """A project that was never built; the wheel is in the store."""
    fresh.supply()
    return fresh


@pytest.fixture
def built(project: SampleProject) -> SampleProject:
    """A project that was built once."""
    project.first = project.build()
    return project
