#!/bin/sh
# Which operators run on the tensor units of two GPUs and why the others do not: `make tensor-units` prints it all and emulates every kernel, here
# every seventh, so that all dtypes and both devices are among them.
cd "$(dirname "$0")/../.." || exit 2
out=$("${KILN_BIN:-build}/tensor-units" tests/golden/tensor_units.csv 7)
status=$?
[ $status = 0 ] || printf '%s\n' "$out"
printf '# %s\n' "$(printf '%s\n' "$out" | tail -n 1)"
exit $status
