#!/bin/sh
# The bench of kernels in short: three small cases and a request, three rounds, every contestant's output checked, no thresholds on time.
# Peers that are installed take part; without any, Kiln is held against compiled loops.
set -eu
cd "$(dirname "$0")/../.."
build=${KILN_BUILD:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/list.csv" <<'LIST'
id,operator,params,dtype,layout
product,matmul,M=61;N=67;K=71,f32,
images_last,conv2d,N=1;C=5;H=9;W=8;F=7;KH=3;KW=3;stride=2;pad=SAME,float32,NHWC/HWIO
mean,avg_pool2d,N=1;C=19;H=9;W=9;KH=3;KW=3;pad=1,f32,NCHW
unknown,no_such_operator,M=1,f32,
LIST
PYPI='' SHAPES="$work/list.csv" ROUNDS=3 OUT="$work/csv" load-tests/kernels/peers.sh "$build"
printf '%s\n' '{"op":"Softmax","inputs":[{"dtype":"f32","shape":[7,33]}]}' >"$work/list.jsonl"
PYPI='' SHAPES="$work/list.jsonl" ROUNDS=1 THREADS=2 OUT="$work/json" load-tests/kernels/peers.sh "$build"
python3 - "$work/csv/result.json" "$work/json/result.json" <<'PY'
import json, sys
cases = {c["id"]: c for path in sys.argv[1:] for c in json.load(open(path))["cases"]}
assert set(cases) == {"product", "images_last", "mean", "unknown", "Softmax 1"}, cases
assert not cases["unknown"]["constructed"] and "no_such_operator" in cases["unknown"]["note"]
for c in cases.values():
    names = [x["name"] for x in c["contestants"]]
    assert c["id"] == "unknown" or [x for x in names if x not in ("kiln packed", "kiln one thread")][:3] == ["kiln", "loops -O3", "loops -Ofast"], (c["id"], names)
    assert all(x["wrong"] == 0 and x["us"] > 0 and x["of_ceiling"] > 0 for x in c["contestants"]), c
assert all("kiln packed" in [x["name"] for x in cases[i]["contestants"]] for i in ("product", "images_last")), cases
assert [i for i in cases if "kiln one thread" in [x["name"] for x in cases[i]["contestants"]]] == ["Softmax 1"], cases
print("#", len(cases), "cases, contestants of a product:", ", ".join(x["name"] for x in cases["product"]["contestants"]))
PY
