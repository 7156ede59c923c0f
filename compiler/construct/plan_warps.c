/* rTiles of products on a GPU's tensor cores: levels block, warp, instruction (ROLLER 3.1 with the instruction's own extents as the innermost
 * tile). The axes of a sum of products fall into those of one factor (rows), those of the other (columns), those of both (batches) and those
 * summed over; rows, columns and sums each become one axis. Shared tiles keep the order that their source has in memory, so that copies are runs
 * of 16 bytes; their rows are swizzled, or padded where they have no length for that. */
#include "construct/site.h"
#include <string.h>

enum { I, J, R, ROLES };
enum { WIDE = 64 };                 /* columns from which on an instruction of a group need not have all of them at once */
enum { BAND = 16, MOST_COPIES = 8 }; /* rows of tiles that persistent blocks walk at a time */
enum { ADDRESSES = 80 };            /* registers that asynchronous copies of a thread's own want beside its results */
enum { SHORT_SUM = 4 }; /* instructions' worth of a sum, below which the rounding of factors in parts shows and memory sets the pace anyway */

typedef struct product {
    const kn_site *x;
    const kn_intrin *it;
    int load[2];                      /* of I and of J: numbers in the body */
    uint32_t axes[ROLES], batch;
    int64_t extent[ROLES], unit[ROLES];   /* of the fused axis; of the instruction */
    const char *name[ROLES];
    bool along_r[2];                  /* the load's memory runs along R */
    bool windows;                     /* a factor is padded: only the copy engine's windows bring it to a group */
} product;

/* How a tile is filled and blocks are placed: copies, by the copy engine or not; blocks that share along rows (I) or columns. */
typedef struct filling { int stages; bool bulk, stores; int cluster, along; } filling;

typedef struct tile { int64_t block[2], warps[2]; } tile;

static const tile tiles[] = {
    {{128, 256}, {2, 4}}, {{256, 128}, {4, 2}}, {{128, 128}, {2, 4}}, {{128, 128}, {2, 2}}, {{128, 64}, {2, 2}}, {{64, 128}, {2, 2}},
    {{64, 64}, {2, 2}},   {{64, 256}, {1, 4}},  {{256, 64}, {4, 1}},  {{32, 128}, {1, 4}},  {{128, 32}, {4, 1}}, {{32, 64}, {2, 2}},
    {{64, 32}, {2, 2}},   {{16, 128}, {1, 4}},  {{16, 64}, {1, 4}},   {{128, 16}, {4, 1}},  {{64, 16}, {4, 1}},  {{32, 32}, {2, 2}},
    {{16, 32}, {1, 4}},   {{64, 8}, {4, 1}},
};

/* Of groups of 128 threads, each 64 rows high; columns in whole instructions. Widths that are no power of two are there for whole waves of blocks,
 * those below 64 for products of few columns. */
static const tile group_tiles[] = {
    {{128, 256}, {2, 1}}, {{128, 192}, {2, 1}}, {{128, 128}, {2, 1}}, {{256, 128}, {2, 1}}, {{64, 256}, {1, 1}}, {{64, 128}, {1, 1}},
    {{128, 64}, {2, 1}},  {{64, 64}, {1, 1}},   {{128, 224}, {2, 1}}, {{128, 160}, {2, 1}}, {{128, 96}, {2, 1}}, {{256, 96}, {2, 1}},
    {{64, 48}, {1, 1}},   {{64, 32}, {1, 1}},   {{64, 24}, {1, 1}},   {{64, 16}, {1, 1}},   {{64, 8}, {1, 1}},   {{128, 48}, {2, 1}},
    {{128, 32}, {2, 1}},  {{128, 24}, {2, 1}},  {{128, 16}, {2, 1}},  {{128, 8}, {2, 1}},   {{256, 48}, {2, 1}}, {{256, 32}, {2, 1}},
    {{256, 24}, {2, 1}},  {{256, 16}, {2, 1}},  {{256, 8}, {2, 1}},
};

static bool is_group(const product *p) { return kn_warp_of(p->it->spec)->threads > 32; }

static int64_t extent(const product *p, uint32_t axes)
{
    int64_t n = 1;
    for (int i = 0; i < p->x->s->naxes; i++)
        if ((axes >> i & 1) && !kn_mul_fits(n, p->x->s->axes[i].extent, &n)) return 0;
    return n;
}

/* The loads that stand for the instruction's two sources, columns being those with the axis along which the output is contiguous unless `turned`. */
static const char *roles(const kn_site *x, bool turned, product *p)
{
    const kn_stmt *s = x->s;
    if (x->nloads != 2) return "it is no product of two tensors";
    int columns = (x->load[1].axes >> x->n & 1) != turned;
    p->load[I] = !columns, p->load[J] = columns;
    for (int i = 0; i < s->naxes; i++) {
        bool a = x->load[p->load[I]].axes >> i & 1, b = x->load[p->load[J]].axes >> i & 1;
        if (s->axes[i].extent == 1 && !s->axes[i].reduce && !a && !b) b = true;
        if (s->axes[i].reduce && !(a && b)) return "a summed axis is in one factor only";
        if (!a && !b) return "an axis of the output is in neither factor";
        if (s->axes[i].reduce) p->axes[R] |= 1u << i;
        else if (a && b) p->batch |= 1u << i;
        else p->axes[a ? I : J] |= 1u << i;
    }
    if (!p->axes[R] || !p->axes[I] || !p->axes[J]) return "one factor has no axis of its own";
    for (int r = 0; r < ROLES; r++)
        if (!(p->extent[r] = extent(p, p->axes[r])) || p->extent[r] > KILN_MAX_EXTENT) return "its axes together are too long";
    return NULL;
}

/* Neighbours in memory, of a load's elements along these axes, as far as one axis reaches: fewer where it takes steps. */
static int64_t run(const product *p, const kn_site_access *a, uint32_t axes)
{
    int64_t most = 0, whole = 1;
    for (int k = 0; k < KILN_MAX_AXES; k++) /* axes that follow each other without a gap are one */
        for (int i = 0; i < p->x->s->naxes; i++)
            if ((axes >> i & 1) && a->coef[i] == whole && p->x->s->axes[i].extent > 1) whole *= p->x->s->axes[i].extent;
    for (int i = 0; i < p->x->s->naxes; i++) {
        int64_t n = (axes >> i & 1) && a->coef[i] > 0 ? p->x->s->axes[i].extent / a->coef[i] : 0;
        if (n > most) most = n;
    }
    return whole > most ? whole : most;
}

/* Axes of a role from the slowest to the fastest in memory of a load, for those of the sum of the second one's: weights are the longer run. */
static void put_fuse(kn_buf *b, product *p, int role)
{
    const kn_site_access *a = &p->x->load[role == I ? p->load[I] : p->load[J]], *o = &p->x->load[p->load[I]];
    int order[KILN_MAX_AXES], n = 0;
    if (role == R && p->x->r >= 0 && o->linear && (!a->linear || (a->coef[p->x->r] != 1 && o->coef[p->x->r] == 1))) a = o;
    for (int i = 0; i < p->x->s->naxes; i++) {
        if (!(p->axes[role] >> i & 1)) continue;
        int at = n++;
        bool sort = a->linear && !(a->bent & p->axes[role]) && role == R;
        for (; at > 0 && sort && a->coef[order[at - 1]] < a->coef[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    static const char *const fused[] = {"KI", "KJ", "KR"};
    p->name[role] = n == 1 ? p->x->s->axes[order[0]].name : fused[role];
    for (int l = I; l <= J && role == R; l++) {
        const kn_site_access *x = &p->x->load[p->load[l]];
        p->along_r[l] = x->linear && x->coef[order[n - 1]] == 1 && run(p, x, p->axes[R]) >= run(p, x, p->axes[l]);
    }
    if (n == 1) return;
    kn_putf(b, "fuse %s %s", p->x->name, fused[role]);
    for (int i = 0; i < n; i++) kn_putf(b, " %s", p->x->s->axes[order[i]].name);
    kn_put(b, "\n");
}

static void put_loops(kn_buf *b, const product *p, const tile *t, const int64_t *count, int64_t steps)
{
    const char *s = p->x->name, *i = p->name[I], *j = p->name[J], *r = p->name[R];
    kn_putf(b, "split %s %s %lld %lld %lld\n", s, i, (long long)t->warps[I], (long long)count[I], (long long)p->unit[I]);
    kn_putf(b, "split %s %s %lld %lld %lld\n", s, j, (long long)t->warps[J], (long long)count[J], (long long)p->unit[J]);
    kn_putf(b, "split %s %s %lld %lld\nreorder %s", s, r, (long long)steps, (long long)p->unit[R], s);
    for (int a = 0; a < p->x->s->nspatial; a++)
        if (p->batch >> a & 1) kn_putf(b, " %s.0", p->x->s->axes[a].name);
    kn_putf(b, " %s.0 %s.0 | %s.1 %s.1 | %s.0 | %s.1 %s.2 %s.2 | %s.3 %s.3 %s.2\n", i, j, i, j, r, r, i, j, i, j, r);
    for (int a = 0; a < p->x->s->nspatial; a++)
        if (p->batch >> a & 1) kn_putf(b, "bind %s %s.0 grid\n", s, p->x->s->axes[a].name);
    kn_putf(b, "bind %s %s.0 grid\nbind %s %s.0 grid\nbind %s %s.1 warp\nbind %s %s.1 warp\n", s, i, s, j, s, i, s, j);
    kn_putf(b, "unroll %s %s.1\nunroll %s %s.2\nunroll %s %s.2\n", s, r, s, i, s, j);
}

/* A tile of one factor, its rows along what is contiguous in memory. */
static void put_cache(kn_buf *b, const product *p, int role, const tile *t, int64_t steps, const filling *f)
{
    const char *s = p->x->name, *x = p->name[role], *r = p->name[R];
    int bytes = p->x->load[p->load[role]].bytes;
    int64_t row = (p->along_r[role] ? steps * p->unit[R] : t->block[role]) * bytes;
    kn_putf(b, "cache_read %s %d shared %s.0 loops", s, p->load[role], r);
    if (p->along_r[role]) kn_putf(b, " %s.1 %s.2 %s.3 %s.1 %s.2", x, x, x, r, r);
    else kn_putf(b, " %s.1 %s.2 %s.1 %s.2 %s.3", r, r, x, x, x);
    bool group = is_group(p), matrices = p->along_r[role] || bytes == 2, even = group || (row >= 64 && !(row & (row - 1)));
    if (!matrices || !even) kn_putf(b, " pad %d", (matrices ? 16 : 32) / bytes);
    kn_put(b, "\n");
    if (f->stages > 1) kn_putf(b, "double_buffer %s %d %d %s\n", s, p->load[role], f->stages, f->bulk ? "bulk" : "async");
    if (matrices && even) kn_putf(b, "swizzle %s %d%s\n", s, p->load[role], group && !p->along_r[role] ? " panels" : "");
}

/* What makes one axis of each role's; every plan of the product begins with it. */
static bool begin(product *p, kn_plans *plans)
{
    kn_buf b;
    kn_buf_init(&b, plans->a);
    for (int r = 0; r < ROLES; r++) put_fuse(&b, p, r);
    return kn_plans_begin(plans, kn_buf_take(&b));
}

static void try_filled(product *p, kn_plans *plans, const tile *t, int64_t steps, const filling *f)
{
    const kn_intrin *it = p->it;
    int64_t count[2];
    kn_buf b;
    kn_buf_init(&b, plans->a);
    for (int k = 0; k < 2; k++) {
        count[k] = t->block[k] / (t->warps[k] * p->unit[k]);
        if (count[k] * t->warps[k] * p->unit[k] != t->block[k]) return;
    }
    bool several = false; /* the parts of split factors want the other registers, and so do addresses of axes made of several */
    for (int r = 0; r < ROLES; r++) several |= (p->axes[r] & (p->axes[r] - 1)) != 0;
    if (kn_warp_of(it->spec)->ways > 1 && count[I] * count[J] * KN_WARP_D > (several ? 32 : 64)) return;
    int64_t kept = count[I] * count[J] * it->operand[0].elems / kn_warp_of(it->spec)->threads * (kn_intrin_brief(it) ? 2 : 1);
    if (is_group(p) && !f->bulk && kept + ADDRESSES > p->x->hw->registers_per_thread) return;
    kn_putn(&b, plans->first.p, plans->first.n);
    put_loops(&b, p, t, count, steps);
    for (int k = 0; k < 2; k++) put_cache(&b, p, k, t, steps, f);
    kn_putf(&b, "tensorize %s %s.3 %s", p->x->name, p->name[I], it->name);
    for (int r = 0; r < ROLES; r++) kn_putf(&b, " %s=%s.%d", it->s->axes[r].name, p->name[r], r == R ? 2 : 3);
    kn_put(&b, "\n");
    if (f->bulk) kn_putf(&b, "persist %s %d\n", p->x->name, BAND / (f->cluster > 1 && f->along == I ? f->cluster : 1));
    if (f->stores) kn_putf(&b, "store %s bulk\n", p->x->name);
    if (f->cluster > 1) kn_putf(&b, "cluster %s %s.0 %d\n", p->x->name, p->name[f->along], f->cluster);
    kn_plans_try(plans, &b);
}

static void try_tile(product *p, kn_plans *plans, const tile *t, int64_t steps, int stages)
{
    filling f = {.stages = stages};
    try_filled(p, plans, t, steps, &f);
}

/* The rows' axes are dimensions of the output that follow each other, in the order in which they become one: that is one dimension, too. */
static bool rows_follow(const product *p)
{
    const kn_stage *g = p->x->g;
    int rank = p->x->t->program->tensors[kn_stage_out(p->x->t, g)].rank, last = -1, end = -1;
    uint32_t seen = 0;
    for (int d = 0; d < rank; d++) {
        int axis = kn_stage_out_axis(p->x->t, g, d);
        if (axis < 0 || !(p->axes[I] >> axis & 1)) continue;
        if (seen && (end != d - 1 || axis < last)) return false;
        seen |= 1u << axis;
        last = axis, end = d;
    }
    return seen == p->axes[I];
}

/* Results can leave by the copy engine too: columns are an axis by themselves, rows are one or become one, a row of results is a multiple of 16
 * bytes, and an instruction's columns, which are contiguous there, are a multiple of 128. */
static bool bulk_stores(const product *p)
{
    const kn_tensor *out = &p->x->t->program->tensors[kn_stage_out(p->x->t, p->x->g)];
    if (!(p->axes[J] >> p->x->n & 1) || p->unit[J] * kn_dtype_bytes(out->dtype) % 128) return false;
    if ((p->axes[J] & (p->axes[J] - 1)) || ((p->axes[I] & (p->axes[I] - 1)) && !rows_follow(p))) return false;
    return out->rank >= 2 && out->shape[out->rank - 1] * kn_dtype_bytes(out->dtype) % 16 == 0;
}

/* The copy engine fills as many copies as there is room for; what is refused (addresses that no tensor map has) is passed over. */
static void try_bulk(product *p, kn_plans *plans, const tile *t, int64_t steps)
{
    int64_t stage = (t->block[I] + t->block[J]) * 128, free = p->x->hw->max_shared_per_block - KN_BULK_BARRIERS;
    filling f = {.bulk = true, .stores = bulk_stores(p), .cluster = 1};
    if (f.stores) free -= t->warps[I] * t->warps[J] * KN_BULK_STAGED;
    f.stages = (int)(free / stage < MOST_COPIES ? free / stage : MOST_COPIES);
    if (f.stages < 3) return;
    try_filled(p, plans, t, steps, &f);
    f.cluster = 2;
    for (f.along = I; f.along <= J; f.along++)
        if (p->extent[f.along] > t->block[f.along]) try_filled(p, plans, t, steps, &f);
}

/* Whether the instruction is the narrowest of its kind for all columns at once, where these are few. */
static bool narrowest(const product *p)
{
    if (p->unit[J] < p->extent[J]) return false;
    for (int i = 0; i < p->x->hw->nintrins; i++) {
        const kn_intrin *it = p->x->hw->intrins[i].parsed;
        if (!it || !kn_warp_of(it->spec) || kn_warp_of(it->spec)->threads != kn_warp_of(p->it->spec)->threads) continue;
        int64_t columns = it->s->axes[J].extent;
        if (it->operand[1].dtype != p->it->operand[1].dtype || it->operand[2].dtype != p->it->operand[2].dtype) continue;
        if (columns >= p->extent[J] && columns < p->unit[J]) return false;
    }
    return true;
}

/* Rows of 128 bytes along the sum; one copy is still read while another is filled, so that there are four of them where they fit. */
static void try_groups(product *p, kn_plans *plans)
{
    int bytes = p->x->load[p->load[I]].bytes;
    bool few = p->unit[J] < WIDE, uneven = few || (p->unit[J] & (p->unit[J] - 1));
    if (few && !narrowest(p)) return;
    int64_t steps = 128 / (p->unit[R] * bytes);
    for (size_t i = 0; i < sizeof group_tiles / sizeof *group_tiles; i++) {
        const tile *t = &group_tiles[i];
        int64_t stage = (t->block[I] + t->block[J]) * 128;
        bool wide = false;
        for (int k = 0; k < 2; k++) wide |= t->block[k] >= 2 * kn_round_up(p->extent[k], 64) && t->block[k] > 64;
        if (t->block[J] != p->unit[J] || wide) continue;
        try_bulk(p, plans, t, steps);
        if (p->windows || uneven) continue;
        for (int stages = 4; stages <= 6; stages += 2)
            if (stages * stage + 2048 <= p->x->hw->max_shared_per_block) try_tile(p, plans, t, steps, stages);
        if (4 * stage + 2048 > p->x->hw->max_shared_per_block) try_tile(p, plans, t, steps, 3);
    }
}

static void try_tiles(product *p, kn_plans *plans)
{
    const kn_hw *hw = p->x->hw;
    int bytes = p->x->load[p->load[I]].bytes + p->x->load[p->load[J]].bytes;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        const tile *t = &tiles[i];
        bool wide = false;
        for (int k = 0; k < 2; k++) wide |= t->block[k] >= 2 * kn_round_up(p->extent[k], p->unit[k]) && t->block[k] > t->warps[k] * p->unit[k];
        for (int64_t steps = 2; steps <= 4 && !wide; steps *= 2) {
            int64_t stage = (t->block[I] + t->block[J]) * steps * p->unit[R] * bytes / 2, loops = kn_ceil_div(p->extent[R], steps * p->unit[R]);
            if (steps > 2 && (loops < 2 || kn_warp_of(p->it->spec)->ways > 1)) break; /* parts of factors are long texts that want registers */
            for (int stages = 3; stages <= 5; stages++) {
                if (stages > 3 && (loops < stages || stage > 32768)) break;
                if (stages * (stage + 4096) > hw->max_shared_per_block) break;
                try_tile(p, plans, t, steps, stages);
            }
        }
    }
}

/* Both sources come in runs of 16 bytes: what a group reads is copied asynchronously or not worth its size. */
static bool group_reads(product *p)
{
    for (int k = 0; k < 2; k++) {
        const kn_site_access *a = &p->x->load[p->load[k]];
        int64_t run = 16 / a->bytes;
        int own = -1;
        if (!a->linear) return false;
        for (int i = 0; i < p->x->s->naxes; i++) if (a->coef[i] == 1 && p->x->s->axes[i].extent > 1) own = i;
        if (own < 0 || a->bent || p->x->s->axes[own].extent % run || (a->bytes != 2 && !p->x->s->axes[own].reduce)) return false;
        for (int i = 0; i < p->x->s->naxes; i++) if (i != own && a->coef[i] % run) return false;
        if (a->padded && p->x->s->axes[own].extent * a->bytes % 128) return false;
        p->windows |= a->padded;
    }
    return true;
}

const char *kn_plan_warps(const kn_site *x, kn_plans *plans)
{
    const char *why = "the target has no instruction for products of these dtypes";
    int all = plans->n;
    for (int k = 0; k < 2 * x->hw->nintrins; k++) { /* groups of warps first: they are the faster ones */
        const kn_intrin *it = x->hw->intrins[k % x->hw->nintrins].parsed;
        if (!it || !kn_warp_of(it->spec) || x->hw->lanes != 32) continue;
        if ((kn_warp_of(it->spec)->threads > 32) != (k < x->hw->nintrins)) continue;
        const kn_expr *loads[2];
        if (kn_loads(x->s->body, loads, 2) != 2) return "it is no product of two tensors";
        enum kn_dtype a = it->operand[1].dtype, b = it->operand[2].dtype;
        if ((loads[0]->dtype != a || loads[1]->dtype != b) && (loads[0]->dtype != b || loads[1]->dtype != a)) continue;
        if (it->spec->significand_bits && it->spec->significand_bits < kn_dtype_significand(loads[0]->dtype)) continue;
        int before = plans->n;
        bool brief = false;
        for (int way = 0; way < 2; way++) {
            product p = {.x = x, .it = it};
            bool turned = way != (it->s->axes[J].extent < WIDE && it->s->axes[I].extent >= WIDE); /* few rows do not fill those of a group */
            const char *bad = roles(x, turned, &p);
            if (bad) return bad;
            if (loads[p.load[I]]->dtype != a || loads[p.load[J]]->dtype != b) continue;
            for (int r = 0; r < ROLES; r++) p.unit[r] = it->s->axes[r].extent;
            if (kn_warp_of(it->spec)->ways > 1 && p.extent[R] < SHORT_SUM * p.unit[R]) {
                brief = true;
                break;
            }
            if (turned && p.extent[J] > WIDE) continue; /* few rows: they go where the instruction is narrow */
            if (is_group(&p) && (!group_reads(&p) || (turned && p.windows))) continue;
            if (!begin(&p, plans)) continue;
            if (is_group(&p)) try_groups(&p, plans);
            else try_tiles(&p, plans);
            kn_plans_begin(plans, (kiln_bytes){NULL, 0});
        }
        if (plans->n == before && plans->n == all)
            why = brief ? "the sum is too short for factors in parts to be as exact as whole ones"
                        : "no tile of the instruction's fits the statement";
    }
    return plans->n > all ? NULL : why;
}
