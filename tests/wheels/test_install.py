"""Where members go when they are installed, and scripts."""

from __future__ import annotations

import pytest

from hq.model.errors import BuildError
from hq.wheels.index import Meta
from hq.wheels.install import (
    EntryPoint,
    Schemes,
    entry_points,
    fix_shebang,
    install_path,
    script,
)

META = Meta("demo", "1.0", "demo-1.0.dist-info", "demo-1.0.data", False, 1)
SCHEMES = Schemes("pure", "plat", "bin", "", "include")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("demo/a.py", "plat/demo/a.py"),
        ("demo-1.0.dist-info/RECORD", "plat/demo-1.0.dist-info/RECORD"),
        ("demo-1.0.data/purelib/demo/b.py", "pure/demo/b.py"),
        ("demo-1.0.data/platlib/c.so", "plat/c.so"),
        ("demo-1.0.data/scripts/tool", "bin/tool"),
        ("demo-1.0.data/data/share/x", "share/x"),
        ("demo-1.0.data/headers/x.h", "include/demo/x.h"),
    ],
)
def test_places(path: str, place: str) -> None:
    assert install_path(path, META, SCHEMES) == place


def test_pure_wheels_go_to_purelib() -> None:
    assert install_path("a.py", META._replace(purelib=True), SCHEMES) == "pure/a.py"


@pytest.mark.parametrize("path", ["demo-1.0.data/other/x", "demo-1.0.data/scripts"])
def test_unknown_schemes_are_refused(path: str) -> None:
    with pytest.raises(BuildError) as caught:
        install_path(path, META, SCHEMES)
    assert caught.value.render() == (
        f"error: member {path!r} is in no known installation scheme\n"
        "  at: demo 1.0\n"
        "  expected one of data, headers, platlib, purelib, scripts"
    )


def test_entry_points_of_scripts_are_read() -> None:
    data = (
        b"# made by hand\n[console_scripts]\nzed = demo.cli:main\n"
        b"demo=demo.cli : App.run [fast]\n\n[other.group]\nx = y:z\n[gui_scripts]\n"
        b"win = demo.gui:go\n"
    )
    assert entry_points(data) == [
        EntryPoint("demo", "demo.cli", "App.run"),
        EntryPoint("win", "demo.gui", "go"),
        EntryPoint("zed", "demo.cli", "main"),
    ]


@pytest.mark.parametrize("line", ["../../x = a:b", "x = a", "x = a:b; import os", ".. = a:b", "x"])
def test_malformed_entry_points_are_refused(line: str) -> None:
    with pytest.raises(BuildError) as caught:
        entry_points(f"[console_scripts]\n{line}\n".encode())
    assert caught.value.render() == (
        f"error: an entry point is malformed: {line!r}\n"
        "  at: entry_points.txt:2\n"
        "  help: expected NAME = MODULE:ATTRIBUTE"
    )


def test_a_script_calls_its_entry_point() -> None:
    text = script(EntryPoint("demo", "demo.cli", "App.run"), "/usr/bin/python3").decode()
    assert text == (
        "#!/usr/bin/python3\nimport sys\nfrom demo.cli import App\n"
        'if __name__ == "__main__":\n    sys.exit(App.run())\n'
    )


def test_placeholder_shebangs_are_filled_in() -> None:
    assert fix_shebang(b"#!python\nx\n", "/p") == b"#!/p\nx\n"
    assert fix_shebang(b"#!pythonw -u\nx", "/p") == b"#!/p\nx"
    assert fix_shebang(b"#!python3\nx", "/p") == b"#!python3\nx"
    assert fix_shebang(b"\x7fELF", "/p") == b"\x7fELF"
