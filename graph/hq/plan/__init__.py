"""The graph: nodes as data, keys, reasons. Decides what a build is; runs nothing."""
