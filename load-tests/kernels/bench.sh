#!/bin/sh
# `make bench`: Kiln's kernels for this machine against plain loops through gcc; SHAPES=FILE takes other requests, one JSON a line.
SHAPES=${SHAPES:-load-tests/kernels/cases.jsonl} PYPI= exec "$(dirname "$0")/peers.sh" "${1:-build}"
