/* Plans of whole models: what becomes one kernel, and that running the steps with the arena gives what the nodes give one by one. */
#include "tests/arena.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "graph/plan.h"

static kiln_arena *arena;
static kiln_hw *hw;

static bool describe(const char *path)
{
    kiln_diag d = {0};
    static char json[65536];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(json, 1, sizeof json, f) : 0;
    if (f) fclose(f);
    return kiln_hw_parse(arena, (kiln_bytes){json, n}, &hw, &d) == KILN_OK;
}

static int set_up(void **state)
{
    (void)state;
    arena = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    return describe("hwspecs/x86-64-avx2.json") ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    kiln_arena_close(arena);
    arena = NULL;
    return 0;
}

/* json: with ' for quotation marks. */
static kiln_plan *plan_of(const char *json, kiln_graph **g)
{
    kiln_diag d = {0};
    kiln_plan *p;
    size_t n = strlen(json);
    char *text = malloc(n + 1);
    for (size_t i = 0; i <= n; i++) text[i] = json[i] == '\'' ? '"' : json[i];
    if (kiln_graph_json(arena, (kiln_bytes){text, n}, NULL, g, &d) != KILN_OK) fail_msg("%s\n%s: %s", json, d.pointer, d.message);
    if (kiln_graph_plan(arena, *g, hw, &p, &d) != KILN_OK) fail_msg("%s\n%s: %s", json, d.pointer, d.message);
    free(text); /* what the plan keeps of it lies in the arena */
    return p;
}

/* ---- values by the reference interpreter, node by node and step by step ---- */
typedef struct feed {
    const float *in[KILN_MAX_TENSORS];
} feed;

static double read_feed(void *user, int input, int64_t index) { return ((const feed *)user)->in[input][index]; }

static void evaluate(const kiln_program *p, feed *f, int output, float *to)
{
    kiln_ref *r;
    kiln_diag d = {0};
    kiln_arg out;
    double value, scale;
    kiln_program_output(p, output, &out);
    assert_int_equal(kiln_ref_open(arena, p, read_feed, f, &r, &d), KILN_OK);
    for (int64_t i = 0; i < out.elems; i++) {
        assert_int_equal(kiln_ref_at(r, output, i, &value, &scale), KILN_OK);
        to[i] = (float)value;
    }
}

/* Bytes that a graph only names by their digest: by the constant's name. */
static float named(const char *name, int64_t i)
{
    return (float)((int)((uint32_t)(i * 2654435761u + (uint32_t)name[0] * 40503u) >> 20 & 255) - 127) / 64;
}

static float *constant(const kn_value *v)
{
    float *p = calloc((size_t)kn_value_elems(v) + 1, sizeof *p);
    for (int64_t i = 0; i < kn_value_elems(v); i++) p[i] = v->data->bytes ? (float)kn_value_double(v, i) : named(v->name, i);
    return p;
}

/* values[v]: of every value of the graph; f32 only. */
static float **by_nodes(const kn_graph *g, float *const *inputs)
{
    float **values = calloc((size_t)g->nvalues, sizeof *values);
    for (int i = 0; i < g->ninputs; i++) values[g->inputs[i]] = inputs[i];
    for (int v = 0; v < g->nvalues; v++)
        if (g->values[v].data) values[v] = constant(&g->values[v]);
    for (int i = 0; i < g->nnodes; i++) {
        const kn_node *n = &g->nodes[i];
        kn_program *p;
        kiln_diag d = {0};
        feed f = {{0}};
        int x = 0, y = n->outputs[0];
        values[y] = calloc((size_t)kn_value_elems(&g->values[y]) + 1, sizeof **values);
        if (kn_node_is_view(n)) {
            memcpy(values[y], values[n->inputs[0]], (size_t)kn_value_elems(&g->values[y]) * sizeof **values);
            continue;
        }
        for (int k = 0; k < n->ninputs; k++)
            if (n->inputs[k] >= 0) f.in[x++] = values[n->inputs[k]];
        assert_int_equal(kn_node_program(arena, g, n, &p, &d), KILN_OK);
        evaluate(p, &f, 0, values[y]);
    }
    return values;
}

typedef struct memory {
    char *arena;
    float *const *feeds, **weights, **results;
} memory;

static float *at(const memory *m, const kiln_slot *s)
{
    char *base = s->place == KILN_ARENA    ? m->arena
                 : s->place == KILN_RESULT ? (char *)m->results[s->index]
                 : s->place == KILN_WEIGHT ? (char *)m->weights[s->index]
                                           : (char *)m->feeds[s->index];
    return (float *)(void *)(base + s->offset);
}

static void by_steps(const kiln_plan *p, const kiln_step *steps, int nsteps, const memory *m)
{
    for (int i = 0; i < nsteps; i++) {
        const kiln_step *s = &steps[i];
        float *made[KILN_MAX_TENSORS];
        feed f = {{0}};
        if (s->kernel < 0) {
            memcpy(at(m, &s->args[1]), at(m, &s->args[0]), (size_t)s->bytes);
            continue;
        }
        const kiln_program *q = p->kernels[s->kernel];
        int nin = kiln_program_inputs(q), nout = kiln_program_outputs(q);
        assert_int_equal(s->nargs, nin + nout);
        for (int k = 0; k < nin; k++) f.in[k] = at(m, &s->args[k]);
        for (int k = 0; k < nout; k++) { /* nothing is written before all is computed: outputs must not lie on inputs, which poison shows below */
            kiln_arg out;
            kiln_program_output(q, k, &out);
            made[k] = calloc((size_t)out.elems + 1, sizeof **made);
            evaluate(q, &f, k, made[k]);
        }
        for (int k = 0; k < nout; k++) {
            kiln_arg out;
            kiln_program_output(q, k, &out);
            char *to = (char *)at(m, &s->args[nin + k]);
            for (int j = 0; j < nin; j++) {
                kiln_arg in;
                kiln_program_input(q, j, &in);
                const char *from = (const char *)f.in[j];
                assert_true(to + out.bytes <= from || from + in.bytes <= to);
            }
            memcpy(to, made[k], (size_t)out.bytes);
            free(made[k]);
        }
    }
}

static float **arrays(int n, const kiln_arg *args, uint32_t *seed)
{
    float **all = calloc((size_t)n + 1, sizeof *all);
    for (int i = 0; i < n; i++) {
        all[i] = calloc((size_t)args[i].elems + 1, sizeof **all);
        for (int64_t k = 0; seed && k < args[i].elems; k++) all[i][k] = (float)((int)((*seed = *seed * 1664525 + 1013904223) >> 24) - 128) / 100;
    }
    return all;
}

static void free_all(float **all, int n)
{
    for (int i = 0; i < n; i++) free(all[i]);
    free(all);
}

/* The plan computes what the graph says. */
static void agree(const char *json, uint32_t seed)
{
    kiln_graph *g;
    kiln_plan *p = plan_of(json, &g);
    float **in = arrays(p->ninputs, p->inputs, &seed), **out = arrays(p->noutputs, p->outputs, NULL), **values = by_nodes(g, in);
    float **weights = calloc((size_t)p->nweights + 1, sizeof *weights);
    for (int i = 0; i < p->nweights; i++) {
        const kiln_weight *w = &p->weights[i];
        weights[i] = calloc((size_t)w->arg.elems + 1, sizeof **weights);
        for (int64_t k = 0; k < w->arg.elems; k++)
            if (w->once) weights[i][k] = NAN;
            else if (!w->data) weights[i][k] = named(w->arg.name, k);
            else memcpy(&weights[i][k], w->data + (w->splat ? 0 : 4 * k), 4);
    }
    memory m = {malloc((size_t)p->arena_bytes + 64), in, weights, out}, once = {malloc((size_t)p->once_bytes + 64), NULL, weights, NULL};
    memset(m.arena, 0xff, (size_t)p->arena_bytes + 64); /* NaN: what is read before it is written shows */
    memset(once.arena, 0xff, (size_t)p->once_bytes + 64);
    by_steps(p, p->once, p->nonce, &once);
    for (int i = 0; i < p->nweights; i++) { /* the reference reads what is packed as it is */
        const kiln_weight *w = &p->weights[i];
        if (w->of >= 0) memcpy(weights[i], weights[w->of], (size_t)w->arg.bytes);
    }
    by_steps(p, p->steps, p->nsteps, &m);
    for (int i = 0; i < p->noutputs; i++)
        for (int64_t k = 0; k < p->outputs[i].elems; k++) {
            float want = values[g->outputs[i]][k];
            if (!(fabsf(out[i][k] - want) <= 1e-4f * (1 + fabsf(want))))
                fail_msg("%s\noutput %d element %lld is %g, %g expected", json, i, (long long)k, (double)out[i][k], (double)want);
        }
    for (int v = 0; v < g->nvalues; v++)
        if (g->values[v].producer >= 0 || g->values[v].data) free(values[v]);
    free(values);
    free(m.arena);
    free(once.arena);
    free_all(in, p->ninputs);
    free_all(out, p->noutputs);
    free_all(weights, p->nweights);
}

/* ---- random graphs ---- */
#define DIGEST "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff" /* of bytes that the service does not have */
static uint32_t turn(uint32_t *seed, uint32_t n) { return ((*seed = *seed * 1664525 + 1013904223) >> 8) % n; }

/* Every value v0, v1 ... has the shape [N,8,4,4], N the batch, so that convolutions want their channels last; "a" and "b" are two
 * of those made so far. */
static const char *const forms[] = {
    "{'op':'Relu','inputs':['A'],'outputs':['Y']}",
    "{'op':'Sigmoid','inputs':['A'],'outputs':['Y']}",
    "{'op':'Add','inputs':['A','B'],'outputs':['Y']}",
    "{'op':'Mul','inputs':['A','half'],'outputs':['Y']}",
    "{'op':'Mul','inputs':['A','unit'],'outputs':['Y']}", /* folds to its operand while groups are joined */
    "{'op':'Sub','inputs':['A','zero'],'outputs':['Y']}",
    "{'op':'Add','inputs':['channel','A'],'outputs':['Y']}",
    "{'op':'Transpose','inputs':['A'],'outputs':['Y'],'attrs':{'perm':[0,1,3,2]}}",
    "{'op':'Softmax','inputs':['A'],'outputs':['Y'],'attrs':{'axis':3}}",
    "{'op':'MatMul','inputs':['A','B'],'outputs':['Yp']},{'op':'Tanh','inputs':['Yp'],'outputs':['Y']}",
    "{'op':'Conv','inputs':['A','w'],'outputs':['Yp'],'attrs':{'pads':[1,1,1,1]}},"
    "{'op':'BatchNormalization','inputs':['Yp','four','one','two','three'],'outputs':['Y']}",
    "{'op':'ReduceMean','inputs':['A','last'],'outputs':['Ym']},{'op':'Sub','inputs':['A','Ym'],'outputs':['Y']}",
    "{'op':'Reshape','inputs':['A','flat'],'outputs':['Yp']},{'op':'Relu','inputs':['Yp'],'outputs':['Yq']},"
    "{'op':'Reshape','inputs':['Yq','back'],'outputs':['Y']}",
    "{'op':'Reshape','inputs':['A','back'],'outputs':['Y']}",
    "{'op':'Reshape','inputs':['A','pairs'],'outputs':['Yp']},{'op':'Transpose','inputs':['Yp'],'outputs':['Yq'],'attrs':{'perm':[0,2,1,3,4]}},"
    "{'op':'Reshape','inputs':['Yq','back'],'outputs':['Y']}",
    "{'op':'MaxPool','inputs':['A'],'outputs':['Y'],'attrs':{'kernel_shape':[3,3],'pads':[1,1,1,1]}}",
    "{'op':'Conv','inputs':['A','w4','two'],'outputs':['Y'],'attrs':{'group':2}}",
    "{'op':'Conv','inputs':['A','w','four'],'outputs':['Y'],'attrs':{'pads':[1,1,1,1]}}",
    "{'op':'GlobalAveragePool','inputs':['A'],'outputs':['Yp']},{'op':'Mul','inputs':['A','Yp'],'outputs':['Y']}",
    "{'op':'Concat','inputs':['A','B'],'outputs':['Yp'],'attrs':{'axis':1}},"
    "{'op':'Conv','inputs':['Yp','w8'],'outputs':['Y']}",
    "{'op':'Concat','inputs':['A','B'],'outputs':['Yp'],'attrs':{'axis':1}},"
    "{'op':'Slice','inputs':['Yp','i2','i6','i1'],'outputs':['Y']}",
    "{'op':'Concat','inputs':['A','B'],'outputs':['Yp'],'attrs':{'axis':1}},{'op':'Concat','inputs':['B','Yp'],'outputs':['Yq'],'attrs':{'axis':-3}},"
    "{'op':'Sigmoid','inputs':['Yp'],'outputs':['Ym']},{'op':'Conv','inputs':['Ym','w8'],'outputs':['Yn']},"
    "{'op':'Slice','inputs':['Yq','i2','i6','i1'],'outputs':['Yr']},{'op':'Add','inputs':['Yn','Yr'],'outputs':['Y']}",
    "{'op':'ReduceMean','inputs':['D'],'outputs':['Ym'],'attrs':{'axes':[1,2,3]}},{'op':'Sub','inputs':['D','Ym'],'outputs':['Yw']},"
    "{'op':'Conv','inputs':['A','Yw'],'outputs':['Y'],'attrs':{'pads':[1,1,1,1]}}",
    "{'op':'Mul','inputs':['E','half'],'outputs':['Ym']},{'op':'MatMul','inputs':['A','Ym'],'outputs':['Y']}",
    "{'op':'Transpose','inputs':['E'],'outputs':['Yt'],'attrs':{'perm':[1,0]}},{'op':'MatMul','inputs':['A','Yt'],'outputs':['Y']}",
    "{'op':'Tanh','inputs':['E'],'outputs':['Ym']},{'op':'MatMul','inputs':['Ym','E'],'outputs':['Yn']},"
    "{'op':'Add','inputs':['A','Yn'],'outputs':['Y']}",
    "{'op':'Exp','inputs':['E'],'outputs':['Ym']},{'op':'Expand','inputs':['Ym','back'],'outputs':['Y']}",
    "{'op':'Exp','inputs':['E'],'outputs':['Ym']},{'op':'Expand','inputs':['Ym','back'],'outputs':['Yn']},"
    "{'op':'Mul','inputs':['A','Yn'],'outputs':['Y']}",
};

/* Writes a form with its names put in. */
static size_t put_form(char *to, const char *form, int a, int b, int y)
{
    size_t n = 0;
    for (const char *p = form; *p; p++) {
        bool name = p > form && p[-1] == '\'' && (*p == 'A' || *p == 'B' || *p == 'Y') && (p[1] == '\'' || (*p == 'Y' && p[2] == '\''));
        if (name) n += (size_t)sprintf(to + n, "v%d", *p == 'A' ? a : *p == 'B' ? b : y);
        else to[n++] = *p;
    }
    to[n] = 0;
    return n;
}

static void random_graph(char *to, uint32_t seed, int batch)
{
    int nodes = 3 + (int)turn(&seed, 10), outputs = 1 + (int)turn(&seed, 3);
    size_t n = (size_t)sprintf(
        to, "{'graph':{'inputs':[{'name':'v0','dtype':'f32','shape':[%d,8,4,4]},{'name':'v1','dtype':'f32','shape':[%d,8,4,4]}],"
            "'constants':[{'name':'half','dtype':'f32','shape':[],'fill':0.5},{'name':'unit','dtype':'f32','shape':[1],'fill':1},"
            "{'name':'zero','dtype':'f32','shape':[1],'fill':0},"
            "{'name':'channel','dtype':'f32','shape':[8,1,1],'values':[0.5,-0.25,1,0,2,-1,0.125,3]},"
            "{'name':'w','dtype':'f32','shape':[8,8,3,3],'fill':0.0625},{'name':'w8','dtype':'f32','shape':[8,16,1,1],'fill':0.125},"
            "{'name':'one','dtype':'f32','shape':[8],'values':[1,2,3,4,5,6,7,8]},{'name':'two','dtype':'f32','shape':[8],'fill':0.5},"
            "{'name':'three','dtype':'f32','shape':[8],'fill':2},{'name':'four','dtype':'f32','shape':[8],'values':[1,0.5,-1,2,-2,0.25,1.5,3]},"
            "{'name':'last','dtype':'i64','shape':[1],'values':[-1]},{'name':'flat','dtype':'i64','shape':[2],'values':[%d,32]},"
            "{'name':'D','dtype':'f32','shape':[8,8,3,3],'sha256':'" DIGEST "'},{'name':'E','dtype':'f32','shape':[4,4],'sha256':'" DIGEST "'},"
            "{'name':'back','dtype':'i64','shape':[4],'values':[%d,8,4,4]},{'name':'pairs','dtype':'i64','shape':[5],'values':[%d,2,4,4,4]},"
            "{'name':'w4','dtype':'f32','shape':[8,4,1,1],'fill':0.25},{'name':'i2','dtype':'i64','shape':[1],'values':[2]},"
            "{'name':'i6','dtype':'i64','shape':[1],'values':[10]},{'name':'i1','dtype':'i64','shape':[1],'values':[1]}],'nodes':[",
        batch, batch, 4 * batch, batch, batch);
    for (int i = 0; i < nodes; i++) {
        int made = i + 2, a = (int)turn(&seed, 3) ? made - 1 : (int)turn(&seed, (uint32_t)made), b = (int)turn(&seed, (uint32_t)made);
        if (i) to[n++] = ',';
        n += put_form(to + n, forms[turn(&seed, sizeof forms / sizeof *forms)], a, b, made);
    }
    n += (size_t)sprintf(to + n, "],'outputs':['v%d'", nodes + 1);
    for (int i = 1; i < outputs; i++) n += (size_t)sprintf(to + n, ",'v%d'", (int)turn(&seed, (uint32_t)nodes + 1));
    sprintf(to + n, "]}}");
}

static void steps_give_what_nodes_give(void **state)
{
    (void)state;
    static char json[16384];
    for (uint32_t seed = 1; seed <= 150; seed++) {
        random_graph(json, seed * 2654435761u, 1);
        agree(json, seed);
        tear_down(NULL);
        assert_int_equal(set_up(NULL), 0);
    }
}

/* What DequantizeLinear gives is multiplied as bytes where the target can, with the same results; where it cannot, or a zero point is not known, in
 * floats. */
static void bytes_are_multiplied(void **state)
{
    (void)state;
    static const char head[] =
        "{'graph':{'inputs':[{'name':'x','dtype':'f32','shape':[1,4,6,4]},{'name':'u','dtype':'f32','shape':[5,32]}],'constants':["
        "{'name':'s','dtype':'f32','shape':[],'fill':0.0625},{'name':'p','dtype':'u8','shape':[],'fill':120},"
        "{'name':'sw','dtype':'f32','shape':[2],'values':[0.5,0.25]},{'name':'sm','dtype':'f32','shape':[4],'values':[1,0.5,0.125,2]},"
        "{'name':'b','dtype':'f32','shape':[2],'values':[0.5,-1]},{'name':'w','dtype':'i8','shape':[2,4,3,3],'values':["
        "-67,24,12,-94,-33,107,27,-6,33,21,-111,28,-124,105,87,-7,-61,14,-68,-78,127,56,-7,11,87,13,-6,-26,"
        "36,93,-89,-68,35,-89,95,110,6,-28,62,-124,44,71,-111,-87,67,118,24,-117,-50,72,-120,83,94,-59,-6,25,"
        "57,108,97,-28,55,74,108,-18,-26,59,78,20,-14,119,112,-93"
        "]},{'name':'m','dtype':'i8','shape':[32,4],'values':["
        "97,-34,-103,-118,-93,-1,-72,-61,120,45,-16,72,33,91,-50,-20,2,86,-29,19,-38,9,22,-23,22,-68,104,-41,"
        "47,107,110,-120,92,-56,126,28,44,51,-86,51,93,-44,119,11,104,19,18,-101,55,40,-73,35,85,125,19,-59,"
        "-55,-96,-111,-4,91,36,126,-4,-105,-39,77,-110,-22,102,-89,-122,-52,-18,69,-21,96,-97,-116,27,30,67,-116,-31,"
        "56,23,-43,14,98,109,124,-56,2,-67,-118,-48,-126,-108,-100,26,10,-119,115,-77,121,-23,-53,29,-60,-88,49,-117,"
        "123,95,-41,-47,-35,118,-92,102,93,-31,-31,-10,95,6,-29,37"
        "]}],'nodes':[{'op':'QuantizeLinear','inputs':['x','s','p'],'outputs':['q']},"
        "{'op':'DequantizeLinear','inputs':['q','s','p'],'outputs':['d']},"
        "{'op':'DequantizeLinear','inputs':['w','sw'],'outputs':['dw'],'attrs':{'axis':0}},"
        "{'op':'Conv','inputs':['d','dw','b'],'outputs':['y'],'attrs':{'pads':[1,1,1,1]}},"
        "{'op':'QuantizeLinear','inputs':['u','s','p'],'outputs':['r']},{'op':'DequantizeLinear','inputs':['r','s','p'],'outputs':['e']},"
        "{'op':'DequantizeLinear','inputs':['m','sm'],'outputs':['dm'],'attrs':{'axis':1}},"
        "{'op':'MatMul','inputs':['e','dm'],'outputs':['z']}],'outputs':['y','z']}}";
    static char json[sizeof head];
    for (size_t i = 0; i < sizeof head; i++) json[i] = head[i] == '\'' ? '"' : head[i];
    kiln_graph *g[2];
    kiln_diag d = {0};
    uint32_t seed = 11;
    float **in = NULL, **values[2];
    for (int k = 0; k < 2; k++) {
        kiln_graph_options o = {.bytes = k};
        if (kiln_graph_json(arena, (kiln_bytes){json, sizeof json - 1}, &o, &g[k], &d) != KILN_OK) fail_msg("%s: %s", d.pointer, d.message);
        kiln_plan *p;
        assert_int_equal(kiln_graph_plan(arena, g[k], hw, &p, &d), KILN_OK);
        if (!in) in = arrays(p->ninputs, p->inputs, &seed);
        values[k] = by_nodes(g[k], in);
        int integer = 0;
        for (int i = 0; i < g[k]->nnodes; i++) integer += strstr(g[k]->nodes[i].op, "Integer") != NULL;
        assert_int_equal(integer, k ? 2 : 0);
    }
    for (int i = 0; i < 2; i++)
        for (int64_t e = 0; e < kn_value_elems(&g[0]->values[g[0]->outputs[i]]); e++) {
            float want = values[0][g[0]->outputs[i]][e], got = values[1][g[1]->outputs[i]][e];
            if (!(fabsf(want - got) <= 1e-5f * (1 + fabsf(want))))
                fail_msg("output %d element %lld is %g, not %g", i, (long long)e, (double)got, (double)want);
        }
    for (int k = 0; k < 2; k++) {
        for (int v = 0; v < g[k]->nvalues; v++)
            if (g[k]->values[v].producer >= 0 || g[k]->values[v].data) free(values[k][v]);
        free(values[k]);
    }
    free_all(in, 2);
}

/* Caches for a sample and no memory behind them: whatever can be cut is. */
static void make_memory_dear(void)
{
    for (int i = 0; i < hw->nlevels; i++) {
        hw->levels[i].bandwidth_gbs = i ? 1000 : 1e-6;
        hw->levels[i].capacity_bytes = i ? 512 : hw->levels[i].capacity_bytes;
    }
    hw->launch_us = 0;
}

static void parts_of_a_batch_give_what_the_whole_gives(void **state)
{
    (void)state;
    static char json[16384];
    kiln_graph *g;
    int cut = 0;
    for (uint32_t seed = 1; seed <= 150; seed++) {
        random_graph(json, seed * 2246822519u, 4);
        int whole = plan_of(json, &g)->nsteps;
        make_memory_dear();
        cut += plan_of(json, &g)->nsteps > whole;
        agree(json, seed);
        tear_down(NULL);
        assert_int_equal(set_up(NULL), 0);
    }
    assert_in_range(cut, 75, 150);
}

/* Samples of 700 bytes begin anywhere in a line; parts of them are read and written where they lie. */
static void parts_need_no_alignment(void **state)
{
    (void)state;
    kiln_graph *g;
    static const char *const json =
        "{'graph':{'inputs':[{'name':'x','dtype':'f32','shape':[6,25,7]},{'name':'m','dtype':'f32','shape':[6,1,7]}],'constants':["
        "{'name':'w','dtype':'f32','shape':[7,7],'fill':0.5}],'nodes':[{'op':'MatMul','inputs':['x','w'],'outputs':['a']},"
        "{'op':'Softmax','inputs':['a'],'outputs':['b']},{'op':'Mul','inputs':['b','m'],'outputs':['c']},"
        "{'op':'MatMul','inputs':['c','w'],'outputs':['y']}],'outputs':['y','b']}}";
    make_memory_dear();
    kiln_plan *p = plan_of(json, &g);
    assert_true(p->nsteps >= 9);
    for (int i = 0; i < p->nsteps; i++) assert_true(p->steps[i].kernel >= 0);
    agree(json, 7);
}

/* Large maps of few channels are done sample by sample, the product with weights that no cache holds for all samples at once. */
static void a_batch_is_cut_where_its_maps_outweigh_its_weights(void **state)
{
    (void)state;
    kiln_graph *g;
    static const char *const json =
        "{'graph':{'inputs':[{'name':'x','dtype':'f32','shape':[8,16,128,128]}],'constants':["
        "{'name':'w','dtype':'f32','shape':[16,16,1,1],'fill':0.5},{'name':'v','dtype':'f32','shape':[16384,1024],'sha256':'" DIGEST "'},"
        "{'name':'n','dtype':'i64','shape':[2],'values':[8,16384]}],'nodes':["
        "{'op':'Conv','inputs':['x','w'],'outputs':['a']},{'op':'Conv','inputs':['a','w'],'outputs':['b']},"
        "{'op':'Conv','inputs':['b','w'],'outputs':['c']},"
        "{'op':'MaxPool','inputs':['c'],'outputs':['d'],'attrs':{'kernel_shape':[4,4],'strides':[4,4]}},"
        "{'op':'Reshape','inputs':['d','n'],'outputs':['e']},{'op':'MatMul','inputs':['e','v'],'outputs':['y']}],'outputs':['y']}}";
    kiln_plan *p = plan_of(json, &g);
    int products = 0, convolutions = 0;
    for (int i = 0; i < p->nsteps; i++) {
        products += !strncmp(p->steps[i].nodes, "MatMul", 6);
        convolutions += !strncmp(p->steps[i].nodes, "Conv", 4);
        if (i) assert_true(p->steps[i].kernel >= 0); /* nothing is copied */
    }
    assert_int_equal(products, 1);
    assert_true(convolutions > 3 && convolutions % 3 == 0);
    assert_in_range(p->nkernels, 2, 5); /* all parts have the same */
}

static kn_program *program_of(const char *text, const char *inputs)
{
    kn_program *p;
    kiln_diag d = {0};
    kiln_status s = kn_parse(arena, (kiln_bytes){text, strlen(text)}, (kiln_bytes){inputs, strlen(inputs)}, &p, &d);
    if (s != KILN_OK) fail_msg("%s: %s", text, d.message);
    return p;
}

static void rows_are_told_apart_by_their_expression(void **state)
{
    (void)state;
    static const struct { const char *text, *inputs; bool apart; } cases[] = {
        {"y[N,M] +=! x[N,K] * w[K,M]", "x=f32:4x8&w=f32:8x8", true},
        {"y[N,M] +=! x[N,K] * w[N,K,M]", "x=f32:4x8&w=f32:4x8x8", false},    /* a weight of every sample's own */
        {"y[N,M] = w[x[N,M]]", "x=i64:4x8&w=f32:16", true},                  /* a table looked up by the samples */
        {"y[N,M] = x[N,M] * N.cast(`f32`)", "x=f32:4x8&w=f32:8", false},     /* the sample's number counts */
        {"y[M,N] = x[N,M]", "x=f32:4x8&w=f32:8", false},                     /* turned */
        {"y[N,M] = x[3-N,M] where N in 4", "x=f32:4x8&w=f32:8", false},
        {"y[M] +=! x[N,M]", "x=f32:4x8&w=f32:8", false},
        {"t[N] >=! x[N,M]; y[N,M] = x[N,M] - t[N]", "x=f32:4x8&w=f32:8", true},
        {"t[M] >=! x[N,M]; y[N,M] = x[N,M] - t[M]", "x=f32:4x8&w=f32:8", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool rows[KILN_MAX_TENSORS] = {true};
        if (kn_rows_apart(program_of(cases[i].text, cases[i].inputs), rows) != cases[i].apart) fail_msg("%s", cases[i].text);
    }
}

static void the_same_graph_the_same_plan(void **state)
{
    (void)state;
    static char json[16384];
    kiln_graph *g;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        random_graph(json, seed * 40503u, 1 + (int)seed % 3);
        kiln_plan *p = plan_of(json, &g), *q = plan_of(json, &g);
        assert_int_equal(p->manifest.n, q->manifest.n);
        assert_memory_equal(p->manifest.p, q->manifest.p, p->manifest.n);
        assert_memory_equal(p->source.p, q->source.p, p->source.n);
        assert_string_equal(p->entry, q->entry);
    }
}

/* ---- what becomes one kernel ---- */
#define X2(name) "{'name':'" name "','dtype':'f32','shape':[64,64]}"

static void expect_steps(const char *json, int n, const char *const *nodes)
{
    kiln_graph *g;
    kiln_plan *p = plan_of(json, &g);
    for (int i = 0; i < p->nsteps && i < n; i++)
        if (strcmp(p->steps[i].nodes, nodes[i])) fail_msg("step %d does %s; %s expected", i + 1, p->steps[i].nodes, nodes[i]);
    assert_int_equal(p->nsteps, n);
}

static void epilogues_join(void **state)
{
    (void)state;
    expect_steps("{'graph':{'inputs':[" X2("a") "," X2("b") "," X2("c") "],'nodes':["
                 "{'op':'MatMul','inputs':['a','b'],'outputs':['t']},{'op':'Add','inputs':['t','c'],'outputs':['u']},"
                 "{'op':'Relu','inputs':['u'],'outputs':['y']}],'outputs':['y']}}",
                 1, (const char *const[]){"MatMul, Add, Relu"});
}

static void products_stay_apart(void **state)
{
    (void)state;
    expect_steps("{'graph':{'inputs':[" X2("a") "," X2("b") "],'nodes':["
                 "{'op':'MatMul','inputs':['a','b'],'outputs':['t']},{'op':'Relu','inputs':['t'],'outputs':['u']},"
                 "{'op':'MatMul','inputs':['u','b'],'outputs':['y']}],'outputs':['y']}}",
                 2, (const char *const[]){"MatMul, Relu", "MatMul"});
}

/* A product that somebody else reads is written; what follows it is a kernel of its own. */
static void a_product_read_twice_is_written(void **state)
{
    (void)state;
    expect_steps("{'graph':{'inputs':[" X2("a") "," X2("b") "],'nodes':["
                 "{'op':'MatMul','inputs':['a','b'],'outputs':['t']},{'op':'Relu','inputs':['t'],'outputs':['u']}"
                 "],'outputs':['u','t']}}",
                 2, (const char *const[]){"MatMul", "Relu"});
}

/* Joining the sum with the first relu would make the product need itself. */
static void no_cycles(void **state)
{
    (void)state;
    expect_steps("{'graph':{'inputs':[" X2("a") "," X2("b") "],'nodes':["
                 "{'op':'Relu','inputs':['a'],'outputs':['r']},{'op':'MatMul','inputs':['r','b'],'outputs':['t']},"
                 "{'op':'Add','inputs':['r','t'],'outputs':['y']}],'outputs':['y']}}",
                 2, (const char *const[]){"Relu", "MatMul, Add"});
}

static void reductions_take_what_precedes_them(void **state)
{
    (void)state;
    expect_steps("{'graph':{'inputs':[" X2("a") "," X2("b") "],'constants':[{'name':'s','dtype':'f32','shape':[],'fill':0.125}],'nodes':["
                 "{'op':'Mul','inputs':['a','s'],'outputs':['t']},{'op':'Add','inputs':['t','b'],'outputs':['u']},"
                 "{'op':'Softmax','inputs':['u'],'outputs':['y']}],'outputs':['y']}}",
                 1, (const char *const[]){"Mul, Add, Softmax"});
}

/* 1 MiB is read 64 times over; computing erf each time anew costs more than moving it once, at peak. */
static void what_would_be_computed_again_too_often_is_not_joined(void **state)
{
    (void)state;
    expect_steps("{'graph':{'inputs':[{'name':'a','dtype':'f32','shape':[1,512,512]}],'constants':["
                 "{'name':'n','dtype':'i64','shape':[3],'values':[4096,512,512]}],'nodes':["
                 "{'op':'Gelu','inputs':['a'],'outputs':['t']},{'op':'Gelu','inputs':['t'],'outputs':['u']},"
                 "{'op':'Expand','inputs':['u','n'],'outputs':['y']}],'outputs':['y']}}",
                 2, (const char *const[]){"Gelu, Gelu", "Expand"});
}

/* Four layers of one shape: one kernel, and an arena of two of the three values between them. */
static void kernels_and_memory_are_shared(void **state)
{
    (void)state;
    kiln_graph *g;
    kiln_plan *p = plan_of("{'graph':{'inputs':[" X2("x") "," X2("w") "],'nodes':["
                           "{'op':'MatMul','inputs':['x','w'],'outputs':['a']},{'op':'MatMul','inputs':['a','w'],'outputs':['b']},"
                           "{'op':'MatMul','inputs':['b','w'],'outputs':['c']},{'op':'MatMul','inputs':['c','w'],'outputs':['y']}],"
                           "'outputs':['y']}}",
                           &g);
    assert_int_equal(p->nsteps, 4);
    assert_int_equal(p->nkernels, 1);
    assert_int_equal(p->arena_bytes, 2 * 64 * 64 * 4);
    assert_int_equal(p->steps[3].args[2].place, KILN_RESULT);
}

static void outputs_that_are_inputs_are_copied(void **state)
{
    (void)state;
    kiln_graph *g;
    const char *json = "{'graph':{'inputs':[" X2("x") "],'constants':[{'name':'s','dtype':'i64','shape':[1],'values':[4096]}],'nodes':["
                       "{'op':'Reshape','inputs':['x','s'],'outputs':['y']}],'outputs':['y','x']}}";
    kiln_plan *p = plan_of(json, &g);
    assert_int_equal(p->nsteps, 2);
    assert_int_equal(p->nkernels, 0);
    assert_int_equal(p->steps[0].kernel, -1);
    agree(json, 5);
}

/* Between convolutions channels are last; what others see lies as they said; a view of one long dimension passes the order on. */
static void channels_are_last_between_convolutions(void **state)
{
    (void)state;
    kiln_graph *g;
    kiln_arg x;
    kiln_plan *p = plan_of(
        "{'graph':{'inputs':[{'name':'x','dtype':'f32','shape':[1,3,6,6]}],'constants':[{'name':'w','dtype':'f32','shape':[16,3,3,3],'fill':0.5},"
        "{'name':'w1','dtype':'f32','shape':[16,16,1,1],'fill':0.25},{'name':'flat','dtype':'i64','shape':[2],'values':[1,16]}],'nodes':["
        "{'op':'Conv','inputs':['x','w'],'outputs':['a']},{'op':'Relu','inputs':['a'],'outputs':['b']},"
        "{'op':'Conv','inputs':['b','w1'],'outputs':['c']},{'op':'GlobalAveragePool','inputs':['c'],'outputs':['m']},"
        "{'op':'Reshape','inputs':['m','flat'],'outputs':['y']}],'outputs':['y','c']}}", &g);
    bool constant = false;
    kiln_program_output(p->kernels[p->steps[0].kernel], 0, &x);
    assert_true(x.rank == 4 && x.shape[1] == 4 && x.shape[3] == 16);
    for (int i = 0; i < p->nweights; i++) constant |= p->weights[i].of >= 0;
    assert_true(constant);
    assert_true(p->outputs[1].shape[1] == 16 && p->outputs[1].shape[3] == 4);
}

/* What maps and further concatenations alone read of copied channels is chosen from its parts: no kernel writes it beside its own result. */
static void concatenations_that_maps_read_are_not_written(void **state)
{
#define LAYER(i, j) "{'op':'Sigmoid','inputs':['c" #i "'],'outputs':['s" #i "']},{'op':'Conv','inputs':['s" #i "','w" #i "'],'outputs':['y" #i "']," \
                    "'attrs':{'pads':[1,1,1,1]}},{'op':'Concat','inputs':['c" #i "','y" #i "'],'outputs':['c" #j "'],'attrs':{'axis':1}},"
    static const char json[] = "{'graph':{'inputs':[{'name':'x','dtype':'f32','shape':[1,32,12,12]}],'constants':[{'name':'w0','dtype':'f32',"
        "'shape':[32,32,3,3],'fill':1},{'name':'w1','dtype':'f32','shape':[32,64,3,3],'fill':1}],'nodes':[{'op':'Conv','inputs':['x','w0'],"
        "'outputs':['c0']}," LAYER(0, 1) LAYER(1, 2) "{'op':'Sigmoid','inputs':['c2'],'outputs':['y']}],'outputs':['y']}}";
    (void)state;
    kiln_graph *g;
    kiln_plan *p = plan_of(json, &g);
    for (int i = 0; i < p->nkernels; i++) assert_int_equal(kiln_program_outputs(p->kernels[i]), 1);
}

/* So they are where bytes are multiplied as such; lanes that multiply floats gain nothing from it there. */
static void channels_of_bytes_are_last_where_bytes_are_multiplied(void **state)
{
    static const char *const of[] = {"hwspecs/x86-64-avx512.json", "hwspecs/x86-64-vnni.json"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        kiln_graph *g;
        kiln_arg x;
        assert_true(describe(of[i]));
        kiln_plan *p = plan_of(
            "{'graph':{'inputs':[{'name':'x','dtype':'u8','shape':[1,16,6,6]}],'constants':[{'name':'w','dtype':'i8','shape':[32,16,3,3],'fill':3}],"
            "'nodes':[{'op':'ConvInteger','inputs':['x','w'],'outputs':['a']},{'op':'Cast','inputs':['a'],'outputs':['b'],'attrs':{'to':1}},"
            "{'op':'GlobalAveragePool','inputs':['b'],'outputs':['y']}],'outputs':['y']}}", &g);
        kiln_program_output(p->kernels[p->steps[0].kernel], 0, &x);
        assert_int_equal(x.shape[3], i ? 32 : 4);
    }
}

/* A node that nobody can compile, in the middle, is a call; what it gives has no shape here, so that its reader is one, too. What does not depend on
 * it is compiled; its inputs are the plan's own values. */
static void what_cannot_be_compiled_is_left(void **state)
{
    (void)state;
    static const char json[] =
        "{\"graph\":{\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[4,4]}],\"nodes\":["
        "{\"op\":\"Exp\",\"inputs\":[\"x\"],\"outputs\":[\"a\"]},"
        "{\"op\":\"Odd\",\"domain\":\"d\",\"inputs\":[\"a\",\"x\"],\"outputs\":[\"b\",\"b2\"]},"
        "{\"op\":\"Tanh\",\"inputs\":[\"b\"],\"outputs\":[\"y\"]},"
        "{\"op\":\"Softmax\",\"inputs\":[\"a\"],\"outputs\":[\"z\"]}],\"outputs\":[\"y\",\"z\"]}}";
    kiln_graph_options o = {.partial = true};
    kiln_diag d = {0};
    kiln_graph *g;
    kiln_plan *p;
    kiln_bytes text;
    assert_int_equal(kiln_graph_json(arena, (kiln_bytes){json, sizeof json - 1}, NULL, &g, &d), KILN_UNKNOWN_OP);
    assert_int_equal(kiln_graph_json(arena, (kiln_bytes){json, sizeof json - 1}, &o, &g, &d), KILN_OK);
    assert_int_equal(kiln_graph_plan(arena, g, hw, &p, &d), KILN_OK);
    assert_int_equal(p->ncalls, 2);
    assert_string_equal(p->calls[0].op, "Odd");
    assert_string_equal(p->calls[0].place, "/graph/nodes/1");
    assert_true(p->calls[0].nin == 2 && p->calls[0].nout == 2 && p->calls[0].values[2].held && !p->calls[0].values[0].held);
    assert_string_equal(p->calls[0].values[0].arg.name, "a");
    assert_string_equal(p->calls[1].op, "Tanh");
    assert_true(p->held[0] && !p->held[1] && p->nkernels >= 1);
    int made = -1, taken = -1;
    for (int i = 0; i < p->nsteps; i++) {
        if (p->steps[i].kernel == -2) made = i;
        if (p->steps[i].kernel == -3) taken = i;
    }
    assert_true(made > 0 && taken > made);
    assert_non_null(strstr(p->manifest.p, "\"calls\":[{\"node\":\"/graph/nodes/1\",\"op\":\"Odd\",\"domain\":\"d\""));
    assert_int_equal(kiln_graph_text(arena, g, &text), KILN_OK);
    assert_non_null(strstr(text.p, "left to the caller: Odd("));
}

static const char standardised[] =
    "{'graph':{'inputs':[{'name':'x','dtype':'f32','shape':[1,8,6,6]},{'name':'z','dtype':'f32','shape':[8,8]}],'constants':["
    "{'name':'w','dtype':'f32','shape':[8,8,3,3],'sha256':'" DIGEST "'},{'name':'q','dtype':'f32','shape':[8,8],'sha256':'" DIGEST "'},"
    "{'name':'s','dtype':'f32','shape':[8,1,1,1],'fill':0.5}],'nodes':["
    "{'op':'ReduceMean','inputs':['w'],'outputs':['m'],'attrs':{'axes':[1,2,3]}},{'op':'Sub','inputs':['w','m'],'outputs':['c']},"
    "{'op':'Mul','inputs':['c','s'],'outputs':['v']},{'op':'Conv','inputs':['x','v'],'outputs':['y']},"
    "{'op':'Transpose','inputs':['q'],'outputs':['t'],'attrs':{'perm':[1,0]}},{'op':'MatMul','inputs':['z','t'],'outputs':['p']},"
    "{'op':'Exp','inputs':['q'],'outputs':['e']}],'outputs':['y','p','e']}}";

/* Weights are made of constants when the model is loaded, and are constants for what reads them; a turn that packing does anyway is left to it. */
static void what_depends_on_constants_runs_once(void **state)
{
    (void)state;
    kiln_graph *g;
    kiln_plan *p = plan_of(standardised, &g);
    int made = 0, packed = 0;
    assert_int_equal(p->nsteps, 4); /* convolution, its result as declared, product with its transpose, a copy of e */
    assert_int_equal(p->steps[p->nsteps - 1].kernel, -1);
    assert_true(p->nonce >= 2);
    for (int i = 0; i < p->nweights; i++) {
        made += p->weights[i].once;
        packed += p->weights[i].of >= 0 && p->weights[p->weights[i].of].once;
        assert_true(!p->weights[i].once || p->weights[i].offset < 0);
    }
    assert_int_equal(made, 2);
    assert_int_equal(packed, 1);
    for (int i = 0; i < p->nonce; i++) {
        const kiln_slot *to = &p->once[i].args[p->once[i].nargs - 1];
        assert_true(to->place == KILN_ARENA ? to->offset < p->once_bytes : to->place == KILN_WEIGHT && p->weights[to->index].once);
    }
    assert_non_null(strstr(p->manifest.p, "\"once\":{\"arena\""));
    assert_non_null(strstr(p->source.p, "_once(const call *c)"));
    agree(standardised, 7);
}

/* A scatter into a constant is done as a scatter: as a tensor expression it would compare 2^24 times, which is more than is spent on constants. */
static void constants_are_scattered(void **state)
{
    (void)state;
    enum { N = 4096 };
    kiln_graph *g;
    char *json = malloc(64 * N);
    int n = sprintf(json, "{'graph':{'inputs':[{'name':'x','dtype':'f32','shape':[%d]}],'constants':[", N);
    n += sprintf(json + n, "{'name':'z','dtype':'f32','shape':[%d],'fill':-1},", N);
    n += sprintf(json + n, "{'name':'i','dtype':'i64','shape':[%d,1],'values':[", N);
    for (int i = 0; i < N; i++) n += sprintf(json + n, "%s%d", i ? "," : "", i == 7 ? -1 : i == 9 ? 0 : i); /* from behind; one twice */
    n += sprintf(json + n, "]},{'name':'u','dtype':'f32','shape':[%d],'values':[", N);
    for (int i = 0; i < N; i++) n += sprintf(json + n, "%s%d", i ? "," : "", i);
    sprintf(json + n, "]}],'nodes':[{'op':'ScatterND','inputs':['z','i','u'],'outputs':['s']},{'op':'Add','inputs':['x','s'],'outputs':['y']}],"
                      "'outputs':['y']}}");
    kiln_plan *p = plan_of(json, &g);
    const float *w = NULL;
    for (int i = 0; i < p->nweights; i++)
        if (p->weights[i].arg.elems == N && !p->weights[i].splat) w = (const float *)(const void *)p->weights[i].data;
    assert_true(p->nsteps == 1 && p->nonce == 0 && w);
    for (int i = 0; i < N; i++) assert_true(w[i] == (float)(i == 0 ? 9 : i == 7 || i == 9 ? -1 : i));
    free(json);
}

/* ONNX's own example (Resize, downsample by 0.6, linear, antialias). */
static void shrinking_smoothly_takes_wider_kernels(void **state)
{
    (void)state;
    static const float want[] = {2.875f, 4.5f, 9.375f, 11};
    float x[16], *inputs[] = {x};
    kiln_graph *g;
    plan_of("{'graph':{'inputs':[{'name':'x','dtype':'f32','shape':[1,1,4,4]}],"
            "'constants':[{'name':'s','dtype':'f32','shape':[4],'values':[1,1,0.6,0.6]}],"
            "'nodes':[{'op':'Resize','inputs':['x','','s'],'outputs':['y'],'attrs':{'mode':'linear','antialias':1}}],'outputs':['y']}}", &g);
    for (int i = 0; i < 16; i++) x[i] = (float)(i + 1);
    float **values = by_nodes(g, inputs);
    assert_int_equal(kn_value_elems(&g->values[g->outputs[0]]), 4);
    for (int i = 0; i < 4; i++) assert_true(fabsf(values[g->outputs[0]][i] - want[i]) < 1e-4f);
    for (int v = 0; v < g->nvalues; v++)
        if (g->values[v].producer >= 0 || g->values[v].data) free(values[v]);
    free(values);
}

/* What only spreads constants for a map, or is looked up, is no work that pays to keep. */
static void what_makes_much_of_little_stays_with_its_reader(void **state)
{
    (void)state;
    kiln_graph *g;
    kiln_plan *p = plan_of("{'graph':{'inputs':[{'name':'x','dtype':'f32','shape':[64,8,8]}],'constants':["
                           "{'name':'q','dtype':'f32','shape':[8,8],'sha256':'" DIGEST "'},"
                           "{'name':'n','dtype':'i64','shape':[3],'values':[64,8,8]}],'nodes':["
                           "{'op':'Expand','inputs':['q','n'],'outputs':['e']},{'op':'Add','inputs':['x','e'],'outputs':['y']}],"
                           "'outputs':['y']}}", &g);
    assert_int_equal(p->nonce, 0);
    assert_int_equal(p->nsteps, 1);
    assert_null(strstr(p->manifest.p, "once"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_compiled_is_left),
        cmocka_unit_test(what_depends_on_constants_runs_once),
        cmocka_unit_test(what_makes_much_of_little_stays_with_its_reader),
        cmocka_unit_test(constants_are_scattered),
        cmocka_unit_test(shrinking_smoothly_takes_wider_kernels),
        cmocka_unit_test(epilogues_join),
        cmocka_unit_test(products_stay_apart),
        cmocka_unit_test(a_product_read_twice_is_written),
        cmocka_unit_test(no_cycles),
        cmocka_unit_test(reductions_take_what_precedes_them),
        cmocka_unit_test(what_would_be_computed_again_too_often_is_not_joined),
        cmocka_unit_test(kernels_and_memory_are_shared),
        cmocka_unit_test(outputs_that_are_inputs_are_copied),
        cmocka_unit_test(channels_are_last_between_convolutions),
        cmocka_unit_test(concatenations_that_maps_read_are_not_written),
        cmocka_unit_test(channels_of_bytes_are_last_where_bytes_are_multiplied),
        cmocka_unit_test(the_same_graph_the_same_plan),
        cmocka_unit_test(rows_are_told_apart_by_their_expression),
        cmocka_unit_test(bytes_are_multiplied),
        cmocka_unit_test(a_batch_is_cut_where_its_maps_outweigh_its_weights),
        cmocka_unit_test(parts_of_a_batch_give_what_the_whole_gives),
        cmocka_unit_test(parts_need_no_alignment),
        cmocka_unit_test(steps_give_what_nodes_give),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
