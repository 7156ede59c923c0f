#!/bin/sh
# Runs python_client.py against a service of its own.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/python_client.py "${KILN_BUILD:-build}"
