#!/bin/sh
# Runs once.py against a service of its own.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/once.py "${KILN_BUILD:-build}"
