/* Instructions of the device as functions of the text: their emulation from the compute text, and the real one where natives.def has it. */
#include "codegen/gen.h"

void kn_put_call_name(kn_gen *g, int fn)
{
    kn_put(&g->out, "k_call_");
    kn_put_clean(&g->out, g->p->calls[fn].intrin->name);
    kn_putf(&g->out, "_%d", fn);
}

void kn_put_call(kn_gen *g, const kn_ls *s)
{
    bool vector = g->p->buffers[s->call->buffer[0]].scope == KN_REGISTER;
    if (g->p->calls[s->call->fn].warp) {
        kn_put_warp_call(g, s);
        return;
    }
    if (g->p->buffers[s->call->buffer[0]].unit) {
        kn_put_unit_call(g, s->call);
        return;
    }
    if (vector) {
        kn_put_register(g, s->call->buffer[0], s->call->at[0]);
        kn_put(&g->out, " = ");
    }
    kn_put_call_name(g, s->call->fn);
    kn_put(&g->out, vector ? "v(" : "(");
    for (int o = 0; o < g->p->calls[s->call->fn].intrin->noperands; o++) {
        if (o) kn_put(&g->out, ", ");
        if (!o && vector) {
            kn_put_register(g, s->call->buffer[0], s->call->at[0]);
            continue;
        }
        kn_put_buffer(g, s->call->buffer[o]);
        kn_put(&g->out, " + ");
        kn_put_index(g, s->call->at[o]);
    }
    kn_put(&g->out, ");");
}

/* The compute text comes from a hwspec: nothing in it may end the comment. */
static void put_comment(kn_buf *b, const char *s)
{
    for (; *s; s++) {
        kn_putn(b, s, 1);
        if (*s == '*' && s[1] == '/') kn_put(b, " ");
    }
}

static void put_native(kn_gen *g, const kn_native *n, const kn_emulated *f)
{
    kn_putf(&g->out, "\n#ifdef %s\n", n->macro);
    for (const char *c = n->text; *c; c++) {
        if (*c == '$') kn_put_buffer(g, f->param[*++c - '0']);
        else kn_putn(&g->out, c, 1);
    }
    kn_put(&g->out, "#else");
}

/* The function with its destination as a vector by value, which a compiler keeps in a register. */
static void put_by_value(kn_gen *g, int i)
{
    const kn_emulated *f = &g->p->calls[i];
    const kn_intrin_operand *d = &f->intrin->operand[0];
    kn_put(&g->out, "KN_FN ");
    kn_put_vector_type(g, kn_storage_type(d->dtype), (int)d->elems);
    kn_put(&g->out, " ");
    kn_put_call_name(g, i);
    kn_put(&g->out, "v(");
    kn_put_vector_type(g, kn_storage_type(d->dtype), (int)d->elems);
    kn_put(&g->out, " k_d");
    for (int o = 1; o < f->intrin->noperands; o++) {
        kn_putf(&g->out, ", const %s *restrict ", kn_storage_type(f->intrin->operand[o].dtype));
        kn_put_buffer(g, f->param[o]);
    }
    kn_put(&g->out, ")\n{\n    ");
    kn_put_call_name(g, i);
    kn_putf(&g->out, "((%s *)&k_d", kn_storage_type(d->dtype));
    for (int o = 1; o < f->intrin->noperands; o++) {
        kn_put(&g->out, ", ");
        kn_put_buffer(g, f->param[o]);
    }
    kn_put(&g->out, ");\n    return k_d;\n}\n");
}

bool kn_instructions_flush(const kn_lprog *p)
{
    for (int i = 0; i < p->ncalls; i++) {
        const kn_intrin *it = p->calls[i].intrin;
        bool halves = it->noperands > 1 && it->operand[1].dtype == KN_BF16;
        if (kn_is_float(it->operand[0].dtype) && (p->calls[i].unit || (halves && kn_native_of(it->spec)))) return true;
    }
    return false;
}

void kn_put_instructions(kn_gen *g)
{
    for (int i = 0; i < g->p->ncalls && g->status == KILN_OK; i++) {
        const kn_emulated *f = &g->p->calls[i];
        const kn_native *native = g->cuda ? NULL : kn_native_of(f->intrin->spec);
        kn_putf(&g->out, "\n/* %s%s: ", f->intrin->name, f->warp ? "" : native ? ", emulated where the compiler's target has it not" : ", emulated");
        put_comment(&g->out, f->intrin->spec->compute);
        kn_put(&g->out, " */\n");
        if (f->warp) {
            kn_put_warp_instruction(g, i);
            continue;
        }
        kn_put(&g->out, "KN_FN void ");
        kn_put_call_name(g, i);
        for (int o = 0; o < f->intrin->noperands; o++) {
            const char *type = kn_storage_type(f->intrin->operand[o].dtype);
            kn_putf(&g->out, "%s%s%s *%s ", o ? ", " : "(", o ? "const " : "", type, g->cuda ? "__restrict__" : "restrict");
            kn_put_buffer(g, f->param[o]);
        }
        kn_put(&g->out, ")\n{");
        if (native) put_native(g, native, f);
        g->depth = 1;
        kn_ls_ranges(g, f->body);
        kn_put_body(g, f->body);
        g->depth = 0;
        kn_put(&g->out, native ? "\n#endif\n}\n" : "\n}\n");
        if (f->vector) put_by_value(g, i);
    }
    kn_put_unit_texts(g);
}
