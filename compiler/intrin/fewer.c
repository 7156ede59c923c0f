/* Instructions whose registers can be given another shape (AMX): a call may have fewer iterations of some loops than `compute` says, which a hwspec's
 * member "fewer" lists. With extents that divide an operator's no operand is padded, and rows are loaded as they lie. Such an instruction is the
 * entry read again with other extents; its name says them: "amx_int8_I14_R24". */
#include "intrin/intrin.h"
#include <string.h>

static kiln_status refuse(kiln_arena *a, const kn_intrin *it, const char *at, const char *what, kiln_diag *d)
{
    const char *place = kn_format(a, "%s/fewer", at);
    kn_fail_at(d, KILN_HWSPEC, place ? place : at, "instruction \"%s\": %s", it->name, what ? what : "out of memory");
    kn_hint(d, "loops of its compute text, each with what its iterations stay a multiple of, as \"I, R by 4\"; their extents must be such multiples");
    return KILN_HWSPEC;
}

/* Digits at p; 0: none, or too large for an extent. */
static int64_t number(const char **p)
{
    int64_t n = 0;
    while (**p >= '0' && **p <= '9' && n < KN_INTRIN_POINTS) n = 10 * n + *(*p)++ - '0';
    return n < KN_INTRIN_POINTS ? n : 0;
}

kiln_status kn_intrin_read_fewer(kiln_arena *a, kn_intrin *it, const char *at, kiln_diag *d)
{
    const char *p = it->spec->fewer;
    while (p && *(p += strspn(p, " ,"))) {
        size_t n = 0;
        while (kn_intrin_word(p[n])) n++;
        int l = kn_intrin_axis(it->s, p, n);
        if (l < 0) return refuse(a, it, at, kn_format(a, "\"%.*s\" is none of its loops", n < 32 ? (int)n : 32, p), d);
        const char *name = it->s->axes[l].name;
        if (it->fewer[l]) return refuse(a, it, at, kn_format(a, "%s is listed twice", name), d);
        p += n;
        p += strspn(p, " ");
        it->fewer[l] = 1;
        if (!strncmp(p, "by ", 3)) {
            p += 3 + strspn(p + 3, " ");
            it->fewer[l] = number(&p);
        }
        p += strspn(p, " ");
        if (*p && *p != ',') return refuse(a, it, at, kn_format(a, "no comma and no \"by\" behind %s", name), d);
        if (!it->fewer[l] || it->s->axes[l].extent % it->fewer[l])
            return refuse(a, it, at, kn_format(a, "the %lld iterations of %s are no multiple of that", (long long)it->s->axes[l].extent, name), d);
    }
    return KILN_OK;
}

/* "_I14_R24" behind the entry's name. False: it is not that, or the entry does not allow it. */
static bool extents_in(const kn_intrin *it, const char *p, int64_t extent[KN_INTRIN_LOOPS])
{
    for (int l = 0; l < it->nloops; l++) extent[l] = it->s->axes[l].extent;
    for (int before = -1; *p;) {
        int l = -1;
        if (*p++ != '_') return false;
        for (size_t n = 1; l < 0 && kn_intrin_word(p[n - 1]); n++) /* names of loops may end in digits: the shortest that is one */
            if ((l = kn_intrin_axis(it->s, p, n)) >= 0) p += n;
        if (l <= before || !it->fewer[l] || *p == '0') return false;
        int64_t wanted = number(&p);
        if (wanted < 1 || wanted >= extent[l] || wanted % it->fewer[l]) return false;
        extent[l] = wanted, before = l;
    }
    return true;
}

const kn_intrin *kn_intrin_named(const kn_hw *hw, const char *name, int64_t extent[KN_INTRIN_LOOPS])
{
    const kn_intrin *found = NULL;
    for (int i = 0; i < hw->nintrins; i++)
        if (!strcmp(hw->intrins[i].name, name)) found = hw->intrins[i].parsed;
    for (int l = 0; found && l < found->nloops; l++) extent[l] = found->s->axes[l].extent;
    for (int i = 0; i < hw->nintrins && !found; i++) {
        const kn_hw_intrin *spec = &hw->intrins[i];
        size_t n = strlen(spec->name);
        if (spec->fewer && spec->parsed && !strncmp(spec->name, name, n) && extents_in(spec->parsed, name + n, extent)) found = spec->parsed;
    }
    return found;
}

/* Cycles from one call to the next. Fewer results take less, fewer terms do not: where each of four tiles is loaded for two calls of AMX, one of 16
 * rows takes 16 cycles, of 14 rows 15, of 10 rows 13.4, of 8 or 7 rows 13. */
static double interval_of(const kn_intrin *it, const int64_t *extent)
{
    double share = 1;
    for (int l = 0; l < it->nspatial; l++) share *= (double)extent[l] / (double)it->s->axes[l].extent;
    return it->spec->interval * (0.6 + 0.4 * share);
}

const kn_intrin *kn_intrin_at(kiln_arena *a, const kn_intrin *it, const int64_t extent[KN_INTRIN_LOOPS])
{
    const char *where = strstr(it->spec->compute, " where "), *comma = " where";
    const kn_intrin *out;
    bool same = true;
    kiln_diag d;
    kn_buf name, text;
    kn_buf_init(&name, a);
    kn_buf_init(&text, a);
    kn_put(&name, it->name);
    kn_putf(&text, "%.*s", where ? (int)(where - it->spec->compute) : 0, it->spec->compute);
    for (int l = 0; l < it->nloops; l++, comma = ",") {
        kn_putf(&text, "%s %s in %lld", comma, it->s->axes[l].name, (long long)extent[l]);
        if (extent[l] == it->s->axes[l].extent) continue;
        kn_putf(&name, "_%s%lld", it->s->axes[l].name, (long long)extent[l]);
        same = false;
    }
    if (same) return it;
    kn_hw_intrin *spec = kn_new(a, kn_hw_intrin);
    kiln_bytes called = kn_buf_take(&name), compute = kn_buf_take(&text);
    if (!spec || !called.p || !compute.p) return NULL;
    *spec = *it->spec;
    spec->name = called.p, spec->compute = compute.p, spec->fewer = NULL, spec->interval = interval_of(it, extent);
    if (kn_intrin_parse(a, spec, "", &out, &d)) return NULL;
    spec->parsed = out;
    return out;
}

const kn_intrin *kn_intrin_find(kiln_arena *a, const kn_hw *hw, const char *name)
{
    int64_t extent[KN_INTRIN_LOOPS];
    const kn_intrin *it = kn_intrin_named(hw, name, extent);
    return it ? kn_intrin_at(a, it, extent) : NULL;
}
