#!/bin/sh
# Quotas of tenants over two services; see fleet_quotas.py.
cd "$(dirname "$0")/../.." || exit 2
[ -n "${KILN_TEST_PG:-}" ] || { echo "no test server (KILN_TEST_PG)"; exit 77; }
export KILN_API_POSTGRES="${KILN_TEST_PG%/*}/"
exec python3 tests/integration/fleet_quotas.py "${KILN_BUILD:-build}"
