"""Who wrote which line of a patched tree."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from hq.patchwork.apply import split_lines
from hq.port.replay import FileStep, Origin, PatchStep, replay
from port.trees import HEAD, DictTree, diff

LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n", "\n", "e e\n"]), max_size=30)


@settings(deadline=None, max_examples=150)
@given(LINES, LINES, LINES)
def test_each_line_of_a_patched_file_has_its_origin(
    first: list[str], second: list[str], third: list[str]
) -> None:
    texts = ["".join(lines) for lines in (first, second, third)]
    steps = []
    for number, (before, after) in enumerate(pairwise(texts)):
        if before and after and before != after:
            data = (HEAD + diff("f", before, after, 100)).encode()
            steps.append(PatchStep(f"{number}.patch", f"{number}.patch", data))
    done = replay(DictTree("1", {"f": texts[0]}), steps)
    if not all(tried.applied for tried in done.tried):
        return
    bodies = {step.file: split_lines(step.data) for step in steps}
    data = done.view.data("f")
    origins = done.origins.get("f", [None] * len(split_lines(data)))
    assert len(origins) == len(split_lines(data))
    for origin, line in zip(origins, split_lines(data), strict=True):
        if origin is not None:
            assert bodies[origin.file][origin.line - 1] == b"+" + line


def test_lines_of_a_created_file_and_of_a_copied_one_are_own() -> None:
    made = PatchStep("n.patch", "p/n.patch", (HEAD + diff("new.py", "", "x = 1\ny = 2\n")).encode())
    copied = FileStep("copy.py", "over/copy.py", b"z = 1\n")
    done = replay(DictTree("1", {"f": "a\n"}), [made, copied])
    assert [o and o.line for o in done.origins["new.py"]] == [11, 12]
    assert done.origins["copy.py"] == [Origin("over/copy.py", 1)]
    assert done.taken == ()


def test_a_patch_that_does_not_apply_is_left_out_whole() -> None:
    tree = DictTree("1", {"f": "a\nb\nc\n", "g": "a\nb\nc\n"})
    text = HEAD + diff("f", "a\nb\nc\n", "a\nX\nc\n") + diff("g", "a\nZ\nc\n", "a\nX\nc\n")
    done = replay(tree, [PatchStep("p.patch", "p.patch", text.encode())])
    assert [tried.applied for tried in done.tried] == [False]
    assert done.view.changes == {}
    assert done.origins == {}
    assert done.tried[0].touched == ("f", "g")


def test_a_reversed_patch_gives_back_the_removed_lines_as_own() -> None:
    text = HEAD + diff("f", "a\nb\nc\n", "a\nc\n")
    step = PatchStep("p.patch", "p.patch", text.encode(), reverse=True)
    done = replay(DictTree("1", {"f": "a\nc\n"}), [step])
    assert done.view.data("f") == b"a\nb\nc\n"
    assert [origin is not None for origin in done.origins["f"]] == [False, True, False]


def test_a_copied_file_that_the_tree_has_is_told() -> None:
    step = FileStep("f", "over/f", b"mine\n")
    done = replay(DictTree("1", {"f": "theirs\n"}), [step])
    assert done.taken == (step,)
