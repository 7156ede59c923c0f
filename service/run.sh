#!/bin/sh
# `make run`: starts the service on its embedded defaults and shows a request that compiles. Ends with the service (Ctrl-C).
set -eu
build=${1:-build}
address=${KILN_LISTEN:-127.0.0.1:8787}
url=http://$address
body='{"op":"MatMul","inputs":[{"name":"a","dtype":"f32","shape":[512,512]},{"name":"b","dtype":"f32","shape":[512,512]}],"target":"host"}'
if curl -fsS -m 2 "$url/livez" >/dev/null 2>&1; then
    echo "kiln: a service already answers at $url"
    started=
else
    "$build/kilnd" --listen "$address" --data "${KILN_DATA:-$build/data}" --hwspecs hwspecs &
    started=$!
    trap 'kill "$started" 2>/dev/null; wait "$started" 2>/dev/null; exit 0' INT TERM
    tries=0
    until curl -fsS -m 2 "$url/readyz" >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -gt 100 ] || ! kill -0 "$started" 2>/dev/null; then
            echo "kiln: the service did not become ready at $url" >&2
            exit 1
        fi
        sleep 0.1
    done
fi
cat <<TEXT

Kiln answers at $url. A kernel for this machine:

  curl -sS $url/compile -H 'Content-Type: application/json' -d '$body'

The same as C source, and CUDA source for a GPU that is not here:

  curl -sS '$url/compile?target=host&a=f32:512x512&b=f32:512x512' -H 'Content-Type: text/plain' -H 'Accept: text/x-c' \\
       --data-binary 'c[M,N] +=! a[M,K] * b[K,N]'
  curl -sS '$url/compile?target=nvidia-h200&a=f32:512x512&b=f32:512x512' -H 'Content-Type: text/plain' -H 'Accept: text/x-cuda' \\
       --data-binary 'c[M,N] +=! a[M,K] * b[K,N]'

TEXT
[ -z "$started" ] || wait "$started"
