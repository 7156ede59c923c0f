/* Hardware instructions as tensor expressions: the compute abstraction of a hwspec's `intrinsics` in a form that other stages can read
 * (AMOS, ISCA'22, section 4).
 *
 *   "compute": "d[I,J] +=! cast(a[I,R],f32) * cast(b[R,J],f32) where I in 16, J in 16, R in 32", "dtypes": "d=f32 a=bf16 b=bf16"
 *
 * The text is one statement of the expression language. Its axes are the instruction's loops and have constant extents; its tensors are the
 * operands, whose shapes follow from the indices. With `+=!` results are added to
 * what the destination holds already, with `=` they replace it. */
#ifndef KN_INTRIN_H
#define KN_INTRIN_H
#include "hw/hw.h"

enum { KN_INTRIN_LOOPS = 8, KN_INTRIN_OPERANDS = 8, KN_INTRIN_POINTS = 1 << 20 };
enum { KN_INTRIN_TAPS = 25 }; /* of a window, at most, that change places with an instruction's terms in registers (compiler/lower/folded.c) */

/* Where an operand is when the instruction has it; sources are in global and the destination in a register where a hwspec does not say. */
enum kn_intrin_scope {
#define X(name, member, about) KN_SCOPE_##member,
#include "intrin/scopes.def"
#undef X
};
enum { KN_INTRIN_DIGITS = 12 };
/* A part of an operand's index: index[dim] // by % count. */
typedef struct kn_intrin_digit { int dim; int64_t by, count; } kn_intrin_digit;

/* Operand 0 is the destination, the others are the sources in the order of their first use. An operand is a dense tile: row-major where it is plain,
 * else its element stands at `place` of a row-major tile of place_shape (member "memory" of the hwspec). */
typedef struct kn_intrin_operand {
    const char *name;
    enum kn_dtype dtype;
    int rank;                         /* 0: a scalar */
    int64_t shape[KILN_MAX_RANK], elems;
    kn_affine index[KILN_MAX_RANK];   /* over the instruction's loops */
    int lone[KILN_MAX_RANK];          /* the loop that by itself is this index; -1: a sum, such as P+R */
    uint32_t loops;                   /* bit l: loop l occurs in an index */
    enum kn_intrin_scope scope;
    bool plain;
    int nplace;                       /* 0 where the hwspec does not say */
    kn_expr *place[KILN_MAX_RANK];    /* axis d of them is index d of the operand */
    int64_t place_shape[KILN_MAX_RANK];
    int ndigits;                      /* of all places together, row-major; 0: one element, or other places than parts of indices */
    kn_intrin_digit digit[KN_INTRIN_DIGITS];
} kn_intrin_operand;

typedef struct kn_intrin {
    const char *name;
    const kn_hw_intrin *spec;         /* text, spelling, latency, interval */
    const struct kn_warp *warp;       /* kn_warp_of(spec), looked up once */
    const kn_program *program;        /* inputs: the sources; output: the destination; checked */
    const kn_stmt *s;                 /* its one statement; s->axes are the loops, spatial ones first */
    int nloops, nspatial;
    int64_t fewer[KN_INTRIN_LOOPS];   /* a call may have fewer iterations of the loop, any multiple of this; 0: it may not */
    int64_t points;                   /* iterations of all loops */
    enum kn_reduce red;               /* how results join what the destination holds; NONE: they replace it. Also without a reduce loop, as in
                                       * "d[I] +=! a[] * b[I]", where s is a map for the rest of the library */
    int noperands;
    kn_intrin_operand operand[KN_INTRIN_OPERANDS];
} kn_intrin;

/* One entry of a hwspec; an error's pointer is below `at` ("/intrinsics/0"): "/intrinsics/0/compute" or "/intrinsics/0/dtypes". */
kiln_status kn_intrin_parse(kiln_arena *a, const kn_hw_intrin *spec, const char *at, const kn_intrin **out, kiln_diag *d);
/* Reads the places of its operands; an error's pointer is at + "/memory". Part of kn_intrin_parse. */
kiln_status kn_intrin_memory(kiln_arena *a, kn_intrin *it, const char *at, kiln_diag *d);
/* Reads its member "fewer"; an error's pointer is at + "/fewer". Part of kn_intrin_parse. */
kiln_status kn_intrin_read_fewer(kiln_arena *a, kn_intrin *it, const char *at, kiln_diag *d);
const char *kn_intrin_scope_text(enum kn_intrin_scope s);
/* Part of a name. */
static inline bool kn_intrin_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
/* The axis of that name of n bytes; -1: there is none. */
int kn_intrin_axis(const kn_stmt *s, const char *name, size_t n);
/* Indices that stand behind the first use of a name of n bytes in the text; -1: it is not used. */
int kn_intrin_rank_in(const char *text, const char *name, size_t n);
/* All entries of hw; each entry's `parsed` is set. Names must differ. */
kiln_status kn_intrins_parse(kiln_arena *a, kn_hw *hw, kiln_diag *d);
/* By name; NULL when hw has none of it, or no memory is left. "amx_int8_R24" is the entry "amx_int8" with 24 iterations of R, where its member
 * "fewer" allows that: an instruction as any other, whose registers have that shape. */
const kn_intrin *kn_intrin_find(kiln_arena *a, const kn_hw *hw, const char *name);
/* The entry that the name means and how many iterations of each loop; NULL when hw has none of it. */
const kn_intrin *kn_intrin_named(const kn_hw *hw, const char *name, int64_t extent[KN_INTRIN_LOOPS]);
/* The entry with so many iterations of each loop, which its member "fewer" must allow; NULL: no memory is left. */
const kn_intrin *kn_intrin_at(kiln_arena *a, const kn_intrin *it, const int64_t extent[KN_INTRIN_LOOPS]);
/* The row of natives.def for exactly this spelling and compute text, all operands plain: how C uses the instruction as such, under the
 * compiler's `macro` for it, and how many vector registers it needs beside what it reads and writes. NULL: only its emulation can be printed. */
typedef struct kn_native { const char *spelling, *macro, *compute, *dtypes, *text; int registers; } kn_native;
const kn_native *kn_native_of(const kn_hw_intrin *spec);
/* The row of units.def for this spelling, compute text up to its extents and memory, of registers that the unit has: how C uses the instruction over
 * them. NULL: only its emulation can be printed. */
typedef struct kn_unit { const char *spelling, *macro, *compute, *dtypes, *memory, *mnemonic; } kn_unit;
const kn_unit *kn_unit_of(const kn_hw_intrin *spec);
/* The row of warps.def for exactly this spelling, compute and memory text: how a warp's threads compute it together. NULL: they cannot. */
typedef struct kn_warp { const char *spelling, *compute, *dtypes, *memory, *ptx; int ways, threads; } kn_warp;
enum { KN_WARP_A = 4, KN_WARP_B = 2, KN_WARP_D = 4 }; /* 32-bit registers of a thread */
const kn_warp *kn_warp_of(const kn_hw_intrin *spec);
const kn_warp *kn_warp_find(const kn_hw_intrin *spec); /* the same from the table, for a spec that is being read */
/* Cycles from one call to the next on a CPU core: the instruction's own pace, or that of the reads beside it, or waiting for the result before; and a
 * share of beginning and ending a tile. tile: results that take turns, each of `steps` calls; pieces: rows and columns of the tile that stays in
 * registers, 0: the results stay in memory. */
double kn_intrin_call_cycles(const kn_intrin *it, const kn_hw *hw, double tile, double pieces, double steps);
/* Results and operands may stay in registers of the instruction's own unit on this device. */
bool kn_intrin_unit(const kn_intrin *it, const kn_hw *hw);
/* The unit keeps fewer bits of its sums than their dtype has. */
bool kn_intrin_brief(const kn_intrin *it);
/* The operand that is `tensor` of it->program; 0 for its destination. */
int kn_intrin_operand_of(const kn_intrin *it, int tensor);
#endif
