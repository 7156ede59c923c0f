#!/bin/sh
# Runs the ONNX backend node tests; prints what is not supported, by reason, and fails when docs/onnx.md does not have that list.
# usage: onnx_nodes.sh BUILD BIN [-v]. ONNX names a Python with the onnx package; without it one is brought into BUILD/onnx-venv.
set -eu
build=$1 bin=$2
shift 2
python=${ONNX:-}
if [ -z "$python" ]; then
    python=$build/onnx-venv/bin/python
    [ -x "$python" ] || { python3 -m venv "$build/onnx-venv" && "$python" -m pip install -q --disable-pip-version-check onnx==1.23.2; } || exit 77
fi
[ -d "$build/onnx-node-tests" ] || "$python" tests/golden/onnx_nodes.py "$build/onnx-node-tests"
status=0
"$bin/onnx-nodes" "$build/onnx-node-tests" -l "$build/onnx-unsupported.txt" "$@" || status=1
# One line a reason: the operator that is missing, or the message without names and numbers.
sed -E -e 's/^[^:]*: unknown-op: no operator "([^"]*)".*/\1/' -e t -e 's/^[^:]*: ([a-z-]*: )?//; s/"[^"]*"/.../g; s/(^|[^a-z0-9])-?[0-9]+/\1N/g; s/ +$//' \
    "$build/onnx-unsupported.txt" |
    sort | uniq -c | LC_ALL=C sort -k1,1nr -k2 | awk '{n = $1; $1 = ""; printf "%4d %s\n", n, $0}' >"$build/onnx-unsupported-by-reason.txt"
cat "$build/onnx-unsupported-by-reason.txt"
sed -n '/^```unsupported$/,/^```$/p' docs/onnx.md | sed '1d;$d' | cmp -s - "$build/onnx-unsupported-by-reason.txt" ||
    { echo "docs/onnx.md has another list of what is not supported; the one above is right"; status=1; }
exit $status
