/* Running a GPU kernel on the GPU of this host: a bundle of one kernel for kiln-gpu-run, which stands beside kiln-worker, checks before it
 * times, and kills what hangs. It runs outside the sandbox of compilers, as drivers want devices and files of their own. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "workers/arena.h"
#include "workers/gpu/text.h"
#include "workers/build.h"
#include "workers/toolchain.h"

enum { LINE_BYTES = 1 << 18, STEP_S = 20, BUDGET_S = 120 };

/* "…/kiln-gpu-run", beside the worker; false when there is none, or its name is one that a shell would read. */
static bool runner_of(const worker_tools *t, char out[600])
{
    const char *slash = strrchr(t->worker, '/');
    int n = slash ? (int)(slash - t->worker) : -1;
    return n >= 0 && snprintf(out, 600, "%.*s/kiln-gpu-run", n, t->worker) < 600 && !strpbrk(out, "'\n") && access(out, X_OK) == 0;
}

void worker_gpu_here(const worker_tools *t, char out[16])
{
    char runner[600], command[700], line[200] = "";
    *out = 0;
    if (!runner_of(t, runner)) { return; }
    snprintf(command, sizeof command, "'%s' --device 2>/dev/null", runner);
    FILE *f = popen(command, "re");
    if (f && !fgets(line, sizeof line, f)) { *line = 0; }
    if (f && pclose(f) == 0 && !strncmp(line, "sm_", 3)) { snprintf(out, 16, "%.*s", (int)strcspn(line, " \n"), line); }
}

bool worker_gpu_runs(const worker_tools *t, const char *arch)
{
    size_t n = strlen(t->gpu);
    return n && !strncmp(arch, t->gpu, n) && (arch[n] == 0 || ((arch[n] == 'a' || arch[n] == 'f') && arch[n + 1] == 0));
}

/* The bundle's text; free(). NULL: e says why. */
static char *describe(const kiln_program *p, const kiln_kernel *k, size_t *size, worker_error *e)
{
    char *text = NULL;
    kiln_diag d = {0};
    kiln_bytes program;
    kiln_arena *a = worker_arena(NULL);
    FILE *f = a ? open_memstream(&text, size) : NULL;
    bool ok = f && kiln_program_text(a, p, &program) == KILN_OK;
    if (ok) {
        fprintf(f, "module id=k file=kernel.bin\n");
        gpu_put_group(f, "g", "-", "-", p, program);
        gpu_put_kernel(f, p, k, 0, 0, "k");
        ok = gpu_put_checks(f, a, p, program, &d);
    }
    if (f) { ok = fclose(f) == 0 && ok; }
    kiln_arena_close(a);
    if (ok) { return text; }
    free(text);
    toolchain_fail(e, KILN_MEMORY, "verify-failed", "no reference for the check: %.200s", d.message);
    return NULL;
}

static double number(const cJSON *o, const char *name)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, name);
    return cJSON_IsNumber(x) ? x->valuedouble : 0;
}

static const char *text_of(const cJSON *o, const char *name)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, name);
    return cJSON_IsString(x) ? x->valuestring : "";
}

/* True: the line is the kernel's result. */
static bool read_line(const char *line, worker_verdict *v, double us[3], char status[32])
{
    cJSON *o = cJSON_Parse(line);
    bool result = *text_of(o, "kernel") != 0;
    if (result) {
        snprintf(status, 32, "%s", text_of(o, "status"));
        v->ok = !strcmp(status, "ok");
        v->how = "run";
        v->checked = (int64_t)number(o, "checked");
        v->all_written = v->ok;
        v->max_error = number(o, "max_error");
        snprintf(v->detail, sizeof v->detail, "%s", text_of(o, "detail"));
        us[0] = number(o, "us"), us[1] = number(o, "us_min"), us[2] = number(o, "us_max");
    }
    cJSON_Delete(o);
    return result;
}

static bool run(const char *runner, const char *dir, int rounds, worker_verdict *v, double us[3], worker_error *e)
{
    char command[1600], status[32] = "", *line = malloc(LINE_BYTES);
    snprintf(command, sizeof command, "'%s' '%s' --rounds %d --step-timeout %d --budget %d 2>/dev/null", runner, dir, rounds, STEP_S,
             BUDGET_S);
    FILE *f = line ? popen(command, "re") : NULL;
    bool found = false;
    while (f && fgets(line, LINE_BYTES, f)) { found = read_line(line, v, us, status) || found; }
    int rc = f ? pclose(f) : -1;
    free(line);
    if (!found) {
        return toolchain_fail(e, KILN_MEMORY, "verify-failed", "the runner ended with status %d and no result", WEXITSTATUS(rc));
    }
    if (v->ok || !strcmp(status, "wrong")) { return true; }
    return toolchain_fail(e, KILN_MEMORY, "verify-failed", "%s: %.300s", status, v->detail);
}

bool worker_run_gpu(const worker_tools *t, const kiln_program *p, const kiln_kernel *k, const worker_blob *image, int rounds,
                    worker_verdict *v, double us[3], worker_error *e)
{
    char dir[CHILD_DIR_BYTES], why[256], runner[600];
    size_t size = 0;
    *v = (worker_verdict){.how = ""};
    if (!runner_of(t, runner)) { return toolchain_fail(e, KILN_UNSUPPORTED, "toolchain-missing", "no kiln-gpu-run beside kiln-worker"); }
    char *text = describe(p, k, &size, e);
    if (!text) { return false; }
    bool ok = child_dir_make(t, dir, why, sizeof why);
    if (!ok) { toolchain_fail(e, KILN_MEMORY, "verify-failed", "%s", why); }
    if (ok) {
        kiln_tolerance(p, 0, &v->rtol, &v->atol);
        ok = !strchr(dir, '\'') && child_dir_put(dir, "bundle.txt", text, size) && child_dir_put(dir, "kernel.bin", image->p, image->n);
        if (!ok) { toolchain_fail(e, KILN_MEMORY, "verify-failed", "the bundle cannot be written to %s", dir); }
        ok = ok && run(runner, dir, rounds, v, us, e);
        child_dir_remove(dir);
    }
    free(text);
    return ok;
}
