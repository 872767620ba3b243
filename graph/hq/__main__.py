"""The entry point, for ``python -m hq``, for the console script and for the wrapper at the root.

The wrapper starts the interpreter without ``site`` (it saves 3 ms), so this file also puts the
package's folder, and later the environment's packages, on the path.
"""

import gc
import sys
import time

_STARTED = time.perf_counter()
# Loading modules makes many objects and no garbage: looking for cycles meanwhile costs 6 ms.
gc.set_threshold(100_000, 20, 20)


def _add_packages() -> None:
    """Puts the environment's packages on the path: all of what ``site`` would do that hq needs."""
    environment = sys.executable.rsplit("/", 2)[0]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    sys.path.append(f"{environment}/lib/{version}/site-packages")


def main() -> int:
    """Runs hq with the process's arguments; returns the exit code."""
    try:
        return _main()
    except KeyboardInterrupt:
        # While modules load: nothing is begun yet.
        sys.stderr.write("interrupted\n")
        return 130


def _main() -> int:
    from hq.app import noop

    answer = noop.replay(sys.argv[1:], _STARTED)
    if answer is not None:
        return noop.emit(answer)
    if sys.flags.no_site:
        _add_packages()
    from hq.cli.main import run

    return run(sys.argv[1:], _STARTED)


if __name__ == "__main__":
    if not __package__:
        sys.path.insert(0, __file__.rsplit("/", 2)[0])
    sys.exit(main())
