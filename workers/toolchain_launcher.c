/* A GPU kernel's launcher and its image to one shared object that frameworks load (docs/abi.md). */
#include "workers/toolchain.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The image as a C string, which compilers read far faster than a list of numbers. malloc'd; NULL: out of memory. */
static char *with_image(kiln_bytes launcher, const worker_blob *image, size_t *n)
{
    static const char head[] = "static const unsigned char kiln_image[] __attribute__((aligned(64))) =\n\"";
    static const char tail[] = "\";\n#define KILN_IMAGE kiln_image\n";
    char *text = malloc(sizeof head + sizeof tail + image->n * 4 + image->n / 32 * 4 + launcher.n), *p = text;
    if (!text) return NULL;
    p = memcpy(p, head, sizeof head - 1), p += sizeof head - 1;
    for (size_t i = 0; i < image->n; i++) {
        unsigned c = (unsigned char)image->p[i];
        *p++ = '\\', *p++ = (char)('0' + (c >> 6)), *p++ = (char)('0' + (c >> 3 & 7)), *p++ = (char)('0' + (c & 7));
        if (i % 32 == 31) p = memcpy(p, "\"\n\"", 3), p += 3;
    }
    memcpy(p, tail, sizeof tail - 1), p += sizeof tail - 1;
    memcpy(p, launcher.p, launcher.n), p += launcher.n;
    *n = (size_t)(p - text);
    return text;
}

bool worker_compile_launcher(const worker_tools *t, kiln_bytes launcher, const worker_blob *image, int deadline_ms, worker_blob *so,
                             worker_error *e)
{
    size_t n = 0;
    char *text = with_image(launcher, image, &n);
    if (!text) return toolchain_fail(e, KILN_MEMORY, "compile-failed", "out of memory");
    bool ok = worker_compile_c(t, (kiln_bytes){text, n}, NULL, 0, deadline_ms, so, e);
    free(text);
    return ok;
}
