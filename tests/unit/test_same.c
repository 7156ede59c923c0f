/* Constants that are equal, and what is made of them in the same way, are one weight of a plan. */
#include "tests/arena.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "graph/plan.h"

#define DIGEST "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define OTHER "10112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static kiln_arena *arena;
static kiln_hw *hw;

static int set_up(void **state)
{
    (void)state;
    static char json[65536];
    kiln_diag d = {0};
    FILE *f = fopen("hwspecs/x86-64-avx2.json", "r");
    size_t n = f ? fread(json, 1, sizeof json, f) : 0;
    if (f) fclose(f);
    arena = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    return kiln_hw_parse(arena, (kiln_bytes){json, n}, &hw, &d) == KILN_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    kiln_arena_close(arena);
    return 0;
}

/* nodes and constants: with ' for quotation marks; x is [8,32]. */
static kiln_plan *plan_of(const char *constants, const char *nodes, const char *outputs)
{
    static char text[8192];
    kiln_diag d = {0};
    kiln_graph *g;
    kiln_plan *p;
    snprintf(text, sizeof text, "{'graph':{'inputs':[{'name':'x','dtype':'f32','shape':[8,32]}],'constants':[%s],'nodes':[%s],'outputs':[%s]}}",
             constants, nodes, outputs);
    for (char *c = text; *c; c++)
        if (*c == '\'') *c = '"';
    if (kiln_graph_json(arena, (kiln_bytes){text, strlen(text)}, NULL, &g, &d) != KILN_OK) fail_msg("%s: %s", d.pointer, d.message);
    if (kiln_graph_plan(arena, g, hw, &p, &d) != KILN_OK) fail_msg("%s: %s", d.pointer, d.message);
    return p;
}

/* Weights in the file, and those that are made when the model is loaded. */
static void count(const kiln_plan *p, int *stored, int *made)
{
    *stored = *made = 0;
    for (int i = 0; i < p->nweights; i++) {
        *stored += p->weights[i].of < 0 && !p->weights[i].once;
        *made += p->weights[i].once;
    }
}

static void equal_constants_are_one(void **state)
{
    (void)state;
    static const struct {
        const char *constants;
        int stored;
    } cases[] = {
        {"{'name':'a','dtype':'f32','shape':[1,4],'values':[1,2,3,4]},{'name':'b','dtype':'f32','shape':[1,4],'values':[1,2,3,4]}", 1},
        {"{'name':'a','dtype':'f32','shape':[1,4],'values':[1,2,3,4]},{'name':'b','dtype':'f32','shape':[1,4],'values':[1,2,3,5]}", 2},
        {"{'name':'a','dtype':'f32','shape':[1,4],'values':[1,2,3,4]},{'name':'b','dtype':'f32','shape':[4,1],'values':[1,2,3,4]}", 2},
        {"{'name':'a','dtype':'f32','shape':[1,4],'fill':2},{'name':'b','dtype':'f32','shape':[1,4],'fill':2}", 1},
        {"{'name':'a','dtype':'f32','shape':[1,4],'fill':2},{'name':'b','dtype':'f32','shape':[1,4],'fill':3}", 2},
        {"{'name':'a','dtype':'f32','shape':[64,64],'sha256':'" DIGEST "'},{'name':'b','dtype':'f32','shape':[64,64],'sha256':'" DIGEST "'}", 1},
        {"{'name':'a','dtype':'f32','shape':[64,64],'sha256':'" DIGEST "'},{'name':'b','dtype':'f32','shape':[64,64],'sha256':'" OTHER "'}", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int stored, made;
        kiln_plan *p = plan_of(cases[i].constants,
                               "{'op':'ReduceSum','inputs':['x'],'outputs':['s']},{'op':'Add','inputs':['s','a'],'outputs':['y']},"
                               "{'op':'Mul','inputs':['s','b'],'outputs':['z']}", "'y','z'");
        count(p, &stored, &made);
        if (stored != cases[i].stored) fail_msg("case %zu: %d weights, not %d", i, stored, cases[i].stored);
    }
}

/* Both products read the same columns of one operand, as the steps of an unrolled layer do: these are cut out once. */
static void what_is_made_of_constants_alike_is_made_once(void **state)
{
    (void)state;
    static const char w[] = "{'name':'w','dtype':'f32','shape':[32,96],'sha256':'" DIGEST "'}";
#define SLICE(y, from, to) \
    "{'op':'Slice','inputs':['w'],'outputs':['" y "'],'attrs':{'starts':[" from "],'ends':[" to "],'axes':[1]}},"
    static const struct {
        const char *nodes;
        int made;
    } cases[] = {
        {SLICE("a", "0", "32") SLICE("b", "0", "32"), 1},
        {SLICE("a", "0", "32") SLICE("b", "32", "64"), 0}, /* each is left to the packing of its one product */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char nodes[1024];
        int stored, made;
        snprintf(nodes, sizeof nodes, "%s{'op':'MatMul','inputs':['x','a'],'outputs':['h']},{'op':'MatMul','inputs':['h','b'],'outputs':['y']}",
                 cases[i].nodes);
        kiln_plan *p = plan_of(w, nodes, "'y'");
        count(p, &stored, &made);
        if (made != cases[i].made || p->nonce != cases[i].made) fail_msg("case %zu: %d made in %d steps, not %d", i, made, p->nonce, cases[i].made);
        assert_int_equal(p->nsteps, 2);
    }
}

/* A recurrent layer reads each of its weights at every step. */
static void steps_of_a_layer_share_its_weights(void **state)
{
    (void)state;
    int stored, made;
    kiln_plan *p = plan_of("{'name':'w','dtype':'f32','shape':[1,96,16],'sha256':'" DIGEST "'},"
                           "{'name':'k','dtype':'f32','shape':[1,96,32],'sha256':'" OTHER "'},"
                           "{'name':'n','dtype':'i64','shape':[3],'values':[16,1,16]}",
                           "{'op':'Reshape','inputs':['x','n'],'outputs':['r']},"
                           "{'op':'GRU','inputs':['r','w','k'],'outputs':['y'],'attrs':{'hidden_size':32,'linear_before_reset':1}}", "'y'");
    count(p, &stored, &made);
    if (stored + made > 8) fail_msg("%d weights for 16 steps", stored + made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_constants_are_one),
        cmocka_unit_test(what_is_made_of_constants_alike_is_made_once),
        cmocka_unit_test(steps_of_a_layer_share_its_weights),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
