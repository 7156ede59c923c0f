/* What the files of this folder share: the derivative of an expression, and the integer solution of an index system. */
#ifndef KN_GRAD_PARTS_H
#define KN_GRAD_PARTS_H
#include "grad/grad.h"
#include "te/expr.h"

/* d body / d load for one read of the body (equal reads count as one), in the dtype of body; NULL in *out when it is zero everywhere. */
kiln_status kn_diff(kiln_arena *a, const kn_expr *body, const kn_expr *load, kn_expr **out, kiln_diag *d);

/* All axes of a statement for which a read has index i, as functions of i (axes 0..rank-1 of the new statement) and of free axes (from rank
 * on): axis k is value[k] wherever guard holds. */
typedef struct kn_solution {
    kn_expr *value[KILN_MAX_AXES];
    kn_expr *guard;             /* BOOL */
    int nfree;
    int64_t extent[KILN_MAX_AXES]; /* of the free axes */
} kn_solution;

/* factor: what the read is multiplied by; equalities that its selects ask for join the system. */
kiln_status kn_solve(kiln_arena *a, const kn_program *p, const kn_stmt *s, const kn_expr *load, const kn_expr *factor, kn_solution *out,
                     kiln_diag *d);

/* clamp.c. A read whose index is kept inside by min or max, as two: the index itself, which is read where it lies inside, and the border, which the
 * points `ends` read that lie outside of it (the statement with an axis that is so much shorter, and what goes with it; points 0: none does). */
typedef struct kn_clamped {
    const kn_expr *inside, *border;
    int64_t points;
    kn_stmt ends;
    kn_expr *seed, *factor;
} kn_clamped;
/* False: no index of the load is so. */
bool kn_unclamped(kiln_arena *a, const kn_program *q, const kn_stmt *s, const kn_expr *load, kn_expr *seed, kn_expr *factor, kn_clamped *out);

/* shift.c. Whatever numbers are added to the elements of the tensor, which one statement makes, no output of floats becomes another: nothing
 * flows back through it. */
bool kn_only_shifts(kiln_arena *a, const kn_program *p, int tensor);

/* window.c. A product of two reads that counts where *guard holds, as one of reads that are padded with zeros; *guard becomes what that does not take
 * care of, a matter of the first `rank` axes alone (NULL: nothing). NULL: it is none, or more is left. */
kn_expr *kn_as_padded(kiln_arena *a, const kn_program *q, const kn_stmt *ranges, int rank, kn_expr *body, kn_expr **guard);
/* The same sum over more axes, `rank` of them, of which the old ones take `read`. */
typedef struct kn_phases {
    int rank;
    int64_t shape[KILN_MAX_RANK];
    kn_expr *read[KILN_MAX_RANK], *body;
} kn_phases;
/* Axes, of the first `rank`, of which the body has quotients and remainders get an axis for each of the two; false: there are none. */
bool kn_in_phases(kiln_arena *a, const kn_program *q, const kn_stmt *ranges, int rank, kn_expr *body, kn_phases *out);
#endif
