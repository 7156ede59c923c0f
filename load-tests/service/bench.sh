#!/bin/sh
# `make bench`: how fast answers come from memory against a bare responder of the same library (goal: 0.5 or more), and cold compiles.
"$(dirname "$0")/hit.sh" "$@" && python3 "$(dirname "$0")/cold.py" "$1"
