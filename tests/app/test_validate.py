"""What a user reads when a TOML file is wrong: the exact text."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, field_validator

from hq.app.validate import MAX_BYTES, Declared, load_document, load_toml
from hq.model.errors import Location, UsageError


class Member(Declared):
    name: Annotated[str, Field(pattern=r"^[a-z]+$")]
    kind: Literal["fix", "feature"] = "fix"
    size: Annotated[int, Field(ge=1, le=10)] = 1


class Pin(Declared):
    wheel: str
    sizes: tuple[int, ...] = ()
    member: Member | None = None


class Root(Declared):
    project: str
    pins: dict[str, Pin] = Field(default_factory=dict)
    members: tuple[Member, ...] = ()
    value: bool | int | str = False
    switch: bool = False
    ratio: float = 0.5

    @field_validator("project")
    @classmethod
    def _known(cls, name: str) -> str:
        if name == "bad":
            raise ValueError("the project may not be called 'bad'")
        return name


ALL_KEYS = "members, pins, project, ratio, switch, value"


def message(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(UsageError) as caught:
        load_toml("build.toml", data, Root)
    return caught.value.render()


def test_a_good_file() -> None:
    root, document = load_document(
        "build.toml",
        b'project = "x"\nratio = 1\nvalue = 3\n[pins."0.29.0"]\nwheel = "w"\nsizes = [1, 2]\n',
        Root,
    )
    assert root.pins["0.29.0"] == Pin(wheel="w", sizes=(1, 2))
    assert (root.value, root.ratio) == (3, 1.0)
    assert document.locator()("pins", "0.29.0", "sizes", 1) == Location("build.toml", 6)


def test_every_mistake_is_reported_at_once() -> None:
    assert (
        message(
            """\
projct = "x"
switch = 1
value = 0.5
ratio = "0.5"

[pins."0.29.0"]
wheels = "w"
sizes = [1, "2"]
member = { name = "A", kind = "fixx", size = 11 }

[[members]]
name = "ok"
[[members]]
size = "3"
[pins]
old = 1
"""
        )
        == """\
error: build.toml has 14 mistakes
  build.toml:1: projct: unknown key (did you mean 'project'?)
  build.toml:1: project: missing
  build.toml:2: switch: expected true or false, found 1
  build.toml:3: value: expected true or false or an integer or a text, found 0.5
  build.toml:4: ratio: expected a number, found "0.5"
  build.toml:6: pins."0.29.0".wheel: missing
  build.toml:7: pins."0.29.0".wheels: unknown key (did you mean 'wheel'?)
  build.toml:8: pins."0.29.0".sizes[1]: expected an integer, found "2"
  build.toml:9: pins."0.29.0".member.kind: expected 'fix' or 'feature', found "fixx" \
(did you mean 'fix'?)
  build.toml:9: pins."0.29.0".member.name: expected a text that matches ^[a-z]+$, found "A"
  build.toml:9: pins."0.29.0".member.size: expected a number of at most 10, found 11
  build.toml:13: members[1].name: missing
  build.toml:14: members[1].size: expected an integer, found "3"
  build.toml:16: pins.old: expected a table, found 1"""
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "project = 'bad'\n",
            "build.toml:1: project: the project may not be called 'bad'",
        ),
        (
            "project = 'x'\nzzz = 1\n",
            f"build.toml:2: zzz: unknown key (known here: {ALL_KEYS})",
        ),
        (
            "project = 1979-05-27\n",
            "build.toml:1: project: expected a text, found a date (quote it)",
        ),
        (
            "project = 1979-05-27T07:32:00Z\n",
            "build.toml:1: project: expected a text, found a date with a time (quote it)",
        ),
        (
            "project = 'x'\nvalue = 07:32:00\n",
            "build.toml:2: value: expected true or false or an integer or a text, found a time "
            "(quote it)",
        ),
        (
            "project = 'x'\nmembers = 1979-05-27\n",
            "build.toml:2: members: expected an array, found a date",
        ),
        (
            "project = 'x'\nzzz = 1979-05-27\n",
            f"build.toml:2: zzz: unknown key (known here: {ALL_KEYS})",
        ),
        ("project = 'x'\nratio = nan", "build.toml:2: ratio: found nan, which no key is"),
        (
            f"project = 'x'\nvalue = {2**63}\n",
            "build.toml:2: value: found an integer of more than 64 bits, which no key is",
        ),
        (
            f"project = 'x'\nvalue = 0x{'f' * 5000}\n",
            "build.toml:2: value: found an integer of more than 64 bits, which no key is",
        ),
        (
            f"project = '{'1' * 5000}'\nvalue = -{'1_' * 5000}1\n",
            "build.toml:2: not valid TOML: a number of more than 4300 digits",
        ),
        (
            f"project = 'x'\n{'a.' * 5000}b = 1\n",
            "build.toml:2: a key of more than 100 parts",
        ),
        (
            f"project = 'x'\n[{'a . ' * 100}'b']\n",
            "build.toml:2: a key of more than 100 parts",
        ),
        (
            f"project = 'x'\n[{'a.' * 99}b]\nc = 1\n",
            f"build.toml:3: {'a.' * 38}a...: nested too deeply",
        ),
        (
            f"project = 'x'\nvalue = {'[' * 101}{']' * 101}\n",
            f"build.toml:2: value{'[0]' * 24}...: nested too deeply",
        ),
        ("project = 'x'\nmembers = {}", "build.toml:2: members: expected an array, found a table"),
        ("project = 'x'\npins = []", "build.toml:2: pins: expected a table, found an array"),
        ("\nproject = x\n", "build.toml:2: not valid TOML: Invalid value (column 11)"),
        (
            "project = 'x'\nproject = 'y'\n",
            "build.toml:2: not valid TOML: Cannot overwrite a value (column 14)",
        ),
        ("a = [1,\n", "build.toml:2: not valid TOML: Invalid value (at the end of the file)"),
        (b"project = 'x'\n# \xff\n", "build.toml:2: not UTF-8: byte 0xff"),
        ("a = " + "[" * 100_000, "build.toml: not valid TOML: nested too deeply"),
        (
            b" " * (MAX_BYTES + 1),
            f"build.toml: the file has {MAX_BYTES + 1} bytes; at most {MAX_BYTES} are read",
        ),
        (
            f"project = {'[' + '1' * 100 + ']'}",
            "build.toml:1: project: expected a text, found an array",
        ),
        (
            f"project = 'x'\nratio = '{'y' * 100}'",
            f'build.toml:2: ratio: expected a number, found "{"y" * 76}...',
        ),
    ],
)
def test_one_mistake(text: str | bytes, expected: str) -> None:
    assert message(text) == f"error: build.toml has one mistake\n  {expected}"


def test_a_date_hides_no_other_mistake() -> None:
    assert message("project = 1\nvalue = 1979-05-27\n[[members]]\nname = 07:32:00\nsize = 0\n") == (
        "error: build.toml has 4 mistakes\n"
        "  build.toml:1: project: expected a text, found 1\n"
        "  build.toml:2: value: expected true or false or an integer or a text, found a date "
        "(quote it)\n"
        "  build.toml:4: members[0].name: expected a text, found a time (quote it)\n"
        "  build.toml:5: members[0].size: expected a number of at least 1, found 0"
    )


def test_many_dots_that_are_no_key() -> None:
    sizes = ", ".join(["1"] * 200)
    text = f"project = '{'a.' * 500}'\npins.x = {{ wheel = \"{'.' * 500}\", sizes = [{sizes}] }}\n"
    text += f"ratio = 0.5 # {'a.' * 500}\n"
    assert load_toml("build.toml", text.encode(), Root).ratio == 0.5


@settings(deadline=None, max_examples=200)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.text(st.sampled_from("[]{}=.,'\"\\ab1#\n \U0001f600"), max_size=40).map(str.encode),
    )
)
def test_hostile_bytes_give_a_message_and_nothing_else(data: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        load_toml("build.toml", data, Root)
    assert caught.value.render().startswith("error: build.toml has ")
