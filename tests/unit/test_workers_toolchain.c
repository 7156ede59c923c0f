/* Toolchains: the C compiler and NVRTC through children, with good, bad and hostile source text. */
#include "workers_fixture.h"
#include "codegen/gen.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>

static worker_blob so;
static worker_error e;

static bool compile(const char *text, int deadline_ms)
{
    free(so.p);
    so = (worker_blob){0};
    e = (worker_error){0};
    return worker_compile_c(&tools, fixture_text(text), NULL, 0, deadline_ms, &so, &e);
}

static bool refused(const char *text)
{
    return !compile(text, 5000) && strcmp(e.slug, "compile-failed") == 0 && strstr(e.message, "refused") != NULL;
}

static int after_each(void **state)
{
    (void)state;
    free(so.p);
    so = (worker_blob){0};
    return 0;
}

static void need_cc(void)
{
    if (!tools.cc[0]) {
        print_message("no C compiler here\n");
        skip();
    }
}

static void good_text(void **state)
{
    (void)state;
    need_cc();
    char path[] = "/tmp/kiln-test-so-XXXXXX";
    if (!compile("__attribute__((visibility(\"default\"))) double half(double x) { return x / 2; }\n", 20000)) {
        fail_msg("%s", e.message);
    }
    assert_string_equal(so.kind, "so");
    int fd = mkstemp(path);
    assert_int_equal(write(fd, so.p, so.n), so.n);
    close(fd);
    void *lib = dlopen(path, RTLD_NOW);
    unlink(path);
    assert_non_null(lib);
    double (*half)(double) = NULL;
    *(void **)&half = dlsym(lib, "half");
    assert_non_null(half);
    assert_true(half(5) == 2.5);
    dlclose(lib);
}

static void same_bytes_again(void **state)
{
    (void)state;
    need_cc();
    assert_true(compile("int f(int x) { return x * 3; }\n", 20000));
    worker_blob first = so;
    so = (worker_blob){0};
    assert_true(compile("int f(int x) { return x * 3; }\n", 20000));
    assert_int_equal(first.n, so.n);
    assert_memory_equal(first.p, so.p, so.n);
    free(first.p);
}

static void nan_stays(void **state)
{
    (void)state;
    need_cc();
    /* -ffast-math would define this and fold x != x */
    assert_true(compile("#ifdef __FAST_MATH__\n#error fast\n#endif\nint f(double x) { return x != x; }\n", 20000));
}

static void syntax_error(void **state)
{
    (void)state;
    need_cc();
    assert_false(compile("int f(int x) {\n    return y;\n}\n", 20000));
    assert_string_equal(e.slug, "compile-failed");
    assert_non_null(strstr(e.message, "kernel.c:2"));
    assert_null(strstr(e.message, tools.tmp));
    assert_int_equal(e.status, KILN_INTERNAL);
}

/* A text of a few kilobytes that no compiler comes to the end of. */
static const char *endless(void)
{
    static char text[4096];
    int n = snprintf(text, sizeof text, "#define A0 +1\n");
    for (int i = 1; i < 60; i++) { n += snprintf(text + n, sizeof text - (size_t)n, "#define A%d A%d A%d\n", i, i - 1, i - 1); }
    snprintf(text + n, sizeof text - (size_t)n, "int x = 0 A59;\n");
    return text;
}

/* It is the deadline that ends what `make` makes of that text: a far one ends it later than a near one. */
static void ends_with_its_deadline(bool (*make)(const char *text, int deadline_ms))
{
    static const int deadlines[] = {200, 1600};
    double took[2];
    for (int i = 0; i < 2; i++) {
        double start = fixture_seconds();
        assert_false(make(endless(), deadlines[i]));
        took[i] = fixture_seconds() - start;
        assert_string_equal(e.slug, "compile-timeout");
        assert_int_equal(e.status, KILN_STOPPED);
        assert_true(took[i] * 1000 >= deadlines[i]);
    }
    assert_true(took[0] < took[1]);
}

static void endless_compile(void **state)
{
    (void)state;
    need_cc();
    ends_with_its_deadline(compile);
}

static void large_object(void **state)
{
    (void)state;
    need_cc();
    assert_false(compile("char big[200000000] = {1};\n", 20000)); /* beyond the limit of file size */
    assert_string_equal(e.slug, "compile-failed");
}

static void texts_that_name_files(void **state)
{
    (void)state;
    static const char *const bad[] = {"#include \"/etc/passwd\"\n",
                                      "  #  include </etc/passwd>\n",
                                      "#inc\\\nlude \"/etc/passwd\"\n",
                                      "/* a */ #include \"/etc/passwd\"\n",
                                      "#/**/include \"/etc/passwd\"\n",
                                      "/* b\n*/ #include \"x\"\n",
                                      "#include_next <x>\n",
                                      "#import \"x\"\n",
                                      "#embed \"x\"\n",
                                      "#line 3 \"x\"\n",
                                      "%:include \"/etc/passwd\"\n",
                                      "?\?=include \"/etc/passwd\"\n",
                                      "int x = __has_include(\"/etc/passwd\");\n",
                                      "__asm__(\".incbin \\\"/etc/passwd\\\"\");\n",
                                      "int a;\r#include \"x\"\n",
                                      "// c \\ \n#include \"x\"\n",
                                      "\"\n#include \"x\"\n",
                                      "char *s = R\"(\")/*)\";\n#include \"x\"\n//*/\n",
                                      "char c = L'\"';\n",
                                      "#include"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (!refused(bad[i])) { fail_msg("text %d was not refused: %s", (int)i, e.message); }
    }
    int line = 0;
    assert_false(workers_source_is_closed("int a;\n\n#include <x>\n", 21, &line));
    assert_int_equal(line, 3);
    assert_false(workers_source_is_closed("int\0a;", 6, &line));
}

static void texts_that_do_not(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "#",
                                       "#define A(x) #x\n#if A\n#else\n#endif\n#pragma GCC unroll 4\n",
                                       "// #include \"x\"\n",
                                       "/*\n#include \"x\"\n*/\n",
                                       "const char *s = \"\\\"#include\";\n",
                                       "int include;\n",
                                       "char c = '#';\nchar d = '\"';\nchar e = '\\'';\nint f;\n",
                                       "int x = 7 % 2;\n",
                                       "#define PASTE(a, b) a##b\n",
                                       "extern \"C\" int f;",
                                       "int a = b ? c : d;"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int line = 0;
        if (!workers_source_is_closed(good[i], strlen(good[i]), &line)) { fail_msg("text %d was refused at line %d", (int)i, line); }
    }
}

/* libm is linked to what calls it, whatever of it the generated text may call, and to nothing else. */
static void texts_that_name_math(void **state)
{
    (void)state;
    static const char *const with[] = {"float f(float x) { return __builtin_sinf(x); }", "double sin(double);", "#define F tanhl",
                                       "/* a */ /* exp */ int a;",
                                       "char a[] = \"/*\"; double f(double x) { return __builtin_pow(x, x); }", "fmax"};
    static const char *const without[] = {"", "/* y = exp(x) */\nint a;", "int sine, f, l, expf_, _log;",
                                          "void *f(void *p) { return __builtin_memcpy(p, p, 1); }"};
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) { assert_true(workers_source_names_math(with[i], strlen(with[i]))); }
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) { assert_false(workers_source_names_math(without[i], strlen(without[i]))); }
    for (int op = 0; op < KN_OP_COUNT; op++) {
        char text[64];
        if (!kn_math_name((enum kn_op)op)) { continue; }
        snprintf(text, sizeof text, "return __builtin_%sf(x);", kn_math_name((enum kn_op)op));
        assert_true(workers_source_names_math(text, strlen(text)));
    }
    need_cc();
    assert_true(compile("float f(float x) { return __builtin_sinf(x); }", 20000));
    assert_non_null(memmem(so.p, so.n, "libm.so", 7));
    assert_true(compile("float f(float x) { return x; }", 20000));
    assert_null(memmem(so.p, so.n, "libm.so", 7));
}

static void flags(void **state)
{
    (void)state;
    need_cc();
    static const char *const hostile[] = {"-fplugin=x", "-o/tmp/x", "-include", "-I/etc", "@file", "-Wl,-x",
                                          "-B/tmp",     "-specs=x", "kernel",   "-",      "",      "-march=/x"};
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        assert_false(worker_compile_c(&tools, fixture_text("int a;"), &hostile[i], 1, 20000, &so, &e));
        assert_int_equal(e.status, KILN_HWSPEC);
    }
    const char *good[] = {"-DKILN_TEST=3", "-O1"};
    assert_true(worker_compile_c(&tools, fixture_text("int f[KILN_TEST == 3 ? 1 : -1];"), good, 2, 20000, &so, &e));
}

static void no_compiler(void **state)
{
    (void)state;
    worker_tools none = tools;
    none.cc[0] = 0;
    none.nvrtc[0] = 0;
    snprintf(none.nvrtc_why, sizeof none.nvrtc_why, "looked at nothing");
    assert_false(worker_compile_c(&none, fixture_text("int a;"), NULL, 0, 5000, &so, &e));
    assert_string_equal(e.slug, "toolchain-missing");
    assert_non_null(strstr(e.message, "KILN_CC"));
    assert_false(worker_compile_cuda(&none, fixture_text("int a;"), "sm_90", true, true, 5000, &so, &so, NULL, &e));
    assert_string_equal(e.slug, "toolchain-missing");
    assert_non_null(strstr(e.message, "looked at nothing"));
    assert_int_equal(e.status, KILN_UNSUPPORTED);
}

/* ---- NVRTC ---- */
static worker_blob ptx, cubin;
static char *logs;

static bool cuda(const char *text, const char *arch, bool want_cubin, int deadline_ms)
{
    free(ptx.p), free(cubin.p), free(logs);
    ptx = cubin = (worker_blob){0};
    logs = NULL;
    e = (worker_error){0};
    return worker_compile_cuda(&tools, fixture_text(text), arch, true, want_cubin, deadline_ms, &ptx, &cubin, &logs, &e);
}

static void need_nvrtc(void)
{
    if (!tools.nvrtc[0]) {
        print_message("no NVRTC here: %s\n", tools.nvrtc_why);
        skip();
    }
}

static const char kernel[] = "extern \"C\" __global__ void __launch_bounds__(32) k(float *a) {\n"
                             "    __shared__ float s[32];\n    s[threadIdx.x] = a[threadIdx.x];\n    __syncthreads();\n"
                             "    a[threadIdx.x] = s[31 - threadIdx.x];\n}\n";

static void cuda_good(void **state)
{
    (void)state;
    need_nvrtc();
    if (!cuda(kernel, "sm_90a", true, 20000)) { fail_msg("%s", e.message); }
    assert_non_null(strstr(ptx.p, ".target sm_90a"));
    assert_non_null(strstr(ptx.p, ".entry k("));
    assert_true(cubin.n > 64 && memcmp(cubin.p, "\177ELF", 4) == 0);
    assert_non_null(strstr(logs, "registers"));
    assert_true(cuda(kernel, "sm_80", false, 20000));
    assert_non_null(strstr(ptx.p, ".target sm_80"));
    assert_null(cubin.p);
}

static void cuda_bad(void **state)
{
    (void)state;
    need_nvrtc();
    assert_false(cuda("extern \"C\" __global__ void k(float *a) {\n  a[0] = b;\n}\n", "sm_90", true, 20000));
    assert_string_equal(e.slug, "compile-failed");
    assert_non_null(strstr(e.message, "kernel.cu(2)"));
    assert_false(cuda("#include <cuda_fp16.h>\n", "sm_90", true, 20000));
    assert_non_null(strstr(e.message, "refused"));
    assert_false(cuda(kernel, "sm_37", true, 20000));
    assert_string_equal(e.slug, "toolchain-missing");
    assert_non_null(strstr(e.message, "sm_90"));
    static const char *const wrong[] = {"", "sm_", "90", "sm_90b", "sm_90aa", "compute_90", "sm_90 ", "sm_-90", "sm_9999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) { assert_false(cuda(kernel, wrong[i], true, 20000)); }
}

static bool for_hopper(const char *text, int deadline_ms) { return cuda(text, "sm_90", false, deadline_ms); }

static void cuda_deadline(void **state)
{
    (void)state;
    need_nvrtc();
    ends_with_its_deadline(for_hopper);
}

/* Devices that NVRTC has left behind: PTX through clang, of the constructed kernels too. */
static void ptx_of_old_devices(void **state)
{
    (void)state;
    worker_blob p = {0};
    if (!tools.clang[0]) {
        print_message("no clang here\n");
        skip();
    }
    static const char *const archs[] = {"sm_35", "sm_37", "sm_52", "sm_60", "sm_70", "sm_72"};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        char target[32];
        if (!worker_compile_ptx(&tools, fixture_text(kernel), archs[i], 20000, &p, &e)) fail_msg("%s: %s", archs[i], e.message);
        snprintf(target, sizeof target, ".target %s", archs[i]);
        assert_non_null(strstr(p.p, target));
        assert_non_null(strstr(p.p, ".entry k("));
        assert_non_null(strstr(p.p, "bar.sync"));
        free(p.p);
    }
    assert_false(worker_compile_ptx(&tools, fixture_text(kernel), "sm_90a", 20000, &p, &e));
    assert_string_equal(e.slug, "toolchain-missing");
    assert_false(worker_compile_ptx(&tools, fixture_text(kernel), "sm_70 -o/tmp/x", 20000, &p, &e));
    const char *sine = "extern \"C\" __global__ void k(float *a) { a[0] = sinf(a[0]); }\n";
    assert_false(worker_compile_ptx(&tools, fixture_text(sine), "sm_70", 20000, &p, &e));
    assert_string_equal(e.slug, "compile-failed");
    assert_non_null(strstr(e.message, "kernel.cu:1"));
    assert_false(worker_compile_ptx(&tools, fixture_text("#include <stdio.h>\n"), "sm_70", 20000, &p, &e));
    assert_non_null(strstr(e.message, "refused"));
}

/* Our own functions before that text: the same C, on this host, beside libm's double. */
static void ptx_functions(void **state)
{
    (void)state;
    need_cc();
    extern const char toolchain_ptx_text[];
    static char text[16384];
    const char *from = strstr(toolchain_ptx_text, "K_PTX float k_float"), *math = strstr(toolchain_ptx_text, "K_PTX float expf"),
               *sqrts = strstr(toolchain_ptx_text, "K_PTX float sqrtf"), *end = strstr(toolchain_ptx_text, "#line");
    snprintf(text, sizeof text, "#define K_PTX static inline\n#define bool _Bool\n#define rintf __builtin_rintf\n#define fmaf __builtin_fmaf\n"
                                "#define fabsf __builtin_fabsf\n#define expf k_expf\n#define logf k_logf\n"
                                "#define tanhf k_tanhf\n#define erff k_erff\n"
                                "%.*s%.*s__attribute__((visibility(\"default\"))) float f(int which, float x)\n"
                                "{ return which == 0 ? expf(x) : which == 1 ? logf(x) : which == 2 ? tanhf(x) : erff(x); }\n",
             (int)(sqrts - from), from, (int)(end - math), math);
    if (!compile(text, 20000)) fail_msg("%s", e.message);
    char path[] = "/tmp/kiln-test-so-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, so.p, so.n), so.n);
    close(fd);
    void *lib = dlopen(path, RTLD_NOW);
    unlink(path);
    assert_non_null(lib);
    float (*f)(int, float) = NULL;
    *(void **)&f = dlsym(lib, "f");
    double (*const exact[])(double) = {exp, log, tanh, erf};
    static const double lo[] = {-86, 1e-37, -12, -5}, hi[] = {88, 1e30, 12, 5}, limit[] = {3e-7, 3e-7, 4e-7, 8e-7};
    for (int w = 0; w < 4; w++) {
        for (int i = 0; i <= 20000; i++) {
            float x = (float)(w == 1 ? lo[w] * pow(hi[w] / lo[w], i / 20000.0) : lo[w] + (hi[w] - lo[w]) * i / 20000);
            double want = exact[w](x), error = fabs(f(w, x) - want) / fmax(fabs(want), 1e-30);
            if (w == 1 && fabs(x - 1) < 1e-3) continue; /* relative to almost nothing */
            if (error > limit[w]) fail_msg("function %d at %.9g: %.9g for %.9g", w, x, f(w, x), want);
        }
        assert_true(isnan(f(w, NAN)));
    }
    assert_true(f(0, -200) == 0 && isinf(f(0, 200)) && isinf(f(1, 0)) && isnan(f(1, -1)) && f(2, 100) == 1 && f(3, -100) == -1);
    dlclose(lib);
}

static void launcher_with_image(void **state)
{
    (void)state;
    need_cc();
    worker_blob image = {.p = (char[]){"\177ELF\"\\?\0\n end"}, .n = 13};
    const char *text = "#ifdef KILN_IMAGE\nextern const unsigned char KILN_IMAGE[];\n#endif\n"
                       "__attribute__((visibility(\"default\"))) const unsigned char *image(void) { return KILN_IMAGE; }\n";
    free(so.p);
    so = (worker_blob){0};
    if (!worker_compile_launcher(&tools, fixture_text(text), &image, 20000, &so, &e)) fail_msg("%s", e.message);
    char path[] = "/tmp/kiln-test-so-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, so.p, so.n), so.n);
    close(fd);
    void *lib = dlopen(path, RTLD_NOW);
    unlink(path);
    assert_non_null(lib);
    const unsigned char *(*get)(void) = NULL;
    *(void **)&get = dlsym(lib, "image");
    assert_memory_equal(get(), image.p, image.n);
    assert_int_equal(get()[image.n], 0); /* PTX is text: it ends */
    dlclose(lib);
}

static int close_all(void **state)
{
    free(ptx.p), free(cubin.p), free(logs);
    return fixture_close(state);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0) { return child_main(argc, argv); }
#define T(f) cmocka_unit_test_teardown(f, after_each)
    const struct CMUnitTest tests[] = {T(good_text),
                                       T(same_bytes_again),
                                       T(nan_stays),
                                       T(syntax_error),
                                       T(endless_compile),
                                       T(large_object),
                                       T(texts_that_name_files),
                                       T(texts_that_do_not),
                                       T(texts_that_name_math),
                                       T(flags),
                                       T(no_compiler),
                                       T(cuda_good),
                                       T(cuda_bad),
                                       T(cuda_deadline),
                                       T(ptx_of_old_devices),
                                       T(ptx_functions),
                                       T(launcher_with_image)};
    return cmocka_run_group_tests(tests, fixture_open, close_all);
}
