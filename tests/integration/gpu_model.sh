#!/bin/sh
# The micro performance model against ROLLER's measured V100 kernels (OSDI'22). `make gpu-model` says more.
cd "$(dirname "$0")/../.." || exit 2
out=$("${KILN_BIN:-build}/gpu-model" tests/data/roller_ops.csv)
status=$?
[ $status = 0 ] || printf "%s\n" "$out"
printf '# %s\n' "$(printf '%s\n' "$out" | grep -m1 '^policy default')"
exit $status
