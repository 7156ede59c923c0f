/* What a client says of a model's open ends, as text: "batch:1,x:1x3x224x224" (extents), "sr:16000" (inputs that are numbers). */
#include "graph/graph.h"
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

static kiln_status wrong(kiln_diag *d, const char *place, const char *item, const char *right)
{
    kn_fail_at(d, KILN_REQUEST, place, "\"%.80s\" cannot be used here", item);
    kn_hint(d, "%s", right);
    return d->status;
}

/* The items of a list, each split at its last colon: names may have colons themselves. *n -1: out of memory. */
static kiln_status items(kiln_arena *a, const char *text, const char *place, const char *right, char **name, char **value, int *n, kiln_diag *d)
{
    char *copy = kn_strndup(a, text, strlen(text));
    *n = 0;
    if (!copy) return kn_fail(d, KILN_MEMORY, "out of memory");
    while (*copy) {
        size_t end = 0;
        while (copy[end] && copy[end] != ',') end++;
        bool last = !copy[end];
        copy[end] = 0;
        char *colon = strrchr(copy, ':');
        if (!colon || colon == copy || !colon[1]) return wrong(d, place, copy, right);
        if (*n == MOST) return kn_fail_at(d, KILN_LIMIT, place, "more than %d of them", MOST);
        *colon = 0;
        name[*n] = copy;
        value[(*n)++] = colon + 1;
        copy += end + !last;
    }
    return KILN_OK;
}

typedef struct extents {
    kiln_arena *a;
    const char **dims;
    int64_t *extents;
    int n;
} extents;

static kiln_status add_extents(extents *e, const char *name, char *value, const char *right, kiln_diag *d)
{
    bool whole = strchr(value, 'x') != NULL; /* a shape: NAME is an input */
    for (int k = 0; *value; k++) {
        char *end;
        long long extent = strtoll(value, &end, 10);
        if (end == value || (*end && (*end != 'x' || !end[1])) || extent < 1) return wrong(d, "?dims", value, right);
        if (e->n == MOST) return kn_fail_at(d, KILN_LIMIT, "?dims", "more than %d of them", MOST);
        e->dims[e->n] = whole ? kn_format(e->a, "%s:%d", name, k) : name;
        if (!e->dims[e->n]) return kn_fail(d, KILN_MEMORY, "out of memory");
        e->extents[e->n++] = extent;
        value = end + (*end == 'x');
    }
    return KILN_OK;
}

static kiln_status read_dims(kiln_arena *a, const char *text, kiln_graph_options *o, kiln_diag *d)
{
    static const char right[] = "NAME:EXTENT or INPUT:EXTENTxEXTENTx..., joined by commas, with extents from 1 on";
    extents e = {.a = a, .dims = kn_array(a, const char *, MOST), .extents = kn_array(a, int64_t, MOST)};
    char *name[MOST], *value[MOST];
    int n;
    if (!e.dims || !e.extents) return kn_fail(d, KILN_MEMORY, "out of memory");
    kiln_status s = items(a, text, "?dims", right, name, value, &n, d);
    for (int i = 0; s == KILN_OK && i < n; i++) s = add_extents(&e, name[i], value[i], right, d);
    o->ndims = e.n;
    o->dims = e.dims;
    o->extents = e.extents;
    return s;
}

static kiln_status read_binds(kiln_arena *a, const char *text, kiln_graph_options *o, kiln_diag *d)
{
    static const char right[] = "INPUT:NUMBER, joined by commas";
    const char **binds = kn_array(a, const char *, MOST);
    double *values = kn_array(a, double, MOST);
    char *name[MOST], *value[MOST], *end;
    int n;
    if (!binds || !values) return kn_fail(d, KILN_MEMORY, "out of memory");
    kiln_status s = items(a, text, "?bind", right, name, value, &n, d);
    for (int i = 0; s == KILN_OK && i < n; i++) {
        binds[i] = name[i];
        values[i] = strtod(value[i], &end);
        if (*end) s = wrong(d, "?bind", value[i], right);
    }
    o->nbinds = s == KILN_OK ? n : 0;
    o->binds = binds;
    o->values = values;
    return s;
}

kiln_status kiln_graph_options_read(kiln_arena *a, const char *dims, const char *binds, kiln_graph_options *out, kiln_diag *d)
{
    *out = (kiln_graph_options){0};
    kiln_status s = read_dims(a, dims, out, d);
    return s == KILN_OK ? read_binds(a, binds, out, d) : s;
}
