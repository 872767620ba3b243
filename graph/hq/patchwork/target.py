"""What a section does, to which paths, under a strip level and a direction.

Which of two names is meant, when the ``---`` and ``+++`` lines differ and the patch is no git
patch, depends on what is in the tree; so a target carries its candidates, best first. The order is
git's: the ``+++`` name, unless it is the ``---`` name with something tacked on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from hq.patchwork.names import name_problem, show, strip_name
from hq.patchwork.patch import GitHeader, Hunk, Patch, Refusal, Section, Side

Operation = Literal["edit", "create", "delete", "rename", "copy", "uncopy"]

_REVERSE: dict[Operation, Operation] = {
    "edit": "edit",
    "create": "delete",
    "delete": "create",
    "rename": "rename",
    "copy": "uncopy",
}


class Target(NamedTuple):
    """One section, resolved.

    ``paths``: candidates for the file that is read, best first, stripped. ``dest``: the path
    written by a rename or copy, else empty. ``old_kind`` and ``new_kind``: ``f``, ``x`` or ``l``
    where the patch says; ``changes_mode`` when it sets a new one. ``old_blob``: the git object id
    (a prefix) that the file had where the patch was made, else empty.
    """

    line: int
    operation: Operation
    paths: tuple[str, ...]
    dest: str
    hunks: tuple[Hunk, ...]
    old_kind: str = ""
    new_kind: str = ""
    changes_mode: bool = False
    old_blob: str = ""


def touched_paths(patch: Patch, strip: int = 1, reverse: bool = False) -> tuple[str, ...]:
    """Every path that the outcome depends on or that may change, stripped, sorted.

    A written path is always one of those that are looked at: whether it is there matters. The
    parents of these paths are looked up as well (none may be a file or a symlink) and not listed.
    A section that is refused touches nothing.
    """
    touched: set[str] = set()
    for section in patch.sections:
        target = resolve(section, strip, reverse)
        if isinstance(target, Target):
            touched.update(target.paths)
            touched.update([target.dest] if target.dest else [])
    return tuple(sorted(touched))


def resolve(section: Section, strip: int, reverse: bool) -> Target | Refusal:
    """What ``section`` does with ``-p strip``, undone with ``reverse``; or why it must not."""
    header = section.git
    if header is not None and (header.rename_to or header.copy_to):
        target = _moved(section, header, strip)
    else:
        target = _named(section, strip)
    if isinstance(target, Refusal):
        return target
    wrong = _contradiction(target)
    if wrong:
        return Refusal("creates-and-deletes", section.line, wrong, "make the patch again")
    return _reverse(target, header) if reverse else target


def _moved(section: Section, header: GitHeader, strip: int) -> Target | Refusal:
    rename = bool(header.rename_to)
    source, dest = (
        (header.rename_from, header.rename_to) if rename else (header.copy_from, header.copy_to)
    )
    if not source:
        word = "rename" if rename else "copy"
        return Refusal("git-header", section.line, f"a '{word} to' line without '{word} from'")
    # These lines carry no "a/" and "b/".
    paths = _stripped([source, dest], max(strip - 1, 0), section.line)
    if isinstance(paths, Refusal):
        return paths
    old, new = paths[0], paths[-1]
    for side, path in ((section.old, old), (section.new, new)):
        if side is not None and path not in [strip_name(name, strip) for name in side.names]:
            named = f"'{show(side.names[0])}'" if side.names else "/dev/null"
            return Refusal(
                "git-header", section.line,
                f"the extended header names '{show(path)}', the lines below it {named}",
                "make the patch again with 'git diff'",
            )  # fmt: skip
    if old == new:
        return _target(section, "edit", (old,), "")
    return _target(section, "rename" if rename else "copy", (old,), new)


def _named(section: Section, strip: int) -> Target | Refusal:
    header = section.git
    old, new = section.old, section.new
    if old is None or new is None:
        if header is None or not header.old:
            return Refusal(
                "git-header", section.line,
                "the names on the 'diff --git' line cannot be told apart",
                "make the patch again with 'git diff'",
            )  # fmt: skip
        old, new = Side((header.old,)), Side((header.new,))
    operation = _operation(section, old, new)
    if operation is None:
        return Refusal("path", section.line, "both sides are /dev/null")
    paths = _stripped(_ordered(old, new, strip), strip, section.line)
    if isinstance(paths, Refusal):
        return paths
    wrong = _inconsistent(header, paths, strip)
    if wrong:
        return Refusal("git-header", section.line, wrong, "make the patch again with 'git diff'")
    return _target(section, operation, paths, "")


def _operation(section: Section, old: Side, new: Side) -> Operation | None:
    header = section.git
    gone_before = not old.names or (old.epoch and not any(hunk.old for hunk in section.hunks))
    gone_after = not new.names or (new.epoch and not any(hunk.new for hunk in section.hunks))
    if header is not None and header.new_file is not None:
        return "create"
    if header is not None and header.deleted_file is not None:
        return "delete"
    if not old.names and not new.names:
        return None
    if gone_before and not gone_after:
        return "create"
    return "delete" if gone_after and not gone_before else "edit"


def _ordered(old: Side, new: Side, strip: int) -> list[str]:
    """Raw candidates, best first."""
    if not old.names or not new.names:
        return [*new.names, *old.names]
    first, second = old.names[0], new.names[0]
    base, other = strip_name(first, strip) or "", strip_name(second, strip) or ""
    if base and other.startswith(base):
        return [first, second, *old.names[1:], *new.names[1:]]
    return [second, first, *new.names[1:], *old.names[1:]]


def _stripped(raws: Iterable[str], strip: int, line: int) -> tuple[str, ...] | Refusal:
    found: dict[str, None] = {}
    short = ""
    for raw in raws:
        path = strip_name(raw, strip)
        problem = name_problem(raw, path or raw)
        if problem:
            return Refusal(
                "path", line, f"{problem}: '{show(raw)}'", "a patch may only name files in its tree"
            )
        if path is None:
            short = short or raw
        else:
            found[path] = None
    if not found:
        return Refusal(
            "path", line, f"-p{strip} leaves nothing of '{show(short)}'",
            f"give the patch another strip level in the series, such as '-p{short.count('/')}'",
        )  # fmt: skip
    return tuple(found)


def _inconsistent(header: GitHeader | None, paths: tuple[str, ...], strip: int) -> str:
    """Git's check: the ``diff --git`` line and the lines below it must name the same file."""
    if header is None or not header.old:
        return ""
    named = {strip_name(header.old, strip), strip_name(header.new, strip)} - {None}
    if len(named) != 1 or named & set(paths):
        return ""
    found = show(str(next(iter(named))))
    return f"the 'diff --git' line names '{found}', the lines below it '{show(paths[0])}'"


def _target(section: Section, operation: Operation, paths: tuple[str, ...], dest: str) -> Target:
    header = section.git
    if header is None:
        return Target(section.line, operation, paths, dest, section.hunks)
    old = _first(header.old_mode, header.deleted_file, header.index_mode)
    new = _first(header.new_mode, header.new_file, old)
    return Target(
        section.line,
        operation,
        paths,
        dest,
        section.hunks,
        kind_of(old),
        kind_of(new),
        header.new_mode is not None and header.new_mode != header.old_mode,
        header.old_blob,
    )


def _first(*modes: int | None) -> int | None:
    return next((mode for mode in modes if mode is not None), None)


def kind_of(mode: int | None) -> str:
    """The tree's kind for a git file mode; empty when there is none."""
    if mode is None:
        return ""
    if mode & 0o170000 == 0o120000:
        return "l"
    return "x" if mode & 0o100 else "f"


def _contradiction(target: Target) -> str:
    path = show(target.paths[0])
    if target.operation == "create" and (
        len(target.hunks) > 1 or any(hunk.old for hunk in target.hunks)
    ):
        return f"the patch creates '{path}', yet expects lines in it"
    if target.operation == "delete" and (
        len(target.hunks) > 1 or any(hunk.new for hunk in target.hunks)
    ):
        return f"the patch deletes '{path}', yet leaves lines in it"
    return ""


def _reverse(target: Target, header: GitHeader | None) -> Target:
    operation = _REVERSE[target.operation]
    paths, dest = target.paths, target.dest
    if operation == "rename":
        paths, dest = (dest,), paths[0]
    return target._replace(
        operation=operation,
        paths=paths,
        dest=dest,
        hunks=tuple(hunk.reversed() for hunk in target.hunks),
        old_kind=target.new_kind,
        new_kind=target.old_kind,
        old_blob=header.new_blob if header is not None else "",
    )
