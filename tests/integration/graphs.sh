#!/bin/sh
# Runs graphs.py against a service of its own.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/graphs.py "${KILN_BUILD:-build}"
