#!/bin/sh
# The fleet on a bad day, in short; `make chaos SECONDS=N SEED=N` does it for long.
cd "$(dirname "$0")/../.." || exit 2
exec python3 load-tests/chaos/chaos.py "${KILN_BUILD:-build}" "${1:-10}" "${2:-7}" "${3:-3}" "${4:-4}" "${5:-200}"
