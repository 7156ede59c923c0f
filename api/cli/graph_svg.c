/* A plan as a picture: a box a step, in rows by how far it is from the inputs, warmer the more of the time it takes; or as text for Graphviz. */
#include "api/cli/graph_view.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE = 230, HIGH = 58, GAP = 26, ROW = 104, TOP = 70, LINE = 34 };

struct text { char *p; size_t n, cap; bool dry; };

static void put(struct text *t, const char *format, ...)
{
    va_list ap, again;
    va_start(ap, format);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, format, ap);
    if (t->n + (size_t)n + 1 > t->cap) {
        char *more = realloc(t->p, t->cap = 2 * t->cap + (size_t)n + 4096);
        t->dry |= !more;
        t->p = more ? more : t->p;
    }
    if (!t->dry) t->n += (size_t)vsnprintf(t->p + t->n, t->cap - t->n, format, again);
    va_end(again);
    va_end(ap);
}

/* At most `most` characters of what a client named, with what XML and Graphviz want escaped. */
static void put_escaped(struct text *t, const char *s, size_t most, bool xml)
{
    size_t n = strlen(s), show = n > most ? most - 2 : n;
    while (show < n && show && ((unsigned char)s[show] & 0xc0) == 0x80) show--;
    for (size_t i = 0; i < show; i++) {
        unsigned char c = (unsigned char)s[i];
        if (xml && strchr("<>&\"'", c)) put(t, "&#%d;", c);
        else if (!xml && strchr("\"\\", c)) put(t, "\\%c", c);
        else put(t, "%c", c < 32 ? ' ' : c);
    }
    if (show < n) put(t, "..");
}

double graph_total(const struct graph_view *v)
{
    double total = 0;
    for (int i = 0; i < v->plan->nsteps; i++) total += v->us[i];
    return total;
}

/* ---- where boxes stand: the inputs are row 0, a step stands below all that it reads, the outputs below everything ---- */
struct place { int row; double x; };
struct layout { int n, rows; struct place *at; }; /* boxes: inputs, steps, outputs as one */

static int box_of(const struct graph_view *v, int step) { return step < 0 ? 0 : step >= v->plan->nsteps ? v->plan->nsteps + 1 : step + 1; }

static void find_rows(const struct graph_view *v, struct layout *l)
{
    for (int i = 0; i < v->nedges; i++) { /* ordered by reader, which comes after all that it reads */
        int from = box_of(v, v->edges[i].from), to = box_of(v, v->edges[i].to);
        if (l->at[to].row <= l->at[from].row) l->at[to].row = l->at[from].row + 1;
    }
    for (int b = 1; b < l->n; b++) {
        if (!l->at[b].row) l->at[b].row = 1;
        if (b < l->n - 1 && l->at[b].row > l->rows) l->rows = l->at[b].row;
    }
    l->at[l->n - 1].row = ++l->rows;
}

/* A box below the middle of what it reads, or beside who stands there; the row is then moved so that it stands as wide to either side. */
static void place_row(const struct graph_view *v, struct layout *l, int row)
{
    double moved = 0;
    int count = 0;
    for (int b = 1; b < l->n; b++) {
        double sum = 0;
        int reads = 0;
        if (l->at[b].row != row) continue;
        for (int i = 0; i < v->nedges; i++) {
            if (box_of(v, v->edges[i].to) != b) continue;
            sum += l->at[box_of(v, v->edges[i].from)].x;
            reads++;
        }
        double want = reads ? sum / reads : 0, x = want;
        for (int k = 1; k < b; k++)
            if (l->at[k].row == row && x < l->at[k].x + WIDE + GAP && x > l->at[k].x - WIDE - GAP) {
                x = l->at[k].x + WIDE + GAP;
                k = 0;
            }
        l->at[b].x = x;
        moved += x - want;
        count++;
    }
    for (int b = 1; b < l->n; b++)
        if (l->at[b].row == row) l->at[b].x -= moved / count;
}

static bool lay_out(const struct graph_view *v, struct layout *l)
{
    l->n = v->plan->nsteps + 2;
    l->at = calloc((size_t)l->n, sizeof *l->at);
    if (!l->at) return false;
    find_rows(v, l);
    for (int row = 1; row <= l->rows; row++) place_row(v, l, row);
    return true;
}

/* ---- SVG ---- */
static void put_edge(struct text *t, const struct graph_view *v, const struct layout *l, const kiln_edge *e)
{
    const struct place *a = &l->at[box_of(v, e->from)], *b = &l->at[box_of(v, e->to)];
    double x1 = a->x + WIDE / 2.0, y1 = TOP + a->row * ROW + HIGH, x2 = b->x + WIDE / 2.0, y2 = TOP + b->row * ROW;
    double aside = b->row - a->row > 1 ? WIDE / 2.0 + 14 + 6.0 * (b->row - a->row) : 0; /* around the boxes between */
    put(t, "<path d='M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f'><title>", x1, y1, x1 + aside, y1 + ROW / 2.0, x2 + aside, y2 - ROW / 2.0, x2,
        y2);
    put_escaped(t, *e->arg.name ? e->arg.name : "a value without a name", 80, true);
    put(t, " %s[", e->arg.dtype);
    for (int k = 0; k < e->arg.rank; k++) put(t, "%s%lld", k ? "," : "", (long long)e->arg.shape[k]);
    put(t, "] %.1f KiB%s%s</title></path>\n", (double)e->arg.bytes / 1024, *e->why ? "; not one kernel: " : "", e->why);
}

/* From white to a deep orange with the share of the time. */
static void put_colour(struct text *t, double share)
{
    double s = share > 0.25 ? 1 : share * 4;
    put(t, "#%02x%02x%02x", 255, (int)(250 - 105 * s), (int)(240 - 190 * s));
}

static void put_box(struct text *t, const struct graph_view *v, const struct layout *l, int b, double total)
{
    double x = l->at[b].x, y = TOP + l->at[b].row * ROW;
    const kiln_step *s = b > 0 && b < l->n - 1 ? &v->plan->steps[b - 1] : NULL;
    const char *dash = s && s->kernel < -1 ? " stroke-dasharray='5 3'" : "";
    put(t, "<g><rect x='%.1f' y='%.1f' width='%d' height='%d' rx='6' fill='", x, y, WIDE, HIGH);
    if (s) put_colour(t, total > 0 ? v->us[b - 1] / total : 0);
    else put(t, "#e8eef5");
    put(t, "'%s/>", dash);
    if (!s) {
        put(t, "<text x='%.1f' y='%.1f'>%s</text></g>\n", x + 10, y + LINE, b ? "outputs" : "inputs");
        return;
    }
    put(t, "<title>");
    put_escaped(t, s->nodes, 2000, true);
    put(t, "</title><text x='%.1f' y='%.1f'>", x + 10, y + 17);
    put_escaped(t, s->nodes, 29, true);
    put(t, "</text><text class='small' x='%.1f' y='%.1f'>", x + 10, y + LINE);
    if (s->kernel < -1) put(t, "left to you");
    else if (s->kernel < 0) put(t, "a copy of %.1f KiB", (double)s->bytes / 1024);
    else
        put(t, "%.1f us, %.1f %%%s%s", v->us[b - 1], total > 0 ? 100 * v->us[b - 1] / total : 0, *v->bound[b - 1] ? ", by " : "",
            v->bound[b - 1]);
    put(t, "</text><text class='small' x='%.1f' y='%.1f'>", x + 10, y + LINE + 15);
    if (s->nnodes > 1) put(t, "%d nodes in one, saves %.1f us", s->nnodes, s->gain_us);
    else put(t, "step %d", b);
    put(t, "</text></g>\n");
}

char *graph_svg(const struct graph_view *v, size_t *n)
{
    struct text t = {0};
    struct layout l = {0};
    bool ok = lay_out(v, &l);
    double left = 0, right = 0, total = graph_total(v);
    for (int b = 0; ok && b < l.n; b++) {
        left = l.at[b].x < left ? l.at[b].x : left;
        right = l.at[b].x > right ? l.at[b].x : right;
    }
    double width = right - left + WIDE + 260, height = TOP + (l.rows + 1) * ROW;
    put(&t, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='%.0f 0 %.0f %.0f' width='%.0f' height='%.0f'>\n", left - 30, width, height, width,
        height);
    put(&t, "<style>text{font:13px sans-serif;fill:#1c2733}.small{font-size:11px;fill:#465564}.title{font-size:17px;font-weight:bold}"
            "path{fill:none;stroke:#8a9bad;stroke-width:1.4}rect{stroke:#5f7185}</style>\n<rect x='%.0f' y='0' width='%.0f' height='%.0f' "
            "style='fill:white;stroke:none'/>\n<text class='title' x='%.0f' y='28'>",
        left - 30, width, height, left - 10);
    put_escaped(&t, v->title, 90, true);
    put(&t, "</text><text class='small' x='%.0f' y='48'>%d kernels in %d steps, %.1f us %s; a box is warmer the more of that it takes</text>\n",
        left - 10, v->plan->nkernels, v->plan->nsteps, total, v->measured ? "measured" : "predicted");
    for (int i = 0; ok && i < v->nedges; i++) put_edge(&t, v, &l, &v->edges[i]);
    for (int b = 0; ok && b < l.n; b++) put_box(&t, v, &l, b, total);
    put(&t, "</svg>\n");
    free(l.at);
    *n = t.n;
    if (ok && !t.dry) return t.p;
    free(t.p);
    return NULL;
}

/* ---- Graphviz ---- */
char *graph_dot(const struct graph_view *v, size_t *n)
{
    struct text t = {0};
    double total = graph_total(v);
    put(&t, "digraph model {\n  node [shape=box, style=\"rounded,filled\", fontname=sans];\n  b0 [label=inputs];\n");
    for (int i = 0; i < v->plan->nsteps; i++) {
        put(&t, "  b%d [label=\"", i + 1);
        put_escaped(&t, v->plan->steps[i].nodes, 60, false);
        put(&t, "\\n%.1f us\", fillcolor=\"", v->us[i]);
        put_colour(&t, total > 0 ? v->us[i] / total : 0);
        put(&t, "\"];\n");
    }
    put(&t, "  b%d [label=outputs];\n", v->plan->nsteps + 1);
    for (int i = 0; i < v->nedges; i++) {
        put(&t, "  b%d -> b%d [tooltip=\"", box_of(v, v->edges[i].from), box_of(v, v->edges[i].to));
        put_escaped(&t, v->edges[i].why, 200, false);
        put(&t, "\"];\n");
    }
    put(&t, "}\n");
    *n = t.n;
    if (!t.dry) return t.p;
    free(t.p);
    return NULL;
}
