/* AMX tiles and vdpbf16ps by Intel's instruction set reference: decoding, what they compute, and what a processor refuses. */
#include "workers/tiles.h"
#include <math.h>
#include <string.h>

/* ---- decoding ---- */

typedef struct reader { const uint8_t *p; int n, at; } reader;

static int byte(reader *r) { return r->at < r->n ? r->p[r->at++] : (r->at = r->n + 1, 0); }

static int64_t number(reader *r, int bytes)
{
    uint32_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint32_t)byte(r) << 8 * i;
    return bytes == 1 ? (int8_t)x : (int32_t)x;
}

/* The memory operand behind ModRM: rx and rb extend its registers. */
static void address(reader *r, int modrm, int rx, int rb, tiles_step *s)
{
    int mod = modrm >> 6, rm = modrm & 7, wide = mod == 1 ? 1 : mod == 2 ? 4 : 0;
    s->base = rm | rb, s->index = -1, s->scale = 1;
    if (rm == 4) {
        int sib = byte(r);
        s->base = (sib & 7) | rb;
        s->index = (sib >> 3 & 7) | rx;
        s->scale = 1 << (sib >> 6);
        if (s->index == 4) s->index = -1;
        if ((sib & 7) == 5 && mod == 0) s->base = -1, wide = 4;
    } else if (rm == 5 && mod == 0) {
        s->base = TILES_NEXT, wide = 4;
    }
    s->offset = wide ? number(r, wide) : 0;
}

typedef struct form { uint8_t opcode, pp, memory; tiles_op op; tiles_kind kind; } form;
static const form forms[] = {
    {0x49, 0, 1, TILES_CONFIG, 0},   {0x49, 1, 1, TILES_SHOW, 0},     {0x49, 0, 0, TILES_RELEASE, 0},
    {0x49, 3, 0, TILES_ZERO, 0},     {0x4b, 3, 1, TILES_LOAD, 0},     {0x4b, 1, 1, TILES_LOAD, 0},
    {0x4b, 2, 1, TILES_STORE, 0},    {0x5c, 2, 0, TILES_PRODUCT, TILES_BF16}, {0x5e, 3, 0, TILES_PRODUCT, TILES_SS},
    {0x5e, 2, 0, TILES_PRODUCT, TILES_SU}, {0x5e, 1, 0, TILES_PRODUCT, TILES_US}, {0x5e, 0, 0, TILES_PRODUCT, TILES_UU},
};

/* EVEX.512.F3.0F38.W0 52 /r, registers only, no mask. */
static tiles_step pairs(reader *r)
{
    tiles_step s = {.op = TILES_NONE};
    int p0 = byte(r), p1 = byte(r), p2 = byte(r), opcode = byte(r), modrm = byte(r);
    if ((p0 & 0x0f) != 2 || (p1 & 0x87) != 0x06 || (p2 & 0xf7) != 0x40 || opcode != 0x52 || modrm >> 6 != 3 || r->at > r->n) return s;
    s.op = TILES_PAIRS;
    s.d = (modrm >> 3 & 7) | (p0 & 0x80 ? 0 : 8) | (p0 & 0x10 ? 0 : 16);
    s.b = (modrm & 7) | (p0 & 0x20 ? 0 : 8) | (p0 & 0x40 ? 0 : 16);
    s.a = (~p1 >> 3 & 15) | (p2 & 8 ? 0 : 16);
    s.length = r->at;
    return s;
}

tiles_step tiles_decode(const uint8_t *code, int n)
{
    reader r = {code, n, 0};
    tiles_step s = {.op = TILES_NONE}, none = s;
    int first = byte(&r);
    if (first == 0x62) return pairs(&r);
    if (first != 0xc4) return none;
    int p1 = byte(&r), p2 = byte(&r), opcode = byte(&r), modrm = byte(&r), reg = (modrm >> 3 & 7) | (p1 & 0x80 ? 0 : 8);
    if ((p1 & 0x1f) != 2 || p2 & 0x84) return none; /* 0F38, W0, 128 */
    for (size_t i = 0; i < sizeof forms / sizeof *forms && s.op == TILES_NONE; i++)
        if (forms[i].opcode == opcode && forms[i].pp == (p2 & 3) && forms[i].memory == (modrm >> 6 != 3)) s.op = forms[i].op, s.kind = forms[i].kind;
    s.d = reg;
    s.a = (modrm & 7) | (p1 & 0x20 ? 0 : 8);
    s.b = ~p2 >> 3 & 15;
    bool memory = s.op == TILES_LOAD || s.op == TILES_STORE || s.op == TILES_CONFIG || s.op == TILES_SHOW;
    if (s.op == TILES_NONE || (s.op == TILES_RELEASE && modrm != 0xc0) || (s.op != TILES_PRODUCT && s.b)) return none;
    if ((s.op == TILES_LOAD || s.op == TILES_STORE) && (modrm & 7) != 4) return none; /* only with an index byte */
    if (memory) address(&r, modrm, p1 & 0x40 ? 0 : 8, p1 & 0x20 ? 0 : 8, &s);
    s.length = r.at;
    return r.at > n ? none : s;
}

/* ---- arithmetic ---- */

static float flushed(float x) { return fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x; }

static float of_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return flushed(f); /* denormals are zero */
}

static float fused(float d, uint16_t a, uint16_t b) { return flushed(fmaf(of_bf16(a), of_bf16(b), flushed(d))); }

void tiles_pairs(float *d, const uint16_t *a, const uint16_t *b)
{
    for (int i = 0; i < 16; i++) d[i] = fused(fused(d[i], a[2 * i + 1], b[2 * i + 1]), a[2 * i], b[2 * i]);
}

/* Even and odd terms are summed apart from 0 on, then together, then with what is there. */
static void product_bf16(tiles *t, const tiles_step *s)
{
    for (int m = 0; m < t->rows[s->d]; m++) {
        float sum[TILE_ROW_BYTES / 2] = {0}, *d = (float *)(void *)t->data[s->d][m];
        for (int k = 0; k < t->bytes[s->a] / 4; k++)
            for (int n = 0; n < t->bytes[s->d] / 2; n++) {
                uint16_t x, y;
                memcpy(&x, &t->data[s->a][m][4 * k + n % 2 * 2], 2);
                memcpy(&y, &t->data[s->b][k][2 * n], 2);
                sum[n] = fused(sum[n], x, y);
            }
        for (int n = 0; n < t->bytes[s->d] / 4; n++) d[n] = flushed(flushed(d[n]) + flushed(sum[2 * n] + sum[2 * n + 1]));
    }
}

static void product_bytes(tiles *t, const tiles_step *s)
{
    bool sa = s->kind == TILES_SS || s->kind == TILES_SU, sb = s->kind == TILES_SS || s->kind == TILES_US;
    for (int m = 0; m < t->rows[s->d]; m++)
        for (int n = 0; n < t->bytes[s->d] / 4; n++) {
            uint32_t sum;
            memcpy(&sum, &t->data[s->d][m][4 * n], 4);
            for (int k = 0; k < t->bytes[s->a]; k++) {
                int x = t->data[s->a][m][k], y = t->data[s->b][k / 4][4 * n + k % 4];
                sum += (uint32_t)((sa ? (int8_t)x : x) * (sb ? (int8_t)y : y));
            }
            memcpy(&t->data[s->d][m][4 * n], &sum, 4);
        }
}

/* ---- what a processor does ---- */

static const char *configure(tiles *t, const uint8_t *c)
{
    tiles fresh = {.on = c[0] == 1};
    if (c[0] > 1) return "#GP: a palette that is not there";
    for (int i = 2; i < 16; i++) if (c[0] && c[i]) return "#GP: reserved bytes of a tile configuration";
    for (int i = TILES; i < 16 && c[0]; i++)
        if (c[16 + 2 * i] || c[17 + 2 * i] || c[48 + i]) return "#GP: a tile that the palette has not";
    for (int i = 0; i < TILES && fresh.on; i++) {
        fresh.bytes[i] = (uint16_t)(c[16 + 2 * i] | c[17 + 2 * i] << 8);
        fresh.rows[i] = c[48 + i];
        if (fresh.rows[i] > TILE_ROWS || fresh.bytes[i] > TILE_ROW_BYTES || !fresh.rows[i] != !fresh.bytes[i])
            return "#GP: rows or bytes of a tile out of range";
    }
    *t = fresh;
    return NULL;
}

static void show(const tiles *t, uint8_t *c)
{
    memset(c, 0, 64);
    c[0] = t->on;
    for (int i = 0; i < TILES && t->on; i++) {
        c[16 + 2 * i] = (uint8_t)t->bytes[i], c[17 + 2 * i] = (uint8_t)(t->bytes[i] >> 8);
        c[48 + i] = t->rows[i];
    }
}

static bool there(const tiles *t, int i) { return i < TILES && t->rows[i]; }

static const char *multiply(tiles *t, const tiles_step *s)
{
    if (!there(t, s->d) || !there(t, s->a) || !there(t, s->b)) return "#UD: a tile that is not configured";
    if (s->d == s->a || s->d == s->b || s->a == s->b) return "#UD: one tile twice in a product";
    if (t->bytes[s->d] % 4 || t->bytes[s->a] % 4 || t->bytes[s->b] % 4 || t->rows[s->d] != t->rows[s->a] ||
        t->bytes[s->a] / 4 != t->rows[s->b] || t->bytes[s->d] != t->bytes[s->b])
        return "#UD: tiles whose sizes do not fit together";
    if (s->kind == TILES_BF16) product_bf16(t, s);
    else product_bytes(t, s);
    return NULL;
}

static void move(tiles *t, const tiles_step *s, uint8_t *at, int64_t row)
{
    if (s->op == TILES_LOAD) memset(t->data[s->d], 0, sizeof t->data[s->d]);
    for (int i = 0; i < t->rows[s->d]; i++)
        if (s->op == TILES_LOAD) memcpy(t->data[s->d][i], at + i * row, t->bytes[s->d]);
        else memcpy(at + i * row, t->data[s->d][i], t->bytes[s->d]);
}

const char *tiles_do(tiles *t, const tiles_step *s, uint8_t *at, int64_t row)
{
    if (s->op == TILES_CONFIG) return configure(t, at);
    if (s->op == TILES_SHOW) return show(t, at), NULL;
    if (s->op == TILES_RELEASE) return *t = (tiles){0}, NULL;
    if (!t->on) return "#UD: tiles are not configured";
    if (s->op == TILES_PRODUCT) return multiply(t, s);
    if (!there(t, s->d)) return "#UD: a tile that is not configured";
    if (s->op == TILES_ZERO) memset(t->data[s->d], 0, sizeof t->data[s->d]);
    else move(t, s, at, row);
    return NULL;
}
