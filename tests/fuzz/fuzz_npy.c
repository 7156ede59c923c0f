/* Fuzz target: .npy files given to the command line, against an array of every dtype. */
#include "api/cli/npy.c"
#include "tests/fuzz/cli_fail.h"

static const uint8_t *input;
static size_t input_size;

char *cli_read_file(struct cli *c, const char *path, size_t *n)
{
    (void)c, (void)path;
    char *p = malloc(input_size + 1);
    memcpy(p, input, input_size);
    p[input_size] = 0;
    *n = input_size;
    return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct { const char *dtype; int bytes; } kinds[] = {{"f32", 4}, {"f64", 8}, {"i8", 1}, {"bool", 1}, {"bf16", 2}};
    if (!size) return 0;
    int k = data[0] % 5, rank = data[0] / 5 % 4;
    int64_t shape[4] = {1, 2, 3, 4};
    kiln_arg a = {.name = "a", .dtype = kinds[k].dtype, .rank = rank};
    a.bytes = kinds[k].bytes;
    for (int i = 0; i < rank; i++) a.shape[i] = shape[i], a.bytes *= shape[i];
    char *file = NULL;
    input = data + 1;
    input_size = size - 1;
    const char *p = npy_read("x.npy", &a, &file);
    if (p && p + a.bytes != file + input_size) abort();
    free(file);
    return 0;
}
