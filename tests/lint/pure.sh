#!/bin/sh
# libkiln is pure: its undefined symbols stay on an allow-list, its global names carry a prefix, and nothing of it is writable.
lib=${1:-build/libkiln.a}
failed=0
allow='^(mem(cpy|move|set|cmp|chr)|str(len|cmp|ncmp|chr|rchr|str|spn|cspn|tod|nlen|pbrk)|sincosf?|v?snprintf|qsort|__(v?snprintf|memcpy|memset|memmove)_chk|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_|__ctype_b_loc|strto(l|ll|ull|ul)|__isoc99_strto.*|f?(exp|log|sqrt|pow|sin|cos|tanh|erf|floor|ceil|fabs|fmod|fmin|fmax|rint|nearbyint|trunc|ldexp|frexp|log2|exp2|isnan|isinf|round|cbrt)f?|ldexp|frexp|cJSON_[A-Za-z]+)$'
defined=$(nm -g --defined-only "$lib" 2>/dev/null | awk 'NF == 3 {print $3}' | sort -u)
for s in $(nm -u "$lib" 2>/dev/null | awk '$1 == "U" {print $2}' | sort -u); do
    printf '%s\n' "$defined" | grep -qx "$s" && continue
    printf '%s\n' "$s" | grep -qE "$allow" && continue
    echo "pure: libkiln needs $s, which is not on the allow-list"
    failed=1
done
for s in $defined; do
    case $s in kiln_*|kn_*) ;; *) echo "pure: global name $s has neither prefix kiln_ nor kn_"; failed=1 ;; esac
done
writable=$(objdump -h "$lib" | awk '$2 ~ /^\.(data|bss|tdata|tbss)(\.|$)/ && $2 !~ /rel\.ro/ && $3 != "00000000" {print $2, $3}')
if [ -n "$writable" ]; then
    echo "pure: writable sections in libkiln: $writable"
    objdump -t "$lib" | awk '$4 ~ /^\.(data|bss)/ && $4 !~ /rel\.ro/ {print "  ", $NF}' | head
    failed=1
fi
exit $failed
