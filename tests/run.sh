#!/bin/bash
# Runs every test: lints, unit tests (cmocka), integration scripts against real servers on private ports, short fuzz runs.
# usage: tests/run.sh BUILD BIN [unit|all]. Ends with one line "N passed, N failed"; exit status 0 only when nothing failed.
set -u
cd "$(dirname "$0")/.."
build=$1 bin=$2 what=${3:-all}
passed=0 failed=0 skipped=0
work=$(mktemp -d "${TMPDIR:-/tmp}/kiln-check.XXXXXX")
chmod 755 "$work"
servers=()
stop() {
    for p in "${servers[@]:-}"; do [ -n "$p" ] && kill "$p" 2>/dev/null; done
    for p in "${servers[@]:-}"; do [ -n "$p" ] && wait "$p" 2>/dev/null; done
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM

one() { # name, command...: one test by exit status (77 = skipped)
    local name=$1 start=$SECONDS
    shift
    timeout -k 5 "${LIMIT:-600}" "$@" >"$work/log" 2>&1
    local rc=$?
    case $rc in
    0) passed=$((passed + 1)); echo "ok   $name ($((SECONDS - start)) s)$(grep -m1 '^# ' "$work/log" | cut -c1-120)" ;;
    77) skipped=$((skipped + 1)); echo "skip $name: $(tail -n 1 "$work/log")" ;;
    *) failed=$((failed + 1)); echo "FAIL $name (status $rc)"; tail -n 40 "$work/log" | sed 's/^/    /' ;;
    esac
}

cmocka() { # a unit test binary: its own counts
    local name=${1##*/} start=$SECONDS
    timeout -k 5 "${LIMIT:-300}" "$1" >"$work/log" 2>&1
    local rc=$? good bad skip
    good=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test(s).*/\1/p' "$work/log" | awk '{n += $1} END {print n + 0}')
    bad=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test(s).*/\1/p' "$work/log" | awk '{n += $1} END {print n + 0}')
    skip=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test(s).*/\1/p' "$work/log" | awk '{n += $1} END {print n + 0}')
    [ $rc -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + skip))
    if [ "$bad" -eq 0 ]; then
        echo "ok   $name: $good tests ($((SECONDS - start)) s)"
    else
        echo "FAIL $name: $bad failed, status $rc"
        grep -vE '^\[ (RUN  |     OK)' "$work/log" | tail -n 60 | sed 's/^/    /'
    fi
}

port() { python3 tests/free_port.py; }

start_redis() {
    local p
    p=$(port)
    mkdir "$work/redis"
    redis-server --bind 127.0.0.1 --port "$p" --save '' --appendonly no --dir "$work/redis" >"$work/redis.log" 2>&1 &
    servers+=($!)
    for _ in $(seq 50); do redis-cli -p "$p" ping >/dev/null 2>&1 && break; sleep 0.1; done
    export KILN_TEST_REDIS=redis://127.0.0.1:$p
}

as_user() { # PostgreSQL refuses to run as root
    if [ "$(id -u)" = 0 ]; then setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME="$work/pg" "$@"; else "$@"; fi
}

start_postgres() {
    local bins p
    bins=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
    p=$(port)
    mkdir "$work/pg"
    [ "$(id -u)" = 0 ] && chown nobody:nogroup "$work/pg"
    as_user "$bins/initdb" -D "$work/pg/data" -U kiln -A trust --no-sync >"$work/pg.log" 2>&1 || return
    as_user "$bins/postgres" -D "$work/pg/data" -p "$p" -c listen_addresses=127.0.0.1 -c unix_socket_directories="$work/pg" \
        -c fsync=off -c shared_buffers=32MB >>"$work/pg.log" 2>&1 &
    servers+=($!)
    for _ in $(seq 100); do "$bins/pg_isready" -q -h 127.0.0.1 -p "$p" && break; sleep 0.1; done
    export KILN_TEST_PG=postgresql://kiln@127.0.0.1:$p/postgres
}

if [ "$what" = all ]; then
    start_redis
    start_postgres
    [ -n "${KILN_TEST_REDIS:-}" ] && redis-cli -u "$KILN_TEST_REDIS" ping >/dev/null 2>&1 || { echo "FAIL redis did not start"; failed=$((failed + 1)); }
    [ -n "${KILN_TEST_PG:-}" ] || { echo "FAIL postgres did not start"; tail -n 5 "$work/pg.log"; failed=$((failed + 1)); }
    for l in layers rows style; do one "lint $l" tests/lint/$l.sh; done
    one "lint pure" tests/lint/pure.sh "$build/libkiln.a"
fi
export KILN_BUILD=$build KILN_BIN=$bin
[ -n "${KILN_NVRTC:-}" ] || export KILN_NVRTC=$(ls "$PWD/$build"/nvrtc/nvidia/*/lib/libnvrtc.so.* 2>/dev/null | head -n 1)
for t in "$bin"/tests/test_*; do
    case $t in *.d | *.o) ;; *) [ -x "$t" ] && [ -f "tests/unit/${t##*/}.c" ] && cmocka "$t" ;; esac
done
if [ "$what" = all ]; then
    for t in tests/integration/*.sh; do [ -x "$t" ] && one "${t#tests/}" "$t"; done
    [ -x tests/fuzz/smoke.sh ] && one "fuzz (short)" tests/fuzz/smoke.sh 4
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
