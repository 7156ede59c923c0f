/* Barriers and boxes of tensor maps by the words of the PTX ISA: phases, bytes that are expected, bounds, the swizzle of 128 bytes. */
#include "workers/emu_bulk.h"
#include <string.h>

const char *emu_bar_make(emu_bars *b, long at, unsigned n)
{
    if (at % 8 || n < 1 || n >= 1u << 20) {
        return "a barrier at no multiple of 8, or of no arrivals";
    }
    if (emu_bar_at(b, at) != NULL || b->n == EMU_BARS) {
        return b->n == EMU_BARS ? "more barriers than a kernel wants" : "a barrier that is in use is initialised again";
    }
    b->list[b->n++] = (emu_bar){.at = at, .count = n, .pending = n};
    return NULL;
}

emu_bar *emu_bar_at(emu_bars *b, long at)
{
    for (int i = 0; i < b->n; i++) {
        if (b->list[i].at == at) {
            return &b->list[i];
        }
    }
    return NULL;
}

static void settle(emu_bar *b)
{
    if (b->pending == 0 && b->bytes == 0) {
        b->phase++;
        b->pending = b->count;
    }
}

const char *emu_bar_arrive(emu_bar *b, long expected)
{
    if (b->pending == 0) {
        return "more threads arrive at a barrier than it counts";
    }
    b->bytes += expected;
    b->pending--;
    settle(b);
    return NULL;
}

void emu_bar_arrived(emu_bar *b, long bytes)
{
    b->bytes -= bytes;
    settle(b);
}

long emu_box_bytes(const emu_map *m)
{
    long n = m->bytes;
    for (int d = 0; d < m->rank; d++) {
        n *= m->box[d];
    }
    return m->window[0] ? n * m->window[0] : n;
}

/* Pixels one behind the other, from `coord` on: columns from the lower corner to the upper one in steps, then rows, then images; each is read at the
 * window's place, `coord[4]` columns and `coord[5]` rows further. */
static void load_window(char *base, long at, const emu_map *m, const char *tensor, const int *coord)
{
    const int *lower = m->window + 1, *upper = m->window + 3, *step = m->window + 5;
    int x[2] = {coord[1], coord[2]}, image = coord[3];
    for (int p = 0; p < m->window[0]; p++) {
        int64_t column = x[0] + coord[4], row = x[1] + coord[5];
        bool inside = column >= 0 && (uint64_t)column < m->dims[1] && row >= 0 && (uint64_t)row < m->dims[2] && image >= 0 &&
                      (uint64_t)image < m->dims[3];
        for (int c = 0; c < m->box[0]; c++) {
            long near = at + (long)(p * m->box[0] + c) * m->bytes;
            bool there = inside && coord[0] + c >= 0 && (uint64_t)(coord[0] + c) < m->dims[0];
            uint64_t far = (uint64_t)(coord[0] + c) * (uint64_t)m->bytes + (uint64_t)column * m->strides[1] + (uint64_t)row * m->strides[2] +
                           (uint64_t)image * m->strides[3];
            if (m->swizzle == 3) {
                near ^= (near >> 7 & 7) << 4;
            }
            if (there) {
                memcpy(base + near, tensor + far, (size_t)m->bytes);
            } else {
                memset(base + near, 0, (size_t)m->bytes);
            }
        }
        for (int d = 0; d < 2; d++) {
            x[d] += step[d];
            if (x[d] <= (int)m->dims[1 + d] - 1 + upper[d]) {
                break;
            }
            x[d] = lower[d];
            image += d;
        }
    }
}

/* Where element `number` of the box lies in shared memory and in the tensor; false: not in the tensor. */
static bool place(const emu_map *m, long number, long at, const int *coord, long *near, uint64_t *far)
{
    bool inside = true;
    *far = 0;
    *near = at + number * m->bytes;
    for (int d = 0; d < m->rank; d++) {
        int64_t x = coord[d] + number % m->box[d];
        number /= m->box[d];
        inside = inside && x >= 0 && (uint64_t)x < m->dims[d];
        *far += (uint64_t)x * (d == 0 ? (uint64_t)m->bytes : m->strides[d]);
    }
    if (m->swizzle == 3) {
        *near ^= (*near >> 7 & 7) << 4;
    }
    return inside;
}

void emu_box_load(char *base, long at, const emu_map *m, const char *tensor, const int *coord)
{
    long n = emu_box_bytes(m) / m->bytes, near;
    uint64_t far;
    if (m->window[0]) {
        load_window(base, at, m, tensor, coord);
        return;
    }
    for (long i = 0; i < n; i++) {
        if (place(m, i, at, coord, &near, &far)) {
            memcpy(base + near, tensor + far, (size_t)m->bytes);
        } else {
            memset(base + near, 0, (size_t)m->bytes);
        }
    }
}

void emu_box_store(const char *base, long at, const emu_map *m, char *tensor, const int *coord)
{
    long n = emu_box_bytes(m) / m->bytes, near;
    uint64_t far;
    for (long i = 0; i < n; i++) {
        if (place(m, i, at, coord, &near, &far)) {
            memcpy(tensor + far, base + near, (size_t)m->bytes);
        }
    }
}
