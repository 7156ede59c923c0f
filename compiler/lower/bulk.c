/* Stages whose caches the copy engine fills: a group of 128 threads asks for tiles, the others compute what has arrived. Copies go round in a
 * ring; a pair of barriers each says that it is full (its bytes have arrived) and that it is empty (every group that read it has left). Iterations
 * are counted over all tiles of a block, so that iteration n uses copy n % copies, in phase n / copies. Blocks are persistent and walk over tiles;
 * clusters share copies; results leave by the copy engine. */
#include "lower/lower.h"
#include <string.h>

typedef struct bulk {
    int bars, copies, groups, cluster, loop; /* bars: full ones, then empty ones; loop: of the reduction */
    int64_t steps;                           /* of the reduction, a tile */
    kn_expr *rank, *first, *group;           /* rank: number of the block in its cluster, NULL: there is none; first: its first tile */
    int64_t tiles, stride;                   /* of a cluster; from one tile of a block to the next */
    kn_expr *round;                          /* number of the tile among the block's */
    int stage, boxes;                        /* SHARED buffer of results on their way, two boxes a group; boxes of a tile stored so far */
    int pending;                             /* of a group's stores, while the next box is written: 1 where tiles are pairs of boxes */
} bulk;

static kn_expr *made(kn_lw *w, enum kn_op op, kn_expr *x, kn_expr *y)
{
    kn_expr *e = kn_bin(w->a, op, x, y);
    return e ? kn_lw_simp(w, e) : &w->dry;
}

static kn_expr *plus(kn_lw *w, kn_expr *x, kn_expr *y) { return made(w, KN_OP_ADD, x, y); }
static kn_expr *by(kn_lw *w, enum kn_op op, kn_expr *x, int64_t n) { return made(w, op, x, kn_lw_int(w, n)); }

/* A variable of known range. */
static kn_expr *bounded(kn_lw *w, const char *name, kn_expr *value, int64_t most)
{
    kn_expr *e = kn_lw_let(w, name, value);
    if (e->op == KN_OP_VAR && e != value) w->var_lo[e->u.var] = 0, w->var_hi[e->u.var] = most;
    return e;
}

static kn_expr *is_less(kn_lw *w, kn_expr *x, int64_t n) { return kn_lw_node(w, KN_OP_LT, KN_BOOL, 1, x, kn_lw_int(w, n), NULL); }

/* ---- tiles ---- */

/* Grid loops in steps of a cluster's tiles. */
static int64_t grid_extent(const kn_sg *sg, int loop)
{
    int64_t n = sg->g->loops[loop].extent;
    return sg->g->cluster > 1 && loop == sg->g->cluster_loop ? kn_ceil_div(n, sg->g->cluster) : n;
}

static void set_loop(kn_lw *w, kn_sg *sg, const bulk *b, int loop, kn_expr *value)
{
    if (b->rank && loop == sg->g->cluster_loop) value = plus(w, by(w, KN_OP_MUL, value, b->cluster), b->rank);
    int64_t n = grid_extent(sg, loop) * (b->rank && loop == sg->g->cluster_loop ? b->cluster : 1);
    sg->val[loop] = bounded(w, sg->g->loops[loop].name, value, n - 1);
}

/* Tile number t of a plane of the two innermost grid loops: bands of `persist` rows, each walked column by column. */
static void set_plane(kn_lw *w, kn_sg *sg, const bulk *b, int row, int column, kn_expr *t)
{
    int64_t rows = grid_extent(sg, row), columns = grid_extent(sg, column), high = sg->g->persist < rows ? sg->g->persist : rows;
    kn_expr *band = bounded(w, "band", by(w, KN_OP_FLOORDIV, t, high * columns), kn_ceil_div(rows, high) - 1);
    kn_expr *rest = bounded(w, "rest", by(w, KN_OP_MOD, t, high * columns), high * columns - 1), *above = by(w, KN_OP_MUL, band, high);
    kn_expr *height = kn_lw_int(w, high);
    if (rows % high) {
        height = kn_lw_let(w, "height", made(w, KN_OP_MIN, made(w, KN_OP_SUB, kn_lw_int(w, rows), above), height));
        if (height->op == KN_OP_VAR) w->var_lo[height->u.var] = 1, w->var_hi[height->u.var] = high;
    }
    set_loop(w, sg, b, row, plus(w, above, made(w, KN_OP_MOD, rest, height)));
    set_loop(w, sg, b, column, made(w, KN_OP_FLOORDIV, rest, height));
}

static void set_tile(kn_lw *w, kn_sg *sg, const bulk *b, kn_expr *t)
{
    int grid[KILN_MAX_LOOPS], n = 0;
    for (int i = 0; i < sg->g->nloops; i++)
        if (sg->g->loops[i].kind == KN_GRID) grid[n++] = i;
    int64_t below = 1;
    if (n > 1 && sg->g->persist) {
        below = grid_extent(sg, grid[n - 2]) * grid_extent(sg, grid[n - 1]);
        set_plane(w, sg, b, grid[n - 2], grid[n - 1], n > 2 ? bounded(w, "plane", by(w, KN_OP_MOD, t, below), below - 1) : t);
        n -= 2;
    }
    while (n-- > 0) {
        kn_expr *v = by(w, KN_OP_FLOORDIV, t, below);
        if (n) v = by(w, KN_OP_MOD, v, grid_extent(sg, grid[n]));
        set_loop(w, sg, b, grid[n], v);
        below *= grid_extent(sg, grid[n]);
    }
}

/* Opens the loop over a block's tiles and gives the grid loops their values; NULL: one tile needs no loop. */
static kn_ls *open_tiles(kn_lw *w, kn_sg *sg, bulk *b)
{
    kn_expr *t = b->first;
    kn_ls *loop = NULL;
    b->round = kn_lw_int(w, 0);
    if (b->tiles > b->stride) {
        int64_t most = kn_ceil_div(b->tiles, b->stride);
        int var = kn_lw_var(w, "round", 0, most - 1);
        kn_expr *rounds = kn_lw_int(w, b->tiles / b->stride);
        if (b->tiles % b->stride)
            rounds = kn_lw_node(w, KN_OP_SELECT, KN_I64, 1, is_less(w, b->first, b->tiles % b->stride), kn_lw_int(w, most), rounds);
        loop = kn_lw_for(w, var, kn_lw_int(w, 0), rounds);
        if (!loop) return NULL;
        loop->unroll = 1;
        w->tail = &loop->body;
        b->round = kn_lw_ref(w, var);
        t = bounded(w, "tile", plus(w, b->first, by(w, KN_OP_MUL, b->round, b->stride)), b->tiles - 1);
    }
    set_tile(w, sg, b, t);
    return loop;
}

/* Iteration k of the present tile: its copy, and how often that was in use before, as 0 or 1. */
static kn_expr *turn(kn_lw *w, const bulk *b, kn_expr *k) { return plus(w, by(w, KN_OP_MUL, b->round, b->steps), k); }
static kn_expr *copy_of(kn_lw *w, const bulk *b, kn_expr *n) { return bounded(w, "copy", by(w, KN_OP_MOD, n, b->copies), b->copies - 1); }
static kn_expr *phase_of(kn_lw *w, const bulk *b, kn_expr *n, int64_t later)
{
    return by(w, KN_OP_MOD, plus(w, by(w, KN_OP_FLOORDIV, n, b->copies), kn_lw_int(w, later)), 2);
}

static kn_ls *open_steps(kn_lw *w, kn_sg *sg, const bulk *b, kn_expr **n)
{
    kn_ls *loop = kn_lw_loop(w, sg, b->loop);
    if (!loop) return NULL;
    loop->unroll = 1;
    w->tail = &loop->body;
    *n = bounded(w, "turn", turn(w, b, sg->val[b->loop]), b->steps * kn_ceil_div(b->tiles, b->stride) - 1);
    sg->slot = copy_of(w, b, *n);
    return loop;
}

/* ---- those that ask ---- */

/* Where the tile of pixels begins: channel, column, row, image; and the place in the window, columns first. */
static void at_window(kn_lw *w, const kn_window *x, kn_expr *const *av, kn_pipe *p)
{
    kn_expr *pixel = av[x->axis[0]], *place = by(w, KN_OP_FLOORDIV, av[x->axis[1]], x->channels);
    p->coord[0] = by(w, KN_OP_MOD, av[x->axis[1]], x->channels);
    for (int d = 0; d < 2; d++) {
        kn_expr *at = by(w, KN_OP_MUL, by(w, KN_OP_MOD, pixel, x->pixels[d]), x->step[d]);
        p->coord[1 + d] = plus(w, at, kn_lw_int(w, x->lower[d]));
        pixel = by(w, KN_OP_FLOORDIV, pixel, x->pixels[d]);
        p->offset[d] = by(w, KN_OP_MUL, d ? place : by(w, KN_OP_MOD, place, x->taps[0]), x->apart[d]);
        place = by(w, KN_OP_FLOORDIV, place, x->taps[d]);
    }
    p->coord[3] = pixel;
}

/* One tile of a cache: its boxes, or this block's part of them for the whole cluster. Returns its bytes. */
static int64_t load_tile(kn_lw *w, kn_sg *sg, const bulk *b, int cache)
{
    const kn_cache *c = &sg->g->caches[cache];
    const kn_expr *load = sg->loads[c->load];
    kn_bulk x;
    char why[200];
    kn_expr *av[KILN_MAX_AXES];
    if (!kn_bulk_of(w->t, sg->g, c, &x, why, sizeof why)) return kn_lw_fail(w, KILN_TRACE, "%s", why), 0;
    int bytes = kn_dtype_bytes(load->dtype), wide = x.box[0];
    int64_t part = (int64_t)x.box[x.rows] * wide, panel = part * x.parts;
    kn_lw_tensor(w, load->u.tensor);
    kn_env_axes(w, sg, av);
    for (int k = 0; k < x.boxes; k++) {
        kn_pipe p = { .step = KN_PIPE_LOAD, .bars = b->bars, .slot = sg->slot, .buffer = sg->cache_buffer[cache], .tensor = load->u.tensor,
                      .rank = x.rank, .peers = x.parts };
        p.at = plus(w, kn_lw_copy_of(w, sg, cache, NULL), kn_lw_int(w, k * panel));
        if (x.window) at_window(w, x.window, av, &p);
        for (int d = 0; d < x.rank && !x.window; d++) p.coord[d] = av[x.axis[d]];
        p.coord[0] = plus(w, p.coord[0], kn_lw_int(w, k * wide));
        if (x.parts > 1) {
            p.at = plus(w, p.at, by(w, KN_OP_MUL, b->rank, part));
            p.coord[x.rows] = plus(w, p.coord[x.rows], by(w, KN_OP_MUL, b->rank, x.box[x.rows]));
        }
        kn_lw_pipe(w, p);
    }
    return panel * x.boxes * bytes;
}

static void ask(kn_lw *w, kn_sg *sg, bulk *b)
{
    int registers = kn_stage_registers(sg->g, w->hw, true);
    kn_ls **all = w->tail;
    if (registers) {
        kn_lw_pipe(w, (kn_pipe){ .step = KN_PIPE_REGISTERS, .n = registers });
        all = w->tail;
    }
    kn_ls *one = kn_lw_if(w, is_less(w, sg->lane, 1));
    if (!one) return;
    all = w->tail;
    w->tail = &one->body;
    open_tiles(w, sg, b);
    kn_expr *n;
    if (!open_steps(w, sg, b, &n)) return;
    kn_pipe empty = { .step = KN_PIPE_AWAIT, .bars = b->bars, .slot = plus(w, sg->slot, kn_lw_int(w, b->copies)), .parity = phase_of(w, b, n, 1) };
    kn_lw_pipe(w, empty);
    kn_pipe full = { .step = KN_PIPE_EXPECT, .bars = b->bars, .slot = sg->slot };
    for (int i = 0; i < sg->g->ncaches; i++) full.n += kn_cache_bytes(w->t, sg->g, &sg->g->caches[i]) / b->copies;
    kn_lw_pipe(w, full);
    int64_t bytes = 0;
    for (int i = 0; i < sg->g->ncaches && !w->status; i++) bytes += load_tile(w, sg, b, i);
    if (!w->status && bytes != full.n)
        kn_lw_fail(w, KILN_INTERNAL, "bulk copies of %lld bytes for tiles of %lld", (long long)bytes, (long long)full.n);
    w->tail = all;
}

/* ---- those that compute ---- */

/* This group has read copy `slot`: a thread each says so to a block of the cluster. */
static void release(kn_lw *w, kn_sg *sg, const bulk *b, kn_expr *slot)
{
    kn_pipe p = { .step = KN_PIPE_ARRIVE, .bars = b->bars, .slot = plus(w, slot, kn_lw_int(w, b->copies)), .peer = b->rank ? sg->lane : NULL };
    kn_ls *one = kn_lw_if(w, is_less(w, sg->lane, b->rank ? b->cluster : 1)), **after = w->tail;
    if (!one) return;
    w->tail = &one->body;
    kn_lw_pipe(w, p);
    w->tail = after;
}

void kn_lw_bulk_done(kn_lw *w, kn_sg *sg)
{
    const bulk *b = sg->bulk;
    release(w, sg, b, copy_of(w, b, turn(w, b, kn_lw_int(w, b->steps - 1))));
    sg->slot = NULL;
}

int64_t kn_lw_bulk_columns(kn_lw *w, const kn_sg *sg) { return 128 / kn_dtype_bytes(w->p->program->tensors[kn_stage_out(w->t, sg->g)].dtype); }

/* Threads of a group meet at a barrier of its own: bar.sync takes a number, so that the groups' ways part. */
static void meet(kn_lw *w, const bulk *b)
{
    kn_lw_pipe(w, (kn_pipe){ .step = KN_PIPE_MEET, .slot = plus(w, b->group, kn_lw_int(w, 1)), .n = b->groups, .bars = b->bars });
}

static void first_thread(kn_lw *w, kn_sg *sg, kn_pipe p)
{
    kn_ls *one = kn_lw_if(w, is_less(w, sg->lane, 1)), **after = w->tail;
    if (!one) return;
    w->tail = &one->body;
    kn_lw_pipe(w, p);
    w->tail = after;
}

/* The box before the last one has been read when all but one store have. */
kn_expr *kn_lw_bulk_box(kn_lw *w, kn_sg *sg, int *stage)
{
    bulk *b = sg->bulk;
    int64_t elems = KN_BULK_ROWS * kn_lw_bulk_columns(w, sg);
    *stage = b->stage;
    first_thread(w, sg, (kn_pipe){ .step = KN_PIPE_STORED, .n = b->pending });
    meet(w, b);
    return plus(w, by(w, KN_OP_MUL, b->group, 2 * elems), kn_lw_int(w, b->boxes++ % 2 * elems));
}

void kn_lw_bulk_store(kn_lw *w, kn_sg *sg, kn_expr *box, int stage)
{
    bulk *b = sg->bulk;
    kn_bulk x;
    char why[200];
    kn_expr *av[KILN_MAX_AXES];
    if (!kn_bulk_out(w->t, sg->g, &x, why, sizeof why)) {
        kn_lw_fail(w, KILN_TRACE, "%s", why);
        return;
    }
    kn_pipe p = { .step = KN_PIPE_STORE, .buffer = stage, .at = box, .tensor = kn_stage_out(w->t, sg->g), .rank = x.rank };
    kn_lw_tensor(w, p.tensor);
    kn_env_axes(w, sg, av);
    for (int d = 0; d < x.rank; d++) p.coord[d] = av[x.axis[d]];
    kn_lw_group(w, KN_GROUP_SEEN);
    meet(w, b);
    first_thread(w, sg, p);
}

static void compute(kn_lw *w, kn_sg *sg, bulk *b)
{
    int registers = kn_stage_registers(sg->g, w->hw, false);
    if (registers) kn_lw_pipe(w, (kn_pipe){ .step = KN_PIPE_REGISTERS, .n = registers, .more = true });
    if (b->group->op == KN_OP_VAR) w->var_hi[b->group->u.var] = b->groups - 1; /* in here it is one of those that compute */
    kn_lw_decode(w, sg, b->group, false);
    kn_ls *tiles = open_tiles(w, sg, b);
    kn_lw_instruction_begin(w, sg);
    kn_expr *n;
    kn_ls **after = w->tail;
    kn_ls *loop = open_steps(w, sg, b, &n);
    if (!loop) return;
    after = &loop->next;
    kn_lw_pipe(w, (kn_pipe){ .step = KN_PIPE_AWAIT, .bars = b->bars, .slot = sg->slot, .parity = phase_of(w, b, n, 0) });
    kn_lw_instruction(w, sg);
    kn_ls *more = b->steps > 1 ? kn_lw_if(w, kn_lw_node(w, KN_OP_LT, KN_BOOL, 1, kn_lw_int(w, 0), sg->val[b->loop], NULL)) : NULL;
    if (more) { /* the instructions of the iteration before have ended */
        w->tail = &more->body;
        release(w, sg, b, copy_of(w, b, plus(w, n, kn_lw_int(w, b->copies - 1))));
    }
    w->tail = after;
    b->pending = w->p->buffers[sg->results].elems / (kn_lw_bulk_columns(w, sg) / 2) % 2 ? 0 : 1;
    kn_lw_instruction_end(w, sg);
    if (!sg->g->bulk_store) return;
    if (tiles) w->tail = &tiles->next;
    first_thread(w, sg, (kn_pipe){ .step = KN_PIPE_STORED }); /* shared memory goes with the block */
}

/* ---- both ---- */

static void barriers(kn_lw *w, const kn_sg *sg, bulk *b)
{
    b->bars = kn_lw_buffer(w, "bars", KN_I64, 1, 2 * b->copies, KN_SHARED);
    kn_ls *one = kn_lw_if(w, is_less(w, w->thread, 1)), **after = w->tail;
    if (!one) return;
    w->tail = &one->body;
    for (int i = 0; i < sg->g->ncaches; i++)
        kn_lw_pipe(w, (kn_pipe){ .step = KN_PIPE_PREFETCH, .tensor = sg->loads[sg->g->caches[i].load]->u.tensor });
    for (int empty = 0; empty < 2; empty++) {
        int var = kn_lw_var(w, "bar", 0, b->copies - 1);
        kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, b->copies)), **next = w->tail;
        if (!loop) return;
        w->tail = &loop->body;
        kn_expr *slot = plus(w, kn_lw_ref(w, var), kn_lw_int(w, empty ? b->copies : 0));
        kn_lw_pipe(w, (kn_pipe){ .step = KN_PIPE_INIT, .bars = b->bars, .slot = slot, .n = empty ? b->groups * b->cluster : 1 });
        w->tail = next;
    }
    kn_lw_pipe(w, (kn_pipe){ .step = KN_PIPE_OPEN });
    w->tail = after;
    if (b->cluster > 1) kn_lw_pipe(w, (kn_pipe){ .step = KN_PIPE_CLUSTER });
    else kn_lw_barrier(w);
}

void kn_lw_bulk(kn_lw *w, kn_sg *sg)
{
    const kn_fn *fn = w->fn;
    const kn_stage *g = sg->g;
    bulk *b = kn_new(w->a, bulk);
    if (!b) {
        kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
        return;
    }
    sg->bulk = b;
    *b = (bulk){ .copies = g->caches[0].copies, .cluster = g->cluster > 1 ? g->cluster : 1, .loop = g->caches[0].at, .tiles = 1 };
    b->groups = fn->threads / KN_BULK_THREADS - 1;
    b->steps = g->loops[b->loop].extent;
    b->stride = fn->grid / b->cluster;
    for (int i = 0; i < g->nloops; i++)
        if (g->loops[i].kind == KN_GRID) b->tiles *= grid_extent(sg, i);
    kn_expr *block = kn_lw_ref(w, fn->var_grid);
    b->rank = b->cluster > 1 ? kn_lw_let(w, "rank", by(w, KN_OP_MOD, block, b->cluster)) : NULL;
    b->first = kn_lw_let(w, "first", by(w, KN_OP_FLOORDIV, block, b->cluster));
    sg->lane = kn_lw_let(w, "lane", by(w, KN_OP_MOD, w->thread, KN_BULK_THREADS));
    b->group = kn_lw_let(w, "group", by(w, KN_OP_FLOORDIV, w->thread, KN_BULK_THREADS));
    if (g->bulk_store) {
        enum kn_dtype t = w->p->program->tensors[kn_stage_out(w->t, g)].dtype;
        b->stage = kn_lw_buffer(w, "stage", t, 1, (int64_t)b->groups * KN_BULK_STAGED / kn_dtype_bytes(t), KN_SHARED);
    }
    barriers(w, sg, b);
    kn_ls *roles = kn_lw_if(w, is_less(w, b->group, b->groups)), **after = w->tail;
    if (!roles) return;
    w->tail = &roles->body;
    compute(w, sg, b);
    memset(sg->val, 0, sizeof sg->val);
    w->tail = &roles->other;
    ask(w, sg, b);
    w->tail = after;
    if (b->cluster > 1) kn_lw_pipe(w, (kn_pipe){ .step = KN_PIPE_CLUSTER }); /* nobody leaves while another may still arrive at its barriers */
}

static void set_map(const kn_lw *w, const kn_fn *f, int tensor, const kn_bulk *x, kiln_tensor_map *maps)
{
    for (int k = 0; k < f->nargs; k++) {
        kiln_tensor_map *m = &maps[k];
        if (f->args[k] != tensor) continue;
        const char *dtype = kn_dtype_text(w->p->program->tensors[tensor].dtype);
        *m = (kiln_tensor_map){ .rank = x->rank, .dtype = x->stride[0] == 1 ? "u8" : dtype, .swizzle = 3, .l2 = 3 };
        for (int d = 0; d < x->rank; d++) m->dims[d] = x->extent[d], m->box[d] = x->box[d];
        for (int d = 1; d < x->rank; d++) m->strides[d - 1] = x->stride[d];
        if (!x->window) continue;
        m->pixels = x->box[1], m->box[1] = 1;
        for (int d = 0; d < 2; d++)
            m->lower[d] = (int)x->window->lower[d], m->upper[d] = (int)x->window->upper[d], m->steps[d] = (int)x->window->step[d];
    }
}

kiln_tensor_map *kn_lw_bulk_maps(kn_lw *w, const kn_stage *g, const kn_fn *f)
{
    kiln_tensor_map *maps = kn_array(w->a, kiln_tensor_map, f->nargs + 1);
    const kn_expr *loads[KILN_MAX_TENSORS];
    char why[200];
    kn_bulk x;
    kn_loads(w->p->program->stmts[g->stmt]->body, loads, KILN_MAX_TENSORS);
    for (int i = 0; maps && i < g->ncaches; i++)
        if (kn_bulk_of(w->t, g, &g->caches[i], &x, why, sizeof why)) set_map(w, f, loads[g->caches[i].load]->u.tensor, &x, maps);
    if (maps && g->bulk_store && kn_bulk_out(w->t, g, &x, why, sizeof why)) set_map(w, f, kn_stage_out(w->t, g), &x, maps);
    if (!maps) kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
    return maps;
}
