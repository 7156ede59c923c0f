/* Compares policy "roller" with recorded tiles of the published artifact: for every operator of a golden file (columns as in
 * tests/data/roller_golden_k80.csv), rank by rank: block tile, reduce step, thread tile, threads, grid, shared memory, registers.
 * usage: roller-golden GOLDEN.csv [OPERATORS.csv]; ends with a line of counts; status 0 only when all are equal. */
#include "tests/arena.h"
#include "construct/roller.h"
#include "tests/golden/ops_table.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void join(char *out, size_t cap, const int64_t *x, int n)
{
    size_t used = 0;
    *out = 0;
    for (int i = 0; i < n; i++) used += (size_t)snprintf(out + used, cap - used, "%s%lld", i ? "x" : "", (long long)x[i]);
}

/* One golden row against one tile; prints the difference. */
static bool row_equal(const ops_table *g, const kn_rtile *t)
{
    char block[96], step[96], thread[96], got[400], want[400];
    join(block, sizeof block, t->block, t->nspatial);
    join(step, sizeof step, t->rstep, t->nreduce);
    join(thread, sizeof thread, t->thread, t->nspatial);
    snprintf(got, sizeof got, "%s,%s,%s,%lld,%lld,%lld,%.2f", block, step, thread, (long long)t->threads, (long long)t->grid,
             (long long)t->smem_bytes, t->regs);
    snprintf(want, sizeof want, "%s,%s,%s,%s,%s,%s,%.2f", ops_at(g, "block_tile"), ops_at(g, "reduce_step"),
             ops_at(g, "thread_tile"), ops_at(g, "threads"), ops_at(g, "grid"), ops_at(g, "smem_bytes"), atof(ops_at(g, "regs_per_thread")));
    if (!strcmp(got, want)) return true;
    printf("%s rank %s\n  want %s\n  got  %s\n", ops_at(g, "op_id"), ops_at(g, "rank"), want, got);
    return false;
}

/* Tiles of one operator, or NULL with the reason printed. */
static kn_rtile *construct(kiln_arena *a, const char *ops_path, const char *id, const char *arch, int *n)
{
    ops_table ops = {0};
    char body[1024];
    kiln_request *r;
    kiln_diag d = {0};
    bool found = false;
    if (!ops_open(&ops, ops_path)) return NULL;
    while (!found && ops_next(&ops)) found = !strcmp(ops_at(&ops, "id"), id);
    if (ops.f) fclose(ops.f);
    kn_hw *hw = ops_device(a, arch);
    if (!found || !hw || !ops_request(&ops, body, sizeof body)) {
        printf("%s: %s\n", id, !found ? "not in the operator table" : !hw ? "no such device" : "operator not known");
        return NULL;
    }
    kn_roller_view v;
    int group[KILN_MAX_AXES];
    kn_rtile *tiles = NULL;
    const char *used;
    double eps;
    if (kiln_request_json(a, (kiln_bytes){body, strlen(body)}, &r, &d) != KILN_OK || kn_roller_view_of(r->program, 0, &v, group, &d) != KILN_OK ||
        kn_roller_tiles(a, &v, hw, 10, KN_ROLLER_ALL, &tiles, n, &used, &eps, &d) != KILN_OK) {
        printf("%s: %s %s\n  %s\n", id, d.pointer, d.message, body);
        return NULL;
    }
    return tiles;
}

int main(int argc, char **argv)
{
    ops_table g = {0};
    const char *ops = argc > 2 ? argv[2] : "tests/data/roller_ops.csv";
    if (argc < 2 || !ops_open(&g, argv[1])) {
        fprintf(stderr, "usage: roller-golden GOLDEN.csv [OPERATORS.csv]\n");
        return 64;
    }
    int passed = 0, failed = 0, n = 0, row = 0;
    char id[64] = "", arch[64] = "";
    bool equal = true;
    kiln_arena *a = NULL;
    kn_rtile *tiles = NULL;
    for (bool more = ops_next(&g);; more = ops_next(&g)) {
        if (!more || strcmp(id, ops_at(&g, "op_id")) || strcmp(arch, ops_at(&g, "arch"))) {
            if (*id && tiles && row != n) printf("%s: %d candidates, %d expected\n", id, n, row);
            if (*id) *(tiles && equal && row == n ? &passed : &failed) += 1;
            kiln_arena_close(a);
            a = NULL;
            if (!more) break;
            a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
            snprintf(id, sizeof id, "%s", ops_at(&g, "op_id"));
            snprintf(arch, sizeof arch, "%s", ops_at(&g, "arch"));
            n = row = 0;
            equal = true;
            tiles = construct(a, ops, id, arch, &n);
        }
        if (tiles && row < n && !row_equal(&g, &tiles[row])) equal = false;
        row++;
    }
    fclose(g.f);
    printf("roller-golden: %d passed, %d failed\n", passed, failed);
    return failed != 0;
}
