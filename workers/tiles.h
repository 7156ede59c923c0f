/* AMX tiles and vdpbf16ps on a CPU that has them not: instructions that were refused (SIGILL) are decoded and carried out. Internal to workers/. */
#ifndef WORKERS_TILES_H
#define WORKERS_TILES_H
#include <stdbool.h>
#include <stdint.h>

enum { TILES_NEXT = -2, TILES = 8, TILE_ROWS = 16, TILE_ROW_BYTES = 64 }; /* palette 1 */
/* What a thread's tiles are. on: configured. */
typedef struct tiles {
    bool on;
    uint8_t rows[TILES];
    uint16_t bytes[TILES]; /* of a row */
    uint8_t data[TILES][TILE_ROWS][TILE_ROW_BYTES];
} tiles;

/* One instruction, decoded. a, b: tile numbers. */
typedef enum tiles_op {
    TILES_NONE, TILES_CONFIG, TILES_SHOW, TILES_RELEASE, TILES_ZERO, TILES_LOAD, TILES_STORE, TILES_PRODUCT, TILES_PAIRS
} tiles_op;
typedef enum tiles_kind { TILES_BF16, TILES_SS, TILES_SU, TILES_US, TILES_UU } tiles_kind;
typedef struct tiles_step {
    tiles_op op;
    tiles_kind kind;    /* of a product; S and U: a's bytes, then b's */
    int d, a, b;        /* PAIRS: numbers of vector registers */
    int base, index;    /* of an address: numbers of registers, -1: none, NEXT: the address behind the instruction */
    int scale;
    int64_t offset;
    int length;         /* bytes of the instruction */
} tiles_step;

/* Decodes what stands at `code`, of which n bytes may be read; op NONE: something else. */
tiles_step tiles_decode(const uint8_t *code, int n);
/* Carries out all but PAIRS. at: the address; `row`: the index register's part of it, which a load or store goes on by instead. NULL, or why a
 * processor refuses it. */
const char *tiles_do(tiles *t, const tiles_step *s, uint8_t *at, int64_t row);
/* d[16] += a[32] * b[32] by pairs, as vdpbf16ps does. */
void tiles_pairs(float *d, const uint16_t *a, const uint16_t *b);

/* Called by a handler of SIGILL with its third argument: true when the instruction was carried out and stepped over. *why: what a processor
 * refuses of it, else NULL. Async-signal-safe. */
bool tiles_step_over(void *context, const char **why);
long tiles_stepped(void); /* instructions so far, of all threads */
#endif
