/* The emulated GPU: blocks of a cluster, their threads as fibers, and what fibers wait for. Internal to workers/. */
#ifndef WORKERS_EMU_MACHINE_H
#define WORKERS_EMU_MACHINE_H
#include "workers/emu_bulk.h"
#include "workers/emu_group.h"
#include "workers/emu_warp.h"
#include "workers/verify.h"
#include <setjmp.h>
#include <ucontext.h>

enum { EMU_THREADS = 1024, EMU_BLOCKS = 8, EMU_MEETS = 16, EMU_LEAVING = 16 };

typedef struct emu_dim3 { unsigned x, y, z; } emu_dim3;
typedef void (*emu_call_fn)(void **args);

/* What a thread waits for; EMU_RUNS: nothing. */
enum emu_wait { EMU_RUNS, EMU_AT_BARRIER, EMU_AT_WARP, EMU_AT_GROUP, EMU_AT_BAR, EMU_AT_MEET, EMU_AT_CLUSTER };
/* number: line of the barrier, commits that may still run, or named barrier; round: the meeting of its warp, named barrier or cluster that it waits
 * for; unseen: copies arrived that wgmma was not told of. */
typedef struct emu_leaving { const emu_map *map; char *to; long from; int coord[EMU_RANK]; } emu_leaving; /* a bulk store that has not been read */
typedef struct emu_fiber {
    ucontext_t context;
    jmp_buf at;
    enum emu_wait waits;
    int number;
    unsigned round, parity;
    const emu_bar *bar;
    bool begun, done, unseen;
    int registers;
    bool fenced, met_fenced; /* since its last meeting; all of that meeting were */
    int nleaving;
    emu_leaving leaving[EMU_LEAVING];
    emu_copies copies;
} emu_fiber;

/* An operation that all threads of a warp carry out together: what each brings, and how many times there was one. */
enum emu_warp_op { EMU_NO_OP, EMU_OP_ROWS, EMU_OP_TURNED, EMU_OP_MMA, EMU_OP_PEER };
typedef struct emu_warp {
    enum emu_warp_op op;
    int n, arrived;
    unsigned done;
    const void *at[EMU_LANES];
    int *r[EMU_LANES];
    const emu_operands *x[EMU_LANES];
    unsigned word[EMU_LANES], *answer[EMU_LANES];
} emu_warp;

typedef struct emu_meeting { int arrived; unsigned done; bool fenced[2]; } emu_meeting; /* fenced: of the meeting at hand, of the last one */

/* memory: the block's shared memory while another one has the place that the text knows. */
typedef struct emu_block {
    int64_t number;
    char *memory;
    emu_fiber fibers[EMU_THREADS];
    emu_warp warps[EMU_THREADS / EMU_LANES];
    emu_group groups[EMU_THREADS / EMU_GROUP];
    emu_meeting meets[EMU_MEETS];
    emu_bars bars;
} emu_block;

/* A bulk copy that has not arrived: to place `to` of the blocks in mask, where it counts at the barrier at place `bar`. */
typedef struct emu_load { const emu_map *map; const char *from; long to, bar; unsigned mask; int coord[EMU_COORDS]; } emu_load;

/* One cluster at a time runs in this process, and fibers cannot be handed arguments other than ints: hence one static machine. */
typedef struct emu_machine {
    emu_call_fn call;
    void *args[VERIFY_MAX_ARGS];
    emu_dim3 *thread, *block;
    char *shared, *shared_end, *shared_base; /* base: a multiple of 1024, as the device's addresses count */
    int nthreads, nblocks, now, here;        /* now: thread of block `here`, whose memory is in place */
    char *stacks;
    jmp_buf home;
    bool late;
    char trouble[240];
    emu_block *blocks[EMU_BLOCKS];
    emu_meeting cluster;
    emu_load loads[EMU_LOADS];
    int nloads;
} emu_machine;
extern emu_machine emu;

static inline emu_block *emu_here(void) { return emu.blocks[emu.here]; }
static inline emu_fiber *emu_self(void) { return &emu_here()->fibers[emu.now]; }
static inline long emu_shared_bytes(void) { return (long)(emu.shared_end - emu.shared_base); }
void emu_stop(const char *why);            /* the kernel is wrong; the first reason counts */
void emu_wait_here(enum emu_wait what);    /* the running fiber goes on when that has come */
char *emu_memory_of(int block);            /* shared memory of a block of the cluster, from shared_base on */
void emu_land(const emu_load *l);

/* emu_steps.c: the text's function pointers, found by name, get their functions; false: it has no such. */
bool emu_hand_over(void *(*find)(void *so, const char *name), void *so);
/* emu_machine_posix.c: memory for blocks that run together; running them from poisoned shared memory on. False: emu.trouble says why. */
bool emu_machine_open(int nthreads, int nblocks);
bool emu_run_cluster(int64_t first_block, int order, unsigned char poison);
#endif
