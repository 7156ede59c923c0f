/* Images that libcuda_emu.so executes. */
#include "tests/emu/image.h"
#include "workers/emu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_map(const kiln_launch *l, int arg) { return l->maps && l->maps[arg].rank; }

/* A function that takes arguments as cuLaunchKernel does. */
static void put_call(FILE *f, const kiln_launch *l, int number)
{
    fprintf(f, "\nvoid mock_call_%d(void **a) { (void)a; %s(", number, l->entry);
    for (int j = 0; j < l->nargs; j++) fprintf(f, "%s*(%s *)a[%d]", j ? ", " : "", is_map(l, j) ? "k_map" : "void *", j);
    fputs("); }\n", f);
}

static void put_row(FILE *f, const kiln_launch *l, int number, const char *stem)
{
    fprintf(f, "fn %s body=emulate so=%s.so launch=%d regs=32 threads=%d static=%lld cluster=%d params=", l->entry, stem, number, l->threads,
            (long long)(l->dynamic_shared_bytes ? 0 : l->shared_bytes), l->cluster > 1 ? l->cluster : 0);
    for (int j = 0; j < l->nargs; j++) fprintf(f, "%s%s", j ? "," : "", is_map(l, j) ? "tmap" : "ptr");
    fputs("\n", f);
}

bool emu_image(const char *cc, const kiln_kernel *k, const char *stem)
{
    char path[600], command[1400];
    size_t n = 0;
    char *text = emu_text(k, false, &n);
    snprintf(path, sizeof path, "%s.emu.c", stem);
    FILE *c = fopen(path, "wb");
    snprintf(path, sizeof path, "%s.image", stem);
    FILE *image = fopen(path, "wb");
    bool ok = text && c && image;
    if (ok) {
        fwrite(text, 1, n, c);
        fputs("MOCK arch=90\n", image);
    }
    for (const kiln_kernel *of = k, *end = NULL; ok && of != end; of = of == k ? k->fallback : NULL)
        for (int i = 0; i < of->nlaunches; i++) {
            int number = i + (of == k ? 0 : k->nlaunches);
            put_call(c, &of->launches[i], number);
            put_row(image, &of->launches[i], number, stem);
        }
    free(text);
    if (c) ok = !fclose(c) && ok;
    if (image) ok = !fclose(image) && ok;
    snprintf(command, sizeof command, "%s -w -O1 -ffp-contract=off -shared -fPIC -o %s.so %s.emu.c -lm", cc, stem, stem);
    return ok && system(command) == 0;
}
