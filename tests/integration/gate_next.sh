#!/bin/sh
# Runs gate_next.py against a service of its own.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/gate_next.py "${KILN_BUILD:-build}"
