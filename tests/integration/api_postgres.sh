#!/bin/sh
# The API's tests once more with PostgreSQL as the store: keys, grants, jobs, events, bundles in a database of their own each.
cd "$(dirname "$0")/../.." || exit 2
[ -n "${KILN_TEST_PG:-}" ] || { echo "no test server (KILN_TEST_PG)"; exit 77; }
export KILN_API_POSTGRES="${KILN_TEST_PG%/*}/"
for t in api_auth api_events api_more; do python3 "tests/integration/$t.py" "${KILN_BUILD:-build}" || { echo "$t failed"; exit 1; }; done
