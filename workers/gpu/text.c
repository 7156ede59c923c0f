/* Writes a bundle's description (README.md): groups with their buffers, kernels with their launches, and the elements that the reference
 * computed. */
#include "workers/gpu/text.h"
#include "workers/verify.h"
#include <string.h>

enum { POINTS = 48 };
#define SMALL_ELEMENTS (INT64_C(1) << 22) /* beyond, inputs are filled once, with random values alone */

static void put_encoded(FILE *f, kiln_bytes t)
{
    for (size_t i = 0; i < t.n; i++) {
        unsigned char c = (unsigned char)t.p[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("._-[](),;:*+/|", c));
        fprintf(f, plain ? "%c" : "%%%02x", c);
    }
}

static void put_slot(FILE *f, const kiln_program *p, const kiln_kernel *k, int rank, int slot)
{
    int nin = kiln_program_inputs(p), nout = kiln_program_outputs(p), t = 0;
    if (slot < nin)
        fprintf(f, "in%d", slot);
    else if (slot < nin + nout)
        fprintf(f, "out%d", slot - nin);
    else {
        while (t < k->ntemps && k->temp_slots[t] != slot) t++;
        fprintf(f, "k%dt%d", rank, t);
    }
}

static void put_numbers(FILE *f, const char *key, const int64_t *x, int n)
{
    fprintf(f, " %s=", key);
    for (int i = 0; i < n; i++) fprintf(f, "%s%lld", i ? "," : "", (long long)x[i]);
}

static void put_arg(FILE *f, const kiln_program *p, const kiln_kernel *k, int rank, const kiln_launch *l, int j)
{
    const kiln_tensor_map *m = l->maps && l->maps[j].rank ? &l->maps[j] : NULL;
    int64_t box[5];
    fprintf(f, "arg %s=", m ? "tmap" : "ptr");
    put_slot(f, p, k, rank, l->args[j]);
    if (m) {
        for (int i = 0; i < m->rank; i++) box[i] = m->box[i];
        fprintf(f, " dtype=%s", m->dtype);
        put_numbers(f, "dims", m->dims, m->rank);
        if (m->rank > 1) put_numbers(f, "strides", m->strides, m->rank - 1);
        put_numbers(f, "box", box, m->rank);
        fprintf(f, " swizzle=%d l2=%d oob=%d", m->swizzle, m->l2, m->oob);
        if (m->pixels)
            fprintf(f, " pixels=%d lower_x=%d lower_y=%d upper_x=%d upper_y=%d step_x=%d step_y=%d", m->pixels, m->lower[0], m->lower[1], m->upper[0],
                    m->upper[1], m->steps[0], m->steps[1]);
    }
    fputc('\n', f);
}

void gpu_put_kernel(FILE *f, const kiln_program *p, const kiln_kernel *k, int rank, double predicted_us, const char *module)
{
    double flops, bytes;
    kiln_work(p, &flops, &bytes);
    for (int i = 0; i < k->ntemps; i++)
        fprintf(f, "buffer id=k%dt%d dtype=u8 elems=%lld temporary=1\n", rank, i, (long long)k->temp_bytes[i]);
    fprintf(f, "kernel id=%s module=%s rank=%d flops=%.17g bytes=%.17g predicted_us=%.6g trace=", module, module, rank, flops, bytes,
            predicted_us);
    put_encoded(f, k->trace);
    fputc('\n', f);
    for (int i = 0; i < k->nlaunches; i++) {
        const kiln_launch *l = &k->launches[i];
        fprintf(f, "launch entry=%s grid=%lld,1,1 block=%d,1,1 cluster=%d,1,1 shared=%lld\n", l->entry, (long long)l->grid, l->threads,
                l->cluster > 1 ? l->cluster : 1, (long long)l->dynamic_shared_bytes);
        for (int j = 0; j < l->nargs; j++) put_arg(f, p, k, rank, l, j);
    }
}

void gpu_put_group(FILE *f, const char *id, const char *key, const char *target, const kiln_program *p, kiln_bytes text)
{
    int nin = kiln_program_inputs(p), n = nin + kiln_program_outputs(p);
    fprintf(f, "group id=%s key=%s target=%s program=", id, key, target);
    put_encoded(f, text);
    fputc('\n', f);
    for (int i = 0; i < n; i++) {
        kiln_arg a;
        if (i < nin)
            kiln_program_input(p, i, &a);
        else
            kiln_program_output(p, i - nin, &a);
        fprintf(f, i < nin ? "buffer id=in%d dtype=%s elems=%lld input=%d\n" : "buffer id=out%d dtype=%s elems=%lld\n",
                i < nin ? i : i - nin, a.dtype, (long long)a.elems, i);
    }
}

/* A reader of inputs for the reference: the function that the runner fills them with. */
typedef struct source {
    const kiln_program *p;
    verify_source s;
} source;

static double read_input(void *user, int input, int64_t index)
{
    const source *s = user;
    kiln_arg arg;
    verify_dtype t = VERIFY_F32;
    kiln_program_input(s->p, input, &arg);
    verify_dtype_find(arg.dtype, &t);
    return verify_input(&s->s, t, input, index, NULL);
}

static bool put_check(FILE *f, kiln_arena *a, const kiln_program *p, const verify_source *vs, bool exact, kiln_diag *d)
{
    source s = {p, *vs};
    kiln_ref *ref;
    if (kiln_ref_open(a, p, read_input, &s, &ref, d) != KILN_OK) return false;
    for (int o = 0; o < kiln_program_outputs(p); o++) {
        kiln_arg arg;
        verify_points at;
        int64_t index;
        double rtol, atol, value, scale;
        kiln_program_output(p, o, &arg);
        kiln_tolerance(p, o, &rtol, &atol);
        if (exact && !strcmp(arg.dtype, "f32")) rtol = 0;
        fprintf(f, "check buffer=out%d seed=%llu kind=%d nonzero=%d rtol=%.17g atol=%.17g points=", o, (unsigned long long)vs->seed,
                vs->kind, vs->nonzero, rtol, atol);
        verify_points_open(&at, &arg, vs->seed);
        for (int n = 0; n < POINTS && verify_points_next(&at, &index); n++) {
            if (kiln_ref_at(ref, o, index, &value, &scale) != KILN_OK) return false;
            fprintf(f, "%s%lld:%.17g:%.17g", n ? ";" : "", (long long)index, value, scale);
        }
        fputc('\n', f);
    }
    return true;
}

bool gpu_put_checks(FILE *f, kiln_arena *a, const kiln_program *p, kiln_bytes text, kiln_diag *d)
{
    int64_t elements = 0;
    kiln_arg arg;
    verify_source s = {.seed = 0x6b696c6e, .nonzero = strpbrk(text.p, "/%") != NULL};
    for (int i = 0; i < kiln_program_inputs(p); i++) {
        kiln_program_input(p, i, &arg);
        elements += arg.elems;
    }
    s.kind = VERIFY_INTEGER;
    if (elements <= SMALL_ELEMENTS && verify_text_is_exact(text.p) && !put_check(f, a, p, &s, true, d)) return false;
    s.kind = VERIFY_RANDOM; /* last: what is timed */
    return put_check(f, a, p, &s, false, d);
}
