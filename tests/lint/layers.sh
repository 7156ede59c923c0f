#!/bin/sh
# Who may include whom: compiler/ by the ranks of layers.txt; outside of it only kiln.h, and cache < jobs < workers < service.
cd "$(dirname "$0")/../.." || exit 2
{
    awk '!/^#/ {print "rank", $2, $1}' tests/lint/layers.txt
    grep -rHoE '^#include "[^"]+"' compiler cache jobs workers service api --include='*.c' --include='*.h'
} | awk '
/^rank/ { rank[$2] = $3; next }
{
    split($0, part, ":"); file = part[1]; inc = $0; sub(/^.*#include "/, "", inc); sub(/"$/, "", inc)
    split(file, f, "/"); n = split(inc, i, "/")
    if (f[1] == "compiler") {
        own = (f[3] == "") ? "driver" : f[2]
        if (n == 1) { if (inc == "kiln.h" || inc ~ /\.def$/ || own == "driver") next; bad(file, inc, "name the module: \"module/file.h\""); next }
        if (!(own in rank)) bad(file, inc, "module " own " is not in tests/lint/layers.txt")
        else if (!(i[1] in rank)) bad(file, inc, "module " i[1] " is not in tests/lint/layers.txt")
        else if (i[1] != own && rank[i[1]] >= rank[own]) bad(file, inc, own " may not include " i[1])
    } else {
        order["cache"] = 1; order["jobs"] = 2; order["workers"] = 3; order["service"] = 4; order["api"] = 4
        if (inc == "kiln.h" || inc ~ /\.def$/) next
        if (!(i[1] in order)) bad(file, inc, "outside compiler/ only kiln.h of the library may be included")
        else if (i[1] != f[1] && order[i[1]] >= order[f[1]]) bad(file, inc, f[1] " may not include " i[1])
    }
}
function bad(file, inc, why) { print file ": \"" inc "\": " why; failed = 1 }
END { exit failed }'
