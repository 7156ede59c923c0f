/* Large weights of a model stay with the client: the service gets their digests, the folder gets their bytes. */
#include "api/cli/weights.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MODEL_FROM = 64 << 20 }; /* bytes of a model from which its large weights are not sent */

int weights_open(struct cli *c, const char *path, struct weights *w)
{
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *w = (struct weights){0};
    if (fd < 0 || fstat(fd, &s) || !S_ISREG(s.st_mode)) {
        if (fd >= 0) close(fd);
        return cli_fail(NO_INPUT, "%s cannot be read", path);
    }
    w->n = (size_t)s.st_size;
    w->file = w->n ? mmap(NULL, w->n, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    close(fd);
    if (w->file == MAP_FAILED) w->file = NULL;
    if (!w->file) return cli_fail(w->n ? SOFTWARE : DATA, w->n ? "no memory for %s" : "%s is empty", path);
    w->body = (kiln_bytes){w->file, w->n};
    int status = weights_apart(path, WEIGHT_FROM, w);
    if (status != OK || w->n < MODEL_FROM) return status;
    return kiln_onnx_slim(c->arena, w->body, WEIGHT_FROM, &w->body, &w->all, &w->nall) == KILN_OK ? OK : cli_fail(SOFTWARE, "out of memory");
}

void weights_close(struct weights *w)
{
    if (w->file) munmap(w->file, w->n);
    for (struct weights_data *d = w->data, *more; d; d = more) {
        more = d->next;
        munmap(d->p, d->n);
        free(d);
    }
    free(w->rewritten);
    free(w->apart);
    *w = (struct weights){0};
}

static const kiln_onnx_weight *find(const struct weights *w, const char *sha256)
{
    for (int i = 0; i < w->nall; i++)
        if (!strcmp(w->all[i].sha256, sha256)) return &w->all[i];
    for (int i = 0; i < w->napart; i++)
        if (!strcmp(w->apart[i].sha256, sha256)) return &w->apart[i];
    return NULL;
}

/* SHA-256 of a file, read through a mapping: no copy of gigabytes. */
static bool digest_of(int fd, size_t n, char hex[65])
{
    uint8_t digest[32];
    void *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return false;
    kiln_sha256(p, n, digest);
    kiln_hex(digest, 32, hex);
    return !munmap(p, n);
}

static bool put(int fd, const char *p, size_t n, off_t at)
{
    while (n) {
        ssize_t k = pwrite(fd, p, n, at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
        at += k;
    }
    return true;
}

int weights_append(struct cli *c, const struct weights *w, cJSON *manifest, cJSON *files)
{
    char path[4096], hex[65];
    struct stat s;
    int status = OK;
    if (!w->nall && !w->napart) return OK;
    snprintf(path, sizeof path, "%s/weights.bin", c->output);
    bool there = cJSON_GetObjectItemCaseSensitive(files, "weights.bin") != NULL;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (there ? 0 : O_TRUNC), 0666);
    if (fd < 0 || fstat(fd, &s)) status = cli_fail(CANT_CREATE, "%s cannot be written", path);
    off_t end = status == OK ? s.st_size : 0;
    cJSON *x, *list = cJSON_GetObjectItemCaseSensitive(manifest, "weights");
    cJSON_ArrayForEach(x, list)
    {
        cJSON *sha = cJSON_GetObjectItemCaseSensitive(x, "sha256"), *offset = cJSON_GetObjectItemCaseSensitive(x, "offset");
        if (status != OK || !cJSON_IsString(sha) || !cJSON_IsNumber(offset) || offset->valuedouble >= 0) continue;
        const kiln_onnx_weight *here = find(w, sha->valuestring);
        end = (end + 63) / 64 * 64;
        if (!here) status = cli_fail(DATA, "the model has no weight with the SHA-256 %.64s", sha->valuestring);
        else if (!put(fd, here->bytes.p, here->bytes.n, end)) status = cli_fail(CANT_CREATE, "%s cannot be written", path);
        else {
            cJSON_SetNumberValue(offset, (double)end);
            end += (off_t)here->bytes.n;
        }
    }
    if (status == OK && end && !digest_of(fd, (size_t)end, hex)) status = cli_fail(SOFTWARE, "%s cannot be read again", path);
    if (fd >= 0 && close(fd) && status == OK) status = cli_fail(CANT_CREATE, "%s cannot be written", path);
    if (status != OK || !end) return status;
    cJSON_DeleteItemFromObjectCaseSensitive(files, "weights.bin");
    cJSON_AddStringToObject(files, "weights.bin", hex);
    return OK;
}
