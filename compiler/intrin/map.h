/* Mappings: which software loops feed which loop of an instruction. The rule is the one that the published counts and logs of AMOS
 * (ISCA'22) imply; its printed Algorithm 4 alone accepts other sets.
 *
 *   atom     one software loop for every loop of the instruction, no loop twice, kinds equal (spatial, reduce). With all other loops held,
 *            each operand must be addressed as the instruction addresses it: every index of the instruction's operand is one index of the
 *            software's, times a positive constant and plus a base, and all other indices stand still.
 *   mapping  the union, loop by loop, of any non-empty set of atoms. Beyond KN_MAP_UNIONS atoms: every atom alone, and the union of all.
 *
 * An axis of the instruction that no software loop fits by itself is idle: it takes none, and one iteration of it is used.
 *
 * The loops of one instruction loop are fused in the order of the statement's axes: f = (n*P + p)*Q + q. */
#ifndef KN_MAP_H
#define KN_MAP_H
#include "intrin/intrin.h"

enum { KN_MAP_UNIONS = 15, KN_MAP_OPERANDS = 8 };

/* Bit l of loops[j]: software axis l feeds axis j of the instruction. */
typedef struct kn_mapping { uint32_t loops[KILN_MAX_AXES]; } kn_mapping;

/* Why a candidate is no part of any mapping. A pair (axis, loop) that no candidate may hold, or one whole candidate (axis -1). */
typedef struct kn_map_refusal {
    kn_mapping tried;
    int axis;          /* of the instruction */
    int loop;          /* of the statement */
    int operand, index;/* the pair of operands that disagrees and the dimension of the software's, -1: none */
    const char *why;   /* one sentence that names them */
} kn_map_refusal;

/* An operand of the statement beside the operand of the instruction that holds it; number 0 is the result. */
typedef struct kn_map_operand {
    int load;               /* number in kn_loads order of the statement, -1: the result */
    int soft, hard;         /* tensors */
    int nsoft, nhard;       /* dimensions */
    kn_expr *const *soft_index, *const *hard_index;
} kn_map_operand;

typedef struct kn_maps {
    const kn_intrin *it;
    const kn_program *soft, *hard;
    const kn_stmt *stmt, *intrin; /* a statement of soft, that of the instruction */
    int nops;
    kn_map_operand op[KN_MAP_OPERANDS];
    uint32_t idle;                /* bit j: axis j of the instruction takes no loop */
    int natoms, nmaps, nrefused;
    kn_mapping *atoms, *maps;
    kn_map_refusal *refused;
    struct kn_maps *turned;       /* the same with the operands of a product in another order; NULL: no other maps as well */
} kn_maps;

/* All mappings of statement `stmt` of p onto an instruction. No mapping at all is no error: refused says why.
 * KILN_UNSUPPORTED: the statement computes something else than the instruction, or in other dtypes. */
kiln_status kn_maps_of(kiln_arena *a, const kn_program *p, int stmt, const kn_intrin *intrin, kn_maps **out, kiln_diag *d);
/* The mapping that the text says, in the first order of the operands in which it is one; what is wrong is told of the first order. */
kiln_status kn_map_find(const kn_maps *list, const char *text, const kn_maps **m, kn_mapping *x, kiln_diag *d);
/* Whether a mapping is a union of atoms whose loops feed one axis each; else KILN_UNSUPPORTED with the operand and index. */
kiln_status kn_map_check(const kn_maps *m, const kn_mapping *x, kiln_diag *d);
/* "I=N,P J=F R=C": axes of the instruction and their loops, in order. Reads what it writes; an unknown name is refused. */
const char *kn_map_text(kiln_arena *a, const kn_maps *m, const kn_mapping *x);
const char *kn_map_word(kiln_arena *a, const kn_maps *m, const kn_mapping *x); /* the same as one word: "I=N,P;J=F;R=C", which also reads back */
kiln_status kn_map_parse(const kn_maps *m, const char *text, kn_mapping *out, kiln_diag *d);
/* Iterations that the mapping fuses into axis j; 0 on overflow. The published filter keeps mappings that fill every axis at least once. */
int64_t kn_map_extent(const kn_maps *m, const kn_mapping *x, int axis);
bool kn_map_fills(const kn_maps *m, const kn_mapping *x);

/* A mapping at its sizes. Along axis j of the instruction the fused iterations f make tiles of its extent E, the last one padded with zeros.
 * Where the instruction's operand is plain its element stands at
 *     base + sum over outer loops l of v(l)*loop[l] + sum over axes j of (f(j)/E)*tile[j] + (f(j)%E)*step[j];
 * inside of other tiles the operand's places say where, and step is 0. */
typedef struct kn_map_layout {
    bool direct;               /* where the statement has it; else in a packed copy: outer loops, then tiles, then one tile row-major */
    int64_t base, elems;       /* elems: of the copy, padding included; direct: of the tensor */
    int64_t tile_bytes;
    int64_t loop[KILN_MAX_AXES], tile[KILN_MAX_AXES], step[KILN_MAX_AXES];
} kn_map_layout;

typedef struct kn_map_plan {
    int64_t fused[KILN_MAX_AXES], tiles[KILN_MAX_AXES];
    uint32_t outer;            /* loops that no axis takes: they run around the instruction */
    int64_t calls;
    double padding;            /* iterations computed for one wanted, >= 1 */
    kn_map_layout operand[KN_MAP_OPERANDS];
    double us, pack_us;        /* predicted, of all and of packing alone */
    const char *bound;         /* "compute", "latency", "pack", "store", or the memory level that feeds too slowly */
} kn_map_plan;
/* KILN_LIMIT: sizes beyond the limits of elements. */
kiln_status kn_map_plan_of(const kn_maps *m, const kn_mapping *x, kn_map_plan *out, kiln_diag *d);
/* Predicts us, pack_us and bound by AMOS's performance model: level by level the slowest of computing, reading and writing. On a CPU of the schedule
 * that kn_map_trace gives, copies and stores included. */
void kn_map_predict(const kn_maps *m, const kn_mapping *x, const kn_hw *hw, kn_map_plan *plan);

/* Places of a window whose rows and columns feed one axis together: flattened, they are one loop of which any window is read in one run. */
typedef struct kn_map_window { int load, rows, columns; } kn_map_window; /* of the statement; its load number and two axes */
/* False: no two loops of a mapping are such, or what the window reduces over feeds the instruction too. */
bool kn_map_flattens(const kn_maps *m, const kn_mapping *x, kn_map_window *out);

/* The same mappings onto the instruction with fewer iterations of some loops, so that whole tiles, at most half as many more, hold what this one maps
 * there; NULL: there is none, or it leaves as much padding. `terms`: of loops that reduce alone. */
const kn_maps *kn_map_fewer(kiln_arena *a, const kn_maps *m, const kn_mapping *x, bool terms);

/* A mapping, its predicted time, and iterations computed for one wanted. */
typedef struct kn_map_choice { const kn_maps *m; const kn_mapping *x; double us, padding; } kn_map_choice;
/* Puts the mappings of a list that can be computed, of all orders of its operands, among the first n of `best`, by predicted time; at most `most`
 * stay. Those onto the instruction with fewer iterations are among them where there is an arena for these. Returns how many there are. */
int kn_map_choices(kiln_arena *a, const kn_maps *list, const kn_hw *hw, kn_map_choice *best, int n, int most);

/* How operands come into the instruction's shape: each call gathers its own; statements lay them out in tiles, which a program may have no room
 * for; the same with copies that go tile by tile, in vectors, which not every operand allows. */
enum kn_map_packing { KN_MAP_GATHERED, KN_MAP_PACKED, KN_MAP_TILED };
/* A schedule that computes the statement through the mapping, for kn_trace_apply; p NULL: out of memory. */
kiln_bytes kn_map_trace(kiln_arena *a, const kn_maps *m, const kn_mapping *x, const kn_hw *hw, enum kn_map_packing how);

/* Private to the map_*.c files. */
kiln_status kn_map_operands(const kn_program *p, const kn_stmt *s, const kn_intrin *intrin, uint32_t flips, kn_maps *m, kiln_diag *d);
int kn_map_flips(const kn_stmt *intrin); /* operand orders to try */
kiln_status kn_map_atoms(kiln_arena *a, kn_maps *m, kiln_diag *d);
kiln_status kn_map_unions(kiln_arena *a, kn_maps *m, kiln_diag *d);
#endif
