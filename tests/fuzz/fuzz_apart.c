/* Fuzz target: models that keep weights in files of their folder, as the command line makes of them what it posts. The first byte says from how many
 * bytes on a weight is large. Whatever is rewritten names no file any more, and every part lies within the one file that there is. */
#include "api/cli/apart_posix.c"
#include "tests/fuzz/cli_fail.h"

enum { DATA_BYTES = 4096 };
static char folder[] = "/tmp/kiln-fuzz-XXXXXX", model[64];

static void remove_folder(void)
{
    char path[64];
    snprintf(path, sizeof path, "%s/w", folder);
    unlink(path);
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static char bytes[DATA_BYTES];
    char path[64];
    (void)argc, (void)argv;
    if (!mkdtemp(folder)) abort();
    snprintf(model, sizeof model, "%s/model.onnx", folder);
    snprintf(path, sizeof path, "%s/w", folder);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, sizeof bytes, f) != sizeof bytes || fclose(f)) abort();
    atexit(remove_folder);
    return 0;
}

static void drop(struct weights *w)
{
    for (struct weights_data *d = w->data, *more; d; d = more) {
        more = d->next;
        munmap(d->p, d->n);
        free(d);
    }
    free(w->rewritten);
    free(w->apart);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    struct weights w = {.body = {(const char *)data + 1, size - 1}}, again = {0};
    if (weights_apart(model, data[0], &w) == OK) {
        for (int i = 0; i < w.napart; i++)
            if (!w.data || w.apart[i].bytes.n > DATA_BYTES || w.apart[i].bytes.n < data[0]) abort();
        again.body = w.body;
        if (weights_apart("/nowhere/model.onnx", data[0], &again) != OK) abort(); /* it would read a file */
        if (again.body.n != w.body.n || memcmp(again.body.p, w.body.p, w.body.n)) abort();
    }
    drop(&again);
    drop(&w);
    return 0;
}
