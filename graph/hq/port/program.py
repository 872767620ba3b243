"""What a name means in a tree, by syntax alone: modules, classes and their bases, imports.

A tree is never imported. A module is parsed when something asks for it, and a question follows
imports from file to file. There are four answers: the place that binds the name (``Found``), a
module of the tree (``Module``), ``MISSING`` where the tree should bind it and does not, and
``None`` where syntax cannot tell or the name leads out of the tree.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from hq.port.outline import parse_python
from hq.port.signature import Signature, fields_signature, signature_of
from hq.port.tree import View

_DEPTH: Final = 12
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Binding(NamedTuple):
    """What binds a name. ``kind``: ``def``, ``class``, ``import`` or ``value``.

    ``source``: of an import, the module in full and the name in it (empty for the module itself).
    ``type_`` and ``value``: the annotation and the expression of a value, where there are any;
    ``within``: the function that an attribute is set in.
    """

    kind: str
    node: ast.AST
    line: int
    source: tuple[str, str] = ("", "")
    type_: ast.expr | None = None
    value: ast.expr | None = None
    within: _Function | None = None


class Module(NamedTuple):
    """A parsed file. ``stars``: modules whose names it takes whole; ``open_``: ``__getattr__``."""

    path: str
    dotted: str
    is_package: bool
    tree: ast.Module
    bindings: dict[str, Binding]
    stars: tuple[str, ...]
    open_: bool


class Found(NamedTuple):
    """A binding and its module; ``owner``: the class that it is a member of."""

    module: Module
    binding: Binding
    owner: ast.ClassDef | None = None

    @property
    def is_class(self) -> bool:
        """Whether it is a class."""
        return isinstance(self.binding.node, ast.ClassDef)


class Missing(NamedTuple):
    """Not bound where it should be: ``path`` is the file that was to bind it, if it is there."""

    path: str = ""


Answer = Found | Module | Missing | None
Parsed = dict[str, tuple[bytes, Module | None]]


class Program:
    """The Python of a view."""

    def __init__(self, view: View, paths: Iterable[str], parsed: Parsed | None = None) -> None:
        """``parsed`` may be handed from one program to the next: they share unchanged files."""
        self._view = view
        self._parsed: Parsed = {} if parsed is None else parsed
        self._paths = frozenset(paths)
        self._folders = {path.rpartition("/")[0] for path in self._paths}
        # ``pkg/_C.abi3.so`` and ``pkg/_C.cpython-313-….so`` are both ``pkg/_C``.
        others = (path for path in view.tree.paths() if path.endswith((".so", ".pyd", ".pyi")))
        self._compiled = {path.rpartition("/")[0] + "/" + _stem(path) for path in others}
        self._modules: dict[str, Module | None] = {}
        self._members: dict[tuple[str, int], dict[str, Binding]] = {}
        self.tops = frozenset(path.partition("/")[0] for path in self._paths if "/" in path)

    # -- modules --------------------------------------------------------------------------------

    def module(self, path: str) -> Module | None:
        """The file at ``path``, parsed once; ``None`` when it is not there or no Python."""
        if path not in self._modules:
            self._modules[path] = self._parse(path) if path in self._paths else None
        return self._modules[path]

    def _parse(self, path: str) -> Module | None:
        data = self._view.data(path)
        known = self._parsed.get(path)
        if known is None or known[0] != data:
            tree = parse_python(data)
            module = None if tree is None else _module(path, tree, b"global " in data)
            known = self._parsed[path] = (data, module)
        return known[1]

    def path_of(self, dotted: str) -> str:
        """The file of a module; empty when there is none."""
        base = dotted.replace(".", "/")
        for path in (f"{base}/__init__.py", f"{base}.py"):
            if path in self._paths:
                return path
        return ""

    def imported(self, dotted: str) -> Answer:
        """A module by its full name."""
        if dotted.partition(".")[0] not in self.tops:
            return None
        path = self.path_of(dotted)
        if path:
            return self.module(path)
        # A folder without __init__ is a package too; a compiled module cannot be read.
        base = dotted.replace(".", "/")
        return None if base in self._folders or base in self._compiled else Missing()

    # -- names ----------------------------------------------------------------------------------

    def lookup(self, module: Module, name: str, depth: int = 0) -> Answer:
        """What ``name`` is at the top of ``module``, imports followed to where it is defined."""
        if depth > _DEPTH:
            return None
        binding = module.bindings.get(name)
        if binding is not None:
            return self._followed(module, binding, depth)
        if module.is_package:
            below = self.path_of(f"{module.dotted}.{name}")
            if below:
                return self.module(below)
        unsure = module.open_
        for star in module.stars:
            source = self.imported(star)
            if not isinstance(source, Module):
                unsure = True
                continue
            found = self.lookup(source, name, depth + 1)
            if isinstance(found, (Found, Module)):
                return found
        return None if unsure else Missing(module.path)

    def _followed(self, module: Module, binding: Binding, depth: int) -> Answer:
        if binding.kind == "import":
            source, name = binding.source
            target = self.imported(source)
            if not name or not isinstance(target, Module):
                if name and target is None and source.partition(".")[0] in self.tops:
                    below = self.path_of(f"{source}.{name}")
                    return self.module(below) if below else None
                return target
            return self.lookup(target, name, depth + 1)
        value = binding.value
        if isinstance(value, (ast.Name, ast.Attribute)) and binding.within is None:
            alias = self.dotted(module, value, depth + 1)
            if isinstance(alias, Found) and alias.binding.kind in ("def", "class"):
                return alias
        return Found(module, binding)

    def dotted(self, module: Module, node: ast.expr, depth: int = 0) -> Answer:
        """What a name or a chain of attributes means at the top of ``module``."""
        if depth > _DEPTH:
            return None
        if isinstance(node, ast.Name):
            return self.lookup(module, node.id, depth)
        if isinstance(node, ast.Attribute):
            return self.attribute(self.dotted(module, node.value, depth + 1), node.attr)
        return None

    def attribute(self, base: Answer, name: str) -> Answer:
        """``base.name``."""
        if isinstance(base, Module):
            return self.lookup(base, name)
        if isinstance(base, Found) and base.is_class:
            return self.member(base, name)
        return None

    # -- classes --------------------------------------------------------------------------------

    def member(self, found: Found, name: str, depth: int = 0, *, above: bool = False) -> Answer:
        """A member of a class, its bases searched in order; ``above``: only its bases."""
        node = found.binding.node
        assert isinstance(node, ast.ClassDef)
        if not above:
            binding = self._own_members(found.module, node).get(name)
            if binding is not None:
                return Found(found.module, binding, node)
        if depth > _DEPTH:
            return None
        for base in self.bases(found):
            answer = self.member(base, name, depth + 1)
            if isinstance(answer, Found):
                return answer
        return Missing(found.module.path)

    def bases(self, found: Found) -> Iterator[Found]:
        """The bases of a class that are in the tree."""
        node = found.binding.node
        assert isinstance(node, ast.ClassDef)
        for base in node.bases:
            expression = base.value if isinstance(base, ast.Subscript) else base
            answer = self.dotted(found.module, expression)
            if isinstance(answer, Found) and answer.is_class and answer.binding.node is not node:
                yield answer

    def _own_members(self, module: Module, node: ast.ClassDef) -> dict[str, Binding]:
        key = (module.path, node.lineno)
        if key not in self._members:
            found = dict(_bindings(node.body, module))
            for function in _functions(node.body):
                for name, binding in _set_on_self(function):
                    found.setdefault(name, binding)
            self._members[key] = found
        return self._members[key]

    # -- types ----------------------------------------------------------------------------------

    def annotated(self, module: Module, node: ast.expr | None, depth: int = 0) -> Found | None:
        """The class of the tree that an annotation names; of ``X | None`` the first."""
        if node is None or depth > _DEPTH:
            return None
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            parsed = parse_python(node.value.encode("utf-8", "replace"))
            first = parsed.body[0] if parsed is not None and parsed.body else None
            inner = first.value if isinstance(first, ast.Expr) else None
            return self.annotated(module, inner, depth + 1)
        if isinstance(node, ast.BinOp):
            left = self.annotated(module, node.left, depth + 1)
            return left or self.annotated(module, node.right, depth + 1)
        if isinstance(node, ast.Subscript):
            optional = ast.unparse(node.value).rpartition(".")[2] == "Optional"
            return self.annotated(module, node.slice, depth + 1) if optional else None
        answer = self.dotted(module, node)
        return answer if isinstance(answer, Found) and answer.is_class else None

    def type_of(self, found: Found, depth: int = 0) -> Found | None:
        """The class of a value's content, where its annotation or its making says so."""
        binding = found.binding
        if depth > _DEPTH:
            return None
        if binding.kind == "def" and isinstance(binding.node, _Function):
            is_property = any("property" in ast.unparse(d) for d in binding.node.decorator_list)
            return self.annotated(found.module, binding.node.returns) if is_property else None
        if binding.type_ is not None:
            return self.annotated(found.module, binding.type_)
        return self.made(found.module, binding.value, binding.within)

    def made(
        self, module: Module, value: ast.expr | None, within: _Function | None
    ) -> Found | None:
        """The class of what an expression makes: a call of a class, or an annotated parameter."""
        if isinstance(value, ast.Call):
            answer = self.dotted(module, value.func)
            if isinstance(answer, Found) and answer.is_class:
                return answer
            if isinstance(answer, Found) and isinstance(answer.binding.node, _Function):
                return self.annotated(answer.module, answer.binding.node.returns)
        if isinstance(value, ast.Name) and within is not None:
            arguments = within.args
            for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                if one.arg == value.id:
                    return self.annotated(module, one.annotation)
        return None

    # -- calls ----------------------------------------------------------------------------------

    def signature(self, found: Found, *, bound: bool) -> Signature | None:
        """What calling it takes; ``bound``: as a method of an instance. ``None``: unknown."""
        node = found.binding.node
        if isinstance(node, ast.ClassDef):
            return self._construction(found, node)
        if not isinstance(node, _Function):
            return None
        names = {ast.unparse(one).rpartition(".")[2] for one in node.decorator_list}
        plain = signature_of(node)
        if found.owner is None or "staticmethod" in names:
            return plain
        if "property" in names or "cached_property" in names:
            return None
        return plain.without_first() if bound or "classmethod" in names else plain

    def _construction(self, found: Found, node: ast.ClassDef) -> Signature | None:
        init = self.member(found, "__init__")
        if isinstance(init, Found) and isinstance(init.binding.node, _Function):
            return signature_of(init.binding.node).without_first()
        bodies = list(self._dataclass_bodies(found, node, 0))
        return fields_signature(bodies) if bodies else None

    def _dataclass_bodies(
        self, found: Found, node: ast.ClassDef, depth: int
    ) -> Iterator[tuple[ast.ClassDef, bool]]:
        if depth > _DEPTH:
            return
        for base in self.bases(found):
            assert isinstance(base.binding.node, ast.ClassDef)
            yield from self._dataclass_bodies(base, base.binding.node, depth + 1)
        words = [ast.unparse(one) for one in node.decorator_list]
        made = [word for word in words if "dataclass" in word or word.startswith("config")]
        tuple_ = any(ast.unparse(base).endswith("NamedTuple") for base in node.bases)
        if made or tuple_:
            yield node, any("kw_only=True" in word for word in made)


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


# -- reading a file --------------------------------------------------------------------------------


def _module(path: str, tree: ast.Module, has_globals: bool) -> Module:
    is_package = path.endswith("/__init__.py")
    base = path.removesuffix("/__init__.py") if is_package else path.removesuffix(".py")
    dotted = base.replace("/", ".")
    module = Module(path, dotted, is_package, tree, {}, (), False)
    for name, binding in _bindings(tree.body, module):
        _keep(module.bindings, name, binding)
    for node in ast.walk(tree) if has_globals else ():
        if isinstance(node, ast.Global):
            for name in node.names:
                module.bindings.setdefault(name, Binding("value", node, node.lineno))
    stars = tuple(_stars(tree, module))
    return module._replace(stars=stars, open_="__getattr__" in module.bindings)


def _keep(found: dict[str, Binding], name: str, binding: Binding) -> None:
    """The binding that counts: the last, but a fallback value does not hide what it stands for."""
    known = found.get(name)
    if known is None or binding.kind != "value" or known.kind == "value":
        found[name] = binding


def _stars(tree: ast.Module, module: Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and any(one.name == "*" for one in node.names):
            yield absolute(module, node)


def absolute(module: Module, node: ast.ImportFrom) -> str:
    """The full name of the module that an import is from."""
    if not node.level:
        return node.module or ""
    parts = module.dotted.split(".")
    drop = node.level - (1 if module.is_package else 0)
    parts = parts[: len(parts) - drop] if drop else parts
    return ".".join([*parts, *([node.module] if node.module else [])])


def _bindings(body: Iterable[ast.stmt], module: Module) -> Iterator[tuple[str, Binding]]:
    """What statements bind, blocks entered, definitions not."""
    for node in body:
        yield from statement_bindings(node, module)
        for inner in blocks(node):
            yield from _bindings(inner, module)


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of a compound statement that run in its own scope."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(node, name, None)
        if isinstance(inner, list):
            yield inner
    for handler in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield handler.body


def statement_bindings(node: ast.stmt, module: Module) -> Iterator[tuple[str, Binding]]:
    """What one statement binds by itself."""
    line = node.lineno
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name, Binding("def", node, line)
    elif isinstance(node, ast.ClassDef):
        yield node.name, Binding("class", node, line)
    elif isinstance(node, ast.Import):
        for one in node.names:
            name = one.asname or one.name.partition(".")[0]
            whole = one.name if one.asname else name
            yield name, Binding("import", node, line, (whole, ""))
    elif isinstance(node, ast.ImportFrom):
        for one in node.names:
            if one.name != "*":
                source = (absolute(module, node), one.name)
                yield one.asname or one.name, Binding("import", node, line, source)
    else:
        yield from _value_bindings(node, line)


def _value_bindings(node: ast.stmt, line: int) -> Iterator[tuple[str, Binding]]:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        binding = Binding("value", node, line, type_=node.annotation, value=node.value)
        yield node.target.id, binding
        for name in stored(node.value) if node.value is not None else ():
            yield name, Binding("value", node, line)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, Binding("value", node, line, value=node.value)
            else:
                for name in stored(target):
                    yield name, Binding("value", node, line)
        for name in stored(node.value):
            yield name, Binding("value", node, line)
    else:
        for part in heads(node):
            for name in stored(part):
                yield name, Binding("value", node, line)


def heads(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a statement that are no blocks of statements."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ExceptHandler):
            if child.type is not None:
                yield child.type
            if child.name:
                yield ast.Name(child.name, ast.Store())
        elif isinstance(child, ast.match_case):
            yield from (part for part in (child.pattern, child.guard) if part is not None)
        elif not isinstance(child, ast.stmt):
            yield child


def stored(node: ast.AST) -> Iterator[str]:
    """Names that an expression or a pattern binds: targets, ``:=``, captures."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id
        elif isinstance(inner, (ast.MatchAs, ast.MatchStar)) and inner.name:
            yield inner.name
        elif isinstance(inner, ast.MatchMapping) and inner.rest:
            yield inner.rest


def _functions(body: Iterable[ast.stmt]) -> Iterator[_Function]:
    for node in body:
        if isinstance(node, _Function):
            yield node
        for inner in blocks(node):
            yield from _functions(inner)


def _set_on_self(function: _Function) -> Iterator[tuple[str, Binding]]:
    arguments = [*function.args.posonlyargs, *function.args.args]
    if not arguments:
        return
    own = arguments[0].arg
    for node in ast.walk(function):
        if isinstance(node, ast.AnnAssign):
            targets: list[ast.expr] = [node.target]
            type_, value = node.annotation, node.value
        elif isinstance(node, ast.Assign):
            targets, type_, value = list(node.targets), None, node.value
        else:
            continue
        for target in targets:
            for part in ast.walk(target):
                if (
                    isinstance(part, ast.Attribute)
                    and isinstance(part.value, ast.Name)
                    and part.value.id == own
                    and isinstance(part.ctx, ast.Store)
                ):
                    sole = value if part is target else None
                    yield (
                        part.attr,
                        Binding(
                            "value", node, part.lineno, type_=type_, value=sole, within=function
                        ),
                    )
