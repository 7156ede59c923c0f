/* Lanes whose elements lie at known distances from the first one's, in a few runs of memory (phases of something that are put together again): a
 * vector of each run is read, and lanes are picked from these, instead of one by one. */
#include "lower/lower.h"

enum { RUNS = 4, LANES = 16, LEAST = 4 /* bytes of an element */ };

typedef struct runs { int n, of[LANES]; int64_t first[RUNS], last[RUNS], from[LANES]; } runs;

/* The tile that is moved back so that it ends with its axis is the last one: as if it were none of these, on a condition; of one axis at most. */
typedef struct unmoved { kn_lw *w; int var; kn_expr *there; } unmoved;

static kn_expr *not_moved(void *user, kiln_arena *a, kn_expr *e)
{
    unmoved *u = user;
    const kn_expr *min = e->op == KN_OP_VAR ? u->w->var_value[e->u.var] : NULL;
    (void)a;
    if (!min || min->op != KN_OP_MIN || min->args[1]->op != KN_OP_CONST_I || (u->var >= 0 && u->var != e->u.var)) return e;
    u->var = e->u.var;
    u->there = kn_lw_below(u->w, min->args[0], min->args[1]->u.i + 1);
    return min->args[0];
}

/* How far from the first lane's element the others' lie; false: that is not known, or changes. */
static bool distances(kn_lw *w, kn_expr *at, int lane_var, int lanes, runs *r)
{
    kn_expr *zero = kn_lw_at_lane(w, at, lane_var, kn_lw_int(w, 0));
    for (int l = 0; l < lanes; l++) {
        kn_expr *lane = kn_lw_at_lane(w, at, lane_var, kn_lw_int(w, l)), *apart = kn_bin(w->a, KN_OP_SUB, lane, zero);
        apart = apart ? kn_lw_simp(w, apart) : NULL;
        if (!apart || apart->op != KN_OP_CONST_I) return false;
        r->from[l] = apart->u.i;
    }
    return true;
}

/* Each lane goes to the run that has room for it within a vector, or begins another one. */
static bool gather(runs *r, int lanes)
{
    r->n = 0;
    for (int l = 0; l < lanes; l++) {
        int k = 0;
        for (; k < r->n; k++) {
            int64_t first = r->from[l] < r->first[k] ? r->from[l] : r->first[k], last = r->from[l] > r->last[k] ? r->from[l] : r->last[k];
            if (last - first >= lanes) continue;
            r->first[k] = first;
            r->last[k] = last;
            break;
        }
        if (k == RUNS) return false;
        if (k == r->n) r->first[k] = r->last[k] = r->from[l], r->n++;
        r->of[l] = k;
    }
    return 2 * r->n <= lanes;
}

/* Where run k is read so that all of its vector lies in the buffer, *there being the condition: NULL: always. */
static int64_t begin_of(kn_lw *w, const runs *r, int k, kn_expr *zero, int64_t elems, int lanes, kn_expr **there)
{
    int64_t lo, hi, at = r->first[k];
    kn_lw_range(w, zero, &lo, &hi);
    if (hi > elems - lanes - at && r->last[k] - lanes + 1 >= -lo) at = r->last[k] - lanes + 1; /* it ends with the last of its lanes */
    if (lo < -at) *there = kn_lw_and(w, *there, kn_lw_node(w, KN_OP_LE, KN_BOOL, 1, kn_lw_int(w, -at), zero, NULL));
    if (hi > elems - lanes - at) *there = kn_lw_and(w, *there, kn_lw_below(w, zero, elems - lanes - at + 1));
    return at;
}

kn_expr *kn_lw_few_runs(kn_lw *w, int buffer, kn_expr *at, int lane_var, int lanes)
{
    runs r;
    int number[LANES];
    kn_expr *part[RUNS];
    unmoved u = {.w = w, .var = -1};
    const kn_buffer *b = &w->p->buffers[buffer];
    int64_t step, begin[RUNS];
    if (w->hw->gpu || lanes < 4 || lanes > LANES || b->lanes > 1 || b->elems < lanes || kn_lw_coefficient(at, lane_var, &step)) return NULL;
    if (b->dtype == KN_BOOL || kn_dtype_bytes(b->dtype) < LEAST) return NULL;
    kn_expr *from = kn_rewrite(w->a, at, not_moved, &u), *there = u.there;
    if (!from || !distances(w, from, lane_var, lanes, &r) || !gather(&r, lanes)) return NULL;
    kn_expr *zero = kn_lw_at_lane(w, from, lane_var, kn_lw_int(w, 0));
    for (int k = 0; k < r.n; k++) begin[k] = begin_of(w, &r, k, zero, b->elems, lanes, &there);
    if (kn_lw_never(there)) return NULL;
    for (int k = 0; k < r.n; k++)
        part[k] = kn_lw_read(w, buffer, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, zero, kn_lw_int(w, begin[k]))), lanes);
    for (int l = 0; l < lanes; l++) number[l] = (int)(r.of[l] * lanes + r.from[l] - begin[r.of[l]]);
    kn_expr *picked = kn_lw_pick(w, lanes, r.n, part, number);
    if (!there) return picked;
    kn_expr *each = kn_lw_lanes(w, kn_lw_read(w, buffer, at, 1), lane_var, lanes);
    return kn_lw_node(w, KN_OP_SELECT, b->dtype, lanes, there, picked, each);
}
