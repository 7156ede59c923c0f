#!/bin/sh
# `make bench`: the service against what is held up to it (bench.py), and cold compiles.
here=$(dirname "$0")
python3 "$here/bench.py" "$@" --rounds 3 --requests 100000 && python3 "$here/cold.py" "$1"
