#!/bin/bash
# Builds every libFuzzer target with ASan and UBSan and runs each for the given seconds; a finding fails and keeps its input.
# usage: tests/fuzz/smoke.sh SECONDS [target...]
set -u
cd "$(dirname "$0")/../.."
seconds=${1:-60}
shift
build=${KILN_BUILD:-build}
clang=$(command -v clang || ls /usr/bin/clang-[0-9]* 2>/dev/null | tail -n 1)
[ -n "$clang" ] || { echo "clang is not installed"; exit 77; }
libs=$(make -s CC="$clang" B="$build/fuzz" SAN=fuzzer-no-link,address,undefined CFLAGS="-O1 -g" fuzz-lib) || exit 1
libs=$(echo "$libs" | tail -n 1) # what the Makefile links with
lib="$(ls "$build"/fuzz/obj-*/libkilnd.a) $(ls "$build"/fuzz/obj-*/libkiln.a)"
failed=0
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    [ $# -gt 0 ] && ! printf '%s\n' "$@" | grep -qx "$name" && continue
    # shellcheck disable=SC2086
    "$clang" -std=c11 -O1 -g -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -Icompiler -I. "$source" $lib \
        $libs -o "$build/fuzz/$name" || { failed=1; continue; }
    corpus=$build/fuzz/corpus-$name seeds=tests/fuzz/corpus/$name
    mkdir -p "$corpus" "$build/fuzz/findings"
    [ -d "$seeds" ] || seeds=
    # shellcheck disable=SC2086
    if "$build/fuzz/$name" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=2048 -max_len=8192 \
        -artifact_prefix="$build/fuzz/findings/$name-" "$corpus" $seeds >"$build/fuzz/$name.log" 2>&1; then
        echo "$name: $(grep -oE 'Done [0-9]+ runs' "$build/fuzz/$name.log" | tail -n 1), clean"
    else
        echo "$name: FOUND"
        tail -n 30 "$build/fuzz/$name.log"
        failed=1
    fi
done
exit $failed
