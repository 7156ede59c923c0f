#!/bin/sh
# Runs api_more.py against services of $KILN_BUILD.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/api_more.py "${KILN_BUILD:-build}"
