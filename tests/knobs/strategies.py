"""Knobs as hypothesis makes them: all valid."""

from __future__ import annotations

from hypothesis import strategies as st

from hq.knobs.registry import Knob, problems

PREFIXES = ("KVARN_",)
_TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=12
)
_NAME = st.builds(
    lambda prefix, rest: prefix + rest,
    st.sampled_from(["VLLM_ZZ_", "KVARN_"]),
    st.from_regex(r"[A-Z0-9]{1,6}(_[A-Z0-9]{1,40})?", fullmatch=True),
)
_DEFAULTS = {
    "bool": st.sampled_from(["0", "1"]),
    "int": st.integers(-(10**6), 10**6).map(str),
    "float": st.from_regex(r"-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,4})?(e-?[0-9])?", fullmatch=True),
    "str": _TEXT,
    "path": _TEXT,
}


@st.composite
def _knob(draw: st.DrawFn) -> Knob:
    kind = draw(st.sampled_from(["bool", "int", "float", "str", "choice", "path"]))
    choices: tuple[str, ...] = ()
    if kind == "choice":
        choices = tuple(draw(st.lists(_TEXT, min_size=1, max_size=3, unique=True)))
        default = st.sampled_from(choices)
    else:
        default = _DEFAULTS[kind]
    return Knob(
        name=draw(_NAME),
        type=kind,  # type: ignore[arg-type]
        default=draw(st.none() | default),
        meaning=draw(_TEXT.filter(str.strip)) + " means something " * draw(st.integers(0, 12)),
        owner=draw(st.sampled_from(["patch:one", "patch:two", "overlay:kvarn"])),
        compile_key=draw(st.booleans()),
        choices=choices,
    )


KNOBS = st.lists(_knob(), max_size=6, unique_by=lambda knob: knob.name).filter(
    lambda knobs: not list(problems(knobs, PREFIXES))
)
