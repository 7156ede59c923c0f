#!/bin/sh
# Traces of the operators of ROLLER's evaluation replay byte for byte, on a CPU and a GPU.
set -eu
cd "$(dirname "$0")/../.."
build=${KILN_BUILD:-build}
PYTHONPATH=tests/integration python3 - <<'PY' | "$build/replay" hwspecs/x86-64-avx512.json hwspecs/nvidia-h200.json
import json, op_tables
seen = set()
for row in op_tables.rows():
    if row["table"] != "roller": continue
    for request in op_tables.requests(row, lambda size, limit: size):
        text = json.dumps(request)
        if text not in seen: print(text)
        seen.add(text)
PY
