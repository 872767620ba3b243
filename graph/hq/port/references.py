"""What own lines ask of the rest of the tree: names, attributes, calls, overrides.

The syntax tree of a changed file is walked with its scopes; of everything that stands on a line
that a patch or an overlay wrote, a ``Reference`` says what was asked and what the tree answers. The
same own line gives the same references on the old and on the new tree, so the answers can be held
against each other: that is all the review does.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from hq.port.program import (
    Answer,
    Found,
    Missing,
    Module,
    Program,
    absolute,
    blocks,
    heads,
    statement_bindings,
    stored,
)
from hq.port.replay import Origin
from hq.port.signature import LAUNCH_OPTIONS, Signature, given, misfit, refuses, signature_of

_BUILTINS: Final = frozenset(dir(builtins)) | {
    "__file__", "__name__", "__doc__", "__path__", "__class__", "__spec__", "__annotations__",
    "__builtins__", "__package__", "__loader__", "__debug__", "__dict__", "__module__",
    "__qualname__",
}  # fmt: skip
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Reference(NamedTuple):
    """One thing that an own line asks.

    ``kind``: ``name``, ``import``, ``attribute``, ``default`` (an attribute read with a default),
    ``call``, ``launch`` or ``override``. ``text``: what is asked, as written; ``word``: the name at
    its end. ``answer``: what the tree says;
    ``problem``: why a call or an override does not fit, as a predicate, else empty.
    """

    kind: str
    origin: Origin
    path: str
    line: int
    text: str
    word: str
    answer: Answer
    problem: str = ""


def references(
    program: Program, path: str, origins: Sequence[Origin | None]
) -> tuple[Reference, ...]:
    """The references of the own lines of a file, in order."""
    module = program.module(path)
    if module is None:
        return ()
    walk = _Walk(program, module, origins)
    walk.statements(module.tree.body)
    return tuple(walk.found)


class _Scope:
    """Names of a function, lambda, comprehension or class body."""

    __slots__ = ("names", "node", "types")

    def __init__(self, node: ast.AST, names: Iterable[str]) -> None:
        self.node = node
        self.names = set(names)
        self.types: dict[str, Found | None] = {}


class _Walk:
    def __init__(self, program: Program, module: Module, origins: Sequence[Origin | None]) -> None:
        self._program = program
        self._module = module
        self._origins = origins
        self._scopes: list[_Scope] = []
        self._imports: list[dict[str, Answer]] = []
        self.found: list[Reference] = []
        # How many own lines stand above a line: so a part without any is left out at once.
        self._above = [0]
        for origin in origins:
            self._above.append(self._above[-1] + (origin is not None))

    def _any_own(self, node: ast.stmt) -> bool:
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(one.lineno for one in decorators)])
        top = len(self._above) - 1
        return self._above[min(node.end_lineno or first, top)] > self._above[min(first - 1, top)]

    # -- walking --------------------------------------------------------------------------------

    def statements(self, body: Iterable[ast.stmt]) -> None:
        for node in body:
            self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        own = self._any_own(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if own:
                self._function(node)
        elif isinstance(node, ast.ClassDef):
            if own:
                self._class(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            if own or self._imports:
                self._import(node)
        else:
            if own:
                for part in heads(node):
                    self._expression(part)
            self._learn(node)
            for block in blocks(node):
                self.statements(block)

    def _function(self, node: _Function) -> None:
        for decorator in node.decorator_list:
            self._expression(decorator)
        self._override(node)
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
        for one in every:
            if one.annotation is not None:
                self._expression(one.annotation)
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self._expression(default)
        if node.returns is not None:
            self._expression(node.returns)
        scope = _Scope(node, [*(one.arg for one in every), *_type_parameters(node)])
        scope.names |= set(_local_names(node.body, self._module))
        for one in every:
            scope.types[one.arg] = self._program.annotated(self._module, one.annotation)
        owner = self._class_around()
        if owner is not None and every and not _is_static(node):
            scope.types[every[0].arg] = owner
        self._within(scope, lambda: self.statements(node.body))

    def _class(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *(key.value for key in node.keywords)):
            self._expression(part)
        scope = _Scope(node, [*_local_names(node.body, self._module), *_type_parameters(node)])
        self._within(scope, lambda: self.statements(node.body))

    def _within(self, scope: _Scope, run: object) -> None:
        assert callable(run)
        self._scopes.append(scope)
        self._imports.append({})
        run()
        self._imports.pop()
        self._scopes.pop()

    def _class_around(self) -> Found | None:
        """The class whose body a ``def`` stands in directly."""
        if not self._scopes or not isinstance(self._scopes[-1].node, ast.ClassDef):
            return None
        if any(not isinstance(scope.node, ast.ClassDef) for scope in self._scopes):
            return None
        answer: Answer = self._module
        for scope in self._scopes:
            assert isinstance(scope.node, ast.ClassDef)
            answer = self._program.attribute(answer, scope.node.name)
        return answer if isinstance(answer, Found) and answer.is_class else None

    def _expression(self, node: ast.AST) -> None:
        if isinstance(node, ast.Lambda):
            arguments = node.args
            names = [
                a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            ]
            names += [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]
            self._within(_Scope(node, names), lambda: self._expression(node.body))
            return
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            self._comprehension(node)
            return
        self._note(node)
        self._children(node)

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> None:
        # The first iterable belongs to the scope around it, which may be a class body.
        first = node.generators[0]
        self._expression(first.iter)
        rest: list[ast.AST] = [first.target, *first.ifs, *node.generators[1:]]
        rest += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]

        def inside() -> None:
            for part in rest:
                self._expression(part)

        names = [name for one in node.generators for name in stored(one.target)]
        self._within(_Scope(node, names), inside)

    def _children(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self._expression(child)

    # -- what stands on own lines ---------------------------------------------------------------

    def _own(self, *lines: int) -> tuple[Origin, int] | None:
        for line in lines:
            origin = self._origins[line - 1] if line <= len(self._origins) else None
            if origin is not None:
                return origin, line
        return None

    def _add(
        self,
        kind: str,
        lines: Sequence[int],
        text: str,
        word: str,
        answer: Answer,
        problem: str = "",
    ) -> None:
        own = self._own(*lines)
        if own is not None:
            origin, line = own
            self.found.append(
                Reference(kind, origin, self._module.path, line, text, word, answer, problem)
            )

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if self._own(node.lineno):
                self._add("name", [node.lineno], node.id, node.id, self._name(node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            line = node.end_lineno or node.lineno
            if self._own(line) and not self._leads_out(node):
                self._add("attribute", [line], ast.unparse(node), node.attr, self._meaning(node))
        elif isinstance(node, ast.Call):
            self._call(node)

    def _call(self, node: ast.Call) -> None:
        arguments = [*node.args, *(key.value for key in node.keywords)]
        lines = [node.func.end_lineno or node.lineno, *(one.lineno for one in arguments)]
        if not self._own(*lines):
            return
        asked = _with_default(node)
        if asked:
            self._add("default", lines, ast.unparse(node), asked, None)
            return
        function, launch = node.func, False
        if isinstance(function, ast.Subscript):
            function, launch = function.value, True
        answer = self._meaning(function)
        word = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
        problem = ""
        if isinstance(answer, Found):
            problem = self._misfit(function, answer, node, launch=launch)
        kind = "launch" if launch else "call"
        self._add(kind, lines, ast.unparse(function), word, answer, problem)

    def _misfit(self, function: ast.expr, answer: Found, node: ast.Call, *, launch: bool) -> str:
        bound = not self._is_class_access(function)
        signature = self._program.signature(answer, bound=bound)
        if signature is None:
            return ""
        target = answer.binding.node
        filled = ""
        if launch and isinstance(target, _Function):
            filled = " ".join(ast.unparse(one) for one in target.decorator_list)
        free = LAUNCH_OPTIONS if launch else frozenset()
        return misfit(signature, given(node), free, filled)

    def _is_class_access(self, function: ast.expr) -> bool:
        """Whether a method is reached through its class, so that ``self`` is given."""
        if not isinstance(function, ast.Attribute):
            return False
        if isinstance(function.value, ast.Call) and ast.unparse(function.value.func) == "super":
            return False
        base = self._static(function.value)
        return isinstance(base, Found) and base.is_class

    def _override(self, node: _Function) -> None:
        """A method that own lines define over one of a base."""
        owner = self._class_around()
        if owner is None or node.name.startswith("__") or not self._own(node.lineno):
            return
        base = self._program.member(owner, node.name, above=True)
        if not isinstance(base, Found):
            self._add("override", [node.lineno], f"{_called(owner)}.{node.name}", node.name, base)
            return
        problem = ""
        if isinstance(base.binding.node, _Function):
            problem = refuses(_bound(node), _bound(base.binding.node))
        text = f"{_called(owner)}.{node.name}"
        self._add("override", [node.lineno], text, node.name, base, problem)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for one in node.names:
            line = one.lineno
            if isinstance(node, ast.Import):
                answer = self._program.imported(one.name)
                text, bound = one.name, one.asname or one.name.partition(".")[0]
                if not one.asname:
                    bound_to: Answer = self._program.imported(bound)
                else:
                    bound_to = answer
            else:
                source = absolute(self._module, node)
                answer = bound_to = self._imported_name(source, one.name)
                text, bound = f"{source}.{one.name}", one.asname or one.name
            if self._imports:
                self._imports[-1][bound] = bound_to
            if one.name != "*":
                self._add("import", [line], text, one.name, answer)

    def _imported_name(self, source: str, name: str) -> Answer:
        target = self._program.imported(source)
        if isinstance(target, Module):
            return self._program.lookup(target, name)
        return target

    # -- meaning --------------------------------------------------------------------------------

    def _name(self, name: str) -> Answer:
        """What a bare name is; ``None`` for locals and builtins."""
        for number in range(len(self._scopes) - 1, -1, -1):
            scope = self._scopes[number]
            inner = number == len(self._scopes) - 1
            if name in scope.names and (inner or not isinstance(scope.node, ast.ClassDef)):
                return self._imports[number].get(name)
        answer = self._program.lookup(self._module, name)
        return None if isinstance(answer, Missing) and name in _BUILTINS else answer

    def _static(self, node: ast.expr) -> Answer:
        """What an expression means without looking at types of values."""
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.Attribute):
            return self._program.attribute(self._static(node.value), node.attr)
        return None

    def _meaning(self, node: ast.expr) -> Answer:
        """What an expression means, types of values followed."""
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        static = self._program.attribute(self._static(node.value), node.attr)
        if static is not None:
            return static
        holder = self._type(node.value)
        if holder is None:
            return None
        return self._program.member(holder, node.attr)

    def _leads_out(self, node: ast.expr) -> bool:
        """Whether a chain begins at a module outside the tree."""
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Name):
            return False
        for number, scope in enumerate(self._scopes):
            if node.id in scope.names:
                known = self._imports[number]
                return node.id in known and known[node.id] is None
        binding = self._module.bindings.get(node.id)
        if binding is None or binding.kind != "import":
            return False
        return binding.source[0].partition(".")[0] not in self._program.tops

    def _type(self, node: ast.expr) -> Found | None:
        """The class of a value."""
        if isinstance(node, ast.Name):
            for scope in reversed(self._scopes):
                if node.id in scope.types:
                    return scope.types[node.id]
                if node.id in scope.names:
                    return None
        if isinstance(node, ast.Call):
            if ast.unparse(node.func) == "super":
                return None
            return self._program.made(self._module, node, None)
        answer = self._meaning(node)
        return self._program.type_of(answer) if isinstance(answer, Found) else None

    def _learn(self, node: ast.stmt) -> None:
        """The class of a local name that is assigned."""
        if not self._scopes:
            return
        types = self._scopes[-1].types
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            types[node.target.id] = self._program.annotated(self._module, node.annotation)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                types[target.id] = self._type(node.value)


def _called(found: Found) -> str:
    node = found.binding.node
    assert isinstance(node, ast.ClassDef)
    return node.name


def _bound(node: _Function) -> Signature:
    """What a method takes behind its first parameter, if it has one of its own."""
    signature = signature_of(node)
    words = {ast.unparse(one) for one in node.decorator_list}
    return signature if "staticmethod" in words else signature.without_first()


def _is_static(node: _Function) -> bool:
    words = {ast.unparse(one) for one in node.decorator_list}
    return bool(words & {"staticmethod", "classmethod"})


def _type_parameters(node: ast.AST) -> list[str]:
    """Names in ``def f[T]`` and ``class C[T]``, which Python has since 3.12."""
    return [one.name for one in getattr(node, "type_params", ())]


def _local_names(body: Iterable[ast.stmt], module: Module) -> Iterator[str]:
    """What statements bind in their scope; ``global`` names are the module's."""
    outer: set[str] = set()
    found: list[str] = []
    for node in _all(body):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            outer.update(node.names)
        found += [name for name, _ in statement_bindings(node, module)]
    return iter([name for name in found if name not in outer])


def _all(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        for inner in blocks(node):
            yield from _all(inner)


def _with_default(node: ast.Call) -> str:
    """The attribute that ``getattr(x, "name", default)`` or ``hasattr`` asks for, else empty."""
    if not isinstance(node.func, ast.Name) or len(node.args) < 2:
        return ""
    asks = node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) == 3)
    name = node.args[1]
    if asks and isinstance(name, ast.Constant) and isinstance(name.value, str):
        return name.value
    return ""


def by_key(found: Iterable[Reference]) -> Mapping[tuple[str, str, str], list[Reference]]:
    """References by the file of their origin, kind and text."""
    table: dict[tuple[str, str, str], list[Reference]] = {}
    for one in found:
        table.setdefault((one.origin.file, one.kind, one.text), []).append(one)
    return table
