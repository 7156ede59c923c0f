/* Parts of an f32 for products in three tf32 ones: the assembly in CUDA text, which only a device runs, against what it stands for in C, which the
 * emulator runs. The few instructions of it are interpreted here; another one in the text fails the test. */
#include "tests/arena.h"
#include "tests/unit/device.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { LINES = 40, WIDTH = 64 };
typedef struct text { char line[LINES][WIDTH]; int n; } text;

/* The instructions between the braces of the assembly in `source`, one a line. */
static void extract(const char *source, text *t)
{
    const char *at = strstr(source, "void k_split("), *end = at ? strstr(at, "}\" :") : NULL;
    t->n = 0;
    assert_non_null(end);
    for (at = strchr(at, '{') + 1; at < end; at++) {
        if (strncmp(at, "\\n", 2)) continue;
        at += 2;
        if (*at == '"') at = strchr(at + 1, '"') + 1;
        size_t n = (size_t)(strchr(at, ';') - at);
        if (at >= end) break;
        assert_true(n < WIDTH && t->n < LINES);
        memcpy(t->line[t->n], at, n);
        t->line[t->n++][n] = 0;
        at += n;
    }
}

static uint32_t *place(uint32_t *regs, const char *name) { return name[0] == '%' ? &regs[name[1] - '0'] : &regs[(unsigned char)name[0]]; }

static uint32_t value(uint32_t *regs, const char *name)
{
    return name[0] >= '0' && name[0] <= '9' ? (uint32_t)strtoul(name, NULL, 0) : *place(regs, name);
}

static uint32_t minus(uint32_t x, uint32_t y)
{
    float a, b;
    memcpy(&a, &x, 4);
    memcpy(&b, &y, 4);
    a -= b;
    memcpy(&x, &a, 4);
    return x;
}

static void step(uint32_t *regs, const char *line)
{
    char op[16], a[4][16] = {"", "", "", ""};
    if (line[0] == '.') return;
    if (line[0] == '@') {
        if (!*place(regs, line + 1)) return;
        line += 3;
    }
    int n = sscanf(line, "%15s %15[^,], %15[^,], %15[^,], %15s", op, a[0], a[1], a[2], a[3]);
    uint32_t x = n > 2 ? value(regs, a[1]) : 0, y = n > 3 ? value(regs, a[2]) : 0, *to = place(regs, a[0]);
    if (!strcmp(op, "and.b32")) *to = x & y;
    else if (!strcmp(op, "or.b32")) *to = x | y;
    else if (!strcmp(op, "add.u32")) *to = x + y;
    else if (!strcmp(op, "sub.u32")) *to = x - y;
    else if (!strcmp(op, "sub.f32")) *to = minus(x, y);
    else if (!strcmp(op, "mov.b32")) *to = x;
    else if (!strcmp(op, "setp.lt.u32")) *to = x < y;
    else if (!strcmp(op, "setp.gt.u32")) *to = x > y;
    else if (!strcmp(op, "selp.b32")) *to = value(regs, a[3]) ? x : y;
    else fail_msg("no such instruction: %s", line);
}

/* As in C (compiler/codegen/warps.c). */
static void wanted(uint32_t u, uint32_t out[3])
{
    uint32_t m = u & 0x7fffffffu;
    out[0] = (m > 0x7f7fefffu ? u | (m > 0x7f800000u ? 0x400000u : 0u) : m - 1u < 0xfffu ? u | 0x2000u : u + 0x1000u) & ~0x1fffu;
    out[1] = m > 0x7f7fffffu ? 0 : (minus(u, out[0]) + 0x1000u) & ~0x1fffu;
    out[2] = m > 0x7f7fffffu ? 0 : out[0];
}

static void assembly_is_the_c_text(void **state)
{
    static const uint32_t edges[] = {0, 1, 0xffe, 0xfff, 0x1000, 0x1fff, 0x2000, 0x7fffff, 0x800000, 0x3f800000, 0x7f7fefff, 0x7f7ff000, 0x7f7fffff,
                                     0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff};
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kiln_request *r = NULL;
    kiln_candidates *c = NULL;
    kiln_kernel *k = NULL;
    kiln_diag d = {0};
    text t;
    static const char expr[] = "c[M,N] +=! a[M,K]*b[K,N]", inputs[] = "a=f32:512x512&b=f32:512x512";
    (void)state;
    assert_int_equal(kiln_request_text(a, (kiln_bytes){expr, sizeof expr - 1}, (kiln_bytes){inputs, sizeof inputs - 1}, NULL, &r, &d), KILN_OK);
    kiln_hw *hw = device(a, "nvidia-a100");
    assert_int_equal(kiln_construct(a, r->program, hw, "default", 1, &c, &d), KILN_OK);
    assert_int_equal(kiln_generate(a, r->program, hw, c->c[0].trace, &k, &d), KILN_OK);
    extract(k->source.p, &t);
    assert_true(t.n > 10);
    uint64_t seed = 1;
    for (int i = 0; i < 50000; i++) {
        uint32_t regs[128] = {0}, out[3], x = (uint32_t)(seed >> 32);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        if (i < (int)(2 * sizeof edges / sizeof *edges)) x = edges[i / 2] | (uint32_t)(i % 2) << 31;
        regs[3] = x;
        for (int l = 0; l < t.n; l++) step(regs, t.line[l]);
        wanted(x, out);
        for (int p = 0; p < 3; p++)
            if (regs[p] != out[p] && !((out[p] & 0x7fffffffu) > 0x7f800000u)) fail_msg("part %d of %08x: %08x, not %08x", p, x, regs[p], out[p]);
    }
    kiln_arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(assembly_is_the_c_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
