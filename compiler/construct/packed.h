/* Sums of products with a factor that is packed, while they are planned: what cpu_packed.c knows of one, and its register tile. Private to
 * cpu_packed*.c. */
#ifndef KN_PACKED_H
#define KN_PACKED_H
#include "construct/cpu.h"
#include "construct/nest.h"

typedef struct packed {
    const kn_site *x;
    int w, v;                    /* loads: the constant, the other factor */
    int q, p;                    /* rows of a register tile; rows around them, cut into bands; -1: none */
    uint32_t uneven;             /* axes of the constant's digits, of which some lie in padding (digits.c) */
    int order[KILN_MAX_AXES];    /* the reduction's axes, those outermost, then as the other factor is walked through from end to end */
    int blocked;                 /* reduce axis that is cut where blocks of the constant are to stay in L1 */
    int taps;                    /* reduce axis of a row's taps, which is written out since padding leaves some of a tile's out; -1: none */
    bool padded;
    bool panels;                 /* each panel of the constant meets all rows of one task while it is near; else each row all panels */
    bool shares;                 /* panels, but bands of the rows' own axis are tasks, which go through all of them; else panels are tasks */
    bool beside;                 /* the other factor has the lanes too (depthwise): nothing is shared between them */
    bool copied;                 /* load w is no constant: every task packs it */
    bool turns;                  /* in squares that are turned: its rows run along the sum (cpu_squares.c) */
    bool lies;                   /* nor is it packed: its rows are read as they lie */
    bool boxed;                  /* bands of the other factor are copied, with their padding and whole runs of terms */
    bool streams;                /* the constant goes by once or a few times: every vector of a panel along a run of its own */
    bool dots;                   /* an instruction sums `terms` of the products along dot.run for every lane */
    kn_cpu_dot dot;
    int64_t terms;               /* 1 without dots */
    int64_t lanes, nv, mr, kb;
    int64_t mp;                  /* of p in a register tile, beside mr of q */
    int64_t layer;               /* of `blocked` in each layer of the other factor's copy, 0: it has none; then kb is the same */
    int64_t group;               /* panels that a task packs together, block by block */
    int64_t band;                /* of p in one task; without p: of q's tiles, 1: all tiles */
} packed;

static inline int64_t extent(const packed *k, int axis) { return kn_cpu_extent(k->x, axis); }
static inline const char *name(const packed *k, int axis) { return kn_cpu_axis(k->x, axis); }
static inline bool has(const packed *k, int load, int axis) { return k->x->load[load].axes >> axis & 1; }

/* cpu_packed.c. */
int64_t kn_packed_bytes(const packed *k); /* of an element of the copy */
int64_t kn_packed_met(const packed *k, const kn_site_access *a); /* bytes of what the statement reads or writes there */
int64_t kn_packed_all(const packed *k);                          /* the packed factor's */
/* cpu_packed_tasks.c: panels of the packed factor are tasks, not bands of the rows. */
bool kn_packed_in_panels(const packed *k);
bool kn_packed_near(const packed *k);      /* the packed factor stays in L2 */
bool kn_packed_in_shares(packed *k);      /* of panels: cores share the rows */
bool kn_packed_in_streams(const packed *k);
int64_t kn_packed_band(const packed *k);  /* what packed.band is to be, and packed.group */
int64_t kn_packed_group(const packed *k);
int64_t kn_packed_images(const packed *k);
bool kn_packed_sums_stay(const packed *k, int64_t places);
bool kn_packed_meets_block(const packed *k, int axis);
bool kn_packed_is_other(const packed *k, int axis, bool beside);
bool kn_packed_in_groups(const packed *k); /* the packed factor has axes of results beside that of the lanes */
bool kn_packed_whole(const packed *k);     /* what each task packs of a group, it packs at once, not block by block */
bool kn_packed_at_once(const packed *k);   /* or what each packs of a panel */
/* cpu_packed_loops.c: a plan of a panel or a band a task, and parts of its order that others have too: the axes that are tasks whatever those are;
 * the reduction's loops around a block, or within; the axes that the packed factor follows besides n; the register tile, whose rows and columns are
 * parts `cut` and `in` of theirs, with its kinds. */
void kn_packed_try(packed *k, kn_plans *plans);
void kn_packed_put_tasks(kn_nest *w, const packed *k);
void kn_packed_put_reduction(kn_buf *b, const packed *k, bool outer);
void kn_packed_put_followed(kn_buf *b, const packed *k);
void kn_packed_put_tile(kn_nest *w, const packed *k, int cut, int in);
/* cpu_packed_far.c: terms of a block, 0: none; plans of what the caches hold in blocks alone; false: there are none. */
int64_t kn_packed_block(const packed *k, bool strips);
bool kn_packed_far(packed *k, kn_plans *plans);
/* cpu_packed_layers.c: terms of a layer for panels of nv vectors, 0: none; the step that cuts the copy so. */
int64_t kn_packed_layer(const packed *k, int64_t nv);
void kn_packed_put_layers(kn_buf *b, const packed *k);
/* cpu_packed_tile.c: the register tile that takes least, and the other factor's layers if these are wanted; false: there is none. */
bool kn_packed_choose(packed *k, bool layers);
/* Few registers, in which the tile's elements stay while its vectors, which are more, come one by one. */
bool kn_packed_by_vectors(const packed *k);
#endif
