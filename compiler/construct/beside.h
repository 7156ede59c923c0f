/* What the files of windows that slide beside the lanes share (cpu_beside.c, cpu_crowded.c): where they go, and how tiles go over their places. */
#ifndef KN_BESIDE_H
#define KN_BESIDE_H
#include "construct/cpu.h"
#include "construct/nest.h"
#include "te/expr.h"

enum { KN_BESIDE_SIDE = 2, KN_BESIDE_LONGEST = 6 }; /* places of a square's side at the most, of a tile along a row */

/* A window along a spatial axis: `step` from one place to the next, `reach` from its first element to its last one, `apart` from one tap to the next;
 * taps further apart than places (dilated windows) are shared only by places so far apart. */
typedef struct along { int axis; int64_t step, reach, apart; } along;

/* How tiles go over places along a row, and down the image. */
typedef struct along_rows {
    along m, o;
    int taps, load;         /* the reduce axis that is written out; what the window goes over */
    int64_t lanes, mr, rows, vectors; /* places of a tile, rows of a task, vectors that are copied at once */
    bool bands;             /* a task's rows meet all lanes before the next ones do */
    bool narrow, copied;    /* the window's rows fit L1, from end to end; not even a tile's do */
} along_rows;

/* cpu_beside.c */
bool kn_beside_along(const kn_site *x, const kn_expr *load, int axis, along *w); /* the load's window along the axis; false: it has none */
bool kn_beside_rows_of(const kn_site *x, along_rows *r); /* the rest of m and o; false: no taps along a row, or no places to share them */
int64_t kn_beside_rows_of_task(const kn_site *x, int64_t lanes, int o);
void kn_beside_put_tasks(kn_nest *w, const along_rows *r, bool parts);
void kn_beside_put_taps(kn_nest *w, const along_rows *r, bool all);
bool kn_beside_by_rows(const kn_site *x, const along *m, const along *o); /* squares would hold fewer places than a row does */

/* cpu_crowded.c: lines of such columns that L1 has room for; what a square reads has room; what a tile along a dilated row reads has none; plans of
 * what has none, false: there are none. */
int64_t kn_beside_lines_held(const kn_site *x, const kn_site_access *a, const along *m);
bool kn_beside_holds_square(const kn_site *x, const along *m, int64_t mr, const along *o, int64_t mo);
bool kn_beside_crowds(const kn_site *x, const along *m, const along *o);
bool kn_beside_tile_crowds(const kn_site *x, const along *m);
bool kn_beside_crowded(const kn_site *x, kn_plans *p, const along *m, const along *o);

#endif
