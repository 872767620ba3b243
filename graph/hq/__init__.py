"""hq: a declarative, content-addressed build system for images of a patched wheel."""

__version__ = "0.1.0"
