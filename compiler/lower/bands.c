/* Rows of images that lie far away are asked for before a window gets to them, where its lanes are a part of the channels, which come last
 * (depthwise, pooling): each row is gone through a vector at a time, so that reads go from place to place, in as many pages as the rows have, and no
 * prefetcher follows. The rows that the next iteration over rows adds lie beside each other in memory: meanwhile they are asked for from end to end,
 * a run of lines at each step, which a prefetcher follows (48x21x21x672 and 48x42x42x336 by 5x5 in steps of 2: 1.8 times as fast, where memory takes
 * 150 ns, 7x7 over 165x165x96 1.27). */
#include "lower/tile.h"

enum { LEAST_BAND = 4096, MOST_LINES = 64 }; /* bytes; at a step */

typedef struct band {
    kn_lw *w;
    kn_sg *sg;
    const kn_expr *load;
    const kn_tensor *x;
    kn_affine at[KILN_MAX_RANK]; /* indices of the load */
    int rows;                    /* the loop from rows to rows */
    int dim;                     /* the dimension along which it goes */
} band;

/* By how much a loop moves the index of dimension d. */
static int64_t moves(const band *b, int loop, int d)
{
    const kn_loop *l = &b->sg->g->loops[loop];
    return b->at[d].coef[l->axis] * l->stride;
}

/* Elements of dimension d that one iteration of the rows' loop meets. */
static int64_t span(const band *b, int d)
{
    int64_t n = 1;
    for (int i = b->rows + 1; i < b->sg->g->nloops; i++) {
        int64_t by = moves(b, i, d);
        n += (by < 0 ? -by : by) * (b->sg->g->loops[i].extent - 1);
    }
    return n;
}

static int64_t pitch(const band *b, int d)
{
    int64_t n = 1;
    for (int k = d + 1; k < b->load->nargs; k++) n *= b->x->shape[k];
    return n;
}

/* An iteration meets one image, and rows of it from end to end, but for what a window leaves over; a loop inside goes through the channels. */
static bool are_rows(const band *b)
{
    enum { OVER = 8 }; /* of so many elements one */
    int last = b->load->nargs - 1;
    bool channels = false;
    for (int d = 0; d <= last; d++) {
        if (d < b->dim && span(b, d) > 1) return false;
        if (d > b->dim && span(b, d) * OVER < b->x->shape[d] * (OVER - 1)) return false;
    }
    for (int i = b->rows + 1; i < b->sg->tile; i++) channels |= b->sg->g->loops[i].extent > 1 && moves(b, i, last);
    return channels && b->dim < last;
}

/* The sum goes along the rows as a window does; a sum of the rows reads them from end to end (33333x300 in two parts: 0.4 of the time unasked). */
static bool by_taps(const band *b)
{
    enum { TAPS = 16 };
    int64_t terms = 1;
    for (int i = b->sg->s->nspatial; i < b->sg->s->naxes; i++)
        if (b->at[b->dim].coef[i]) terms *= b->sg->s->axes[i].extent;
    return terms <= TAPS;
}

/* The innermost loop outside of a tile whose iterations are bands of rows that follow each other. */
static bool find_rows(band *b)
{
    const kn_sg *sg = b->sg;
    for (b->rows = sg->tile - 1; b->rows >= 0; b->rows--) {
        const kn_loop *l = &sg->g->loops[b->rows];
        int dims = 0;
        if (l->extent == 1 || !sg->val[b->rows]) continue;
        if (l->kind != KN_SERIAL && l->kind != KN_PARALLEL) return false;
        for (int d = 0; d < b->load->nargs; d++)
            if (moves(b, b->rows, d)) b->dim = d, dims++;
        int64_t by = dims == 1 ? moves(b, b->rows, b->dim) : 0;
        if (by > 0 && by * pitch(b, b->dim) * kn_dtype_bytes(b->x->dtype) >= LEAST_BAND && are_rows(b)) return true;
    }
    return false;
}

/* Where the rows begin that the next iteration adds: behind those that this one meets. */
static kn_expr *behind(const band *b)
{
    kn_lw *w = b->w;
    kn_expr *at[KILN_MAX_RANK];
    for (int d = 0; d < b->load->nargs; d++) {
        at[d] = kn_lw_int(w, d > b->dim ? 0 : b->at[d].offset + (d == b->dim ? span(b, d) : 0));
        for (int i = 0; i <= b->rows && d <= b->dim; i++) {
            int64_t by = moves(b, i, d);
            if (by && b->sg->val[i]) at[d] = kn_bin(w->a, KN_OP_ADD, at[d], kn_bin(w->a, KN_OP_MUL, b->sg->val[i], kn_lw_int(w, by)));
        }
    }
    return kn_lw_address(w, b->load->u.tensor, at);
}

/* An iteration goes through more pages than a prefetcher follows (32 on Intel's cores), and some; fewer of them gain nothing, or lose (14x14x256 by
 * 3x3 in steps of 2: 0.89, 112x112x96: 0.94). */
static bool many_pages(const band *b)
{
    enum { PAGES = 64 };
    return span(b, b->dim) * kn_ceil_div(pitch(b, b->dim) * kn_dtype_bytes(b->x->dtype), KN_PAGE_BYTES) > PAGES;
}

/* Fetching takes a part of the time of computing that is worth asking. */
static bool worth(const band *b)
{
    enum { PART = 4 };
    const kn_hw *hw = b->w->hw;
    double flops = 2, bytes = (double)kn_lw_elems(b->x) * kn_dtype_bytes(b->x->dtype);
    for (int i = 0; i < b->sg->s->naxes; i++) flops *= (double)b->sg->s->axes[i].extent;
    return bytes / hw->levels[0].bandwidth_gbs * PART > flops / kn_hw_peak_gflops(hw, kn_stmt_acc(b->sg->s));
}

/* From the last cache, in steps, on devices whose prefetchers follow runs: asking is more work there (on a Zen 4, without, windows of 3x3 by 2 over
 * 384x68x68, 480x28x28, 672x21x21 and 304x75x75 1.17 to 1.38 times as fast, 7x7 by 2 1.1; by 1 0.87 to 1.04, from memory 0.72 to 1.05). */
static bool comes_by_itself(const band *b)
{
    bool steps = b->at[b->dim].coef[b->sg->g->loops[b->rows].axis] > 1;
    return b->w->hw->follows_runs && steps && !kn_hw_past_caches(b->w->hw, (double)kn_lw_touched(b->w));
}

static void ask(band *b)
{
    kn_lw *w = b->w;
    const kn_sg *sg = b->sg;
    int64_t steps = 1, line = KN_LINE_BYTES / kn_dtype_bytes(b->x->dtype), elems = moves(b, b->rows, b->dim) * pitch(b, b->dim);
    kn_expr *step = kn_lw_int(w, 0);
    for (int i = sg->tile - 1; i > b->rows; i--) {
        if (sg->g->loops[i].extent == 1 || !sg->val[i]) continue;
        step = kn_bin(w->a, KN_OP_ADD, step, kn_bin(w->a, KN_OP_MUL, sg->val[i], kn_lw_int(w, steps)));
        steps *= sg->g->loops[i].extent;
    }
    int64_t lines = kn_ceil_div(elems, line * steps);
    if (lines > MOST_LINES) return;
    kn_expr *from = kn_bin(w->a, KN_OP_ADD, behind(b), kn_bin(w->a, KN_OP_MUL, step, kn_lw_int(w, lines * line)));
    kn_lw_prefetch_lines(w, kn_lw_tensor(w, b->load->u.tensor), from ? kn_lw_simp(w, from) : &w->dry, lines, line, false);
}

void kn_lw_ask_bands(kn_lw *w, kn_sg *sg)
{
    if (w->hw->gpu || sg->s->red == KN_RED_NONE || sg->s->scatter || sg->g->tensor.intrin) return;
    for (int k = 0; k < sg->nloads && !w->status; k++) {
        band b = {.w = w, .sg = sg, .load = sg->loads[k], .x = &w->p->program->tensors[sg->loads[k]->u.tensor]};
        bool known = !kn_sg_cached(sg, k) && !w->box[b.load->u.tensor].on && kn_lw_beyond_l2(w, b.load->u.tensor);
        for (int d = 0; d < b.load->nargs && known; d++) known = kn_affine_of(b.load->args[d], &b.at[d]);
        if (known && worth(&b) && find_rows(&b) && by_taps(&b) && many_pages(&b) && !comes_by_itself(&b)) ask(&b);
    }
}
