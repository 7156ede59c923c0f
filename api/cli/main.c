/* kiln: the command line. Parses options, then hands over to the verb's file. */
#include "api/cli/cli.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define X(name, args, summary) int cmd_##name(struct cli *c);
#include "api/cli/commands.def"
#undef X
static const struct { const char *name, *args, *summary; int (*run)(struct cli *); } verbs[] = {
#define X(name, args, summary) {#name, args, summary, cmd_##name},
#include "api/cli/commands.def"
#undef X
};
enum { VERBS = sizeof verbs / sizeof *verbs };

int cli_fail(int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("kiln: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    return status;
}

int cli_diag(const kiln_diag *d)
{
    fprintf(stderr, "kiln: %s%s%s\n", d->pointer, *d->pointer ? ": " : "", d->message);
    if (d->line) fprintf(stderr, "      at line %d, column %d\n", d->line, d->col);
    if (*d->hint) fprintf(stderr, "      %s\n", d->hint);
    return DATA;
}

/* A verb as it is typed: gpu-bundle for the row gpu_bundle. */
static const char *typed(const char *name, char out[32])
{
    snprintf(out, 32, "%s", name);
    for (char *p = out; *p; p++) if (*p == '_') *p = '-';
    return out;
}

static void usage(FILE *f)
{
    fprintf(f, "usage: kiln VERB [arguments] [options]\n\nverbs:\n");
    char name[32];
    for (int i = 0; i < VERBS; i++) fprintf(f, "  %-10s %-48s %s\n", typed(verbs[i].name, name), verbs[i].args, verbs[i].summary);
    fprintf(f, "\nOPERATOR is an ONNX operator or an expression with its inputs, a JSON file, or - for JSON on stdin:\n"
               "  kiln compile MatMul a=f32:512x512 b=f32:512x512\n"
               "  kiln run 'c[M,N] +=! a[M,K] * b[K,N]' a=f32:512x512 b=f32:512x512\n"
               "  kiln compile Conv x=f32:1x64x56x56 w=f32:64x64x3x3 --attr pads=1,1,1,1 --target nvidia-h200 --as cubin -o conv.cubin\n"
               "\noptions:\n"
               "  --target ID      device, default host (kiln targets lists them); a FILE.json for verbs that need no service\n"
               "  --attr N=V       attribute of the operator: number, list 1,1 or word\n"
               "  --as KIND        json, source, header, so, ptx, cubin or bundle\n"
               "  --quality Q      any, constructed, verified (wait for the check)\n"
               "  --grad INPUT     the gradient by that input instead; again for more\n"
               "  --policy P       default or roller     -k N  how many candidates\n"
               "  --dim NAME=N     extent of a dimension that a model only names, or INPUT=1x3x224x224\n"
               "  --bind INPUT=N   an input of a model that is a number known now\n"
               "  --partial        nodes of a model that cannot be compiled are left to whoever runs it, instead of refused\n"
               "  --trace FILE     a schedule of your own, one step a line (docs/schedules.md)\n"
               "  --intrinsic X    for mappings: one of the target's instructions, default all\n"
               "  --threads N      for run               --runs N  timed runs\n"
               "  --against NAME   for bench: onnxruntime, in the python3 of PATH or the Python that KILN_PYTHON names\n"
               "  -o FILE          write there           --json    machine-readable\n"
               "  --url URL        the service (KILN_URL); unix:PATH for a socket; default the socket\n"
               "                   of this user's service, else http://127.0.0.1:8787. KILN_KEY: its API key\n"
               "  --hwspecs DIR    hardware descriptions for construct and explain (KILN_HWSPECS)\n");
}

static void *mem(void *user, void *p, size_t old_size, size_t size)
{
    (void)user;
    (void)old_size;
    if (!size) {
        free(p);
        return NULL;
    }
    return realloc(p, size);
}

static const char *env(const char *name, const char *fallback)
{
    const char *v = getenv(name);
    return v && *v ? v : fallback;
}

static bool number(const char *s, int *out)
{
    char *end;
    long x = strtol(s, &end, 10);
    if (*end || end == s || x < 1 || x > 1000000) return false;
    *out = (int)x;
    return true;
}

/* One option with its value, NULL where the line ends: its text, number or list takes it. */
static int option(struct cli *c, const char *name, const char *value)
{
    const struct { const char *name; const char **text; int *number, *count; } table[] = { /* count: of a list that begins at text */
        {"--url", &c->url, 0, 0},        {"--target", &c->target, 0, 0},       {"--policy", &c->policy, 0, 0},   {"--quality", &c->quality, 0, 0},
        {"--trace", &c->trace, 0, 0},    {"--intrinsic", &c->intrinsic, 0, 0}, {"--against", &c->against, 0, 0}, {"--as", &c->as, 0, 0},
        {"-o", &c->output, 0, 0},        {"--output", &c->output, 0, 0},       {"--hwspecs", &c->hwspecs, 0, 0}, {"-k", NULL, &c->k, 0},
        {"--threads", 0, &c->threads, 0}, {"--runs", 0, &c->runs, 0},          {"--attr", c->attrs, 0, &c->nattrs},
        {"--grad", c->grads, 0, &c->ngrads}, {"--dim", c->dims, 0, &c->ndims}, {"--bind", c->binds, 0, &c->nbinds},
        {"--input", c->inputs, 0, &c->ninputs},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].name, name)) continue;
        if (!value) return cli_fail(USAGE, "%s wants a value (kiln --help)", name);
        if (table[i].count && *table[i].count >= MOST_LISTED) return cli_fail(USAGE, "%s: more than %d times", name, MOST_LISTED);
        if (table[i].number && !number(value, table[i].number)) return cli_fail(USAGE, "%s %s: no whole number from 1 to 1000000", name, value);
        if (table[i].text) table[i].text[table[i].count ? (*table[i].count)++ : 0] = value;
        return OK;
    }
    return cli_fail(USAGE, "%s: no such option (kiln --help lists them)", name);
}

static int parse(struct cli *c, int argc, char **argv, const char **rest)
{
    int n = 0;
    for (int i = 2; i < argc; i++) {
        const char *a = argv[i];
        if (!strcmp(a, "--json")) {
            c->json = true;
        } else if (!strcmp(a, "--partial")) {
            c->partial = true;
        } else if (a[0] == '-' && a[1]) {
            int status = option(c, a, i + 1 < argc ? argv[++i] : NULL);
            if (status != OK) return status;
        } else {
            rest[n++] = a;
        }
    }
    c->args = rest;
    c->nargs = n;
    return OK;
}

/* Asked for help, behind a verb too. */
static bool wants_help(int argc, char **argv)
{
    bool help = argc > 1 && !strcmp(argv[1], "help");
    for (int i = 1; i < argc; i++) help |= !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
    return help;
}

int main(int argc, char **argv)
{
    struct cli c = {.url = env("KILN_URL", cli_default_url()), .target = "host", .policy = "default", .quality = "any", .as = "json",
                    .hwspecs = env("KILN_HWSPECS", ""), .k = 10, .threads = 1, .runs = 20};
    if (argc < 2 || wants_help(argc, argv)) {
        usage(argc < 2 ? stderr : stdout);
        return argc < 2 ? USAGE : OK;
    }
    ssize_t n = readlink("/proc/self/exe", c.exe_dir, sizeof c.exe_dir - 1);
    char *slash = n > 0 ? strrchr(c.exe_dir, '/') : NULL;
    if (slash) *slash = 0;
    else strcpy(c.exe_dir, ".");
    const char **rest = calloc((size_t)argc, sizeof *rest);
    c.arena = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    int status = !rest || !c.arena ? cli_fail(SOFTWARE, "out of memory") : parse(&c, argc, argv, rest), found = -1;
    char name[32];
    for (int i = 0; i < VERBS && status == OK; i++)
        if (!strcmp(typed(verbs[i].name, name), argv[1])) found = i;
    if (status == OK) status = found >= 0 ? verbs[found].run(&c) : cli_fail(USAGE, "no verb \"%s\" (kiln --help lists them)", argv[1]);
    kiln_arena_close(c.arena);
    free(rest);
    return status;
}
