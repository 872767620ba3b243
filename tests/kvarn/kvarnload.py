"""Load the overlay's modules by file, as a package of their own, without vLLM."""

import importlib
import importlib.util
import os
import sys
from types import ModuleType

ROOT = os.path.join(os.path.dirname(__file__), "..", "..", "kvarn")
OPS = os.path.join(ROOT, "files", "vllm", "v1", "attention", "ops", "kvarn")
NAME = "kvarn_ops"
# Every file below the overlay's root is installed; bytecode must not appear there.
sys.dont_write_bytecode = True


def load(module: str) -> ModuleType:
    """``vllm.v1.attention.ops.kvarn.<module>`` from the overlay's files."""
    if NAME not in sys.modules:
        path = os.path.join(OPS, "__init__.py")
        spec = importlib.util.spec_from_file_location(NAME, path, submodule_search_locations=[OPS])
        assert spec is not None and spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules[NAME] = package
        spec.loader.exec_module(package)
    return importlib.import_module(f"{NAME}.{module}")
