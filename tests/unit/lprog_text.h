/* Loop programs written by hand, printed, compiled by the system's compilers and loaded. */
#ifndef KN_TESTS_LPROG_TEXT_H
#define KN_TESTS_LPROG_TEXT_H
#include "tests/arena.h"
#include "codegen/codegen.h"
#include <dlfcn.h>
#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static kiln_arena *A;
static inline int open_arena(void **state)
{
    (void)state;
    kiln_host host = {.mem = mem};
    A = kiln_arena_open(&host);
    return A ? 0 : -1;
}
static inline int close_arena(void **state)
{
    (void)state;
    kiln_arena_close(A);
    return 0;
}

/* ---- loop programs by hand ---- */
static kn_hw HW = {.id = "test", .arch = "any", .language = "c"};
enum { NBUF = 40 };
static kn_buffer BUF[NBUF];
static const char *VARS[] = {"i", "int", "k", "lane"}; /* a keyword on purpose */

static inline kn_expr *node(enum kn_op op, enum kn_dtype t, int lanes, int n, kn_expr *x, kn_expr *y, kn_expr *z)
{
    kn_expr *e = kn_new(A, kn_expr), *all[] = {x, y, z};
    *e = (kn_expr){.op = op, .dtype = t, .lanes = lanes, .nargs = n, .args = kn_array(A, kn_expr *, 3)};
    for (int i = 0; i < n; i++) e->args[i] = all[i];
    return e;
}
static inline kn_expr *un(enum kn_op op, kn_expr *x) { return node(op, x->dtype, x->lanes, 1, x, NULL, NULL); }
static inline kn_expr *bin(enum kn_op op, kn_expr *x, kn_expr *y) { return node(op, x->dtype, x->lanes, 2, x, y, NULL); }
static inline kn_expr *cmp(enum kn_op op, kn_expr *x, kn_expr *y) { return node(op, KN_BOOL, x->lanes, 2, x, y, NULL); }
static inline kn_expr *cast(enum kn_dtype t, kn_expr *x) { return node(KN_OP_CAST, t, x->lanes, 1, x, NULL, NULL); }
static inline kn_expr *sel(kn_expr *c, kn_expr *x, kn_expr *y) { return node(KN_OP_SELECT, x->dtype, x->lanes, 3, c, x, y); }
static inline kn_expr *splat(kn_expr *x, int lanes) { return lanes > 1 ? node(KN_OP_SPLAT, x->dtype, lanes, 1, x, NULL, NULL) : x; }
static inline kn_expr *ci(int64_t x)
{
    kn_expr *e = node(KN_OP_CONST_I, KN_I64, 1, 0, NULL, NULL, NULL);
    e->u.i = x;
    return e;
}
static inline kn_expr *cf(enum kn_dtype t, double x)
{
    kn_expr *e = node(KN_OP_CONST_F, t, 1, 0, NULL, NULL, NULL);
    e->u.f = x;
    return e;
}
static inline kn_expr *var(int v)
{
    kn_expr *e = node(KN_OP_VAR, KN_I64, 1, 0, NULL, NULL, NULL);
    e->u.var = v;
    return e;
}
static inline kn_expr *rd(int buffer, kn_expr *index, int lanes)
{
    kn_expr *e = node(KN_OP_READ, BUF[buffer].dtype, lanes, 1, index, NULL, NULL);
    e->u.buffer = buffer;
    return e;
}
static inline kn_ls *st(int buffer, kn_expr *index, kn_expr *value)
{
    kn_ls *s = kn_new(A, kn_ls);
    *s = (kn_ls){.kind = KN_LS_STORE, .buffer = buffer, .index = index, .value = value};
    return s;
}
static inline kn_ls *loop(int v, kn_expr *lo, kn_expr *hi, kn_ls *body)
{
    kn_ls *s = kn_new(A, kn_ls);
    *s = (kn_ls){.kind = KN_LS_FOR, .var = v, .lo = lo, .hi = hi, .body = body};
    return s;
}
static inline kn_ls *then(kn_ls *x, kn_ls *y)
{
    kn_ls *s = x;
    while (s->next) s = s->next;
    s->next = y;
    return x;
}

/* A program of nin inputs and one output of n elements; buffers 0..nin. */
static inline kn_lprog *lprog(int nin, const enum kn_dtype *types, int64_t n, int64_t grid, kn_ls *body)
{
    kn_program *p = kn_program_new(A);
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i <= nin; i++) kn_add_tensor(p, names[i], types[i], i < nin ? KN_INPUT : KN_OUTPUT, 1, &n);
    p->ninputs = nin;
    p->noutputs = 1;
    kn_lprog *l = kn_new(A, kn_lprog);
    *l = (kn_lprog){
        .program = p, .hw = &HW, .nbuffers = NBUF, .buffers = BUF, .nvars = 4, .var_names = VARS, .nfns = 1, .fns = kn_new(A, kn_fn)};
    l->fns[0] = (kn_fn){.grid = grid, .threads = 1, .var_grid = 0, .var_thread = -1, .body = body, .nargs = nin + 1};
    for (int i = 0; i <= nin; i++) l->fns[0].args[i] = i;
    return l;
}
static inline void buffers(int nin, const enum kn_dtype *types, int64_t n)
{
    memset(BUF, 0, sizeof BUF);
    for (int i = 0; i < NBUF; i++)
        BUF[i] = (kn_buffer){.name = "T", .dtype = KN_F32, .lanes = 1, .elems = 1, .scope = KN_REGISTER, .slot = -1};
    for (int i = 0; i <= nin; i++)
        BUF[i] = (kn_buffer){.name = "T", .dtype = types[i], .lanes = 1, .elems = n, .scope = KN_GLOBAL, .slot = i};
}

/* ---- compile and run ---- */
typedef int32_t (*entry_fn)(const void *const *in, void *const *out, void *ws, const void *pool);
typedef struct built {
    void *so;
    entry_fn run;
} built;

static inline kiln_bytes print(const kn_lprog *l, const char *language)
{
    kiln_bytes source, header;
    kiln_diag d = {0};
    kiln_status s = kn_language_find(language)->print(A, l, "kiln_test", &source, &header, &d);
    if (s != KILN_OK) fail_msg("%s", d.message);
    return source;
}

static inline built build(kiln_bytes source, const char *compiler, const char *flags)
{
    char dir[] = "/tmp/kiln-codegen-XXXXXX", path[300], command[1200];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/k.c", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fwrite(source.p, 1, source.n, f);
    fclose(f);
    snprintf(command, sizeof command,
             "%s -std=gnu11 -O2 -Wall -Werror -ffp-contract=fast -fno-math-errno -fvisibility=hidden -fPIC -shared %s -o %s/k.so %s -lm",
             compiler, flags, dir, path);
    if (system(command) != 0) fail_msg("%s\n%s", command, source.p);
    snprintf(path, sizeof path, "%s/k.so", dir);
    built b = {.so = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (!b.so) fail_msg("%s", dlerror());
    b.run = (entry_fn)(uintptr_t)dlsym(b.so, "kiln_test");
    unlink(path);
    snprintf(path, sizeof path, "%s/k.c", dir);
    unlink(path);
    rmdir(dir);
    return b;
}
#endif
