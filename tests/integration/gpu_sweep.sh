#!/bin/sh
# A few operators and families through the emulator, and the assembler where there is one. `make gpu-sweep` takes all.
cd "$(dirname "$0")/../.." || exit 2
out=$("${KILN_BIN:-build}/gpu-sweep" -s tests/data/roller_ops.csv)
status=$?
[ $status = 0 ] || printf "%s\n" "$out"
printf '# %s\n' "$(printf '%s\n' "$out" | grep -m1 '^families')"
exit $status
