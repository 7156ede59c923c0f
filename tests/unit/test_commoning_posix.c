/* What a compiler must not make of a window's taps: a broadcast stays a load, which ports beside the multiply-adds do, though the next tap reads the
 * same element again. */
#include "codegen/codegen.h"
#include "tests/unit/run_lowered.c"
#include <unistd.h>

/* Broadcasts in an assembly; from_register: those that a move or a shuffle has to be made for. */
static int broadcasts(const char *text, bool from_register)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, "vbroadcastss")); p++) n += !from_register || !strncmp(p + strcspn(p, "%(\n"), "%xmm", 4);
    return n;
}

static void taps_are_broadcast_from_memory(void **state)
{
    static const char statement[] = "y[N,P,Q,F] +=! pad(a,0.0)[N,C,P*2+R-3,Q*2+S-3]*b[F,C,R,S] where P in 16, Q in 16";
    static const char inputs[] = "a=f32:1x3x32x32&b=f32:64x3x7x7";
    static char text[1 << 20];
    char command[256];
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_hw *hw = device(a, "x86-64-avx2");
    kn_program *c;
    kiln_candidates *list = constructed(a, statement, inputs, hw, 1, &c);
    kiln_bytes source, header;
    kiln_diag d = {0};
    assert_int_equal(kn_language_find("c")->print(a, lowered(a, c, hw, list->c[0].trace, inputs), "k", &source, &header, &d), KILN_OK);
    char path[] = "/tmp/kiln-commoning-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(source.p, 1, source.n, f), source.n);
    fclose(f);
    snprintf(command, sizeof command, "gcc -std=gnu11 -O2 -ffp-contract=fast -mavx2 -mfma -w -S -x c %s -o -", path);
    FILE *assembly = popen(command, "r");
    assert_non_null(assembly);
    size_t n = fread(text, 1, sizeof text - 1, assembly);
    text[n] = 0;
    assert_int_equal(pclose(assembly), 0);
    unlink(path);
    assert_true(broadcasts(text, false) >= 4);
    assert_int_equal(broadcasts(text, true), 0);
    run_checked(a, c, hw, list->c[0].trace, inputs);
    kiln_arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(taps_are_broadcast_from_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
