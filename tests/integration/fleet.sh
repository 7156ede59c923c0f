#!/bin/sh
# Two services as one fleet: single flight, take-over, quarantine.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/fleet.py "${KILN_BUILD:-build}"
