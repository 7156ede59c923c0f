/* Prints what was measured: a line a case, geometric means a family, and all of it as JSON. */
#include "load-tests/kernels/report.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { FAMILIES = 64, NAMES = 32 };
typedef struct mean {
    double logs;
    int n;
} mean;
typedef struct family {
    char name[32];
    mean peer[NAMES], best, ceiling, packed;
    double worst, worst_packed;
    int refused;
} family;
struct report {
    FILE *json;
    const char *table;
    char names[NAMES][32];
    family families[FAMILIES];
    int nnames, nfamilies, cases, wrong;
};
typedef struct spread {
    double low, mid, high;
} spread; /* 10th percentile, median, 90th */

static int by_value(const void *x, const void *y)
{
    return (*(const double *)x > *(const double *)y) - (*(const double *)x < *(const double *)y);
}

static spread over(const double *x, int n)
{
    double s[ROUNDS];
    memcpy(s, x, sizeof *s * (size_t)n);
    qsort(s, (size_t)n, sizeof *s, by_value);
    return (spread){s[(n - 1) / 10], n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2, s[n - 1 - (n - 1) / 10]};
}

/* x[i] / y[i] within rounds. */
static spread ratio(const double *x, const double *y, int n)
{
    double q[ROUNDS];
    for (int i = 0; i < n; i++) { q[i] = x[i] / y[i]; }
    return over(q, n);
}

/* Share of what the machine allows: the longer of multiplying and of moving the bytes, over the time taken. */
static double of_ceiling(const result *x, int k)
{
    double q[ROUNDS];
    for (int i = 0; i < x->rounds[k]; i++) { q[i] = fmax(x->memory_us[i], x->compute_us[i]) / x->us[k][i]; }
    return over(q, x->rounds[k]).mid;
}

static void note(mean *m, double v)
{
    m->logs += log(v);
    m->n++;
}

static double value(const mean *m) { return exp(m->logs / m->n); }

static int named(report *r, const char *name)
{
    int i = 0;
    while (i < r->nnames && strcmp(r->names[i], name)) { i++; }
    if (i == r->nnames && i < NAMES) { snprintf(r->names[r->nnames++], sizeof *r->names, "%s", name); }
    return i < NAMES ? i : NAMES - 1;
}

static family *family_of(report *r, const char *name)
{
    for (int i = 0; i < r->nfamilies; i++) {
        if (!strcmp(r->families[i].name, name)) { return &r->families[i]; }
    }
    family *f = &r->families[r->nfamilies < FAMILIES - 1 ? r->nfamilies++ : FAMILIES - 1];
    snprintf(f->name, sizeof f->name, "%s", name);
    f->worst = f->worst_packed = 1e30;
    return f;
}

report *report_open(const char *json, const char *table_path, const char *target, int threads, int rounds)
{
    report *r = calloc(1, sizeof *r);
    r->table = table_path;
    if (*json && (r->json = fopen(json, "w"))) {
        fprintf(r->json, "{\"target\": \"%s\", \"threads\": %d, \"rounds\": %d, \"cases\": [", target, threads, rounds);
    }
    printf("us, rate and share of the ceiling are Kiln's; then how many times as long each peer takes (above 1: Kiln is faster), * the "
           "best peer; then the best peer's time over Kiln's with weights packed ahead.\n");
    return r;
}

static void json_case(report *r, const bench_case *c, const result *x)
{
    if (!r->json) { return; }
    fprintf(r->json, "%s\n {\"id\": \"%s\", \"family\": \"%s\", \"dtype\": \"%s\", \"layout\": \"%s\", \"constructed\": %s, \"note\": \"",
            r->cases ? "," : "", c->id, c->family, c->dtype, c->layout, x->constructed ? "true" : "false");
    for (const char *p = x->note; *p; p++) { fputc(strchr("\"\\\n", *p) ? '\'' : *p, r->json); }
    fprintf(r->json, "\", \"flops\": %.0f, \"bytes\": %.0f, \"contestants\": [", x->flops, x->bytes);
    for (int i = 0; i < x->n; i++) {
        spread us = over(x->us[i], x->rounds[i]);
        fprintf(r->json, "%s{\"name\": \"%s\", \"us\": %.3f, \"us_p10\": %.3f, \"us_p90\": %.3f, \"of_ceiling\": %.4g, \"wrong\": %lld",
                i ? ", " : "", x->who[i].name, us.mid, us.low, us.high, of_ceiling(x, i), (long long)x->who[i].wrong);
        if (x->constructed && i) {
            spread q = ratio(x->us[i], x->us[0], x->rounds[i]);
            fprintf(r->json, ", \"ratio\": %.4f, \"ratio_p10\": %.4f, \"ratio_p90\": %.4f", q.mid, q.low, q.high);
        }
        fprintf(r->json, "}");
    }
    fprintf(r->json, "]}");
}

/* The peer with the best median of right outputs. */
static int best_of(const result *x)
{
    int best = -1;
    for (int i = x->constructed; i < x->n; i++) {
        if (x->who[i].wrong || (i && (i == x->packed || i == x->alone))) { continue; }
        if (best < 0 || over(x->us[i], x->rounds[i]).mid < over(x->us[best], x->rounds[best]).mid) { best = i; }
    }
    return best;
}

static void ratios(report *r, family *f, const result *x)
{
    int best = best_of(x);
    for (int i = 1; i < x->n; i++) {
        double q = ratio(x->us[i], x->us[0], x->rounds[i]).mid;
        printf(" %s%s %.2f%s", i == best ? "*" : "", x->who[i].name, q, i + 1 < x->n ? "," : "");
        if (x->who[i].wrong || x->who[0].wrong) { continue; }
        note(&f->peer[named(r, x->who[i].name)], q);
        if (i != best) { continue; }
        note(&f->best, q);
        f->worst = fmin(f->worst, q);
    }
    if (best < 0 || !x->packed || x->who[x->packed].wrong) { return; }
    double q = ratio(x->us[best], x->us[x->packed], x->rounds[best]).mid;
    printf(" | packed, %s %.2f", x->who[best].name, q);
    note(&f->packed, q);
    f->worst_packed = fmin(f->worst_packed, q);
}

void report_case(report *r, const bench_case *c, const result *x)
{
    family *f = family_of(r, c->family);
    json_case(r, c, x);
    r->cases++;
    if (!x->constructed) {
        f->refused++;
        printf("%-34s not constructed: %s\n", c->id, x->note);
    }
    if (x->n > 0) {
        int k = x->constructed ? 0 : best_of(x) > 0 ? best_of(x) : 0;
        spread us = over(x->us[k], x->rounds[k]);
        double rate = (c->by_bytes ? x->bytes : x->flops) / us.mid / 1e3, top = of_ceiling(x, k);
        if (x->constructed && !x->who[0].wrong) { note(&f->ceiling, top); }
        printf("%-34s %10.1f us (p90/median %.2f) %8.1f %s %5.2f of ceiling |", c->id, us.mid, us.high / us.mid, rate,
               c->by_bytes ? "GB/s  " : "GFLOP/s", top);
        if (x->constructed) {
            ratios(r, f, x);
        } else {
            printf(" the best peer, %s", x->who[k].name);
        }
        printf("\n");
    }
    if (x->constructed && *x->note) { printf("    %s\n", x->note); }
    bool bad = x->reference_wrong != 0;
    for (int i = 0; i < x->n; i++) {
        if (!x->who[i].wrong) { continue; }
        printf("    WRONG: %s, %lld of the elements\n", x->who[i].name, (long long)x->who[i].wrong);
        bad = bad || (x->constructed && (i <= x->packed || i == x->alone));
    }
    r->wrong += bad;
    fflush(stdout);
}

/* Lines "family place, peer place, ratio, names" for the picture. */
static void table(const report *r, const char *path)
{
    FILE *f = *path ? fopen(path, "w") : NULL;
    if (!f) { return; }
    for (int i = 0; i < r->nfamilies; i++) {
        for (int p = 0; p < r->nnames; p++) {
            const mean *m = &r->families[i].peer[p];
            if (m->n) { fprintf(f, "%d\t%d\t%.4f\t%s\t%s\n", i, p, value(m), r->families[i].name, r->names[p]); }
        }
    }
    fclose(f);
}

static void json_families(report *r)
{
    if (!r->json) { return; }
    fprintf(r->json, "\n], \"families\": [");
    for (int i = 0; i < r->nfamilies; i++) {
        const family *f = &r->families[i];
        fprintf(r->json, "%s\n {\"name\": \"%s\", \"cases\": %d, \"not_constructed\": %d", i ? "," : "", f->name, f->ceiling.n, f->refused);
        if (f->ceiling.n) { fprintf(r->json, ", \"of_ceiling\": %.4f", value(&f->ceiling)); }
        if (f->best.n) { fprintf(r->json, ", \"best_peer\": %.4f, \"worst_case\": %.4f", value(&f->best), f->worst); }
        if (f->packed.n) { fprintf(r->json, ", \"packed_best_peer\": %.4f, \"packed_worst_case\": %.4f", value(&f->packed), f->worst_packed); }
        fprintf(r->json, ", \"peers\": {");
        for (int p = 0, first = 1; p < r->nnames; p++) {
            if (!f->peer[p].n) { continue; }
            fprintf(r->json, "%s\"%s\": {\"ratio\": %.4f, \"cases\": %d}", first ? "" : ", ", r->names[p], value(&f->peer[p]),
                    f->peer[p].n);
            first = 0;
        }
        fprintf(r->json, "}}");
    }
    fprintf(r->json, "\n]}\n");
    fclose(r->json);
}

int report_close(report *r)
{
    printf("\n%-22s %5s %8s %10s %8s  geometric means; peers by name (cases they took part in)\n", "family", "cases", "ceiling",
           "best peer", "worst");
    for (int i = 0; i < r->nfamilies; i++) {
        const family *f = &r->families[i];
        printf("%-22s %5d", f->name, f->ceiling.n);
        if (f->ceiling.n) { printf(" %8.2f", value(&f->ceiling)); }
        if (f->best.n) { printf(" %10.2f %8.2f ", value(&f->best), f->worst); }
        for (int p = 0; p < r->nnames; p++) {
            if (f->peer[p].n) { printf(" %s %.2f (%d)", r->names[p], value(&f->peer[p]), f->peer[p].n); }
        }
        if (f->packed.n) { printf(" | packed: best peer %.2f, worst %.2f (%d)", value(&f->packed), f->worst_packed, f->packed.n); }
        if (f->refused) { printf(" not constructed: %d", f->refused); }
        printf("\n");
    }
    json_families(r);
    table(r, r->table);
    int wrong = r->wrong;
    printf("%d cases, %d with wrong outputs\n", r->cases, wrong);
    free(r);
    return wrong;
}
