#!/bin/sh
# Runs large.py against a service of its own.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/large.py "${KILN_BUILD:-build}"
