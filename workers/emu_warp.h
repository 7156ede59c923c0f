/* What the threads of a block do other than one by one, emulated: copies that arrive later, and operations of a whole warp. Internal to workers/. */
#ifndef WORKERS_EMU_WARP_H
#define WORKERS_EMU_WARP_H
#include <stdbool.h>
#include <stdint.h>

enum { EMU_LANES = 32, EMU_COPIES = 4096 };

/* A thread's asynchronous copies, oldest first; `open` of them belong to no group yet. */
typedef struct emu_pending { void *to; const void *from; int size, n, group; } emu_pending;
typedef struct emu_copies { emu_pending *list; int n, cap, groups; } emu_copies;

/* Copies land when a wait asks for them and no sooner (late), or at once. NULL, or what is wrong with a copy. */
const char *emu_copy_start(emu_copies *c, bool late, void *to, const void *from, int size, int n);
void emu_copy_commit(emu_copies *c);
void emu_copy_wait(emu_copies *c, int groups);

/* ldmatrix over the 32 threads' addresses: n matrices of 8 rows of 16 bytes; r[lane] gets n words. */
void emu_ldmatrix(int *const r[EMU_LANES], const void *const at[EMU_LANES], int n, bool trans);
/* mma.sync by its PTX name over the fragments of 32 threads; false: a form that is not known. */
typedef struct emu_operands { void *d; const int *a, *b; } emu_operands;
double emu_from_f16(uint32_t bits);
double emu_from_bf16(uint32_t bits);
double emu_from_s8(uint32_t bits);
double emu_from_e4m3(uint32_t bits);
double emu_from_e5m2(uint32_t bits);
bool emu_mma_run(const char *ptx, const emu_operands *x[EMU_LANES]);

#endif
