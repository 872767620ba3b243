#!/bin/sh
# Makes a virtual environment for hq:  make-environment.sh ENVIRONMENT REQUIREMENTS...
# Packages come from the user's own pip configuration; each is pinned with its hash, and no index is
# named here. The environment counts only when its file "ready" is there, newer than the requirements.
set -eu
environment=$1
shift

fail() {
    printf 'error: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '  %s\n' "$line" >&2; done
    exit 3
}

find_python() {
    for candidate in "${HQ_PYTHON:-}" python3.13 python3.12 python3.11 python3.14 python3 python; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

python=$(find_python) || fail "hq needs Python 3.11 or newer, and none was found on PATH" \
    "help: install one, or name it: HQ_PYTHON=/path/to/python3.12 ./hq ..."

mkdir -p "$(dirname "$environment")"
# Two first runs at once: the second waits and finds the work done.
if command -v flock >/dev/null 2>&1; then
    exec 9>"$environment.lock"
    flock 9
    stale=no
    for file in "$@"; do [ "$environment/ready" -nt "$file" ] || stale=yes; done
    [ "$stale" = yes ] || exit 0
fi

printf 'hq: making its environment in %s (once)\n' "$environment" >&2
rm -f "$environment/ready"
# The positional parameters are the one list of a shell that keeps blanks in its elements: first the
# requirements' files, then the options of pip before them, then the command before those.
for file in "$@"; do
    set -- "$@" --requirement "$file"
    shift
done
set -- --quiet --disable-pip-version-check --no-input --require-hashes --only-binary :all: "$@"
if "$python" -m venv --clear "$environment" >"$environment.log" 2>&1; then
    set -- "$environment/bin/python" -m pip install "$@"
elif "$python" -m venv --clear --without-pip "$environment" >>"$environment.log" 2>&1; then
    # Debian keeps ensurepip in a package of its own; a pip outside can still install into it.
    set -- "$python" -m pip --python "$environment/bin/python" install "$@"
else
    fail "$python cannot make a virtual environment" "see: $environment.log" \
        "help: install its venv module (Debian: apt install python3-venv)"
fi
"$@" >>"$environment.log" 2>&1 || {
    tail -n 15 "$environment.log" >&2
    fail "hq's own packages could not be installed" \
        "help: pip must reach a package index; see 'pip config list' and $environment.log"
}
touch "$environment/ready"
rm -f "$environment.log"
