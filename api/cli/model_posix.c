/* Whole models from the command line: compile to a folder, run from one. */
#include "api/cli/model.h"
#include "api/cli/npy.h"
#include "api/cli/weights.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

bool cli_is_model(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && !strcmp(path + n - 5, ".onnx");
}

bool cli_is_folder(const char *path)
{
    struct stat s;
    char file[4096];
    snprintf(file, sizeof file, "%s/model.json", path);
    return !stat(path, &s) && S_ISDIR(s.st_mode) && !stat(file, &s);
}

double model_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- compile ---- */
static const cJSON *get(const cJSON *o, const char *name) { return cJSON_GetObjectItemCaseSensitive(o, name); }

static int write_file(const char *folder, const char *name, const void *p, size_t n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(p, 1, n, f) == n;
    if (f) ok = !fclose(f) && ok;
    return ok ? OK : cli_fail(CANT_CREATE, "%s cannot be written", path);
}

/* Bytes from the service into the folder, checked; their digest under "files". */
static int save_bytes(struct cli *c, const char *href, const char *sha256, const char *name, cJSON *files)
{
    struct http_answer h;
    uint8_t digest[32];
    char hex[65];
    if (!http_call(c, href, NULL, NULL, &h)) return UNAVAILABLE;
    kiln_sha256(h.body ? h.body : "", h.n, digest);
    kiln_hex(digest, 32, hex);
    int status = h.status != 200                           ? http_problem(&h)
                 : strcmp(hex, sha256) ? cli_fail(DATA, "what came is not what has that digest")
                                                           : write_file(c->output, name, h.body, h.n);
    if (status == OK) cJSON_AddStringToObject(files, name, hex);
    free(h.body);
    return status;
}

static const cJSON *artifact(const cJSON *answer, const char *kind)
{
    const cJSON *a, *found = NULL;
    cJSON_ArrayForEach(a, get(answer, "artifacts")) if (!strcmp(json_text(a, "kind"), kind)) found = a;
    return found;
}

static int save(struct cli *c, const cJSON *answer, const char *kind, const char *name, cJSON *files)
{
    const cJSON *a = artifact(answer, kind);
    if (!a) return cli_fail(DATA, "%.60s has no %s", json_text(answer, "key"), kind);
    return save_bytes(c, json_text(a, "href"), json_text(a, "sha256"), name, files);
}

/* What the model's launcher loads for kernel i: cubin or PTX; a source where no toolchain was. */
static int save_image(struct cli *c, const cJSON *kernel, int i, cJSON *files)
{
    const cJSON *image = get(kernel, "image");
    const char *kind = json_text(image, "kind");
    char href[128], name[40];
    snprintf(href, sizeof href, "/v1/blobs/sha256/%.64s", json_text(image, "sha256"));
    snprintf(name, sizeof name, "kernels/%d.%.8s", i, strcmp(kind, "source") ? kind : "cu");
    return save_bytes(c, href, json_text(image, "sha256"), name, files);
}

static cJSON *fetch(struct cli *c, const char *path, int *status)
{
    struct http_answer h;
    if (!http_call(c, path, "application/json", NULL, &h)) {
        *status = UNAVAILABLE;
        return NULL;
    }
    *status = h.status == 200 ? OK : http_problem(&h);
    cJSON *o = *status == OK ? cJSON_ParseWithLength(h.body, h.n) : NULL;
    if (*status == OK && !o) *status = cli_fail(SOFTWARE, "the service answered with something that is not JSON");
    free(h.body);
    return o;
}

static int number(const cJSON *o, const char *name)
{
    const cJSON *m = get(o, name);
    return cJSON_IsNumber(m) ? m->valueint : 0;
}

/* Asks until it is over: on a terminal with a line on stderr that counts, else with a call that ends when the compile does. */
static int wait_for(struct cli *c, const char *key, cJSON **last)
{
    char path[128];
    int status = OK, shown = -1;
    struct cli patient = *c;
    patient.wait = isatty(2) ? 0 : 30;
    snprintf(path, sizeof path, "/v1/graphs/%.80s", key);
    for (int ms = 20;; ms = ms < 300 ? ms * 3 / 2 : 300) {
        nanosleep(&(struct timespec){0, ms * 1000000L}, NULL);
        cJSON *o = fetch(&patient, path, &status);
        if (!o) return status;
        const char *state = json_text(o, "state");
        int kernels = number(o, "done");
        if (kernels != shown && isatty(2)) fprintf(stderr, "\rkiln: %s, %d of %d kernels", state, kernels, number(o, "total"));
        shown = kernels;
        if (!strcmp(state, "succeeded")) {
            if (isatty(2)) fprintf(stderr, "\r\033[K");
            *last = o;
            return OK;
        }
        if (!strcmp(state, "failed") || !strcmp(state, "cancelled")) {
            const cJSON *p = get(o, "problem");
            status = cli_fail(DATA, "the model was not compiled: %s%s%s", *json_text(p, "title") ? json_text(p, "title") : state,
                              *json_text(p, "detail") ? ": " : "", json_text(p, "detail"));
            if (*json_text(p, "pointer")) fprintf(stderr, "      at %s\n", json_text(p, "pointer"));
            if (*json_text(p, "hint")) fprintf(stderr, "      %s\n", json_text(p, "hint"));
            cJSON_Delete(o);
            return status;
        }
        cJSON_Delete(o);
    }
}

/* A query member, what is no letter, digit or one of "-._~:," as %XX. */
static size_t add_member(char *out, size_t n, size_t size, const char *name, const char *value)
{
    if (!*value) return n;
    n += (size_t)snprintf(out + n, size - n, "&%s=", name);
    for (; *value && n + 4 < size; value++)
        n += (size_t)snprintf(out + n, size - n, isalnum((unsigned char)*value) || strchr("-._~:,", *value) ? "%c" : "%%%02X", (unsigned char)*value);
    return *value ? size : n;
}

/* The path that a model is posted to; an exit status after a message. */
static int query_of(const struct cli *c, char *out, size_t size)
{
    struct cli_open open;
    size_t n = (size_t)snprintf(out, size, "/v1/graphs?target=%s", c->target);
    if (!cli_open_ends(c, &open)) return USAGE;
    n = add_member(out, n, size, "dims", open.dims);
    n = n < size ? add_member(out, n, size, "bind", open.binds) : n;
    n = n < size ? add_member(out, n, size, "partial", c->partial ? "true" : "") : n;
    return n < size ? OK : cli_fail(USAGE, "too many --dim and --bind");
}

/* Where the model came from and what was said of its open ends, for `kiln bench DIR --against` and `kiln graph DIR`. */
static void add_source(const struct cli *c, cJSON *model, const char *path, const char *sha256)
{
    cJSON *source = cJSON_AddObjectToObject(model, "source"), *options = cJSON_AddArrayToObject(source, "options");
    char option[600];
    for (int i = 0; i <= c->ndims + c->nbinds; i++) {
        const char *x = i < c->ndims ? c->dims[i] : i < c->ndims + c->nbinds ? c->binds[i - c->ndims] : c->target;
        snprintf(option, sizeof option, "%c %s", i < c->ndims ? 'd' : i < c->ndims + c->nbinds ? 'b' : 't', x);
        cJSON_AddItemToArray(options, cJSON_CreateString(option));
    }
    cJSON_AddBoolToObject(source, "partial", c->partial);
    char *real = realpath(path, NULL);
    cJSON_AddStringToObject(source, "path", real ? real : path);
    cJSON_AddStringToObject(source, "sha256", sha256);
    free(real);
}

/* Before anything is asked for: a folder that cannot be made is said at once. */
static int make_folder(const struct cli *c)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/kernels", c->output);
    bool there = (!mkdir(c->output, 0777) || errno == EEXIST) && (!mkdir(path, 0777) || errno == EEXIST);
    return there ? OK : cli_fail(CANT_CREATE, "%s cannot be made", path);
}

/* What is empty goes again. */
static void drop_folder(const struct cli *c)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/kernels", c->output);
    if (!rmdir(path)) rmdir(c->output);
}

static int write_folder(struct cli *c, const cJSON *answer, const struct weights *own, const char *sha256)
{
    const cJSON *manifest = get(answer, "manifest"), *k;
    cJSON *model = cJSON_CreateObject(), *files;
    char path[4096], name[40];
    int status = OK, i = 0;
    cJSON_AddStringToObject(model, "key", json_text(answer, "key"));
    cJSON *copy = cJSON_Duplicate(manifest, 1);
    cJSON_AddItemToObject(model, "manifest", copy);
    add_source(c, model, c->args[0], sha256);
    files = cJSON_AddObjectToObject(model, "files");
    bool cuda = !strcmp(json_text(manifest, "language"), "cuda");
    if (status == OK && cuda) status = save(c, answer, "launcher", "launcher.c", files);
    if (status == OK && (!cuda || artifact(answer, "so"))) status = save(c, answer, "so", "entry.so", files);
    if (status == OK && artifact(answer, "weights")) status = save(c, answer, "weights", "weights.bin", files);
    if (status == OK) status = weights_append(c, own, copy, files);
    cJSON_ArrayForEach(k, get(manifest, "kernels"))
    {
        if (status != OK) break;
        if (cuda) {
            status = save_image(c, k, i++, files);
            continue;
        }
        snprintf(path, sizeof path, "/v1/kernels/%.80s", json_text(k, "key"));
        cJSON *kernel = fetch(c, path, &status);
        snprintf(name, sizeof name, "kernels/%d.so", i++);
        if (kernel) status = save(c, kernel, "so", name, files);
        cJSON_Delete(kernel);
    }
    char *text = status == OK ? cJSON_Print(model) : NULL;
    if (text) status = write_file(c->output, "model.json", text, strlen(text));
    free(text);
    cJSON_Delete(model);
    return status;
}

/* What kernels of a GPU are in the folder, and what to do about those that the driver cannot load. */
static void print_images(const cJSON *manifest)
{
    static const char *const kinds[] = {"cubin", "ptx", "source"};
    const cJSON *k;
    int n[3] = {0, 0, 0};
    cJSON_ArrayForEach(k, get(manifest, "kernels"))
        for (int i = 0; i < 3; i++) n[i] += !strcmp(json_text(get(k, "image"), "kind"), kinds[i]);
    for (int i = 0, any = 0; i < 3; i++)
        if (n[i]) printf("%s%d %s", any++ ? ", " : "images        ", n[i], kinds[i]);
    if (n[2]) printf(": no toolchain of the service makes binaries for this device (kiln doctor); the driver wants cubins or PTX of them");
    if (n[0] + n[1] + n[2]) printf("\n");
}

int cli_model_compile(struct cli *c)
{
    struct http_answer h;
    char path[5120], hex[65];
    uint8_t digest[32];
    struct weights w;
    int status = OK;
    cJSON *done = NULL;
    if (!c->output) return cli_fail(USAGE, "where to? -o DIR names the folder that the model is written to");
    if ((status = query_of(c, path, sizeof path)) != OK) return status;
    if ((status = weights_open(c, c->args[0], &w)) != OK) {
        weights_close(&w);
        return status;
    }
    kiln_sha256(w.file, w.n, digest);
    kiln_hex(digest, 32, hex);
    status = make_folder(c);
    if (status == OK && !http_send(c, path, "application/json", "application/onnx", w.body.p, w.body.n, &h)) status = UNAVAILABLE;
    if (status != OK) {
        drop_folder(c);
        weights_close(&w);
        return status;
    }
    cJSON *first = cJSON_ParseWithLength(h.body ? h.body : "", h.n), *answer = NULL;
    if (h.status != 200 && h.status != 202) status = http_problem(&h);
    if (status == OK && h.status == 202) status = wait_for(c, json_text(first, "key"), &done);
    if (status == OK) {
        snprintf(path, sizeof path, "/v1/kernels/%.80s", json_text(first, "key"));
        answer = fetch(c, path, &status);
    }
    if (answer) status = write_folder(c, answer, &w, hex);
    if (status == OK) {
        const cJSON *k;
        int hits = 0, total = cJSON_GetArraySize(get(get(answer, "manifest"), "kernels"));
        cJSON_ArrayForEach(k, get(done, "kernels")) hits += strstr(json_text(k, "cache_status"), "hit") != NULL;
        printf("model         %s\nsteps         %d\nkernels       %d distinct, %d from the cache\nwritten to    %s\n", json_text(answer, "key"),
               cJSON_GetArraySize(get(get(answer, "manifest"), "steps")), total, done ? hits : total, c->output);
        print_images(get(answer, "manifest"));
    }
    if (status != OK) drop_folder(c);
    free(h.body);
    weights_close(&w);
    cJSON_Delete(first);
    cJSON_Delete(done);
    cJSON_Delete(answer);
    return status;
}

/* ---- run ---- */
static kiln_arg arg_of(const kiln_client_tensor *t)
{
    kiln_arg a = {.name = t->name, .dtype = t->dtype, .rank = t->rank, .bytes = t->bytes, .elems = 1};
    for (int i = 0; i < t->rank; i++) a.elems *= a.shape[i] = t->shape[i];
    return a;
}

/* Random floats in [-1, 1), zeros of every other dtype: indices stay inside. */
static void fill(const kiln_arg *a, void *p, uint64_t seed)
{
    memset(p, 0, (size_t)a->bytes);
    for (int64_t i = 0; i < a->elems && (!strcmp(a->dtype, "f32") || !strcmp(a->dtype, "f64")); i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        double x = (double)(seed >> 40) / (1 << 23) - 1;
        if (a->dtype[1] == '3') ((float *)p)[i] = (float)x;
        else ((double *)p)[i] = x;
    }
}

/* --input NAME=FILE, or FILE alone where the model has one input. */
static int read_input(struct cli *c, const struct model_run *r, int i, kiln_arg *a, void *to)
{
    for (int k = 0; k < c->ninputs; k++) {
        const char *eq = strchr(c->inputs[k], '=');
        bool named = eq && strlen(a->name) == (size_t)(eq - c->inputs[k]) && !strncmp(a->name, c->inputs[k], strlen(a->name));
        if (!named && !(kiln_model_inputs(r->model) == 1 && !eq)) continue;
        char *file = NULL;
        const char *data = npy_read(named ? eq + 1 : c->inputs[k], a, &file);
        if (data) memcpy(to, data, (size_t)a->bytes);
        free(file);
        return data ? OK : DATA;
    }
    fill(a, to, (uint64_t)i + 1);
    return OK;
}

static int check_names(const struct cli *c, const struct model_run *r)
{
    for (int k = 0; k < c->ninputs; k++) {
        const char *eq = strchr(c->inputs[k], '=');
        bool found = !eq && kiln_model_inputs(r->model) == 1;
        for (int i = 0; eq && i < kiln_model_inputs(r->model); i++) {
            const char *name = kiln_model_input(r->model, i)->name;
            found |= strlen(name) == (size_t)(eq - c->inputs[k]) && !strncmp(name, c->inputs[k], strlen(name));
        }
        if (!found) return cli_fail(USAGE, "--input %s: NAME=FILE.npy with the name of an input is right, the first is %s", c->inputs[k],
                                    kiln_model_inputs(r->model) ? kiln_model_input(r->model, 0)->name : "(none)");
    }
    return OK;
}

int model_open(struct cli *c, struct model_run *r)
{
    kiln_client_error e = {0};
    *r = (struct model_run){.model = kiln_model_open(c->args[0], &e)};
    if (!r->model) return cli_fail(DATA, "%s", e.message);
    int nin = kiln_model_inputs(r->model), nout = kiln_model_outputs(r->model), status = check_names(c, r);
    r->inputs = calloc((size_t)nin + 1, sizeof *r->inputs);
    r->outputs = calloc((size_t)nout + 1, sizeof *r->outputs);
    r->owned = calloc((size_t)nin + 1, sizeof *r->owned);
    if (!r->inputs || !r->outputs || !r->owned) return cli_fail(SOFTWARE, "out of memory");
    for (int i = 0; status == OK && i < nin; i++) {
        kiln_arg a = arg_of(kiln_model_input(r->model, i));
        r->inputs[i] = r->owned[i] = aligned_alloc(64, ((size_t)a.bytes + 127) / 64 * 64);
        status = r->owned[i] ? read_input(c, r, i, &a, r->owned[i]) : cli_fail(SOFTWARE, "out of memory for %s", a.name);
    }
    for (int i = 0; status == OK && i < nout; i++) {
        r->outputs[i] = aligned_alloc(64, ((size_t)kiln_model_output(r->model, i)->bytes + 127) / 64 * 64);
        if (!r->outputs[i]) status = cli_fail(SOFTWARE, "out of memory");
    }
    if (status == OK && c->threads > 1) r->pool = kiln_pool_open(c->threads);
    return status;
}

void model_close(struct model_run *r)
{
    kiln_pool_close(r->pool);
    for (int i = 0; r->model && i < kiln_model_inputs(r->model); i++)
        if (r->owned) free(r->owned[i]);
    for (int i = 0; r->model && i < kiln_model_outputs(r->model); i++)
        if (r->outputs) free(r->outputs[i]);
    free(r->inputs);
    free(r->outputs);
    free(r->owned);
    kiln_model_close(r->model);
}

/* -o F.npy takes the first output; with more, output i goes to F.i.npy as well. */
static int write_outputs(struct cli *c, const struct model_run *r)
{
    for (int i = 0; c->output && i < kiln_model_outputs(r->model); i++) {
        kiln_arg a = arg_of(kiln_model_output(r->model, i));
        char path[4096];
        size_t stem = strlen(c->output) - (strlen(c->output) > 4 && !strcmp(c->output + strlen(c->output) - 4, ".npy") ? 4 : 0);
        snprintf(path, sizeof path, i ? "%.*s.%d.npy" : "%.*s%.0d.npy", (int)stem, c->output, i);
        if (!npy_write(path, &a, r->outputs[i])) return CANT_CREATE;
    }
    return OK;
}

int cli_model_run(struct cli *c)
{
    struct model_run r;
    kiln_client_error e = {0};
    int status = model_open(c, &r);
    double best = 0;
    for (int i = 0; status == OK && i < 4; i++) {
        double begin = model_now_us(), us;
        if (kiln_model_run(r.model, r.inputs, r.outputs, r.pool, &e)) status = cli_fail(SOFTWARE, "%s", e.message);
        us = model_now_us() - begin;
        if (!best || us < best) best = us;
    }
    if (status == OK) status = write_outputs(c, &r);
    for (int i = 0; status == OK && i < kiln_model_outputs(r.model); i++) {
        const kiln_client_tensor *t = kiln_model_output(r.model, i);
        printf("output        %s %s[", t->name, t->dtype);
        for (int k = 0; k < t->rank; k++) printf("%s%lld", k ? "," : "", (long long)t->shape[k]);
        printf("]\n");
    }
    if (status == OK) printf("time          %.2f us, best of 4\n", best);
    model_close(&r);
    return status;
}
