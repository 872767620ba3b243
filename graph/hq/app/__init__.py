"""The use cases: read a project's declaration, build it, plan it, explain it."""
