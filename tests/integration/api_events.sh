#!/bin/sh
# Runs api_events.py against a service of $KILN_BUILD.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/api_events.py "${KILN_BUILD:-build}"
