/* What the files share that write a mapping's schedule. Private to them. */
#ifndef KN_INTRIN_TRACE_H
#define KN_INTRIN_TRACE_H
#include "intrin/map.h"

typedef struct kn_map_writer {
    kn_buf *b;
    const kn_maps *m;
    const kn_mapping *x;
    const char *stmt;
    const char *axis[KILN_MAX_AXES]; /* the statement's axis that stands for axis j of the instruction, once fused */
    int64_t extent[KILN_MAX_AXES];   /* of that axis */
    int inner;                       /* loop around the instruction that is cut once more, to stand inside the reduction; -1: none */
    int64_t pieces;
    int tasks;                       /* parallel loops still wanted */
} kn_map_writer;

static inline bool kn_map_several(uint32_t set) { return (set & (set - 1)) != 0; }
static inline bool kn_map_cut(const kn_map_writer *w, int j) { return w->x->loops[j] && w->m->intrin->axes[j].extent > 1; }
/* Steps that lay out the operands which do not lie as the instruction wants them. */
void kn_map_pack(kn_map_writer *w, const kn_map_plan *plan);
#endif
