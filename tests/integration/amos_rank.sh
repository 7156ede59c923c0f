#!/bin/sh
# A model learned from some layers of AMOS's A100 logs (ISCA'22) ranks the schedules of the others. `make amos-rank` says more.
cd "$(dirname "$0")/../.." || exit 2
out=$("${KILN_BIN:-build}/amos-rank" tests/data/amos_a100_conv2d_records.csv tests/data/amos_a100_conv2d_records.csv)
status=$?
printf '# %s\n' "$(printf '%s\n' "$out" | tail -n 1)"
exit $status
