#!/bin/sh
# The fleet on a bad day once more, each process in a network namespace of its own, in short; `make chaos NETNS=1` does it for long.
cd "$(dirname "$0")/../.." || exit 2
NETNS=1 exec python3 load-tests/chaos/chaos.py "${KILN_BUILD:-build}" "${1:-8}" "${2:-5}" 3 4 200
