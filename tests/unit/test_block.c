/* Blocks: the block form of every schedule in the tests, its text read back byte for byte, and suites of legal and illegal programs. */
#include "tests/unit/instructions.h"
#include "block/block.h"
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void *mem(void *user, void *p, size_t old_size, size_t size)
{
    (void)user;
    (void)old_size;
    if (size) return realloc(p, size);
    free(p);
    return NULL;
}

static kn_hw cpu = { .id = "cpu", .max_threads_per_block = 1, .vector_bytes = 64, .lanes = 1 };
static kn_hw gpu = { .id = "gpu", .gpu = true, .max_threads_per_block = 1024, .max_shared_per_block = 49152, .lanes = 32 };

static kiln_arena *arena(void) { return kiln_arena_open(&(kiln_host){ NULL, mem, NULL }); }
static kiln_bytes bytes(const char *s) { return (kiln_bytes){ s, strlen(s) }; }

static const char *text_of(kiln_arena *a, const kn_blocks *b)
{
    kn_buf o;
    kn_buf_init(&o, a);
    kn_blocks_print(&o, b);
    return kn_buf_take(&o).p;
}

/* Text -> blocks -> text must give the same bytes. */
static void round_trip(kiln_arena *a, const char *s, char *why, size_t size)
{
    kn_blocks *again;
    kiln_diag d = { 0 };
    if (kn_blocks_parse(a, bytes(s), &again, &d)) {
        snprintf(why, size, "parse: %d:%d: %s\n%s", d.line, d.col, d.message, s);
        return;
    }
    const char *t = text_of(a, again);
    if (strcmp(s, t)) snprintf(why, size, "round trip:\n%s\n%s", s, t);
}

/* The block form of a schedule; NULL when all is well, else what is not. */
static const char *tree_form(const char *inputs, const char *text, const kn_hw *hw, const char *trace, char *why, size_t size)
{
    kiln_arena *a = arena();
    kiln_diag d = { 0 };
    kn_program *p;
    kn_tree *t;
    kn_blocks *b;
    why[0] = 0;
    if (kn_parse(a, bytes(text), bytes(inputs), &p, &d) || kn_trace_apply(a, p, hw, bytes(trace), &t, &d)) {
        snprintf(why, size, "trace: %s", d.message);
    } else if (kn_blocks_of_tree(a, t, hw, &b, &d)) {
        snprintf(why, size, "of_tree: %s", d.message);
    } else {
        const char *s = text_of(a, b);
        if (getenv("BLOCK_DUMP")) printf("%s\n", s);
        round_trip(a, s, why, size);
        if (!why[0] && kn_blocks_check(b, hw, &d)) snprintf(why, size, "check: %s\n%s", d.message, s);
    }
    kiln_arena_close(a);
    return why[0] ? why : NULL;
}

#define MM "c[M,N] +=! a[M,K]*b[K,N]"
#define CONV "o[N,F,P,Q] +=! pad(x, 0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where P in 7, Q in 9"
static const struct { const char *name, *inputs, *text; const kn_hw *hw; const char *trace; } cases[] = {
#include "tests/unit/lower_cases.def"
};

static void test_lower_cases(void **state)
{
    (void)state;
    int bad = 0;
    static char why[20000];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (getenv("BLOCK_DUMP")) printf("# %s\n", cases[i].name);
        if (!tree_form(cases[i].inputs, cases[i].text, cases[i].hw, cases[i].trace, why, sizeof why)) continue;
        print_error("%s: %s\n", cases[i].name, why);
        bad++;
    }
    assert_int_equal(bad, 0);
}

static char *section(char *text, const char *key)
{
    char *p = strstr(text, key);
    if (!p) fail_msg("no '%s' in a golden file", key);
    return p;
}

static void test_golden_schedules(void **state)
{
    (void)state;
    static char text[16384];
    static char why[20000];
    DIR *dir = opendir("tests/golden");
    assert_non_null(dir);
    int n = 0, bad = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        size_t len = strlen(e->d_name);
        if (len < 9 || strcmp(e->d_name + len - 9, ".schedule")) continue;
        char path[300];
        snprintf(path, sizeof path, "tests/golden/%s", e->d_name);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
        char *inputs = section(text, "inputs:"), *expr = section(inputs, "\ntext:"), *target = section(expr, "\ntarget:");
        char *trace = section(target, "\ntrace:\n"), *want = section(trace, "\ntree:\n");
        if (strstr(want, "refused:")) continue;
        *expr = *target = *trace = *want = 0;
        if (tree_form(inputs + 7, expr + 6, strcmp(target + 8, "gpu") ? &cpu : &gpu, trace + 8, why, sizeof why)) {
            print_error("%s: %s\n", path, why);
            bad++;
        }
        n++;
    }
    closedir(dir);
    assert_int_equal(bad, 0);
    assert_true(n >= 8);
}

/* What becomes of a text: "ok", or the message; texts that parse must come back byte for byte. */
static const char *verdict(const char *text, const char *target, char *why, size_t size)
{
    kiln_arena *a = arena();
    kiln_diag d = { 0 };
    kn_blocks *b;
    snprintf(why, size, "ok");
    if (kn_blocks_parse(a, bytes(text), &b, &d) || kn_blocks_check(b, strcmp(target, "gpu") ? &cpu : &gpu, &d))
        snprintf(why, size, "%s", d.message);
    else if (strcmp(text_of(a, b), text)) snprintf(why, size, "round trip:\n%s", text_of(a, b));
    kiln_arena_close(a);
    return why;
}

/* Sections "== NAME | TARGET | WORD": the verdict must start with the word. */
static void suite(const char *path, int least)
{
    static char text[200000], why[20000];
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    int n = 0, bad = 0;
    for (char *p = strstr(text, "== "), *next; p; p = next) {
        next = strstr(p + 3, "\n== ");
        if (next) *++next = 0;
        char head[200], *body = strchr(p, '\n') + 1;
        snprintf(head, sizeof head, "%.*s", (int)(body - p - 1), p);
        char *target = strstr(head, " | "), *word = strstr(target + 3, " | ");
        *target = *word = 0;
        verdict(body, target + 3, why, sizeof why);
        if (strncmp(why, word + 3, strlen(word + 3))) {
            print_error("%s: %s wants %s, got %s\n", path, head + 3, word + 3, why);
            bad++;
        }
        n++;
        if (next) *next = '=';
    }
    assert_int_equal(bad, 0);
    assert_true(n >= least);
}

static void test_illegal(void **state)
{
    (void)state;
    suite("tests/data/blocks/illegal.txt", 60);
}

static void test_legal(void **state)
{
    (void)state;
    suite("tests/data/blocks/legal.txt", 60);
}

/* A letter changed here and there: a verdict, never a crash. */
static void test_mangled(void **state)
{
    (void)state;
    static char text[200000], why[20000];
    FILE *f = fopen("tests/data/blocks/legal.txt", "rb");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f), at = 0;
    fclose(f);
    text[n] = 0;
    for (char *p = strstr(text, "\n== "), *next; p; p = next) {
        char *body = strchr(p + 1, '\n') + 1;
        next = strstr(body, "\n== ");
        if (next) *next = 0;
        for (size_t i = at++ % 11, len = strlen(body); i < len; i += 11) {
            char was = body[i];
            body[i] = "0(9]:% -"[i / 11 % 8];
            verdict(body, i % 2 ? "cpu" : "gpu", why, sizeof why);
            body[i] = was;
        }
        if (next) *next = '\n';
    }
}

int main(void)
{
    kiln_arena *a = arena();
    add_instructions(a, &cpu);
    add_instructions(a, &gpu);
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_lower_cases), cmocka_unit_test(test_golden_schedules),
                                        cmocka_unit_test(test_illegal), cmocka_unit_test(test_legal), cmocka_unit_test(test_mangled) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kiln_arena_close(a);
    return failed;
}
