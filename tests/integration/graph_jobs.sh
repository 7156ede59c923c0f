#!/bin/sh
# The jobs of models on the embedded database and, where there is a server for tests (KILN_TEST_PG), on PostgreSQL.
cd "$(dirname "$0")/../.." || exit 2
python3 tests/integration/graph_jobs.py "${KILN_BUILD:-build}" || exit 1
[ -n "${KILN_TEST_PG:-}" ] || exit 0
KILN_API_POSTGRES="${KILN_TEST_PG%/*}/" python3 tests/integration/graph_jobs.py "${KILN_BUILD:-build}"
