"""Planted faults: each applies cleanly, and each is found."""

from __future__ import annotations

import pytest

from hq.port.report import finding_lines
from hq.port.review import Knobs
from port.trees import DictTree, FileStep, patch_step, run_review

ENVS = """import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    VLLM_OLD_KNOB: int = 0

environment_variables: dict = {
    "VLLM_OLD_KNOB": lambda: int(os.getenv("VLLM_OLD_KNOB", "0")),
}


def __getattr__(name):
    return environment_variables[name]()


def validate_environ(hard_fail):
    for env in os.environ:
        if env.startswith("VLLM_") and env not in environment_variables:
            raise ValueError(env)


def compile_factors():
    ignored_factors: set[str] = {
        "VLLM_OTHER",
    }
    return ignored_factors
"""
SPEC = """from dataclasses import dataclass, field
from enum import Enum


class Layout(Enum):
    ROWS = 1
    COLUMNS = 2


@dataclass
class Spec:
    size: int
    heads: int = 1
    extra: list = field(default_factory=list)


class Base:
    indexes_by_stride = True

    def __init__(self, spec: Spec):
        self.spec = spec

    def propose(self, tokens, count):
        return tokens

    @staticmethod
    def helper(a, b=1):
        return a
"""
KERNEL = """import triton


@triton.jit
def kernel(x_ptr, n, BLOCK: int):
    pass


def limit(value, low, high=10):
    return value
"""
USER = """from pkg import envs
from pkg.kernel import kernel, limit
from pkg.spec import Base, Layout, Spec


class Mine(Base):
    def run(self, x):
        first = 1
        second = 2
        third = 3
        return x
"""
OLD = DictTree(
    "1.0",
    {
        "pkg/__init__.py": "",
        "pkg/envs.py": ENVS,
        "pkg/spec.py": SPEC,
        "pkg/kernel.py": KERNEL,
        "pkg/user.py": USER,
    },
)


def added(*lines: str) -> tuple[str, str, str]:
    """An insertion into ``Mine.run``."""
    text = "".join(f"        {line}\n" for line in lines)
    return ("pkg/user.py", "        second = 2\n", f"        second = 2\n{text}")


def found(new: DictTree, *changes: tuple[str, str, str], knobs: Knobs | None = None) -> list[str]:
    step = patch_step(OLD, "add", *changes)
    findings = run_review(OLD, new, step, knobs=knobs)
    # The same patch on the tree it was made from: nothing, whatever it holds.
    assert run_review(OLD, DictTree("2.0", OLD.files), step, knobs=knobs) == ()
    return [line for one in findings for line in finding_lines(one)]


def test_a_removed_function_is_found_with_the_line_that_had_it() -> None:
    new = OLD.edited("2.0", ("pkg/kernel.py", "def limit(", "def limit_value("))
    assert found(new, added("limit(x, 1)")) == [
        "patches/add.patch:14: limit: limit is not defined in pkg/kernel.py any more; did it "
        "become limit_value? [name]",
        "  1.0 pkg/kernel.py:9: def limit(value, low, high=10)",
        "  2.0 pkg/kernel.py:9: def limit_value(value, low, high=10):",
    ]


def test_a_removed_import_of_the_file_leaves_a_name_undefined() -> None:
    new = OLD.edited("2.0", ("pkg/user.py", "from pkg.kernel import kernel, limit\n", ""))
    assert found(new, added("limit(x, 1)"))[0] == (
        "patches/add.patch:14: limit: limit is not defined in pkg/user.py any more; did it become "
        "pkg/kernel.py:9? [name]"
    )


def test_a_removed_module_and_a_removed_name_of_an_import_are_found() -> None:
    files = {path: data for path, data in OLD.files.items() if path != "pkg/kernel.py"}
    new = DictTree("2.0", files)
    assert found(new, added("from pkg.kernel import kernel as k"))[0] == (
        "patches/add.patch:14: pkg.kernel.kernel: kernel is not defined any more [import]"
    )


def test_a_removed_member_of_an_enum_is_found() -> None:
    new = OLD.edited("2.0", ("pkg/spec.py", "    ROWS = 1\n", "    LINES = 1\n"))
    assert found(new, added("y = Layout.ROWS")) == [
        "patches/add.patch:14: Layout.ROWS: ROWS is not defined in pkg/spec.py any more "
        "[attribute]",
        "  1.0 pkg/spec.py:6: ROWS = 1",
    ]


def test_an_attribute_read_with_a_default_that_nothing_sets_is_found() -> None:
    new = OLD.edited("2.0", ("pkg/spec.py", "    indexes_by_stride = True\n\n", ""))
    assert found(new, added('if getattr(x, "indexes_by_stride", False):', "    x = 1")) == [
        "patches/add.patch:14: getattr(x, 'indexes_by_stride', False): nothing sets "
        "indexes_by_stride any more; the patch reads it with a default, so nothing fails [default]",
        "  1.0 pkg/spec.py:18: indexes_by_stride = True",
    ]


def test_an_attribute_of_a_value_of_unknown_type_is_found_by_name() -> None:
    new = OLD.edited("2.0", ("pkg/spec.py", "    indexes_by_stride = True\n\n", ""))
    assert found(new, added("y = x.indexes_by_stride"))[0] == (
        "patches/add.patch:14: x.indexes_by_stride: nothing sets indexes_by_stride any more; the "
        "patch uses it [attribute]"
    )


def test_an_attribute_that_something_else_still_sets_is_no_finding() -> None:
    new = OLD.edited(
        "2.0", ("pkg/spec.py", "    indexes_by_stride = True\n\n", ""),
        ("pkg/kernel.py", "    return value\n", "    value.indexes_by_stride = 1\n"),
    )  # fmt: skip
    assert found(new, added("y = x.indexes_by_stride")) == []


@pytest.mark.parametrize(
    ("takes", "line", "problem"),
    [
        ("value, high=10", "limit(x, 1, high=2)", "gives 'high' by place and by name"),
        ("value, low, high", "limit(x, 1)", "does not give 'high', which it needs"),
        ("value, low, top=1", "limit(x, 1, high=2)", "gives 'high', which it does not take"),
        ("value", "limit(x, 1)", "gives 2 arguments by place; it takes 1"),
    ],
)
def test_a_call_whose_arguments_no_longer_fit_is_found(takes: str, line: str, problem: str) -> None:
    tree = OLD.edited("2.0", ("pkg/kernel.py", "limit(value, low, high=10)", f"limit({takes})"))
    message = f"the call of limit {problem}"
    lines = found(tree, added(line))
    assert lines[0] == f"patches/add.patch:14: {message} [call]"
    assert lines[1] == "  1.0 pkg/kernel.py:9: def limit(value, low, high=10)"
    assert lines[2].startswith("  2.0 pkg/kernel.py:9: def limit(")


def test_a_launch_of_a_kernel_with_a_new_parameter_is_found() -> None:
    new = OLD.edited("2.0", ("pkg/kernel.py", "x_ptr, n, BLOCK", "x_ptr, n, stride, BLOCK"))
    assert found(new, added("kernel[(1,)](x, 1, BLOCK=16, num_warps=4)")) == [
        "patches/add.patch:14: the launch of kernel does not give 'stride', which it needs "
        "[launch]",
        "  1.0 pkg/kernel.py:5: def kernel(x_ptr, n, BLOCK: int)",
        "  2.0 pkg/kernel.py:5: def kernel(x_ptr, n, stride, BLOCK: int)",
    ]


def test_a_method_of_a_base_and_a_dataclass_are_bound_too() -> None:
    new = OLD.edited(
        "2.0",
        ("pkg/spec.py", "(self, tokens, count)", "(self, tokens, count, sync)"),
        ("pkg/spec.py", "    heads: int = 1\n", "    groups: int = 1\n"),
    )  # fmt: skip
    lines = found(new, added("self.propose(x, 1)", "s = Spec(1, heads=2)"))
    assert [line for line in lines if not line.startswith(" ")] == [
        "patches/add.patch:14: the call of self.propose does not give 'sync', which it needs "
        "[call]",
        "patches/add.patch:15: the call of Spec gives 'heads', which it does not take [call]",
    ]


def test_an_override_that_does_not_take_what_the_base_does_is_found() -> None:
    method = "\n    def propose(self, tokens, count):\n        return tokens\n"
    change = ("pkg/user.py", "        return x\n", f"        return x\n{method}")
    new = OLD.edited("2.0", ("pkg/spec.py", "tokens, count)", "tokens, count, dp_sync=None)"))
    assert found(new, change) == [
        "patches/add.patch:15: the override Mine.propose does not take 'dp_sync' [override]",
        "  1.0 pkg/spec.py:23: def propose(self, tokens, count)",
        "  2.0 pkg/spec.py:23: def propose(self, tokens, count, dp_sync=None)",
    ]
    gone = OLD.edited("2.0", ("pkg/spec.py", "def propose(", "def draft("))
    assert found(gone, change)[0] == (
        "patches/add.patch:15: Mine.propose overrides nothing any more: its base's propose is gone "
        "[override]"
    )


def test_knobs_that_are_retired_or_taken_upstream_are_found() -> None:
    knobs = Knobs("pkg/envs.py", frozenset({"VLLM_MINE"}))
    new = OLD.edited(
        "2.0",
        ("pkg/envs.py", "    VLLM_OLD_KNOB: int = 0\n", "    VLLM_MINE: int = 0\n"),
        (
            "pkg/envs.py",
            '    "VLLM_OLD_KNOB": lambda: int(os.getenv("VLLM_OLD_KNOB", "0")),\n',
            '    "VLLM_OLDER_KNOB": lambda: 0,\n    "VLLM_MINE": lambda: 0,\n',
        ),
    )
    lines = found(new, added("y = envs.VLLM_OLD_KNOB", "z = envs.VLLM_MINE"), knobs=knobs)
    assert lines == [
        "patches/add.patch:14: the knob VLLM_OLD_KNOB is retired; did it become VLLM_OLDER_KNOB? "
        "[knob]",
        '  1.0 pkg/envs.py:8: "VLLM_OLD_KNOB": lambda: int(os.getenv("VLLM_OLD_KNOB", "0")),',
        "patches/add.patch:15: the knob VLLM_MINE is upstream's own now [knob]",
        '  2.0 pkg/envs.py:9: "VLLM_MINE": lambda: 0,',
    ]


def test_a_definition_that_upstream_has_now_and_code_it_took_over_are_found() -> None:
    lines = ("collected = [one for one in x]", "ordered = sorted(collected)", "first = ordered[0]")
    method = "\n    def extra_method(self):\n        return None\n"
    taken = "".join(f"        {line}\n" for line in lines)
    theirs = f"    def extra_method(self):\n{taken}        return ordered\n\n"
    head = "    def run(self, x):\n"
    new = OLD.edited("2.0", ("pkg/user.py", head, theirs + head))
    change = ("pkg/user.py", "        return x\n", f"        return x\n{method}")
    shown = [line for line in found(new, added(*lines), change) if not line.startswith(" ")]
    assert shown == [
        "patches/add.patch:14: upstream's new code has 3 of these 3 lines [duplicate]",
        "patches/add.patch:20: Mine.extra_method is defined by upstream as well [duplicate]",
    ]


def test_lines_of_an_overlay_are_reviewed_like_those_of_a_patch() -> None:
    step = FileStep("pkg/over.py", "over/files/pkg/over.py", b"from pkg.spec import Base, Gone\n")
    new = OLD.edited("2.0", ("pkg/spec.py", "class Base:", "class Root:"))
    findings = run_review(OLD, new, step)
    assert [(one.where.file, one.where.line, one.kind) for one in findings] == [
        ("over/files/pkg/over.py", 1, "import")
    ]


def test_what_a_patch_defined_that_does_not_apply_any_more_is_not_told_twice() -> None:
    mine = "    return value\n\n\ndef mine():\n    return 1\n"
    first = patch_step(OLD, "first", ("pkg/kernel.py", "    return value\n", mine))
    user = FileStep("pkg/over.py", "over/over.py", b"from pkg.kernel import mine\n")
    body = KERNEL.replace("def limit(value, low, high=10):\n    return value\n", "")
    new = DictTree("2.0", {**OLD.files, "pkg/kernel.py": body})
    assert run_review(OLD, new, first, user) == ()


def test_a_new_caller_of_a_function_whose_parameters_a_patch_changes_is_found() -> None:
    change = ("pkg/kernel.py", "def limit(value, low, high=10):", "def limit(value, low, high):")
    # A caller that is refused in the old release too is the patch's own affair.
    old = OLD.edited("1.0", ("pkg/user.py", "        third = 3\n", "        limit(x, 1)\n"))
    new = old.edited("2.0", ("pkg/user.py", "        first = 1\n", "        limit(first, 2)\n"))
    step = patch_step(old, "add", change)
    assert run_review(old, DictTree("2.0", old.files), step) == ()
    [one] = run_review(old, new, step)
    assert list(finding_lines(one)) == [
        "patches/add.patch:15: upstream's call of limit does not fit the parameters that it has "
        "here [caller]",
        "  2.0 pkg/user.py:8: limit(first, 2)",
    ]
