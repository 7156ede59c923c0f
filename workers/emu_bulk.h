/* Barriers in shared memory (mbarrier) and boxes of tensor maps, emulated. Internal to workers/. */
#ifndef WORKERS_EMU_BULK_H
#define WORKERS_EMU_BULK_H
#include <stdbool.h>
#include <stdint.h>

enum { EMU_BARS = 64, EMU_RANK = 5, EMU_LOADS = 256 };

/* As emu_cuda_text.c declares it. bytes: of an element; swizzle: 0 or 3, of 128 bytes. window: pixels of a copy (0: boxes), corners that are lower of
 * columns and rows, those that are upper, and steps. */
enum { EMU_COORDS = 6 }; /* a window's place in it comes behind its first pixel */
typedef struct emu_map {
    int rank, bytes, swizzle, box[EMU_RANK];
    unsigned long long dims[EMU_RANK], strides[EMU_RANK];
    int window[7];
} emu_map;

/* at: its place in the block's shared memory. A phase is over when nothing is pending and all bytes that were expected have come. */
typedef struct emu_bar { long at, bytes; unsigned count, pending, phase; bool open; } emu_bar;
typedef struct emu_bars { emu_bar list[EMU_BARS]; int n; } emu_bars;
/* NULL, or what is wrong. */
const char *emu_bar_make(emu_bars *b, long at, unsigned n);
emu_bar *emu_bar_at(emu_bars *b, long at); /* NULL: none was initialised there */
const char *emu_bar_arrive(emu_bar *b, long expected);
void emu_bar_arrived(emu_bar *b, long bytes);
static inline bool emu_bar_over(const emu_bar *b, unsigned parity) { return (b->phase & 1) != (parity & 1); }

long emu_box_bytes(const emu_map *m);
/* Between the box of the tensor at coord and place `at` of shared memory from `base` on, swizzled; what is out of range is zero, or not written. */
void emu_box_load(char *base, long at, const emu_map *m, const char *tensor, const int *coord);
void emu_box_store(const char *base, long at, const emu_map *m, char *tensor, const int *coord);
#endif
