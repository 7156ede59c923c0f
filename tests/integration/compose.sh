#!/bin/sh
# docker-compose.yml's fleet as processes; see compose.py.
cd "$(dirname "$0")/../.." || exit 2
python3 -c 'import yaml' 2>/dev/null && command -v redis-server >/dev/null && ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { echo "no yaml, Redis or PostgreSQL"; exit 77; }
exec python3 tests/integration/compose.py "${KILN_BUILD:-build}"
