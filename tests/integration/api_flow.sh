#!/bin/sh
# Runs api_flow.py against the service of $KILN_BUILD.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/api_flow.py "${KILN_BUILD:-build}"
