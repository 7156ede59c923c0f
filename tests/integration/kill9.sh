#!/bin/sh
# kill -9 of the service under load; `make kill9` does it 50 times.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/kill9.py "${KILN_BUILD:-build}" "${1:-8}"
