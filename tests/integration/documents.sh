#!/bin/sh
# A newcomer's first hour: what the documents tell to type does what they say; see documents.py.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/documents.py "${KILN_BUILD:-build}"
