#!/bin/bash
# The steps of the Dockerfile without a container engine: what it copies exists, what it runs is there, the runtime packages hold every
# library that the binaries need, and the entry point with its arguments serves from the copied layout.
set -eu
cd "$(dirname "$0")/../.."
build=$(realpath "${KILN_BUILD:-build}")
root=$(mktemp -d)
trap 'kill ${daemon:-} 2>/dev/null || true; wait ${daemon:-} 2>/dev/null || true; rm -rf "$root"' EXIT
mkdir -p "$root/usr/local/bin" "$root/usr/share/kiln" "$root/var/lib/kiln"
# COPY --from=build /src/PATH... DESTINATION
grep '^COPY --from=build' Dockerfile | while read -r _ _ rest; do
    set -- $rest
    for last in "$@"; do :; done
    for f in "$@"; do
        [ "$f" = "$last" ] && continue
        from=${f#/src/}
        from=${from/#build\//$build/}
        case $from in */nvrtc) [ -e "$from" ] || continue ;; esac
        [ -e "$from" ] || { echo "Dockerfile copies $f, which the build does not make"; exit 1; }
        to=$root$last
        case $last in */) mkdir -p "$to" ;; *) mkdir -p "$(dirname "$to")" ;; esac
        cp -r "$from" "$to"
    done
done
packages=$(sed -n '/^FROM debian:bookworm-slim$/,$p' Dockerfile | tr -d '\\' | tr '\n' ' ' | sed 's/.*--no-install-recommends//; s/&&.*//')
for b in kilnd kiln-worker kiln; do
    for so in $(objdump -p "$root/usr/local/bin/$b" | awk '$1 == "NEEDED" {print $2}'); do
        path=$(ldconfig -p | awk -v so="$so" '$1 == so && /x86-64/ {print $NF; exit}')
        owner=$(dpkg -S "$(realpath "$path")" 2>/dev/null | head -n 1 | cut -d: -f1)
        case " $packages libc6 libgcc-s1 " in *" $owner "*) ;; *) echo "$b needs $so of $owner, which the runtime stage does not install"; exit 1 ;; esac
    done
done
port=$(python3 tests/free_port.py)
"$root/usr/local/bin/kilnd" --hwspecs "$root/usr/share/kiln/hwspecs" --data "$root/var/lib/kiln" --listen "127.0.0.1:$port" 2>"$root/log" &
daemon=$!
for _ in $(seq 100); do curl -fsS -m 2 "http://127.0.0.1:$port/readyz" >/dev/null 2>&1 && break; sleep 0.1; done
curl -fsS "http://127.0.0.1:$port/v1/compile?target=host&x=f32:1000" -H 'Content-Type: text/plain' -H 'Accept: text/x-c' --data-binary 'y[A] = max(x[A], 0.0)' | grep -c kiln_abi_version >/dev/null
python3 - <<'PY'
import re
text = open("docker-compose.yml").read()
for service in ("kilnd", "redis", "postgres"):
    assert re.search(rf"^  {service}:$", text, re.M), service
assert "\t" not in text and "127.0.0.1:8787:8787" in text
PY
kill $daemon
wait $daemon
daemon=
echo "the Dockerfile's steps work"
