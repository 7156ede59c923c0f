/* Tiles for registers of an instruction's own unit (AMX) that pass by: what is loaded again only after more than L1 holds has gone through it is not
 * to drive out what stays there, and is loaded with a hint that says so. (Windows of 64 to 128 channels on a Xeon with AMX: 1.1 to 1.25 times as
 * fast where the weights pass so, 0.85 where the image does that is read again.) */
#include "lower/lower.h"

enum { DEEP = 32 };
typedef struct passing {
    kn_lw *w;
    int64_t room;          /* bytes of L1 that may go through it between two uses */
    const kn_ls *all;      /* statements of the function */
    int results;           /* register of the unit, -1: none */
    const kn_ls *loop[DEEP]; /* around the present statement, outermost first */
    int depth;
} passing;

/* What a load touches while the loops of `from` on run, innermost first: bytes, and how many elements lie from its first to its last. Not known
 * where a loop moves it unevenly. */
typedef struct touched { double bytes, span; bool known; } touched;

static touched tile_of(const passing *p, const kn_unit_step *u)
{
    const kn_buffer *r = &p->w->p->buffers[u->reg];
    return (touched){(double)r->lanes * kn_dtype_bytes(r->dtype), (double)((r->rows - 1) * u->row + r->lanes / r->rows), true};
}

/* One more loop around: false: its iterations meet again what the one before has touched, all or most of it (windows). */
static bool goes_on(const passing *p, const kn_ls *loop, const kn_unit_step *u, touched *t)
{
    int64_t step = 0;
    int64_t n = kn_lw_iterations(p->w, loop);
    double more = n > 1 ? (double)(n - 1) : 0;
    if (!kn_lw_coefficient(u->at, loop->var, &step)) t->known = false;
    if (!more || !t->known) return true;
    double by = (double)(step < 0 ? -step : step);
    bool again = 2 * by <= t->span;
    t->bytes *= again ? 1 + more * by / t->span : 1 + more;
    t->span += by * more;
    return !again;
}

/* An operand's: what is stored as well are results that lie in memory between two slices of a sum. */
static bool loads(const passing *p, const kn_ls *s) { return s->kind == KN_LS_UNIT && s->unit->what == KN_UNIT_LOAD && s->unit->reg != p->results; }

static int stored_register(const kn_ls *list)
{
    int found = -1;
    for (const kn_ls *s = list; s && found < 0; s = s->next) {
        if (s->kind == KN_LS_UNIT && s->unit->what == KN_UNIT_STORE) return s->unit->reg;
        found = stored_register(s->body);
        if (found < 0) found = stored_register(s->other);
    }
    return found;
}

/* Bytes that one iteration of the loop at depth `outer` loads into registers of the unit. */
static double through(passing *p, const kn_ls *list, int outer)
{
    double bytes = 0;
    for (const kn_ls *s = list; s; s = s->next) {
        if (loads(p, s)) {
            touched t = tile_of(p, s->unit);
            for (int i = p->depth - 1; i > outer; i--) goes_on(p, p->loop[i], s->unit, &t);
            bytes += t.bytes;
        }
        bool in = s->kind == KN_LS_FOR && p->depth < DEEP;
        if (in) p->loop[p->depth++] = s;
        bytes += through(p, s->body, outer);
        if (in) p->depth--;
        bytes += through(p, s->other, outer);
    }
    return bytes;
}

static bool passes_by(const passing *p, const kn_unit_step *u)
{
    touched t = tile_of(p, u);
    int again = p->depth - 1;
    while (again >= 0 && goes_on(p, p->loop[again], u, &t)) again--;
    if (!t.known) return false;
    passing within = *p; /* no loop meets it again: the next task may */
    within.depth = again + 1;
    return through(&within, again < 0 ? p->all : p->loop[again]->body, again) > (double)p->room;
}

static void mark(passing *p, kn_ls *list)
{
    for (kn_ls *s = list; s; s = s->next) {
        if (loads(p, s) && passes_by(p, s->unit)) {
            kn_unit_step *copy = kn_new(p->w->a, kn_unit_step);
            if (!copy) return;
            *copy = *s->unit;
            copy->passes = true;
            s->unit = copy;
        }
        bool in = s->kind == KN_LS_FOR && p->depth < DEEP;
        if (in) p->loop[p->depth++] = s;
        mark(p, s->body);
        if (in) p->depth--;
        mark(p, s->other);
    }
}

void kn_lw_passing(kn_lw *w, kn_ls **list)
{
    const kn_hw_level *l1 = kn_hw_level_named(w->hw, "l1");
    if (!l1 || !w->hw->tile_registers) return;
    passing p = {.w = w, .room = l1->capacity_bytes * 3 / 4, .all = *list, .results = stored_register(*list)};
    mark(&p, *list);
}
