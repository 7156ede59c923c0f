#!/bin/sh
# Runs chart.py, where PyYAML is.
cd "$(dirname "$0")/../.." || exit 2
python3 -c 'import yaml' 2>/dev/null || { echo "no PyYAML"; exit 77; }
exec python3 tests/integration/chart.py "${KILN_BUILD:-build}"
