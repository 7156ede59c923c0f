/* Loop programs: what lowering makes of a tile tree and what code generators print. Explicit loops, buffers, vectors; nothing implied. */
#ifndef KN_LOOP_H
#define KN_LOOP_H
#include "schedule/schedule.h"

/* A buffer. GLOBAL buffers are the kernel's arguments (program tensors: slot = tensor id) and device temporaries; SCRATCH lives in the
 * caller's workspace, one instance a worker; SHARED a block; REGISTER arrays are only ever indexed by constants after unrolling and are
 * printed as scalars (or vectors when lanes > 1). PACKED is a part of what the kernel is given in place of a constant input, slot its tensor: the
 * input in the order that the kernel asks for, from the beginning, or what is computed ahead of it alone, behind that. On a GPU
 * SCRATCH is an array of the thread. PARAM is an operand of an emulated instruction. */
typedef struct kn_buffer {
    const char *name;
    enum kn_dtype dtype;   /* storage dtype; READ gives and STORE takes this dtype: conversions are explicit CASTs */
    int lanes;             /* REGISTER: vector width of one element, else 1 */
    int64_t elems;
    enum kn_scope scope;
    int slot;              /* GLOBAL, PACKED: tensor id in the lowered program, else -1 */
    int align;             /* SHARED: bytes, 0: 16 */
    int64_t offset;        /* SCRATCH: byte offset in the worker's scratch (64-byte aligned); SHARED: in the block's; PACKED: in what is given */
    int unit, rows;        /* REGISTER: 1 + the number of the register of an instruction's own unit that its first element is, and the rows that
                            * one has, all elements in `lanes`; 0: a register of the core */
    bool alike;            /* REGISTER: all threads of a warp have the same in it */
} kn_buffer;

enum kn_ls_kind {
    KN_LS_FOR,     /* for (var = lo; var < hi; var++) body; lo, hi are expressions; serial */
    KN_LS_IF,      /* if (value) body else other */
    KN_LS_LET,     /* var = value (I64), visible to the statements that follow in this list and their bodies */
    KN_LS_STORE,   /* buffer[index] = value; value.lanes consecutive elements from index (REGISTER: the element) */
    KN_LS_PREFETCH, /* CPU: the line of buffer[index], GLOBAL or SCRATCH, will be wanted soon; index may be out of bounds; `writes`: for a store */
    KN_LS_CALL,    /* calls[call->fn] on tiles: operand 0 is written, the others are read */
    KN_LS_UNIT,    /* CPU: a register of an instruction's own unit is cleared, loaded row by row, or stored so */
    KN_LS_BARRIER, /* __syncthreads; GPU only, never under a condition that differs between threads */
    KN_LS_FRAGMENT,/* a warp's threads load their parts of a tile of an instruction's operand into REGISTER vectors of I32 */
    KN_LS_COMMIT,  /* the thread's asynchronous stores since the last COMMIT are a group */
    KN_LS_PIPE,    /* GPU: a step of the pipeline of bulk copies, of whoever gets there */
    KN_LS_GROUP,   /* GPU: `groups` is an enum kn_group_step, or how many groups of instructions may still run behind it */
    KN_LS_WAIT     /* until all but the last `groups` groups of the thread have arrived; others see them behind a barrier */
};
/* Around instructions that 128 threads compute together and that run on: shared memory that they will read is made visible to them; registers are
 * ready for them; those since the last COMMIT are a group. */
enum kn_group_step { KN_GROUP_SEEN = -3, KN_GROUP_READY = -2, KN_GROUP_COMMIT = -1 };
/* How a fragment is read from SHARED memory: by ldmatrix, each thread naming a row of 16 bytes at at[0]; by its transposing form; or element by
 * element, at[0] .. in the order of registers and of bytes in them. SPLIT and HALVE read nothing: fragments that are there already become the parts
 * of which their instruction takes three products (intrin/warps.def); HALVE in few operations, which are right where no factor of the warp is
 * infinite, NaN, or rounded to infinity: element `odd_at` of `odd` says whether one is. */
enum kn_fragment_form { KN_FRAGMENT_ROWS, KN_FRAGMENT_TURNED, KN_FRAGMENT_EACH, KN_FRAGMENT_SPLIT, KN_FRAGMENT_HALVE };
/* Registers 0 .. n - 1 of the fragments go to the elements of `to` from index `first` on: `regs` of them to the first lanes of a vector, which has
 * room for KN_FRAGMENT_PARTS times as many where they are split. */
enum { KN_FRAGMENT_PARTS = 4 };
typedef struct kn_fragment { enum kn_fragment_form form; int buffer, to, first, regs, n, nat, odd, odd_at; kn_expr **at; } kn_fragment;

/* Operands from element at[o] on. A REGISTER destination is vector at[0], of as many lanes as the operand has elements; in registers of the
 * instruction's own unit are all operands. Where warps compute the
 * instruction together all operands are in REGISTER: the destination in elements from at[0] on, the sources in vectors of I32; where 128 threads
 * do, the sources begin at element at[o] of SHARED buffers, `lead` and `stride` bytes being between panels and between eight rows. */
typedef struct kn_call {
    int fn, buffer[KN_INTRIN_OPERANDS];
    kn_expr *at[KN_INTRIN_OPERANDS];
    int64_t lead[3], stride[3];
} kn_call;

/* Element `number` of REGISTER buffer `reg`, whose rows are `row` elements apart in memory, the first one at buffer[at]. `passes`: it is loaded again
 * only after so much else that it is not to take room in L1. */
enum kn_unit_do { KN_UNIT_CLEAR, KN_UNIT_LOAD, KN_UNIT_STORE };
typedef struct kn_unit_step { enum kn_unit_do what; int reg, buffer; int64_t number, row; kn_expr *at; bool passes; } kn_unit_step;

/* Steps of a pipeline of bulk copies (mbarriers and tensor maps of the PTX ISA). Barriers are elements of an I64 SHARED buffer. */
enum kn_pipe_step {
    KN_PIPE_INIT,     /* barrier `slot` completes with `n` arrivals and all bytes that are expected */
    KN_PIPE_PREFETCH, /* the map of `tensor` will be wanted soon */
    KN_PIPE_OPEN,     /* those made so far are there for the copy engine and the cluster */
    KN_PIPE_EXPECT,   /* arrives at `slot` and expects `n` bytes more */
    KN_PIPE_AWAIT,    /* until the phase of `slot` is over whose parity is `parity` */
    KN_PIPE_ARRIVE,   /* at `slot`, of block `peer` of the cluster (NULL: its own) */
    KN_PIPE_LOAD,     /* a box of the map of `tensor` at `coord`, fastest first, goes to buffer[at]; its bytes count at `slot`. peers > 1: to
                       * the same place in that many blocks of the cluster, and counts there. offset[0] not NULL: the map is one of windows,
                       * `coord` its first pixel, and offset the place in the window, columns first */
    KN_PIPE_STORE,    /* buffer[at] goes to the box of the map at `coord`, later; what is out of range does not */
    KN_PIPE_STORED,   /* until all but the thread's last `n` stores have been read from shared memory */
    KN_PIPE_REGISTERS,/* threads of a group have `n` registers from here on; more: more than before */
    KN_PIPE_MEET,     /* named barrier `slot`, of 128 threads, one of 1 to `n` */
    KN_PIPE_CLUSTER   /* all threads of the cluster's blocks meet */
};
typedef struct kn_pipe {
    enum kn_pipe_step step;
    int bars, buffer, tensor, rank, peers; /* SHARED buffers; the tensor of the map */
    kn_expr *slot, *parity, *peer, *at, *coord[KN_BULK_RANK], *offset[2];
    int64_t n;
    bool more;
} kn_pipe;

typedef struct kn_ls {
    enum kn_ls_kind kind;
    int var;
    kn_expr *lo, *hi;      /* FOR; lo: of a STORE that streams, NULL or by how many elements the line to be written begins behind the vector */
    kn_expr *value;        /* IF condition (BOOL), LET value, STORE value */
    kn_expr *index;        /* STORE: linear element index, I64 */
    int buffer;            /* STORE */
    bool writes;           /* PREFETCH; GROUP: all of REGISTER buffer are results that only hold from here on */
    bool to_l2;            /* PREFETCH: no nearer */
    bool streams;          /* STORE of a vector as long as a line, or half of it: past the caches where it is aligned to its length */
    bool aside;            /* STORE to SCRATCH of what is read just here, by others in a run of stores that do not read it back */
    bool holds;            /* STORE to a register of a vector that a few statements want: not to be read from memory by each of them instead */
    bool unaligned;        /* STORE of a vector: address may not be vector-aligned */
    int idle;              /* STORE of a vector: so many of its first lanes, if negative of its last ones, others store too, or overwrite */
    bool anew;             /* LET: many elements are read at distances from it: no address of theirs is to be kept from one iteration to the next */
    bool last;             /* IF: to `other` comes the last turn of the loop of variable `var`, and no other one */
    int unroll;            /* FOR: iterations that the toolchain is asked to unroll; 0: its own choice */
    const kn_call *call;
    const kn_fragment *fragment;
    const kn_pipe *pipe;
    const kn_unit_step *unit;
    bool async;            /* STORE of lanes from GLOBAL to SHARED that arrives later: the value is a READ, or SELECT(condition, READ, zeros) */
    int groups;            /* WAIT */
    struct kn_ls *body, *other; /* IF, FOR */
    struct kn_ls *next;
} kn_ls;

/* An instruction emulated: a function over operand tiles. body knows its PARAM buffers and its own variables. */
typedef struct kn_emulated {
    const kn_intrin *intrin;
    int param[KN_INTRIN_OPERANDS];
    bool unit;   /* some call has its operands in registers of its own unit */
    bool vector; /* some call has its destination in a REGISTER */
    const kn_warp *warp; /* computed by a warp's threads together; there is no body */
    bool turned[3];      /* by 128 threads: source o lies along I or J, not along R */
    bool halves;         /* by a warp: factors are in halves, not in all parts that any value needs */
    kn_ls *body;
} kn_emulated;

enum { KN_STATIC_SHARED = 48 * 1024 }; /* bytes that a block of any GPU may have without being asked for at the launch */

/* One launch: a GPU kernel or one CPU parallel region. */
typedef struct kn_fn {
    int stage;             /* the stage whose tree it is */
    int64_t grid;          /* blocks (GPU) or tasks (CPU) */
    int threads;           /* per block; CPU 1 */
    bool warps;            /* they compute instructions together, and want registers rather than many blocks on a unit */
    int var_grid;          /* variable that holds the block or task number */
    int var_thread;        /* GPU: thread number in the block; -1 on CPU */
    kn_ls *body;
    int64_t shared_bytes;  /* GPU */
    int nargs, args[KILN_MAX_TENSORS]; /* GLOBAL slots read or written, in slot order */
    const kiln_tensor_map *maps;       /* NULL, or one an argument; rank 0: the argument is a pointer */
    int cluster;                       /* blocks of a cluster, 0: none */
    int asking, computing;             /* registers of the roles, 0: as launched */
    int64_t scratch_at, scratch_bytes; /* of a function before the first call: where it may write in the PACKED bytes meanwhile, how much */
} kn_fn;

typedef struct kn_lprog {
    const kn_program *program; /* the lowered program (tensors give slots, dtypes, shapes) */
    const kn_hw *hw;
    int nbuffers;
    kn_buffer *buffers;
    int nvars;
    const char **var_names; /* unique C identifiers */
    int nfns;
    kn_fn *fns;
    int npacks;            /* functions that write a PACKED buffer from the input of its slot, in this order: before the first call, by one thread */
    kn_fn *packs;
    int ncalls;
    kn_emulated *calls;
    int64_t scratch_bytes; /* CPU: per worker */
    const struct kn_lprog *fallback; /* GPU: printed behind this one, under names of its own; NULL: none */
    int ntemps;            /* program temporaries that live in global memory between launches */
    int temp_slot[KILN_MAX_TENSORS];
} kn_lprog;

int kn_pack_slot(const kn_lprog *p, int pack);        /* the input that pack function makes a copy of */
bool kn_pack_first(const kn_lprog *p, int pack);      /* no other one in front of it is of the same input */
int64_t kn_pack_bytes(const kn_lprog *p, int slot);   /* of all that is given in place of that input; 0: it is given as it is */

/* LOAD and AXIS never occur in a loop program; VAR, READ, LANES, SPLAT, HSUM, ZIP, UNZIP, SPREAD, PICK do (te/exprs.def). A READ with lanes > 1 reads
 * consecutive elements from a linear index. BOOL vectors have the lanes of their operands. */

/* Of a vector of so many lanes, in quarters, those in the middle exchanged: the lane that comes to `lane`. A PICK does no more than that. */
enum { KN_LS_MIDDLE_LANES = 8 };
static inline int kn_ls_middle(int lane) { return lane % 2 + (lane / 2 == 1 ? 4 : lane / 2 == 2 ? 2 : lane / 2 * 2); }
bool kn_ls_exchanges_middle(const kn_expr *pick);

/* Tile tree -> loop program. Guards tails, fills caches, keeps accumulators in registers, splits full and tail tiles. */
kiln_status kn_lower(kiln_arena *a, const kn_tree *t, const kn_hw *hw, kn_lprog **out, kiln_diag *d);
/* Structure check: every VAR defined, REGISTER indices constant, dtypes and lanes agree, barriers uniform. Run after lowering in tests. */
kiln_status kn_lprog_check(const kn_lprog *p, kiln_diag *d);
/* A readable dump for tests and --dump. */
void kn_lprog_print(kn_buf *b, const kn_lprog *p);
#endif
