#!/bin/sh
# Addresses in use: waited for if they become free at once, as those of a service just killed do, and named in the error if not.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/taken.py "${KILN_BUILD:-build}"
