#!/bin/sh
# Runs prometheus.py on $KILN_BUILD, where Prometheus is installed.
cd "$(dirname "$0")/../.." || exit 2
for p in prometheus promtool redis-server; do command -v $p >/dev/null || { echo "no $p"; exit 77; }; done
exec python3 tests/integration/prometheus.py "${KILN_BUILD:-build}"
