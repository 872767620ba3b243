"""Runs a graph: looks each key up, runs what is missing, keeps what came of it."""
