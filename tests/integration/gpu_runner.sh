#!/bin/sh
# The GPU runner against the mock driver.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/gpu_runner.py "${KILN_BUILD:-build}/kiln-gpu-run" "${KILN_BIN:-build}/tests/libcuda_mock.so"
