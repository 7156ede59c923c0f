/* From a settled graph to a plan: which nodes become one kernel, where every value lies, in what order the kernels run. */
#ifndef KN_GRAPH_PLAN_H
#define KN_GRAPH_PLAN_H
#include "graph/graph.h"
#include "hw/hw.h"

/* What a node is to the partitioner, read off its tensor expression, never off its name. */
enum kn_kind {
    KN_VIEW,     /* moves nothing */
    KN_CONCAT,   /* its inputs are written side by side, straight to where the result lies */
    KN_MOVE,     /* a map that computes nothing: transposes, slices, pads */
    KN_MAP,      /* no reduction */
    KN_REDUCE,   /* reductions of one operand: softmax, norms, pooling */
    KN_CONTRACT, /* sums of products: compute-intensive; a kernel has one at most (chains of them are a matter of their own) */
    KN_CALL      /* left to the caller: a step by itself, no kernel */
};

/* A set of nodes that becomes one kernel. */
typedef struct kn_group {
    int nnodes;
    int *nodes;         /* ascending */
    enum kn_kind kind;  /* the greatest of its nodes' */
    int nstmts, ntensors;
    double flops;       /* of its maps, an output element: what reading through it costs again */
    double gain_us;     /* sum of the profits for which it was made (thesis, equation 4.10) */
    int order;          /* in which step it runs; -1: not a kernel */
    kn_program *program;/* canonical; NULL: a call */
    int nin, nout;
    int *in, *out;      /* values in the program's canonical argument order */
} kn_group;

typedef struct kn_place {
    int base;           /* the value in whose memory this one lies; itself for those that own theirs */
    int64_t offset;     /* bytes from its start */
} kn_place;

typedef struct kn_partition {
    kiln_arena *a;
    const kn_graph *g;
    const kn_hw *hw;
    kn_program **programs; /* of every node */
    enum kn_kind *kinds;
    int *group_of;         /* of a node: its group, or -1 (views) */
    int ngroups;
    kn_group *groups;      /* emptied ones have nnodes == 0 */
    kn_place *places;      /* of every value */
    int nsteps;
    int *steps;            /* groups in the order in which they run */
    bool once;             /* its kernels run once: nothing is packed for them */
    int *seen, *stack, turn; /* of searches: seen[x] == turn is seen in this one */
} kn_partition;

/* Batch normalisations by constants become a product and a sum of constants. */
kiln_status kn_graph_fold(kiln_arena *a, const kn_graph *g, kn_graph **out, kiln_diag *d);
/* Constants with the same bytes, and what is made of constants alone in the same way, become one value each. */
kiln_status kn_graph_same(kiln_arena *a, const kn_graph *g, kn_graph **out, kiln_diag *d);
/* What depends on constants alone, as a graph without inputs whose outputs are constants (kn_data.once) of the rest; values keep their numbers in
 * both. *once is NULL, and *rest is g, where there is nothing to do beforehand. */
kiln_status kn_graph_once(kiln_arena *a, const kn_graph *g, const kn_hw *hw, kn_graph **once, kn_graph **rest, kiln_diag *d);
/* A graph of many samples with a run of its nodes done for a few samples at a time, where the target's bandwidths say that it pays; *out is g where
 * they do not. CPU targets only. */
kiln_status kn_graph_batch(kiln_arena *a, const kn_graph *g, const kn_hw *hw, kn_graph **out, kiln_diag *d);
/* Whether each row (first index) of p's output is made of the same row of the inputs t with rows[t], and of the others. rows: of every tensor of p,
 * KILN_MAX_TENSORS long; those of the tensors that p writes are set. */
bool kn_rows_apart(const kn_program *p, bool *rows);
/* Orders in memory: channels last around convolutions where that is predicted to pay; copies where a value is wanted as it is declared. */
kiln_status kn_graph_layout(kiln_arena *a, const kn_graph *g, const kn_hw *hw, kn_graph **out, kiln_diag *d);
/* Concatenations that are copied read the parts of those that they read, which maps then choose among. CPU targets only. */
kiln_status kn_graph_parts(kiln_arena *a, const kn_graph *g, const kn_hw *hw, kn_graph **out, kiln_diag *d);
bool kn_order_is_plain(const kn_value *v);                 /* the elements lie as if it were not reordered */
void kn_value_stored(const kn_value *v, int64_t *shape);   /* its shape as it lies in memory */
bool kn_reorder(kiln_arena *a, const kn_graph *g, const kn_node *n, kn_program *p); /* the node's program for how its values lie; false: dry */
/* programs, kinds, places (views and concatenations). */
kiln_status kn_partition_open(kiln_arena *a, const kn_graph *g, const kn_hw *hw, kn_partition **out, kiln_diag *d);
/* group_of, groups. */
kiln_status kn_partition_group(kn_partition *p, kiln_diag *d);
/* Why group y, with node n that reads v, is not one kernel with group x, which makes it; the profit that joining them would have through *gain. */
const char *kn_partition_why(kn_partition *p, int x, int y, int n, int v, double *gain);
/* program, in and out of every group; nsteps, steps. */
kiln_status kn_partition_join(kn_partition *p, kiln_diag *d);
/* Offsets of the values that own memory, by the steps in which they are alive; the arena's size through *bytes. offsets[v] is -1 for those
 * outside of the arena. fixed[v]: lies elsewhere (inputs, constants, outputs that kernels write to the caller's arrays). */
kiln_status kn_partition_memory(const kn_partition *p, const bool *fixed, int64_t *offsets, int64_t *bytes, kiln_diag *d);

bool kn_node_is_concat(const kn_node *n);
int64_t kn_concat_axis(const kn_graph *g, const kn_node *n);    /* 0 .. rank - 1 */
/* Its parts are ranges of the result one behind the other in memory; else they are copied. */
bool kn_concat_in_ranges(const kn_graph *g, const kn_node *n);
bool kn_lie_alike(const kn_value *x, const kn_value *y);        /* their dimensions lie in the same order */
enum kn_kind kn_kind_of(const kn_program *p);
/* Bytes from the start of its input at which the result of node n, whose program is q, lies there: rows of it, side by side; -1: it does not. Only of
 * what others read as well (what is read in this way alone may be computed in this way alone), and not of constants, which are packed whole. */
int64_t kn_part_of(const kn_graph *g, const kn_hw *hw, const kn_node *n, const kn_program *q);
int64_t kn_value_bytes(const kn_value *v);
static inline int kn_source(const kn_partition *p, int v) { return p->places[v].base; }
#endif
