#!/bin/sh
# House style that a machine can hold: length of lines, functions and files, where OS headers may stand, words that mark unfinished work.
cd "$(dirname "$0")/../.." || exit 2
failed=0
files=$(find compiler cache jobs workers service api tests load-tests -name '*.[ch]' -not -path '*/data/*')
# shellcheck disable=SC2086
awk -v long=0 '
FNR == 1 { if (FNR == 1 && $0 !~ /^\/[\/*]/) { print FILENAME ":1: the first line must say what the file is for"; failed = 1 } start = 0 }
length($0) > 150 { print FILENAME ":" FNR ": line of " length($0) " characters"; failed = 1 }
/^{/ { start = FNR }
/^}/ { if (start && FNR - start > 90 && FILENAME !~ /(tests|_text)/) { print FILENAME ":" start ": function of " FNR - start " lines"; failed = 1 } start = 0 }
FNR == 801 { print FILENAME ": longer than 800 lines"; failed = 1 }
END { exit failed }' $files || failed=1
# shellcheck disable=SC2086
os=$(printf '%s\n' $files | grep -vE '(_posix\.[ch]|/main\.c|^tests/|^load-tests/)$' | grep -v '^tests/\|^load-tests/' |
    xargs grep -nE '#include <(unistd|pthread|signal|spawn|dlfcn|poll|fcntl|sys/[a-z]+|dirent|netinet/[a-z]+)\.h>' /dev/null)
[ -z "$os" ] || { printf '%s\n' "$os" | sed 's/$/: only files named *_posix may include OS headers/'; failed=1; }
# shellcheck disable=SC2086
words=$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' $files | grep -v tests/lint)
[ -z "$words" ] || { printf '%s\n' "$words"; failed=1; }
exit $failed
