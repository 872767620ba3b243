"""Thousands of patches, end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.project import FILES, SampleProject, patch


def crowded(folder: Path, count: int) -> SampleProject:
    """A project with ``count`` more patches, ten to a file."""
    files = dict(FILES)
    text = "".join(f"x{line} = {line}\n" for line in range(100))
    for number in range(count // 10):
        files[f"vllm/many/m{number}.py"] = text.encode()
    project = SampleProject(folder, files)
    project.supply()
    names = []
    for number in range(count):
        line = 5 + 9 * (number * 10 // count)
        path = f"vllm/many/m{number % (count // 10)}.py"
        change = project.edited(path, (f"x{line} = {line}\n", f"x{line} = -{line}\n"))
        project.write(f"patches/many/n{number:05}.patch", patch("One of many", change))
        names.append(f"many/n{number:05}.patch\n")
    project.write("patches/series", project.read("patches/series") + "".join(names))
    return project


def comes_and_goes(project: SampleProject, count: int) -> None:
    first = project.build()
    assert first["nodes"] == {"total": 13 + count, "reused": 0, "built": 13 + count}
    again = project.build()
    assert again["built"] == []
    assert again["images"] == first["images"]
    planned = project.run("plan")
    assert planned.stdout.endswith(f"{13 + count} nodes: {13 + count} to reuse\n")
    project.replace("patches/many/n00003.patch", "+x5 = -5", "+x5 = -6")
    later = [f"patch:n{number:05}" for number in range(3, count, count // 10)]
    assert project.build()["built"] == [*later, "layer:series", "image:demo"]


def test_01_a_hundred(tmp_path: Path) -> None:
    comes_and_goes(crowded(tmp_path, 100), 100)


@pytest.mark.slow
def test_02_ten_thousand(tmp_path: Path) -> None:
    comes_and_goes(crowded(tmp_path, 10_000), 10_000)
