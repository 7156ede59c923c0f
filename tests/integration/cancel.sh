#!/bin/sh
# Runs cancel.py against the service of $KILN_BUILD.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/cancel.py "${KILN_BUILD:-build}"
