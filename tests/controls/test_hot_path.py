"""An ordinary build loads nothing of the controls, and starts no process."""

from __future__ import annotations

from helpers.project import SampleProject

COLD = (
    "hq.evidence",
    "hq.app.blame",
    "hq.app.check",
    "hq.app.control",
    "hq.app.derived",
    "hq.app.diff",
    "hq.app.operands",
    "hq.app.pair",
    "hq.app.pins",
    "hq.app.red",
    "hq.app.recheck",
    "hq.cli.control",
    "hq.transfer.git",
    "subprocess",
    "tomlkit",
)


def test_an_incremental_build_stays_light(built: SampleProject) -> None:
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    done = built.run("build", "-q", options=("-X", "importtime"))
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.split("\n")}
    assert "hq.app.build" in loaded
    assert [name for name in sorted(loaded) if name.startswith(COLD)] == []
