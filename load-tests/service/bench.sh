#!/bin/sh
# `make bench`: hits from memory against a bare responder of the same library (goal 0.6), bytes against nginx's (goal 0.9), cold compiles, and what
# idle connections and many requests do to memory (10,000 connections held; under 30 MB without them; no growth).
here=$(dirname "$0")
"$here/hit.sh" "$@" && "$here/blob.sh" "$1"
[ $? = 1 ] && exit 1
python3 "$here/cold.py" "$1" && python3 "$here/idle.py" "$1"
