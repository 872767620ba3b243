"""Where a line comes from, against an oracle that needs no diff: every line is written once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from hq.evidence.lines import Origin, Origins, Patched, Step, kept, patched, totals, whole
from hq.patchwork.apply import File, split_lines

Texts = Mapping[str, list[str]]


def unified(path: str, before: list[str], after: list[str], context: int) -> str:
    """A unified diff with git's marker where a last line has no end."""
    old = f"a/{path}" if before else "/dev/null"
    new = f"b/{path}" if after else "/dev/null"
    out: list[str] = []
    for line in difflib.unified_diff(before, after, old, new, n=context):
        out.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(out)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """A first version of a file, then patches with what each makes; no line is written twice."""
    fresh = iter(range(10_000))

    def line() -> str:
        return f"{'~' * (next(fresh) % 3)}line {next(fresh)}\n"

    first = [line() for _ in range(draw(st.integers(1, 25)))]
    now, steps = first, []
    for _ in range(draw(st.integers(1, 4))):
        after = list(now)
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(after)))
            taken = draw(st.integers(0, 3))
            added = draw(st.integers(0, 3))
            after[at : at + taken] = [line() for _ in range(added)]
        # Only the last line of a file can lack its end.
        after = [text if text.endswith("\n") else line() for text in after]
        if draw(st.booleans()) and after:
            after[-1] = line().rstrip("\n")
        if after == now or not after:
            continue
        diff = unified("f", now, after, draw(st.integers(1, 4)))
        steps.append((f"Subject: x\n\n{diff}", after))
        now = after
    return first, steps


@settings(max_examples=150)
@given(histories())
def test_every_line_comes_from_where_it_was_written(
    history: tuple[list[str], list[tuple[str, list[str]]]],
) -> None:
    first, steps = history
    data = "".join(first).encode()
    origins: Origins = whole("wheel", "wheel:w", "w.whl", "f", data)
    written = dict(enumerate(first, 1))
    patches: dict[str, list[bytes]] = {}
    for number, (text, after) in enumerate(steps):
        name = f"p{number}.patch"
        patches[name] = split_lines(text.encode())
        step = Step(f"patch:p{number}", f"p{number}", name, text.encode(), 1, False)
        before, origins_before = data, origins
        made = play_on(step, before, origins_before)
        data = "".join(after).encode()
        assert made.files == {"f": File("f", data)}
        found = made.origins["f"]
        assert found is not None
        origins = found
        assert len(origins) == len(split_lines(data)) == sum(totals(origins).values())
    for line, origin in zip(split_lines(data), origins, strict=True):
        if origin.kind == "wheel":
            # The end of a last line may have been taken off by a patch, which then wrote it anew.
            assert line.decode() == written[origin.line]
        else:
            text_line = patches[origin.file][origin.line - 1]
            assert text_line[:1] == b"+"
            assert text_line[1:].rstrip(b"\n") == line.rstrip(b"\n")
            assert origin.hunk >= 1


def play_on(step: Step, before: bytes, known: Origins) -> Patched:
    """A patch on one file."""
    return patched(step, lambda _: File("f", before), lambda _: known)


def history_of(*texts: str) -> tuple[Origins, bytes]:
    """The origins after patches given as the file's versions."""
    data = texts[0].encode()
    origins: Origins = whole("wheel", "w", "w.whl", "f", data)
    for number, text in enumerate(texts[1:]):
        before, known = data, origins
        diff = unified(
            "f", before.decode().splitlines(keepends=True), text.splitlines(keepends=True), 3
        )
        step = Step(f"patch:{number}", str(number), f"{number}.patch", diff.encode(), 1, False)
        made = play_on(step, before, known)
        data, found = text.encode(), made.origins["f"]
        assert found is not None
        origins = found
    return origins, data


def test_a_line_that_comes_back_is_the_later_patch_s() -> None:
    origins, _ = history_of("a\nb\nc\n", "a\nB\nc\n", "a\nb\nc\n")
    assert [(o.kind, o.name, o.line, o.hunk) for o in origins] == [
        ("wheel", "w.whl", 1, 0),
        ("patch", "1", 6, 1),
        ("wheel", "w.whl", 3, 0),
    ]


def play(text: str, files: dict[str, str], reverse: bool = False) -> Mapping[str, Origins | None]:
    """A patch on small files from a wheel."""
    step = Step("patch:p", "p", "p.patch", text.encode(), 1, reverse)
    made = patched(
        step,
        lambda path: File("f", files[path].encode()) if path in files else None,
        lambda path: (
            whole("wheel", "w", "w.whl", path, files[path].encode()) if path in files else None
        ),
    )
    for path, origins in made.origins.items():
        file = made.files[path]
        assert (origins is None) == (file is None)
        if origins is not None and file is not None:
            assert len(origins) == len(split_lines(file.data))
    return made.origins


def test_a_rename_keeps_the_lines_origins() -> None:
    text = (
        "diff --git a/old b/new\nsimilarity index 66%\nrename from old\nrename to new\n"
        "--- a/old\n+++ b/new\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n"
    )
    made = play(text, {"old": "one\ntwo\nthree\n"})
    assert made["old"] is None
    assert made["new"] == [
        Origin("wheel", "w", "w.whl", "old", 1),
        Origin("patch", "patch:p", "p", "p.patch", 10, 1),
        Origin("wheel", "w", "w.whl", "old", 3),
    ]


def test_two_files_that_swap_names() -> None:
    swap = "".join(
        f"diff --git a/{a} b/{b}\nsimilarity index 100%\nrename from {a}\nrename to {b}\n"
        for a, b in (("x", "y"), ("y", "x"))
    )
    made = play(swap, {"x": "of x\n", "y": "of y\n"})
    assert [o.file for o in made["x"] or ()] == ["y"]
    assert [o.file for o in made["y"] or ()] == ["x"]


def test_a_copy_a_new_file_and_a_removed_one() -> None:
    text = (
        "diff --git a/a b/b\nsimilarity index 100%\ncopy from a\ncopy to b\n"
        "diff --git a/n b/n\nnew file mode 100644\n--- /dev/null\n+++ b/n\n"
        "@@ -0,0 +1,2 @@\n+1\n+2\n"
        "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n"
        "@@ -1 +0,0 @@\n-x\n"
    )
    made = play(text, {"a": "of a\n", "gone": "x\n"})
    assert made["gone"] is None
    assert [(o.kind, o.file) for o in made["b"] or ()] == [("wheel", "a")]
    assert [(o.kind, o.line) for o in made["n"] or ()] == [("patch", 10), ("patch", 11)]


def test_two_sections_about_one_file() -> None:
    text = (
        "--- a/f\n+++ b/f\n@@ -1,2 +1,3 @@\n a\n+new\n b\n"
        "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-new\n+newer\n b\n"
    )
    made = play(text, {"f": "a\nb\n"})
    assert [(o.kind, o.line, o.hunk) for o in made["f"] or ()] == [
        ("wheel", 1, 0),
        ("patch", 12, 1),
        ("wheel", 2, 0),
    ]


def test_a_patch_that_is_taken_back() -> None:
    text = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-old\n+new\n c\n"
    made = play(text, {"f": "a\nnew\nc\n"}, reverse=True)
    assert [(o.kind, o.line) for o in made["f"] or ()] == [
        ("wheel", 1),
        ("patch", 5),
        ("wheel", 3),
    ]


def test_rows_that_stood_there_keep_their_origin() -> None:
    before = b"a,1\nb,2\n"
    origins = whole("wheel", "w", "w.whl", "RECORD", before)
    layer = Origin("layer", "layer:x", "x")
    assert [o.kind for o in kept(b"a,\nb,2\nc,\n", before, origins, layer)] == [
        "layer",
        "wheel",
        "layer",
    ]
