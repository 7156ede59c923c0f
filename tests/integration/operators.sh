#!/bin/sh
# A sample of every operator on every path, and of the 119 operators of ROLLER's evaluation. `make operators` runs them all.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/operators.py "${1:-short}"
