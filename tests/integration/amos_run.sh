#!/bin/sh
# All 431 mappings of AMOS's operators (ISCA'22), and those of its invented units, run and compared with the reference.
cd "$(dirname "$0")/../.." || exit 2
KILN_ALL=1 exec "${KILN_BIN:-build}/tests/test_map_run"
