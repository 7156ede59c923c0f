#!/bin/bash
# Requests a second of a memory hit against a bare libmicrohttpd responder with the same body, interleaved in one run; prints the ratio.
# usage: hit.sh BUILD [SECONDS]; status 1 when the ratio is under 0.6.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build} seconds=${2:-3}
work=$(mktemp -d)
port() { python3 tests/free_port.py; }
gcc -std=c11 -O2 -o "$work/bare" load-tests/service/bare.c $(pkg-config --cflags --libs libmicrohttpd)
p=$(port) url=http://127.0.0.1:$p
"${KILND:-$build/kilnd}" --listen "127.0.0.1:$p" --data "$work/data" --hwspecs hwspecs 2>"$work/log" &
daemon=$!
mkfifo "$work/in"
bare=
trap 'kill $daemon $bare 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 100); do curl -fsS -m 2 "$url/readyz" >/dev/null 2>&1 && break; sleep 0.1; done
body='{"op":"MatMul","inputs":[{"name":"a","dtype":"f32","shape":[512,512]},{"name":"b","dtype":"f32","shape":[512,512]}],"target":"host"}'
for _ in 1 2; do curl -fsS -m 60 "$url/v1/compile" -H 'Content-Type: application/json' -d "$body" >"$work/answer"; done
q=$(port)
"$work/bare" "$q" "$work/answer" <"$work/in" &
bare=$!
exec 9>"$work/in"
printf 'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\nwrk.body = [==[%s]==]\n' "$body" >"$work/post.lua"
rate() { wrk -t1 -c16 -d"${seconds}s" -s "$work/post.lua" "$1" | awk '/Requests\/sec/ {print $2} /Non-2xx/ {print "0"; exit}'; }
sleep 0.3
for i in 1 2 3; do
    rate "$url/v1/compile" >>"$work/kiln"
    rate "http://127.0.0.1:$q/v1/compile" >>"$work/plain"
done
median() { sort -n "$1" | sed -n 2p; }
awk -v k="$(median "$work/kiln")" -v b="$(median "$work/plain")" -v n="$(wc -c <"$work/answer")" 'BEGIN {
    printf "hit: %.0f requests/s, bare: %.0f requests/s, ratio %.2f, body %d bytes, 16 connections\n", k, b, k / b, n; exit k < 0.6 * b }'
