#!/bin/sh
# Tables against files: every row has its file and every file its row.
cd "$(dirname "$0")/../.." || exit 2
failed=0
# table, prefix of the files, suffix
check() {
    [ -e "$1" ] || return 0
    rows=$(grep -oE '^X\([A-Za-z0-9_]+' "$1" | sed 's/^X(//' | tr 'A-Z' 'a-z' | sort -u)
    files=$(ls "$2"*.c 2>/dev/null | sed "s|^$2||; s|_posix\.c$||; s|\.c$||" | sort -u)
    for r in $rows; do printf '%s\n' "$files" | grep -qx "$r" || { echo "rows: $1 has row $r but there is no $2$r.c"; failed=1; }; done
    for f in $files; do printf '%s\n' "$rows" | grep -qx "$f" || { echo "rows: $2$f.c has no row in $1"; failed=1; }; done
}
check compiler/ops/ops.def compiler/ops/op_
check compiler/schedule/prims.def compiler/schedule/prim_
check compiler/codegen/languages.def compiler/codegen/gen_
check compiler/construct/policies.def compiler/construct/policy_
check cache/tiers.def cache/tier_
exit $failed
