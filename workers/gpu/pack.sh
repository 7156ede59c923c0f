#!/bin/sh
# Packs a bundle: kernels of the requests in a file, the runner, its sources. usage: pack.sh BUILD REQUESTS TARGET CANDIDATES OUT.tar.xz
set -eu
cd "$(dirname "$0")/../.."
build=$1 requests=$2 target=$3 k=$4 out=$5
most=$((16 * 1024 * 1024))
work=$(mktemp -d "${TMPDIR:-/tmp}/kiln-gpu-bundle.XXXXXX")
trap 'rm -rf "$work"' EXIT
dir=$work/gpu-bundle
mkdir "$dir"
"$build/kiln" gpu-bundle "$requests" --target "$target" -k "$k" -o "$dir"
"$build/kiln-gpu-run" "$dir" --list # the runner itself says whether it understands what was written
for f in workers/gpu/*.c workers/gpu/*.h workers/gpu/*.def workers/verify_value.c workers/verify.h workers/workers.h compiler/kiln.h compiler/errors.def \
    compiler/limits.def; do
    case $f in */text.?) continue ;; esac # the side that is not needed there
    mkdir -p "$dir/src/$(dirname "$f")"
    cp "$f" "$dir/src/$f"
done
cp "$build/kiln-gpu-run" workers/gpu/README.md "$dir"
cat >"$dir/run.sh" <<'RUN'
#!/bin/sh
# Measures this bundle on the GPU of this host: ./run.sh [-o results.jsonl] [--budget SECONDS]; README.md says what the options and results are.
cd "$(dirname "$0")" || exit 2
./kiln-gpu-run . --list >/dev/null 2>&1 ||
    cc -O2 -std=c11 -D_GNU_SOURCE -Isrc -Isrc/compiler -o kiln-gpu-run src/workers/gpu/*.c src/workers/verify_value.c -ldl -lm || exit 2
exec ./kiln-gpu-run . "$@"
RUN
chmod +x "$dir/run.sh"
tar -C "$work" --sort=name --owner=0 --group=0 --mtime=@0 -cJf "$out" gpu-bundle
bytes=$(wc -c <"$out")
echo "$out: $bytes bytes"
[ "$bytes" -le "$most" ] || { echo "more than 16 MiB: fewer candidates or requests" >&2; exit 1; }
