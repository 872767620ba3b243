"""Line numbers of TOML paths: a writer that knows where it puts each key is the oracle."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hq.app.tomlpos import Path, locate

KEYS = st.one_of(
    st.from_regex(r"[A-Za-z0-9_-]{1,4}", fullmatch=True),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=5),
)
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: "e" not in repr(x)),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=8),
    st.just('[[a]] = \'x\' # """'),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)


class Writer:
    """Writes values as TOML in many shapes, and notes the line of every path."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.text = ""
        self.lines: dict[Path, int] = {}

    def flip(self) -> bool:
        return bool(self.draw(st.booleans()))

    def put(self, text: str) -> None:
        self.text += text

    def here(self, path: Path) -> None:
        self.lines.setdefault(path, self.text.count("\n") + 1)

    def noise(self) -> None:
        self.put(self.draw(st.sampled_from(["", "\n", "# [x] = \"'\n", "  \t# '''\r\n", "\n\n"])))

    def key(self, name: str) -> None:
        bare = name.isascii() and name.replace("-", "a").replace("_", "a").isalnum()
        quoted = json.dumps(name, ensure_ascii=False)
        literal = f"'{name}'" if "'" not in name else quoted
        self.put(name if bare and self.flip() else self.draw(st.sampled_from([quoted, literal])))

    def assign(self, table: Path, name: str, value: Any) -> None:
        self.here((*table, name))
        path = (*table, name)
        self.key(name)
        # A table with one key may be written as a dotted key.
        while isinstance(value, dict) and len(value) == 1 and self.flip():
            ((inner, value),) = value.items()
            self.put(" . ")
            path = (*path, inner)
            self.here(path)
            self.key(inner)
        self.put(" = ")
        self.value(path, value)

    def value(self, path: Path, value: Any) -> None:
        if isinstance(value, dict):
            self.put("{ ")
            for place, (name, item) in enumerate(value.items()):
                self.put(", " if place else "")
                self.assign(path, name, item)
            self.put(" }")
        elif isinstance(value, list):
            self.put("[")
            for index, item in enumerate(value):
                self.noise()
                self.here((*path, index))
                self.value((*path, index), item)
                self.put(",")
            self.noise()
            self.put("]")
        elif isinstance(value, str) and self.flip():
            body = json.dumps(value, ensure_ascii=False)[1:-1]
            self.put(f'"""\n{body}\\\n  """')
        else:
            self.put(json.dumps(value, ensure_ascii=False))

    def statements(self, table: Path, values: dict[str, Any]) -> None:
        for name, value in values.items():
            self.noise()
            self.assign(table, name, value)
            self.put(" # [no]\n" if self.flip() else "\n")

    def header(self, path: Path, names: list[str], *, array: bool) -> None:
        self.noise()
        for length in range(1, len(path) + (0 if array else 1)):
            self.here(path[:length])
        self.here(path)
        self.put("[[" if array else "[ ")
        for place, name in enumerate(names):
            self.put("." if place else "")
            self.key(name)
        self.put("]]\n" if array else " ]\n")


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_every_path_is_on_the_line_where_it_was_written(data: st.DataObject) -> None:
    writer = Writer(data.draw)
    tables = st.dictionaries(KEYS, VALUES, max_size=3)
    expected: dict[str, Any] = data.draw(tables)
    writer.statements((), expected)
    rest = data.draw(st.dictionaries(KEYS, st.lists(tables, max_size=3), max_size=3))
    for name, elements in rest.items():
        if name in expected:
            continue
        if not elements:
            expected[name] = {"deep": {"k": 1}}
            writer.header((name, "deep"), [name, "deep"], array=False)
            writer.statements((name, "deep"), {"k": 1})
            continue
        expected[name] = []
        for index, element in enumerate(elements):
            writer.header((name, index), [name], array=True)
            writer.statements((name, index), element)
            expected[name].append(dict(element))
            if "sub" not in element:
                writer.header((name, index, "sub"), [name, "sub"], array=False)
                writer.statements((name, index, "sub"), {"x": True})
                expected[name][-1]["sub"] = {"x": True}
    assert tomllib.loads(writer.text) == expected
    line_of = locate(writer.text)
    assert {path: line_of(path) for path in writer.lines} == writer.lines


@settings(deadline=None, max_examples=200)
@given(st.text(st.sampled_from("[]{}=.,'\"\\ab1#\n "), max_size=40))
def test_any_text_ends(text: str) -> None:
    assert locate(text)(("a", 0)) >= 1


EXAMPLE = '''\
name = "x"

[pins."0.29.0"]
wheel = { file = "a.whl",
  size = 1 } # not TOML 1.0, but places are found
text = """
two
lines"""
after = 3.5

[[knob]]
name = "A"
[[knob]]
name = "B"
[knob.deep]
list = [
  1979-05-27T07:32:00.5Z,
  [ 1,
    2 ],
]
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 1),
        (("pins",), 3),
        (("pins", "0.29.0"), 3),
        (("pins", "0.29.0", "wheel"), 4),
        (("pins", "0.29.0", "wheel", "size"), 5),
        (("pins", "0.29.0", "after"), 9),
        (("knob",), 11),
        (("knob", 0, "name"), 12),
        (("knob", 1), 13),
        (("knob", 1, "name"), 14),
        (("knob", 1, "deep"), 15),
        (("knob", 1, "deep", "list", 0), 17),
        (("knob", 1, "deep", "list", 1, 1), 19),
        # Not there: the longest part that is.
        (("knob", 0, "default"), 11),
        (("pins", "0.29.0", "lock"), 3),
        (("nothing", "at", "all"), 1),
        ((), 1),
    ],
)
def test_an_example(path: Path, line: int) -> None:
    assert locate(EXAMPLE)(path) == line
