/* What the steps of shaping work on. Private to shape*.c; shapings.def has a row for each step. */
#ifndef KN_SHAPE_H
#define KN_SHAPE_H
#include "construct/cpu.h"

/* The program so far, as the steps of a trace and as what they make of it. */
typedef struct kn_shaper {
    kiln_arena *a;
    const kn_hw *hw;
    kiln_bytes text;
    kn_tree *t;
    int nfused;                        /* numbers the axes that are made */
    int nplanes;                       /* temporaries that steps made: they are there to be stored */
    const char *plane[KILN_MAX_STMTS];
} kn_shaper;

/* What a step made of a stage of a statement that no steps have scheduled. */
typedef enum kn_shaped {
    KN_SHAPED_NOT,   /* nothing: the next row is asked */
    KN_SHAPED_AGAIN, /* what stands at its place now is looked at, the stage itself behind what was put in front of it */
    KN_SHAPED_ON,    /* the same, but for the first that was put in front */
    KN_SHAPED_DONE   /* it is as it will be, and so is what was put in front */
} kn_shaped;

/* Appends lines of a trace, without the last one's end; false: a primitive refuses one (or lines is NULL), and all is as before. */
bool kn_shaper_try(kn_shaper *s, const char *lines);
/* The stage's statement. */
void kn_shaper_site(const kn_shaper *s, int stage, kn_site *v);
/* A name for a temporary, of this stem; NULL: there is no room for three more. */
const char *kn_shaper_name(const kn_shaper *s, const char *stem);
/* The temporary is there to be stored: it is neither inlined nor finished by its reader. */
void kn_shaper_keep(kn_shaper *s, const char *name);
bool kn_shaper_stores(const kn_shaper *s, const char *name);
/* How often e reads the tensor; *one is set to one of these loads. */
int kn_shaper_reads(const kn_expr *e, int tensor, const kn_expr **one);
/* A window slides along n over the load, so that a row of that can be held and used for many of its places. */
bool kn_shaper_slides(const kn_site *v, const kn_expr *load);
/* shape_windows.c, for what an instruction takes: a step each, false: none is wanted, or legal. */
bool kn_shaper_flatten(kn_shaper *s, int stage);
bool kn_shaper_pad(kn_shaper *s, int stage);

#define STAGE(name) kn_shaped kn_shape_##name(kn_shaper *s, int stage);
#define BEFORE(name) void kn_shape_##name(kn_shaper *s);
#define AFTER(name) void kn_shape_##name(kn_shaper *s);
#include "construct/shapings.def"
#endif
