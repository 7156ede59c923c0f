#!/bin/sh
# Runs packaging.py on $KILN_BUILD.
cd "$(dirname "$0")/../.." || exit 2
command -v dpkg-deb >/dev/null || { echo "no dpkg-deb"; exit 77; }
exec python3 tests/integration/packaging.py "${KILN_BUILD:-build}"
