#!/bin/sh
# A full disk under SQLite and under PostgreSQL; see full_store.py.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/full_store.py "${KILN_BUILD:-build}"
