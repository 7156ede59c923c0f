#!/bin/sh
# A compiler that tries the file system, the network, a fork bomb and 20 GB; see hostile_compiler.py.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/hostile_compiler.py "${KILN_BUILD:-build}"
