"""A sample project for each test that wants one."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.project import SampleProject


@pytest.fixture
def project(tmp_path: Path) -> SampleProject:
    """A project that was never built; the wheel is in the store."""
    made = SampleProject(tmp_path)
    made.supply()
    return made


@pytest.fixture
def built(project: SampleProject) -> SampleProject:
    """A project that was built once."""
    project.first = project.build()
    return project
