/* A folder with a compiled model: read, checked, loaded, run. */
#include "api/client/cuda.h"
#include "api/client/kiln_client.h"
#include "api/cli/pool.h"
#include "kiln.h"
#include <cjson/cJSON.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef int32_t (*kernel_fn)(const void *const *, void *const *, void *, const struct kiln_pool *);
typedef struct graph_call { /* docs/abi.md */
    const kernel_fn *kernels;
    const void *const *weights, *const *feeds;
    void *const *results;
    void *arena, *workspace;
    const struct kiln_pool *pool;
    kiln_client_caller caller;
    void *user;
} graph_call;
typedef struct step_arg { int place, index; int64_t offset; } step_arg;
typedef struct step {
    const char *nodes;
    int kernel, nin, nargs;
    int64_t bytes;
    double flops, traffic;
    step_arg *args;
} step;

struct kiln_model {
    cJSON *json;
    cuda_model *cuda; /* of a GPU: all that runs */
    pthread_mutex_t lock;
    int nin, nout, nkernels, nweights, nsteps;
    kiln_client_tensor *in, *out;
    void *entry_so, **sos;
    int32_t (*entry)(const graph_call *);
    kernel_fn *kernels;
    int64_t (**workspaces)(int32_t);
    void **weights;
    bool *alias; /* of another weight's memory */
    char *file;  /* weights.bin, in pages of its own; weights that came with the model lie in it */
    size_t file_bytes;
    void *arena, *workspace;
    int64_t arena_bytes, workspace_bytes;
    step *steps;
    int ncalls;
    kiln_client_caller caller;
    void *user;
};

static bool fail(kiln_client_error *e, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(e->message, sizeof e->message, format, ap);
    va_end(ap);
    return false;
}

static const cJSON *get(const cJSON *o, const char *name) { return cJSON_GetObjectItemCaseSensitive(o, name); }

static const char *text(const cJSON *o, const char *name)
{
    const cJSON *m = get(o, name);
    return cJSON_IsString(m) ? m->valuestring : "";
}

static int64_t number(const cJSON *o, const char *name)
{
    const cJSON *m = get(o, name);
    return cJSON_IsNumber(m) && m->valuedouble > -9e15 && m->valuedouble < 9e15 ? (int64_t)m->valuedouble : -1;
}

static char *read_file(const char *folder, const char *name, size_t *n, kiln_client_error *e)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    struct stat s;
    char *p = f && !fstat(fileno(f), &s) && S_ISREG(s.st_mode) ? malloc((size_t)s.st_size + 1) : NULL;
    *n = p ? fread(p, 1, (size_t)s.st_size, f) : 0;
    bool ok = p && *n == (size_t)s.st_size;
    if (f) fclose(f);
    if (ok) {
        p[*n] = 0;
        return p;
    }
    free(p);
    fail(e, "%s cannot be read", path);
    return NULL;
}

/* A file of the folder whose bytes are those that model.json names. */
static char *checked(const kiln_model *m, const char *folder, const char *name, size_t *n, kiln_client_error *e)
{
    const char *want = text(get(m->json, "files"), name);
    char *p = read_file(folder, name, n, e), hex[65];
    uint8_t digest[32];
    if (!p) return NULL;
    kiln_sha256(p, *n, digest);
    kiln_hex(digest, 32, hex);
    if (!strcmp(hex, want)) return p;
    fail(e, "%s/%s does not have the SHA-256 that model.json names", folder, name);
    free(p);
    return NULL;
}

/* From memory, so that what is loaded is what was checked. The paths of descriptors come again and the loader remembers paths: a link has a name
 * of its own. */
static void *load(const char *bytes, size_t n, kiln_client_error *e)
{
    char path[64], link[] = "/tmp/kiln-XXXXXX", name[80];
    int fd = memfd_create("kernel", MFD_CLOEXEC);
    void *so = NULL;
    if (fd >= 0 && write(fd, bytes, n) == (ssize_t)n && mkdtemp(link)) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        snprintf(name, sizeof name, "%s/kernel.so", link);
        if (!symlink(path, name)) so = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (!so) fail(e, "a shared object cannot be loaded: %.300s", dlerror());
        unlink(name);
        rmdir(link);
    } else {
        fail(e, "a shared object cannot be put in memory");
    }
    if (fd >= 0) close(fd);
    return so;
}

/* Words of /proc/cpuinfo, compared without underscores. */
static bool cpu_has(const char *flags, const char *feature)
{
    char want[40] = "", have[40];
    for (size_t i = 0, n = 0; feature[i] && n + 1 < sizeof want; i++)
        if (feature[i] != '_') want[n++] = feature[i];
    for (const char *p = flags; *p;) {
        size_t n = 0;
        p += strspn(p, " \t");
        for (; *p && *p != ' '; p++)
            if (*p != '_' && n + 1 < sizeof have) have[n++] = *p;
        have[n] = 0;
        if (n && !strcmp(have, want)) return true;
    }
    return false;
}

static bool check_cpu(const cJSON *target, kiln_client_error *e)
{
    char *line = NULL, *flags = NULL;
    size_t cap = 0;
    bool ok = true;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !flags && getline(&line, &cap, f) > 0)
        if (!strncmp(line, "flags", 5) && strchr(line, ':')) flags = strdup(strchr(line, ':') + 1);
    if (f) fclose(f);
    free(line);
    if (flags) flags[strcspn(flags, "\n")] = ' ';
    const cJSON *x;
    cJSON_ArrayForEach(x, get(target, "features"))
        if (ok && flags && cJSON_IsString(x) && !cpu_has(flags, x->valuestring))
            ok = fail(e, "this machine's CPU lacks %.40s; compile for its own target", x->valuestring);
    free(flags);
    return ok;
}

static bool read_tensors(const cJSON *list, kiln_client_tensor **out, int *n, kiln_client_error *e)
{
    *n = cJSON_GetArraySize(list);
    *out = calloc((size_t)*n + 1, sizeof **out);
    if (!*out) return fail(e, "out of memory");
    kiln_client_tensor *t = *out;
    for (const cJSON *x = list ? list->child : NULL; x; x = x->next, t++) {
        const cJSON *d;
        *t = (kiln_client_tensor){.name = text(x, "name"), .dtype = text(x, "dtype"), .bytes = number(x, "bytes")};
        cJSON_ArrayForEach(d, get(x, "shape"))
        {
            if (t->rank == KILN_CLIENT_RANK || !cJSON_IsNumber(d)) return fail(e, "model.json has a shape that cannot be used");
            t->shape[t->rank++] = (int64_t)d->valuedouble;
        }
        if (t->bytes < 0) return fail(e, "model.json has a tensor without bytes");
    }
    return true;
}

static int place_of(const char *name)
{
    static const char *const places[] = {"input", "weight", "arena", "output"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(places[i], name)) return i;
    return -1;
}

static bool read_steps(kiln_model *m, const cJSON *list, kiln_client_error *e)
{
    m->nsteps = cJSON_GetArraySize(list);
    m->steps = calloc((size_t)m->nsteps + 1, sizeof *m->steps);
    if (!m->steps) return fail(e, "out of memory");
    step *s = m->steps;
    for (const cJSON *x = list ? list->child : NULL; x; x = x->next, s++) {
        const cJSON *args = get(x, "args"), *a, *flops = get(x, "flops"), *traffic = get(x, "traffic_bytes");
        *s = (step){.nodes = text(x, "nodes"), .kernel = (int)number(x, "kernel"), .nin = (int)number(x, "inputs"),
                    .nargs = cJSON_GetArraySize(args), .bytes = number(x, "bytes"), .flops = cJSON_IsNumber(flops) ? flops->valuedouble : 0,
                    .traffic = cJSON_IsNumber(traffic) ? traffic->valuedouble : 0};
        s->args = calloc((size_t)s->nargs + 1, sizeof *s->args);
        if (!s->args) return fail(e, "out of memory");
        int i = 0;
        cJSON_ArrayForEach(a, args)
        {
            const cJSON *place = cJSON_GetArrayItem(a, 0), *index = cJSON_GetArrayItem(a, 1), *offset = cJSON_GetArrayItem(a, 2);
            if (!cJSON_IsString(place) || !cJSON_IsNumber(index) || !cJSON_IsNumber(offset))
                return fail(e, "model.json has a step that cannot be read");
            s->args[i] = (step_arg){place_of(place->valuestring), index->valueint, (int64_t)offset->valuedouble};
            const int most[4] = {m->nin, m->nweights, 1, m->nout};
            if (s->args[i].place < 0 || s->args[i].index < 0 || s->args[i].index >= most[s->args[i].place])
                return fail(e, "model.json has a step with an argument that is not there");
            i++;
        }
        bool known = s->kernel < m->nkernels && s->kernel >= -1 - m->ncalls;
        if (!known || s->nin < 0 || s->nin > s->nargs) return fail(e, "model.json has a step that cannot be read");
    }
    return true;
}

static bool load_kernels(kiln_model *m, const char *folder, const cJSON *list, kiln_client_error *e)
{
    m->nkernels = cJSON_GetArraySize(list);
    m->sos = calloc((size_t)m->nkernels + 1, sizeof *m->sos);
    m->kernels = calloc((size_t)m->nkernels + 1, sizeof *m->kernels);
    m->workspaces = calloc((size_t)m->nkernels + 1, sizeof *m->workspaces);
    if (!m->sos || !m->kernels || !m->workspaces) return fail(e, "out of memory");
    for (int i = 0; i < m->nkernels; i++) {
        char name[40], symbol[160];
        size_t n;
        snprintf(name, sizeof name, "kernels/%d.so", i);
        char *bytes = checked(m, folder, name, &n, e);
        m->sos[i] = bytes ? load(bytes, n, e) : NULL;
        free(bytes);
        const char *entry = m->sos[i] ? dlsym(m->sos[i], "kiln_entry") : NULL;
        if (!m->sos[i]) return false;
        snprintf(symbol, sizeof symbol, "%s_workspace", entry ? entry : "");
        *(void **)&m->kernels[i] = entry ? dlsym(m->sos[i], entry) : NULL;
        *(void **)&m->workspaces[i] = entry ? dlsym(m->sos[i], symbol) : NULL;
        if (!m->kernels[i] || !m->workspaces[i]) return fail(e, "%s does not speak kernel ABI 1", name);
    }
    return true;
}

static int nibble(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

static bool fill_splat(char *to, int64_t bytes, const char *hex)
{
    char element[16];
    int n = 0;
    for (; n < 16 && nibble(hex[2 * n]) >= 0 && nibble(hex[2 * n + 1]) >= 0; n++)
        element[n] = (char)(nibble(hex[2 * n]) * 16 + nibble(hex[2 * n + 1]));
    if (!n || bytes % n) return false;
    for (int64_t i = 0; i < bytes; i += n) memcpy(to + i, element, (size_t)n);
    return true;
}

/* A weight as a kernel wants it: packed by the kernel's own entry, or another name for the weight as it is. */
static bool pack_weight(kiln_model *m, int i, const cJSON *w, kiln_client_error *e)
{
    int of = (int)number(w, "of"), kernel = (int)number(w, "kernel"), input = (int)number(w, "input");
    if (of < 0 || of >= i || kernel < 0 || kernel >= m->nkernels || m->alias[of] || !m->weights[of])
        return fail(e, "model.json has a weight that cannot be read");
    int64_t (*make)(const void *, void *);
    char symbol[160];
    snprintf(symbol, sizeof symbol, "%s_prepack_%d", (const char *)dlsym(m->sos[kernel], "kiln_entry"), input);
    *(void **)&make = dlsym(m->sos[kernel], symbol);
    m->alias[i] = !make;
    m->weights[i] = make ? aligned_alloc(64, ((size_t)make(NULL, NULL) + 127) / 64 * 64) : m->weights[of];
    if (!m->weights[i]) return fail(e, "no memory for a packed weight of %lld bytes", (long long)make(NULL, NULL));
    if (make) make(m->weights[of], m->weights[i]);
    return true;
}

static bool make_room(kiln_model *m, const struct kiln_pool *pool, kiln_client_error *e)
{
    int64_t most = 0;
    for (int i = 0; i < m->nkernels; i++) {
        int64_t n = m->workspaces[i](pool ? pool->nthreads : 1);
        if (n > most) most = n;
    }
    if (m->workspace && most <= m->workspace_bytes) return true;
    free(m->workspace);
    m->workspace_bytes = most;
    m->workspace = aligned_alloc(64, ((size_t)most + 127) / 64 * 64);
    return m->workspace || fail(e, "no memory for a workspace of %lld bytes", (long long)most);
}

/* The bytes that a tensor of that shape and dtype (its bits are its name's first number) has; -1: it cannot be. */
static int64_t shape_bytes(const cJSON *w)
{
    const char *dtype = text(w, "dtype"), *digits = dtype + strcspn(dtype, "0123456789");
    int64_t n = strcmp(dtype, "bool") ? strtoll(digits, NULL, 10) / 8 : 1;
    const cJSON *d;
    cJSON_ArrayForEach(d, get(w, "shape"))
    {
        int64_t extent = cJSON_IsNumber(d) && d->valuedouble >= 0 && d->valuedouble < 9e15 ? (int64_t)d->valuedouble : -1;
        if (extent < 0 || __builtin_mul_overflow(n, extent, &n)) return -1;
    }
    return n;
}

/* What the steps that run once write is room here; what kernels pack comes after them. */
static bool take_weight(kiln_model *m, int i, const cJSON *w, kiln_client_error *e)
{
    int64_t bytes = number(w, "bytes"), offset = number(w, "offset"), n = (int64_t)m->file_bytes;
    if (bytes != shape_bytes(w)) return fail(e, "the weight %.100s has other bytes than its shape", text(w, "name"));
    bool stored = !get(w, "once") && !get(w, "splat");
    if (stored && (offset < 0 || offset % 64 || offset > n || bytes > n - offset))
        return fail(e, "the weight %.100s is not in the folder", text(w, "name"));
    bool ok = bytes >= 0 && (m->weights[i] = stored ? m->file + offset : aligned_alloc(64, ((size_t)bytes + 127) / 64 * 64));
    if (!ok) return fail(e, "no memory for a weight of %lld bytes", (long long)bytes);
    if (get(w, "once")) return get(get(m->json, "manifest"), "once") || fail(e, "no step makes the weight %.100s", text(w, "name"));
    return stored || fill_splat(m->weights[i], bytes, text(w, "splat")) || fail(e, "the weight %.100s has no bytes", text(w, "name"));
}

/* weights.bin, checked. A copy, and no mapping of the file, which may change or shrink later; in pages that can be given back one by one. */
static bool read_weights(kiln_model *m, const char *folder, kiln_client_error *e)
{
    const char *want = text(get(m->json, "files"), "weights.bin");
    char path[4096], hex[65];
    uint8_t digest[32];
    struct stat s;
    if (!*want) return true;
    snprintf(path, sizeof path, "%s/weights.bin", folder);
    FILE *f = fopen(path, "rb");
    bool ok = f && !fstat(fileno(f), &s) && S_ISREG(s.st_mode) && s.st_size > 0;
    char *p = ok ? mmap(NULL, (size_t)s.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (p != MAP_FAILED) {
        m->file = p;
        m->file_bytes = (size_t)s.st_size;
    }
    ok = m->file && fread(m->file, 1, m->file_bytes, f) == m->file_bytes;
    if (f) fclose(f);
    if (!ok) return fail(e, "%s cannot be read", path);
    kiln_sha256(m->file, m->file_bytes, digest);
    kiln_hex(digest, 32, hex);
    return !strcmp(hex, want) || fail(e, "%s does not have the SHA-256 that model.json names", path);
}

static bool in_file(const kiln_model *m, const void *p) { return m->file && (const char *)p >= m->file && (const char *)p < m->file + m->file_bytes; }

static bool load_weights(kiln_model *m, const char *folder, const cJSON *list, kiln_client_error *e)
{
    m->nweights = cJSON_GetArraySize(list);
    m->weights = calloc((size_t)m->nweights + 1, sizeof *m->weights);
    m->alias = calloc((size_t)m->nweights + 1, sizeof *m->alias);
    if (!m->weights || !m->alias) return fail(e, "out of memory");
    bool ok = read_weights(m, folder, e);
    int i = 0;
    for (const cJSON *w = list ? list->child : NULL; w && ok; w = w->next, i++)
        if (!get(w, "of")) ok = take_weight(m, i, w, e);
    return ok;
}

/* The pages that lie in these bytes alone. */
static void forget_pages(const kiln_model *m, const char *p, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), at = (size_t)(p - m->file), from = (at + page - 1) / page * page, to = (at + n) / page * page;
    if (to > from) madvise(m->file + from, to - from, MADV_DONTNEED);
}

/* Weights that no step reads as they are have done their work once others are made of them. */
static void drop_weights(kiln_model *m, const cJSON *list)
{
    bool *kept = calloc((size_t)m->nweights + 1, sizeof *kept);
    int i = 0;
    if (!kept) return;
    for (int s = 0; s < m->nsteps; s++)
        for (int k = 0; k < m->steps[s].nargs; k++)
            if (m->steps[s].args[k].place == 1) kept[m->steps[s].args[k].index] = true;
    for (const cJSON *w = list ? list->child : NULL; w; w = w->next, i++)
        if (m->alias[i]) kept[(int)number(w, "of")] = true;
    for (i = 0; i < m->nweights; i++) {
        if (kept[i] || m->alias[i] || !m->weights[i]) continue;
        if (in_file(m, m->weights[i])) forget_pages(m, m->weights[i], (size_t)number(cJSON_GetArrayItem(list, i), "bytes"));
        else free(m->weights[i]);
        m->weights[i] = NULL;
    }
    free(kept);
}

static bool run_once(kiln_model *m, const cJSON *manifest, kiln_client_error *e)
{
    char symbol[160];
    int64_t (*bytes)(void) = NULL;
    int32_t (*run)(const graph_call *) = NULL, rc;
    if (!get(manifest, "once")) return true;
    snprintf(symbol, sizeof symbol, "%.120s_once", text(manifest, "entry"));
    *(void **)&run = dlsym(m->entry_so, symbol);
    snprintf(symbol, sizeof symbol, "%.120s_once_arena", text(manifest, "entry"));
    *(void **)&bytes = dlsym(m->entry_so, symbol);
    if (!run || !bytes) return fail(e, "entry.so has no steps that run once, which model.json names");
    if (!make_room(m, NULL, e)) return false;
    void *arena = aligned_alloc(64, ((size_t)bytes() + 127) / 64 * 64);
    if (!arena) return fail(e, "no memory for an arena of %lld bytes", (long long)bytes());
    graph_call c = {m->kernels, (const void *const *)m->weights, NULL, NULL, arena, m->workspace, NULL, NULL, NULL};
    rc = run(&c);
    free(arena);
    return !rc || fail(e, "step %d of those that run once failed", (int)rc);
}

static bool pack_weights(kiln_model *m, const cJSON *manifest, kiln_client_error *e)
{
    const cJSON *list = get(manifest, "weights");
    bool ok = run_once(m, manifest, e);
    int i = 0;
    for (const cJSON *w = list ? list->child : NULL; w && ok; w = w->next, i++)
        if (get(w, "of")) ok = pack_weight(m, i, w, e);
    if (ok) drop_weights(m, list);
    return ok;
}

static bool load_entry(kiln_model *m, const char *folder, const cJSON *manifest, kiln_client_error *e)
{
    size_t n;
    char symbol[160];
    int64_t (*arena)(void) = NULL;
    int32_t (*version)(void) = NULL;
    char *bytes = checked(m, folder, "entry.so", &n, e);
    m->entry_so = bytes ? load(bytes, n, e) : NULL;
    free(bytes);
    if (!m->entry_so) return false;
    snprintf(symbol, sizeof symbol, "%s_arena", text(manifest, "entry"));
    *(void **)&arena = dlsym(m->entry_so, symbol);
    *(void **)&version = dlsym(m->entry_so, "kiln_abi_version");
    *(void **)&m->entry = dlsym(m->entry_so, text(manifest, "entry"));
    if (!arena || !m->entry || !version || version() != 1) return fail(e, "entry.so does not speak ABI 1");
    m->arena_bytes = arena();
    m->arena = aligned_alloc(64, ((size_t)m->arena_bytes + 127) / 64 * 64);
    return m->arena || fail(e, "no memory for an arena of %lld bytes", (long long)m->arena_bytes);
}

/* Every kernel's image, checked. A kernel of which there is only source stands in the way. */
static char **read_images(kiln_model *m, const char *folder, const cJSON *kernels, kiln_client_error *e)
{
    char **images = calloc((size_t)cJSON_GetArraySize(kernels) + 1, sizeof *images);
    const cJSON *k;
    bool ok = images || fail(e, "out of memory");
    cJSON_ArrayForEach(k, kernels)
    {
        const char *kind = text(get(k, "image"), "kind");
        char name[48];
        size_t n;
        snprintf(name, sizeof name, "kernels/%d.%.8s", m->nkernels, kind);
        if (ok && strcmp(kind, "cubin") && strcmp(kind, "ptx"))
            ok = fail(e, "kernel %d of the model is source only: the service that compiled it has no toolchain for %.40s", m->nkernels,
                      text(get(get(m->json, "manifest"), "target"), "id"));
        if (!ok || !(images[m->nkernels] = checked(m, folder, name, &n, e))) ok = false;
        m->nkernels++;
    }
    for (int i = 0; images && !ok && i < m->nkernels; i++) free(images[i]);
    if (ok) return images;
    free(images);
    return NULL;
}

/* Where in the file each weight is; NULL: it has no bytes there, or the file has not so many. */
static const void **weight_table(const cJSON *list, const char *file, size_t n)
{
    const void **table = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *table);
    const cJSON *w;
    int i = 0;
    cJSON_ArrayForEach(w, list)
    {
        int64_t offset = number(w, "offset"), bytes = number(w, "bytes");
        if (table && file && offset >= 0 && bytes >= 0 && bytes <= (int64_t)n && offset <= (int64_t)n - bytes) table[i] = file + offset;
        i++;
    }
    return table;
}

static bool load_cuda(kiln_model *m, const char *folder, const cJSON *manifest, kiln_client_error *e)
{
    size_t n;
    if (m->ncalls) return fail(e, "%d nodes of the model are left to the caller: on a GPU its launcher takes them (docs/abi.md)", m->ncalls);
    if (!get(get(m->json, "files"), "entry.so")) return fail(e, "the folder has no entry.so: its service had no C compiler for launcher.c");
    char *so = checked(m, folder, "entry.so", &n, e);
    m->entry_so = so ? load(so, n, e) : NULL;
    free(so);
    char **images = m->entry_so ? read_images(m, folder, get(manifest, "kernels"), e) : NULL;
    bool has = get(get(m->json, "files"), "weights.bin") != NULL;
    char *file = images && has ? checked(m, folder, "weights.bin", &n, e) : NULL;
    const void **weights = weight_table(get(manifest, "weights"), file, n);
    cuda_parts p = {.so = m->entry_so, .entry = text(manifest, "entry"), .arch = text(get(manifest, "target"), "arch"),
                    .images = (const void *const *)images, .weights = weights, .nin = m->nin, .nout = m->nout, .in = m->in, .out = m->out};
    if (images && weights && (file || !has)) m->cuda = cuda_open(&p, e);
    for (int i = 0; images && i < m->nkernels; i++) free(images[i]);
    free(images);
    free(weights);
    free(file);
    return m->cuda && (m->nweights = cJSON_GetArraySize(get(manifest, "weights"))) >= 0 && read_steps(m, get(manifest, "steps"), e);
}

static bool load_cpu(kiln_model *m, const char *folder, const cJSON *manifest, kiln_client_error *e)
{
    return check_cpu(get(manifest, "target"), e) && load_kernels(m, folder, get(manifest, "kernels"), e) &&
           load_weights(m, folder, get(manifest, "weights"), e) && read_steps(m, get(manifest, "steps"), e) && load_entry(m, folder, manifest, e) &&
           pack_weights(m, manifest, e);
}

kiln_model *kiln_model_open(const char *folder, kiln_client_error *e)
{
    kiln_model *m = calloc(1, sizeof *m);
    size_t n;
    char *file = m ? read_file(folder, "model.json", &n, e) : NULL;
    if (!m) fail(e, "out of memory");
    if (m) pthread_mutex_init(&m->lock, NULL);
    bool ok = file && (m->json = cJSON_ParseWithLength(file, n));
    if (file && !ok) fail(e, "%s/model.json is not JSON", folder);
    const cJSON *manifest = ok ? get(m->json, "manifest") : NULL;
    if (ok && (number(manifest, "kiln_abi") != 1 || strcmp(text(manifest, "kind"), "graph"))) ok = fail(e, "%s is no model of ABI 1", folder);
    m->ncalls = ok ? cJSON_GetArraySize(get(manifest, "calls")) : 0;
    bool cuda = ok && !strcmp(text(manifest, "language"), "cuda");
    ok = ok && read_tensors(get(manifest, "inputs"), &m->in, &m->nin, e) && read_tensors(get(manifest, "outputs"), &m->out, &m->nout, e) &&
         (cuda ? load_cuda(m, folder, manifest, e) : load_cpu(m, folder, manifest, e));
    free(file);
    if (ok) return m;
    kiln_model_close(m);
    return NULL;
}

void kiln_model_close(kiln_model *m)
{
    if (!m) return;
    cuda_close(m->cuda);
    for (int i = 0; m->sos && i < m->nkernels; i++)
        if (m->sos[i]) dlclose(m->sos[i]);
    if (m->entry_so) dlclose(m->entry_so);
    for (int i = 0; m->weights && m->alias && i < m->nweights; i++)
        if (!m->alias[i] && !in_file(m, m->weights[i])) free(m->weights[i]);
    if (m->file) munmap(m->file, m->file_bytes);
    for (int i = 0; m->steps && i < m->nsteps; i++) free(m->steps[i].args);
    free(m->sos);
    free(m->kernels);
    free(m->workspaces);
    free(m->weights);
    free(m->alias);
    free(m->steps);
    free(m->arena);
    free(m->workspace);
    free(m->in);
    free(m->out);
    cJSON_Delete(m->json);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

int kiln_model_inputs(const kiln_model *m) { return m->nin; }
int kiln_model_outputs(const kiln_model *m) { return m->nout; }
const kiln_client_tensor *kiln_model_input(const kiln_model *m, int i) { return i >= 0 && i < m->nin ? &m->in[i] : NULL; }
const kiln_client_tensor *kiln_model_output(const kiln_model *m, int i) { return i >= 0 && i < m->nout ? &m->out[i] : NULL; }
int kiln_model_steps(const kiln_model *m) { return m->nsteps; }

const char *kiln_model_step(const kiln_model *m, int i, double *flops, double *bytes)
{
    if (i < 0 || i >= m->nsteps) return NULL;
    *flops = m->steps[i].flops;
    *bytes = m->steps[i].traffic;
    return m->steps[i].nodes;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static char *at(const graph_call *c, const step_arg *a)
{
    void *base = a->place == 0   ? (void *)(uintptr_t)c->feeds[a->index]
                 : a->place == 1 ? (void *)(uintptr_t)c->weights[a->index]
                 : a->place == 2 ? c->arena
                                 : c->results[a->index];
    return (char *)base + a->offset;
}

static int32_t by_steps(const kiln_model *m, const graph_call *c, double *us)
{
    for (int i = 0; i < m->nsteps; i++) {
        const step *s = &m->steps[i];
        void *args[256];
        if (s->nargs > 256) return i + 1;
        for (int k = 0; k < s->nargs; k++) args[k] = at(c, &s->args[k]);
        double begin = now_us();
        if (s->kernel == -1) memcpy(args[1], args[0], (size_t)s->bytes);
        else if (s->kernel < 0) {
            if (c->caller(c->user, -2 - s->kernel, (const void *const *)args, args + s->nin)) return i + 1;
        } else if (m->kernels[s->kernel]((const void *const *)args, args + s->nin, c->workspace, c->pool)) return i + 1;
        us[i] = now_us() - begin;
    }
    return 0;
}

int kiln_model_calls(const kiln_model *m) { return m->ncalls; }

const char *kiln_model_call(const kiln_model *m, int i, const char **node)
{
    const cJSON *call = cJSON_GetArrayItem(get(get(m->json, "manifest"), "calls"), i);
    if (node) *node = text(call, "node");
    return text(call, "op");
}

void kiln_model_set_caller(kiln_model *m, kiln_client_caller caller, void *user)
{
    pthread_mutex_lock(&m->lock);
    m->caller = caller;
    m->user = user;
    pthread_mutex_unlock(&m->lock);
}

static int no_caller(const kiln_model *m, kiln_client_error *e)
{
    const char *node, *op = kiln_model_call(m, 0, &node);
    fail(e, "%d nodes of this model are left to the caller, the first is %.60s (%.100s): name who computes them, or run it with the Python client",
         m->ncalls, op, node);
    return -1;
}

int kiln_model_profile(kiln_model *m, const void *const *inputs, void *const *outputs, const struct kiln_pool *pool, double *us, kiln_client_error *e)
{
    pthread_mutex_lock(&m->lock);
    if (m->cuda) {
        int r = cuda_run(m->cuda, inputs, outputs, us, m->nsteps, e);
        pthread_mutex_unlock(&m->lock);
        return r;
    }
    int32_t rc = make_room(m, pool, e) ? 0 : -1;
    graph_call c = {m->kernels, (const void *const *)m->weights, inputs, outputs, m->arena, m->workspace, pool, m->caller, m->user};
    if (!rc && m->ncalls && !m->caller) rc = no_caller(m, e);
    if (rc < 0) {
        pthread_mutex_unlock(&m->lock);
        return rc;
    }
    if (!rc && (rc = us ? by_steps(m, &c, us) : m->entry(&c))) fail(e, "step %d failed", (int)rc);
    pthread_mutex_unlock(&m->lock);
    return rc;
}

int kiln_model_run(kiln_model *m, const void *const *inputs, void *const *outputs, const struct kiln_pool *pool, kiln_client_error *e)
{
    return kiln_model_profile(m, inputs, outputs, pool, NULL, e);
}

int kiln_model_launch(kiln_model *m, const void *const *inputs, void *const *outputs, void *stream, kiln_client_error *e)
{
    if (m->cuda) return cuda_launch(m->cuda, inputs, outputs, stream, e);
    fail(e, "this model runs on the CPU: kiln_model_run does it");
    return -1;
}

struct kiln_pool *kiln_pool_open(int threads) { return pool_open(threads); }
void kiln_pool_close(struct kiln_pool *pool) { pool_close(pool); }
