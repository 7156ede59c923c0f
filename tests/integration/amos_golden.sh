#!/bin/sh
# The mappings of AMOS (ISCA'22): published counts and the sets in its logs. `make amos-golden` says more.
cd "$(dirname "$0")/../.." || exit 2
out=$("${KILN_BIN:-build}/amos-golden" tests/data/amos_mapping_counts.csv tests/data/amos_a100_conv2d_mappings.csv) && {
    printf '# %s\n' "$(printf '%s\n' "$out" | tail -n 1)"
    exit 0
}
printf '%s\n' "$out"
exit 1
