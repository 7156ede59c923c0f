#!/bin/sh
# Runs load.py against the service of $KILN_BUILD.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/load.py "${KILN_BUILD:-build}"
