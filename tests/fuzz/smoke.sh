#!/bin/bash
# Builds every libFuzzer target with ASan and UBSan and runs each for the given seconds, two at a time; a finding fails and keeps its input.
# Up to ten seconds it is the short form: nothing is optimised, since building would take longer than all the running.
# usage: tests/fuzz/smoke.sh SECONDS [target...]
set -u
cd "$(dirname "$0")/../.."
export seconds=${1:-60}
shift
build=${KILN_BUILD:-build}
clang=$(command -v clang || ls /usr/bin/clang-[0-9]* 2>/dev/null | tail -n 1)
[ -n "$clang" ] || { echo "clang is not installed"; exit 77; }
optimised="-O1 -g" place=$build/fuzz
[ "$seconds" -gt 10 ] || optimised="-O0 -gline-tables-only" place=$build/fuzz-short
export clang optimised place build
unset MAKEFLAGS MAKELEVEL # not a part of the make that may have started this
libs=$(make -s -j2 CC="${KILN_FUZZ_CC:-$clang}" B="$place" SAN=fuzzer-no-link,address,undefined CFLAGS="$optimised" fuzz-lib) || exit 1
libs=$(echo "$libs" | tail -n 1) # what the Makefile links with
lib="$(ls "$place"/obj-*/libkilnd.a) $(ls "$place"/obj-*/libkiln.a)"
export libs lib

one() { # target: builds and runs it
    local name=$1 corpus=$build/fuzz/corpus-$1 seeds=tests/fuzz/corpus/$1 bounds="-timeout=5 -rss_limit_mb=2048 -max_len=8192"
    # shellcheck disable=SC2086
    "$clang" -std=c11 $optimised -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -Icompiler -I. "tests/fuzz/$name.c" $lib \
        $libs -o "$place/$name" || return 1
    mkdir -p "$corpus" "$build/fuzz/findings"
    SECONDS=0
    [ -d "$seeds" ] || seeds=
    # shellcheck disable=SC2086
    while ! "$place/$name" -max_total_time=$((seconds - SECONDS)) $bounds -artifact_prefix="$build/fuzz/findings/$name-" "$corpus" $seeds >"$place/$name.log" 2>&1; do
        paused || { echo "$name: FOUND"; tail -n 30 "$place/$name.log"; return 1; }
        [ "$SECONDS" -lt "$seconds" ] || break
    done
    echo "$name: $(grep -oE 'Done [0-9]+ runs|^#[0-9]+' "$place/$name.log" | tail -n 1), clean"
}

paused() { # whether the log ends with a timeout of the clock's alone, as when the machine stood still: the same input, asked again, is in time
    local input
    input=$(grep -oE 'Test unit written to .*-timeout-.*' "$place/$name.log" | sed 's/.* //')
    # shellcheck disable=SC2086
    [ -n "$input" ] && "$place/$name" $bounds "$input" >>"$place/$name.log" 2>&1 && rm "$input"
}
export -f one paused
names=$(for source in tests/fuzz/fuzz_*.c; do basename "$source" .c; done)
[ $# -gt 0 ] && names=$(printf '%s\n' $names | grep -xF "$(printf '%s\n' "$@")")
printf '%s\n' $names | xargs -P 2 -I{} bash -c 'one "$1" || exit 1' _ {}
