#!/bin/bash
# GET of an artifact and of a kernel from memory against nginx serving the same bytes as files: requests a second, interleaved, medians of rounds.
# usage: blob.sh BUILD [SECONDS] [ROUNDS] [CONNECTIONS...]; status 1 when a ratio is under 0.9, 77 without nginx.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build} seconds=${2:-1} rounds=${3:-3}
shift $(($# < 3 ? $# : 3))
connections=${*:-1 16 128}
nginx=$(command -v nginx || ls /usr/sbin/nginx 2>/dev/null) || { echo "no nginx"; exit 77; }
work=$(mktemp -d)
chmod 755 "$work"
port() { python3 tests/free_port.py; }
p=$(port) q=$(port) url=http://127.0.0.1:$p
"${KILND:-$build/kilnd}" --listen "127.0.0.1:$p" --data "$work/data" --hwspecs hwspecs 2>"$work/log" &
daemon=$!
front=
trap 'kill $daemon $front 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 100); do curl -fsS -m 2 "$url/readyz" >/dev/null 2>&1 && break; sleep 0.1; done
curl -fsS -m 60 "$url/v1/compile" -H 'Content-Type: application/json' >"$work/answer" \
    -d '{"op":"MatMul","inputs":[{"name":"a","dtype":"f32","shape":[64,64]},{"name":"b","dtype":"f32","shape":[64,64]}],"target":"host"}'
mkdir "$work/www"
blob=$(python3 -c 'import json, sys; print(next(x["href"] for x in json.load(open(sys.argv[1]))["artifacts"] if x["kind"] == "source"))' "$work/answer")
kernel=/v1/kernels/$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["key"])' "$work/answer")
for path in "$blob" "$kernel"; do mkdir -p "$work/www$(dirname "$path")"; curl -fsS "$url$path" -o "$work/www$path"; done
cat >"$work/nginx.conf" <<N
daemon off; master_process off; worker_processes 1; pid $work/nginx.pid; error_log $work/nginx.log;
events { worker_connections 1024; }
http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; open_file_cache max=1000; default_type application/octet-stream;
  client_body_temp_path $work/t1; proxy_temp_path $work/t2; fastcgi_temp_path $work/t3; uwsgi_temp_path $work/t4; scgi_temp_path $work/t5;
  server { listen 127.0.0.1:$q; root $work/www; } }
N
"$nginx" -c "$work/nginx.conf" -p "$work" 2>>"$work/nginx.log" &
front=$!
for _ in $(seq 50); do curl -fsS -o /dev/null "http://127.0.0.1:$q$blob" 2>/dev/null && break; sleep 0.1; done
ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }
rate() { wrk -t1 -c"$1" -d"${seconds}s" --latency "$2" | awk '/99%/ {p = $2} /Requests\/sec/ {r = $2} /Non-2xx/ {r = 0} END {print r, p}'; }
median() { sort -n "$1" | awk '{v[NR] = $1; t[NR] = $2} END {k = int((NR + 1) / 2); print v[k], t[k]}'; }
worst=0
for path in "$blob" "$kernel"; do
    for c in $connections; do
        rm -f "$work/kiln" "$work/nginx"
        k0=$(ticks $daemon) n0=$(ticks $front)
        for _ in $(seq "$rounds"); do
            rate "$c" "$url$path" >>"$work/kiln"
            rate "$c" "http://127.0.0.1:$q$path" >>"$work/nginx"
        done
        cpu=$(awk -v s="$seconds" -v k=$(($(ticks $daemon) - k0)) -v n=$(($(ticks $front) - n0)) 'FNR == NR {a += $1 * s; next} {b += $1 * s}
            END {printf "%.1f us against %.1f", k * 1e4 / (a + 1), n * 1e4 / (b + 1)}' "$work/kiln" "$work/nginx")
        # shellcheck disable=SC2046
        set -- $(median "$work/kiln") $(median "$work/nginx")
        awk -v k="$1" -v kp="$2" -v n="$3" -v np="$4" -v c="$c" -v b="$(wc -c <"$work/www$path")" -v what="${path:0:12}" -v cpu="$cpu" 'BEGIN {
            printf "%s.. %d bytes, %d connections: kiln %.0f/s (p99 %s), nginx %.0f/s (p99 %s), ratio %.2f; processor a request %s\n", what, b, c, k, kp, n, np, k / n, cpu; exit k < 0.9 * n }' || worst=1
    done
done
exit $worst
