"""What can go wrong, as types that know where, what was expected, and what to do next.

Four kinds, by who can mend it (docs/reference/errors.md):

==========================  =========  ======================================================
type                        exit code  meaning
==========================  =========  ======================================================
``UsageError``              2          the command line or a file the user writes is wrong
``BuildError``              1          an input is bad, or a check failed: the build is refused
``InfrastructureError``     3          disk, network or registry; a retry may help
any other exception         70         a bug in hq
==========================  =========  ======================================================

An error is raised near the fault with what is known there; layers above add the node with
``in_node`` while it unwinds. ``render`` gives the text a user sees; tests assert it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Location(NamedTuple):
    """A place in a file. ``line`` counts from 1; 0 when the whole file is meant."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class HqError(Exception):
    """A failure with an explanation. Use one of the subclasses.

    ``message``: one line, lower case, no full stop: what happened.
    ``where``: the file and line at fault.
    ``node``: the graph node, filled in on the way up.
    ``details``: further lines, shown indented (for example expected and found side by side).
    ``hint``: what to do next, a sentence in the imperative.
    """

    exit_code = 70

    def __init__(
        self,
        message: str,
        *,
        where: Location | None = None,
        node: str = "",
        details: Sequence[str] = (),
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.node = node
        self.details = tuple(details)
        self.hint = hint

    def in_node(self, node: str) -> HqError:
        """Names the node at fault, unless an inner layer already did. Returns the error itself."""
        self.node = self.node or node
        return self

    def render(self) -> str:
        """The error as lines of text, without a final newline."""
        lines = [f"error: {self.message}"]
        if self.where is not None:
            lines.append(f"  at: {self.where}")
        if self.node:
            lines.append(f"  node: {self.node}")
        lines += [f"  {line}".rstrip() for line in self.details]
        if self.hint:
            lines.append(f"  help: {self.hint}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()


class UsageError(HqError):
    """The command line, or a file that the user writes, is wrong."""

    exit_code = 2


class BuildError(HqError):
    """An input is bad, or a check failed."""

    exit_code = 1


class InfrastructureError(HqError):
    """The disk, the network or a service failed. A retry may help."""

    exit_code = 3


class Problem(NamedTuple):
    """One mistake of several that are reported together."""

    where: Location
    message: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}"
        return f"{text} ({self.hint})" if self.hint else text


def problems_error(
    summary: str, problems: Sequence[Problem], *, kind: type[HqError] = UsageError, hint: str = ""
) -> HqError:
    """One error for all of ``problems``, in the order of their places."""
    ordered = sorted(problems)
    return kind(summary, details=[str(problem) for problem in ordered], hint=hint)
