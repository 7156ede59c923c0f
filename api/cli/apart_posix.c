/* Weights that an ONNX file keeps in other files of its folder: short ones go into the model that is posted, of the others it has the digests. */
#include "api/cli/weights.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TENSOR = 5, TENSOR_RAW = 9, TENSOR_EXTERNAL = 13, TENSOR_LOCATION = 14, BYTES = 2, TEXT = 1024, DEPTH = 64 };

/* A field of a protobuf message: number, type, value or bytes, and the bytes of all of it. */
struct field { unsigned number, type; uint64_t u; kiln_bytes bytes, whole; };

static bool varint(const char **p, const char *end, uint64_t *x)
{
    *x = 0;
    for (int shift = 0; *p < end && shift < 64; shift += 7) {
        unsigned char b = (unsigned char)*(*p)++;
        *x |= (uint64_t)(b & 127) << shift;
        if (b < 128) return true;
    }
    return false;
}

/* false: the end, or bytes that are no field: *p stays before them. */
static bool next(const char **p, const char *end, struct field *f)
{
    const char *at = *p;
    uint64_t tag, n = 0;
    if (at >= end || !varint(&at, end, &tag)) return false;
    f->number = (unsigned)(tag >> 3), f->type = tag & 7;
    if (f->type == 0 ? !varint(&at, end, &f->u) : f->type == BYTES ? !varint(&at, end, &n) : f->type != 1 && f->type != 5) return false;
    if (f->type == 1 || f->type == 5) n = f->type == 1 ? 8 : 4;
    if (n > (uint64_t)(end - at)) return false;
    f->bytes = (kiln_bytes){at, (size_t)n};
    at += n;
    f->whole = (kiln_bytes){*p, (size_t)(at - *p)};
    *p = at;
    return true;
}

/* What is written, in memory of its own. */
struct text { char *p; size_t n, cap; bool failed; };

static void put(struct text *t, const void *p, size_t n)
{
    if (t->failed || !n) return;
    if (t->n + n > t->cap) {
        size_t cap = 2 * t->cap + n + 256;
        char *more = realloc(t->p, cap);
        if (!more) {
            t->failed = true;
            return;
        }
        t->p = more, t->cap = cap;
    }
    memcpy(t->p + t->n, p, n);
    t->n += n;
}

static void put_number(struct text *t, uint64_t x)
{
    unsigned char b[10];
    size_t n = 0;
    for (; x > 127; x >>= 7) b[n++] = (unsigned char)((x & 127) | 128);
    b[n++] = (unsigned char)x;
    put(t, b, n);
}

static void put_field(struct text *t, unsigned number, const void *p, size_t n)
{
    put_number(t, (uint64_t)number << 3 | BYTES);
    put_number(t, n);
    put(t, p, n);
}

/* Where a tensor keeps its data; false: in the model, or it is known by its digest already. length -1: to the end. */
struct elsewhere { char location[TEXT]; int64_t offset, length; };

static bool elsewhere_of(kiln_bytes tensor, struct elsewhere *x)
{
    struct field f, e;
    bool external = false;
    *x = (struct elsewhere){.length = -1};
    for (const char *p = tensor.p; next(&p, tensor.p + tensor.n, &f);) {
        char key[16] = "", value[TEXT] = "";
        if (f.number == TENSOR_LOCATION && f.type == 0) external = f.u == 1;
        if (f.number != TENSOR_EXTERNAL || f.type != BYTES) continue;
        for (const char *q = f.bytes.p; next(&q, f.bytes.p + f.bytes.n, &e);) {
            if (e.type == BYTES && e.number == 1) snprintf(key, sizeof key, "%.*s", (int)(e.bytes.n < 15 ? e.bytes.n : 15), e.bytes.p);
            if (e.type == BYTES && e.number == 2) snprintf(value, sizeof value, "%.*s", (int)(e.bytes.n < TEXT ? e.bytes.n : TEXT - 1), e.bytes.p);
        }
        if (!strcmp(key, "location")) memcpy(x->location, value, sizeof value);
        if (!strcmp(key, "offset")) x->offset = strtoll(value, NULL, 10);
        if (!strcmp(key, "length")) x->length = strtoll(value, NULL, 10);
    }
    return external && *x->location && strncmp(x->location, "sha256:", 7) != 0;
}

/* The file of that name in the model's folder or below it, mapped once; a name that leads elsewhere, also through links, is refused. */
static int map_data(const char *model, const char *name, struct weights *w, struct weights_data **out)
{
    char folder[PATH_MAX], path[PATH_MAX], real[PATH_MAX], root[PATH_MAX];
    const char *slash = strrchr(model, '/');
    struct stat s;
    for (struct weights_data *d = w->data; d; d = d->next)
        if (!strcmp(d->name, name)) return *out = d, OK;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - model) + 1 : 2, slash ? model : "./");
    bool fits = (size_t)snprintf(path, sizeof path, "%s%s", folder, name) < sizeof path;
    if (*name == '/') return cli_fail(DATA, "the model keeps weights in \"%.200s\": only files of its folder are read", name);
    if (!fits || !realpath(folder, root) || !realpath(path, real))
        return cli_fail(NO_INPUT, "the model keeps weights in \"%.200s\", which is not there", name);
    size_t n = strlen(root);
    if (strncmp(real, root, n) || (n > 1 && real[n] != '/'))
        return cli_fail(DATA, "the model keeps weights in \"%.200s\", which is outside of its folder", name);
    int fd = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for whoever writes it */
    bool ok = fd >= 0 && !fstat(fd, &s) && S_ISREG(s.st_mode) && s.st_size > 0;
    void *p = ok ? mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (fd >= 0) close(fd);
    struct weights_data *d = p == MAP_FAILED ? NULL : calloc(1, sizeof *d);
    if (!d) return cli_fail(NO_INPUT, "\"%.200s\", in which the model keeps weights, cannot be read", name);
    *d = (struct weights_data){.p = p, .n = (size_t)s.st_size, .next = w->data};
    snprintf(d->name, sizeof d->name, "%s", name);
    w->data = d;
    return *out = d, OK;
}

static int read_part(const char *model, const struct elsewhere *x, struct weights *w, kiln_bytes *out)
{
    struct weights_data *d;
    int status = map_data(model, x->location, w, &d);
    if (status != OK) return status;
    if (x->offset < 0 || (uint64_t)x->offset > d->n || (x->length >= 0 && (uint64_t)x->length > d->n - (uint64_t)x->offset))
        return cli_fail(DATA, "a weight is at %lld of \"%.200s\", %lld bytes long; the file has %zu", (long long)x->offset, x->location,
                        (long long)x->length, d->n);
    *out = (kiln_bytes){(const char *)d->p + x->offset, x->length >= 0 ? (size_t)x->length : d->n - (size_t)x->offset};
    return OK;
}

static bool add_weight(struct weights *w, kiln_bytes raw, struct text *t)
{
    uint8_t digest[32];
    kiln_onnx_weight *more = realloc(w->apart, (size_t)(w->napart + 1) * sizeof *more);
    struct text e = {0};
    char location[80];
    if (!more) return false;
    w->apart = more;
    more = &w->apart[w->napart++];
    more->bytes = raw;
    kiln_sha256(raw.p, raw.n, digest);
    kiln_hex(digest, 32, more->sha256);
    snprintf(location, sizeof location, "sha256:%s", more->sha256);
    put_field(&e, 1, "location", 8);
    put_field(&e, 2, location, strlen(location));
    put_field(t, TENSOR_EXTERNAL, e.p, e.n);
    put_number(t, TENSOR_LOCATION << 3);
    put_number(t, 1);
    free(e.p);
    return !e.failed;
}

static int copy_tensor(const char *model, kiln_bytes tensor, const struct elsewhere *x, size_t least, struct weights *w, struct text *out)
{
    struct field f;
    struct text t = {0};
    kiln_bytes raw = {0};
    int status = read_part(model, x, w, &raw);
    if (status != OK) return status;
    for (const char *p = tensor.p; next(&p, tensor.p + tensor.n, &f);)
        if (f.number != TENSOR_EXTERNAL && f.number != TENSOR_LOCATION && f.number != TENSOR_RAW) put(&t, f.whole.p, f.whole.n);
    bool ok = true;
    if (raw.n < least) put_field(&t, TENSOR_RAW, raw.p, raw.n);
    else ok = add_weight(w, raw, &t);
    put_field(out, TENSOR, t.p, t.n);
    ok = ok && !t.failed && !out->failed;
    free(t.p);
    return ok ? OK : cli_fail(SOFTWARE, "out of memory");
}

/* Messages in which tensors stand: a model has a graph, that has nodes, those have attributes, and these have graphs again. The tensors of graphs
 * (initializers) and of attributes (of Constant) are field 5 of both. */
enum message { MODEL, GRAPH, NODE, ATTRIBUTE };

/* What field `number` of a message is; -1: nothing that has tensors. */
static int inside(enum message m, unsigned number)
{
    static const struct { enum message in; unsigned number; enum message is; } fields[] = {
        {MODEL, 7, GRAPH}, {GRAPH, 1, NODE}, {NODE, 5, ATTRIBUTE}, {ATTRIBUTE, 6, GRAPH}, {ATTRIBUTE, 11, GRAPH}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].in == m && fields[i].number == number) return (int)fields[i].is;
    return -1;
}

static bool names_files(kiln_bytes x) { return memmem(x.p, x.n, "location", 8) != NULL; }

/* depth: of graphs in graphs, which whoever reads the model bounds as well. */
static int copy(const char *model, enum message m, int depth, kiln_bytes from, size_t least, struct weights *w, struct text *out)
{
    struct field f;
    struct elsewhere x;
    int status = OK;
    const char *p = from.p;
    while (status == OK && next(&p, from.p + from.n, &f)) {
        int is = f.type == BYTES ? inside(m, f.number) : -1;
        bool tensor = f.type == BYTES && f.number == TENSOR && (m == GRAPH || m == ATTRIBUTE);
        if (tensor && elsewhere_of(f.bytes, &x)) {
            status = copy_tensor(model, f.bytes, &x, least, w, out);
        } else if (is >= 0 && depth < DEPTH && names_files(f.bytes)) {
            struct text t = {0};
            status = copy(model, (enum message)is, depth + 1, f.bytes, least, w, &t);
            put_field(out, f.number, t.p, t.n);
            out->failed |= t.failed;
            free(t.p);
        } else {
            put(out, f.whole.p, f.whole.n);
        }
    }
    put(out, p, (size_t)(from.p + from.n - p)); /* broken bytes: whoever reads them says where */
    return status;
}

int weights_apart(const char *model, size_t least, struct weights *w)
{
    struct text out = {0};
    if (!names_files(w->body)) return OK;
    int status = copy(model, MODEL, 0, w->body, least, w, &out);
    if (status == OK && out.failed) status = cli_fail(SOFTWARE, "out of memory");
    w->rewritten = out.p;
    if (status == OK) w->body = (kiln_bytes){out.p, out.n};
    return status;
}
