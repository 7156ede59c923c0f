#!/bin/sh
# Runs api_hostile.py against the service of $KILN_BUILD.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/api_hostile.py "${KILN_BUILD:-build}"
