"""What applies cleanly and no longer means what it did.

Everything is a comparison: an own line's reference is looked up in the old release with its patches
and in the new one with those that applied, and only what was answered before and is not now is a
finding. So a tree that did not change has no findings, however much of it syntax cannot decide.

=================  ===========================================================================
kind               finding
=================  ===========================================================================
name, import,      what an added line uses is no longer defined
attribute          (of a value of unknown type: nothing in the tree sets or defines it any more)
default            the same, where the line reads it with a default: the fault that says nothing
call, launch       the arguments no longer fit; ``launch`` is a Triton kernel's
override           a base's method takes what the override does not, or is gone
caller             upstream calls a function, whose parameters a patch changes, in a way it refuses
knob               a stock knob that is read is retired, or an own knob is upstream's now
duplicate          upstream's new code defines or does what a patch adds
=================  ===========================================================================
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import NamedTuple

from hq.model.errors import HqError, Location
from hq.patchwork.apply import split_lines
from hq.port.corpus import Corpus
from hq.port.outline import outline
from hq.port.program import Answer, Found, Missing, Module, Parsed, Program
from hq.port.references import Reference, by_key, references
from hq.port.replay import Origin, Replay
from hq.port.tree import Tree, same_file

_TELLING = 12  # characters of a line that says something by itself
_FEWEST = 3  # such lines before likeness counts
_SHARE = 0.6
_MOST_SETTERS = 50
_SHOWN_SETTERS = 3
_MOST_CALLERS = 200


class Upstream(NamedTuple):
    """A line of one of the releases."""

    version: str
    path: str
    line: int
    text: str


class Finding(NamedTuple):
    """Something to look at.

    ``where``: in the patch or overlay file; ``path``, ``line``: in the patched new tree, 0 where it
    is not there; ``upstream``: the lines that changed.
    """

    where: Location
    path: str
    line: int
    kind: str
    message: str
    upstream: tuple[Upstream, ...] = ()


class Knobs(NamedTuple):
    """The knobs that the project registers, and the module that they are written into."""

    target: str
    names: frozenset[str]


class Side(NamedTuple):
    """A release with own work on top. ``python``: its Python files with those that steps add."""

    replay: Replay
    program: Program
    python: tuple[str, ...]
    whole: Callable[[], Corpus]


def side(replay: Replay, parsed: Parsed | None = None) -> Side:
    """A replay made ready to be asked; both sides of a review may share ``parsed``."""
    paths = {path for path in replay.tree.paths() if path.endswith(".py")}
    for path, file in replay.view.changes.items():
        if path.endswith(".py"):
            (paths.discard if file is None else paths.add)(path)
    python = tuple(sorted(paths))
    program = Program(replay.view, python, parsed)
    texts: list[Corpus] = []

    def whole() -> Corpus:
        if not texts:
            texts.append(Corpus(replay.view, python))
        return texts[0]

    return Side(replay, program, python, whole)


def review(
    before: Side,
    after: Side,
    knobs: Knobs | None = None,
    names: Mapping[str, str] | None = None,
) -> tuple[Finding, ...]:
    """The findings, by file and line of the patches.

    ``names``: from a file of ``after`` to the one of ``before`` that it was made from, where they
    are called otherwise.
    """
    judge = _Judge(before, after, knobs, names or {})
    found = [*judge.references(), *judge.callers(), *judge.knobs(), *judge.duplicates()]
    unique: dict[tuple[Location, str, str], Finding] = {}
    for one in found:
        unique.setdefault((one.where, one.kind, one.message), one)
    return tuple(sorted(unique.values()))


class _Judge:
    def __init__(
        self, before: Side, after: Side, knobs: Knobs | None, names: Mapping[str, str]
    ) -> None:
        self._names = names
        self._before = before
        self._after = after
        self._knobs = knobs
        self._gone: dict[str, tuple[Upstream, ...]] = {}
        self._old: Tree = before.replay.tree
        self._new: Tree = after.replay.tree
        self._old_knobs = self._knob_lines(self._old)
        self._new_knobs = self._knob_lines(self._new)
        self._retired_names = self._old_knobs.keys() - self._new_knobs.keys()

    # -- references -----------------------------------------------------------------------------

    def references(self) -> Iterator[Finding]:
        old = by_key(self._collect(self._before))
        for one in self._collect(self._after):
            file = self._names.get(one.origin.file, one.origin.file)
            known = old.get((file, one.kind, one.text), [])
            same = next((other for other in known if other.origin == one.origin), None)
            finding = self._compared(same or (known[0] if known else None), one)
            if finding is not None:
                yield finding

    def _collect(self, side_: Side) -> Iterator[Reference]:
        for path in sorted(side_.replay.origins):
            if path.endswith(".py"):
                yield from references(side_.program, path, side_.replay.origins[path])

    def _compared(self, old: Reference | None, new: Reference) -> Finding | None:
        if self._is_knob(new):
            return None
        if new.kind == "default":
            return self._attribute_gone(new)
        if new.kind == "override":
            return self._override(old, new)
        if isinstance(new.answer, Missing):
            if new.kind in ("call", "launch"):
                return None  # the name that is called has a finding of its own
            was_there = old is not None and isinstance(old.answer, (Found, Module))
            certain = old is None and new.kind in ("name", "import")
            if (was_there or certain) and not (
                old is not None and self._was_own(old.answer, new.word)
            ):
                return self._gone_finding(old, new)
            return None
        if new.kind == "attribute" and not isinstance(new.answer, (Found, Module)):
            return self._attribute_gone(new)
        if new.problem and new.problem != (old.problem if old else ""):
            return self._call_finding(old, new)
        return None

    def _was_own(self, answer: object, word: str) -> bool:
        """Whether own lines alone defined it: it went with a patch, which is told elsewhere."""
        if not isinstance(answer, Found):
            return False
        path = answer.module.path
        own = self._is_own_line(path, answer.binding.line)
        # A patch that changes upstream's definition has its line, and upstream has the name.
        return own and not _has_word(_data(self._old, path), word)

    def _is_own_line(self, path: str, line: int) -> bool:
        return _at(self._before.replay.origins.get(path, ()), line) is not None

    def _is_knob(self, one: Reference) -> bool:
        """Whether it reads a knob, own or retired: those have findings of their own."""
        if self._knobs is None:
            return False
        return one.word in self._knobs.names or one.word in self._retired_names

    def _gone_finding(self, old: Reference | None, new: Reference) -> Finding:
        assert isinstance(new.answer, Missing)
        place = f" in {new.answer.path}" if new.answer.path else ""
        upstream = [_line_of(self._before, old.answer)] if old is not None else []
        near = self._nearest(new)
        hint = f"; did it become {near[1]}?" if near else ""
        upstream += [near[0]] if near else []
        return _finding(
            new, f"{new.text}: {new.word} is not defined{place} any more{hint}", upstream
        )

    def _nearest(self, new: Reference) -> tuple[Upstream, str] | None:
        """A name of the new module that the old one had not and that is alike; or its new home."""
        elsewhere = self._defined_elsewhere(new.word)
        if elsewhere is not None:
            return elsewhere, f"{elsewhere.path}:{elsewhere.line}"
        assert isinstance(new.answer, Missing)
        module = self._after.program.module(new.answer.path) if new.answer.path else None
        if module is None:
            return None
        earlier = self._before.program.module(new.answer.path)
        fresh = [n for n in module.bindings if earlier is None or n not in earlier.bindings]
        close = get_close_matches(new.word, fresh, 1, 0.6)
        if not close:
            return None
        line = module.bindings[close[0]].line
        return self._upstream(self._after, module.path, line), close[0]

    def _defined_elsewhere(self, word: str) -> Upstream | None:
        places = []
        for at in self._after.whole().find(word):
            before, after = self._after.whole().around(at, word)
            head = before.strip()
            if head in (b"def", b"class", b"async def") or (not before and after[:2] == b" ="):
                places.append(self._after.whole().place(at))
            if len(places) > 1:
                return None
        if len(places) != 1:
            return None
        return self._upstream(self._after, places[0].path, places[0].line)

    def _call_finding(self, old: Reference | None, new: Reference) -> Finding:
        upstream = [_line_of(self._before, old.answer)] if old is not None else []
        upstream.append(_line_of(self._after, new.answer))
        what = "the launch of" if new.kind == "launch" else "the call of"
        return _finding(new, f"{what} {new.text} {new.problem}", upstream)

    def _override(self, old: Reference | None, new: Reference) -> Finding | None:
        if isinstance(new.answer, Missing):
            if (
                old is None
                or not isinstance(old.answer, Found)
                or self._was_own(old.answer, new.word)
            ):
                return None
            message = f"{new.text} overrides nothing any more: its base's {new.word} is gone"
            return _finding(new, message, [_line_of(self._before, old.answer)])
        if new.problem and new.problem != (old.problem if old else ""):
            was = [_line_of(self._before, old.answer)] if old is not None else []
            message = f"the override {new.text} {new.problem}"
            return _finding(new, message, [*was, _line_of(self._after, new.answer)])
        return None

    # -- attributes by name ---------------------------------------------------------------------

    def _attribute_gone(self, new: Reference) -> Finding | None:
        was = self._setters_gone(new.word)
        if not was:
            return None
        how = "reads it with a default, so nothing fails" if new.kind == "default" else "uses it"
        message = f"{new.text}: nothing sets {new.word} any more; the patch {how}"
        return _finding(new, message, was)

    def _setters_gone(self, word: str) -> tuple[Upstream, ...]:
        """The lines that set an attribute in the old release, if nothing in the new one does."""
        if word not in self._gone:
            self._gone[word] = ()
            if next(self._after.whole().setters(word), None) is None:
                before = self._before.whole()
                places = [before.place(at) for at in islice(before.setters(word), _MOST_SETTERS)]
                if not any(self._is_own_line(place.path, place.line) for place in places):
                    # A declaration says more than an assignment.
                    places.sort(key=lambda place: not re.match(rb"\s*\w+\s*:[^:]", place.text))
                    self._gone[word] = tuple(
                        self._upstream(self._before, place.path, place.line)
                        for place in places[:_SHOWN_SETTERS]
                    )
        return self._gone[word]

    # -- callers --------------------------------------------------------------------------------

    def callers(self) -> Iterator[Finding]:
        """Calls by upstream that do not fit parameters which a patch changed, and did before."""
        known = {
            (path, text.strip())
            for found in self._changed_heads(self._before)
            for path, _, text in self._misfits(self._before, found)
        }
        for found in self._changed_heads(self._after):
            for one, line, text in self._misfits(self._after, found):
                if (one, text.strip()) in known:
                    continue
                origin = _at(self._after.replay.origins[found.module.path], found.binding.line)
                if origin is None:
                    continue
                name = getattr(found.binding.node, "name", "")
                message = f"upstream's call of {name} does not fit the parameters that it has here"
                upstream = self._upstream(self._after, one, line)
                place = Location(*origin)
                yield Finding(
                    place, found.module.path, found.binding.line, "caller", message, (upstream,)
                )

    def _changed_heads(self, side_: Side) -> Iterator[Found]:
        """Functions of upstream's whose ``def`` has an own line."""
        for path, origins in sorted(side_.replay.origins.items()):
            module = side_.program.module(path) if path.endswith(".py") else None
            stock = {one.name for one in outline(_data(side_.replay.tree, path))}
            for one in outline(side_.replay.view.data(path)) if module is not None else ():
                if one.is_class or one.name not in stock or module is None:
                    continue
                answer: Answer = module
                for part in one.name.split("."):
                    answer = side_.program.attribute(answer, part)
                if not isinstance(answer, Found):
                    continue
                node = answer.binding.node
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    head = range(node.lineno, node.body[0].lineno)
                    if any(_at(origins, line) is not None for line in head):
                        yield answer

    def _misfits(self, side_: Side, found: Found) -> Iterator[tuple[str, int, str]]:
        """Upstream's calls of a function that do not fit: path, line, text."""
        node = found.binding.node
        assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        corpus = side_.whole()
        lines: dict[str, set[int]] = {}
        for at in islice(corpus.find(node.name), _MOST_CALLERS):
            place = corpus.place(at)
            lines.setdefault(place.path, set()).add(place.line)
        for path, numbers in sorted(lines.items()):
            own = side_.replay.origins.get(path, [])
            count = max(numbers)
            asked = [
                Origin(path, line) if line in numbers and _at(own, line) is None else None
                for line in range(1, count + 1)
            ]
            for one in references(side_.program, path, asked):
                same = isinstance(one.answer, Found) and one.answer.binding.node is node
                if one.kind in ("call", "launch") and same and one.problem:
                    yield (
                        path,
                        one.line,
                        _shown(split_lines(side_.replay.view.data(path)), one.line),
                    )

    # -- knobs ----------------------------------------------------------------------------------

    def knobs(self) -> Iterator[Finding]:
        """Own knobs that the new release has itself, and retired ones that own lines read."""
        if self._knobs is None:
            return
        old, new = self._old_knobs, self._new_knobs
        for name in sorted(self._knobs.names & new.keys() - old.keys()):
            upstream = _read_line(self._new, self._knobs.target, new[name])
            message = f"the knob {name} is upstream's own now"
            where = self._first_own(name)
            yield Finding(where, self._knobs.target, new[name], "knob", message, (upstream,))
        yield from self._retired(old, new)

    def _retired(self, old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[Finding]:
        assert self._knobs is not None
        fresh = sorted(new.keys() - old.keys())
        for name in sorted(old.keys() - new.keys()):
            for path, origins in sorted(self._after.replay.origins.items()):
                for line, text in self._own_lines(path, origins):
                    if _has_word(text, name):
                        yield self._retired_finding(name, path, line, origins, old, fresh)

    def _retired_finding(
        self,
        name: str,
        path: str,
        line: int,
        origins: Sequence[Origin | None],
        old: Mapping[str, int],
        fresh: Sequence[str],
    ) -> Finding:
        assert self._knobs is not None
        origin = origins[line - 1]
        assert origin is not None
        close = get_close_matches(name, fresh, 1, 0.8)
        hint = f"; did it become {close[0]}?" if close else ""
        upstream = _read_line(self._old, self._knobs.target, old[name])
        message = f"the knob {name} is retired{hint}"
        return Finding(Location(*origin), path, line, "knob", message, (upstream,))

    def _own_lines(
        self, path: str, origins: Sequence[Origin | None]
    ) -> Iterator[tuple[int, bytes]]:
        lines = split_lines(self._after.replay.view.data(path))
        for number, (origin, line) in enumerate(zip(origins, lines, strict=False), 1):
            if origin is not None:
                yield number, line

    def _first_own(self, word: str) -> Location:
        for path, origins in sorted(self._after.replay.origins.items()):
            for number, line in self._own_lines(path, origins):
                origin = origins[number - 1]
                if origin is not None and _has_word(line, word):
                    return Location(*origin)
        return Location(self._knobs.target if self._knobs else "")

    def _knob_lines(self, tree: Tree) -> Mapping[str, int]:
        from hq.knobs.envsfile import read_envs

        if self._knobs is None:
            return {}
        file = tree.read(self._knobs.target)
        if file is None:
            return {}
        try:
            return read_envs(file.data, self._knobs.target).variables
        except HqError:
            return {}  # the build says what is wrong with it

    # -- duplicates -----------------------------------------------------------------------------

    def duplicates(self) -> Iterator[Finding]:
        for path, origins in sorted(self._after.replay.origins.items()):
            if same_file(self._old, self._new, path) or not path.endswith(".py"):
                continue
            yield from self._defined_twice(path, origins)
            yield from self._done_twice(path, origins)

    def _defined_twice(self, path: str, origins: Sequence[Origin | None]) -> Iterator[Finding]:
        """A definition of a patch that upstream's new file has as well."""
        earlier = {one.name for one in outline(_data(self._old, path))}
        fresh = {
            one.name: one.first
            for one in outline(_data(self._new, path))
            if one.name not in earlier
        }
        for one in outline(self._after.replay.view.data(path)):
            origin = _at(origins, one.first)
            if origin is not None and one.name in fresh:
                upstream = _read_line(self._new, path, fresh[one.name])
                message = f"{one.name} is defined by upstream as well"
                yield Finding(Location(*origin), path, one.first, "duplicate", message, (upstream,))

    def _done_twice(self, path: str, origins: Sequence[Origin | None]) -> Iterator[Finding]:
        """A run of added lines most of which upstream added to the same file too."""
        before = {line.strip() for line in split_lines(_data(self._old, path))}
        fresh: dict[bytes, int] = {}
        for number, line in enumerate(split_lines(_data(self._new, path)), 1):
            bare = line.strip()
            if len(bare) >= _TELLING and bare not in before and not bare.startswith(b"#"):
                fresh.setdefault(bare, number)
        if not fresh:
            return
        for run in _runs(list(self._own_lines(path, origins))):
            telling = [(number, text.strip()) for number, text in run]
            telling = [one for one in telling if len(one[1]) >= _TELLING]
            telling = [one for one in telling if not one[1].startswith(b"#")]
            same = [(number, text) for number, text in telling if text in fresh]
            if len(same) >= _FEWEST and len(same) >= _SHARE * len(telling):
                number, text = same[0]
                origin = _at(origins, number)
                assert origin is not None
                upstream = _read_line(self._new, path, fresh[text])
                message = f"upstream's new code has {len(same)} of these {len(telling)} lines"
                yield Finding(Location(*origin), path, number, "duplicate", message, (upstream,))

    def _upstream(self, side_: Side, path: str, line: int) -> Upstream:
        lines = split_lines(side_.replay.view.data(path))
        return Upstream(side_.replay.tree.version, path, line, _shown(lines, line))


def _finding(new: Reference, message: str, upstream: Iterable[Upstream | None]) -> Finding:
    known = tuple(one for one in upstream if one is not None)
    return Finding(Location(*new.origin), new.path, new.line, new.kind, message, known)


def _line_of(side_: Side, answer: object) -> Upstream | None:
    if isinstance(answer, Found):
        path, line = answer.module.path, answer.binding.line
        text = _shown(split_lines(side_.replay.view.data(path)), line)
        if isinstance(answer.binding.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            text = _head(answer.binding.node)
        return Upstream(side_.replay.tree.version, path, line, text)
    if isinstance(answer, Module):
        return Upstream(side_.replay.tree.version, answer.path, 1, answer.dotted)
    return None


def _head(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    text = f"def {node.name}({ast.unparse(node.args)})"
    return text if len(text) <= 160 else f"{text[:157]}..."


def _read_line(tree: Tree, path: str, line: int) -> Upstream:
    return Upstream(tree.version, path, line, _shown(split_lines(_data(tree, path)), line))


def _shown(lines: Sequence[bytes], line: int) -> str:
    return lines[line - 1].decode("utf-8", "replace").strip() if 0 < line <= len(lines) else ""


def _data(tree: Tree, path: str) -> bytes:
    file = tree.read(path)
    return file.data if file is not None else b""


def _at(origins: Sequence[Origin | None], line: int) -> Origin | None:
    return origins[line - 1] if 0 < line <= len(origins) else None


def _has_word(text: bytes, word: str) -> bool:
    return re.search(rb"(?<!\w)" + re.escape(word.encode()) + rb"(?!\w)", text) is not None


def _runs(lines: Sequence[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    run: list[tuple[int, bytes]] = []
    for number, text in lines:
        if run and number != run[-1][0] + 1:
            yield run
            run = []
        run.append((number, text))
    if run:
        yield run
