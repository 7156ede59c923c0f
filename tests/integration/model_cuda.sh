#!/bin/sh
# Runs model_cuda.py against a service of its own.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/model_cuda.py "${KILN_BUILD:-build}"
