/* The mock driver's way to the emulator of workers/: a function of a module is a kernel's own text, compiled for the host. */
#ifndef MOCK_EMULATE_H
#define MOCK_EMULATE_H
#include <stddef.h>
#include <stdint.h>

/* A tensor map as the mock encodes it, in the 128 bytes that CUtensorMap has. strides: of dimension 1 on. */
typedef struct mock_map {
    uint64_t magic, address, dims[5], strides[4];
    uint16_t box[5], pixels;
    int16_t lower[2], upper[2];
    uint8_t rank, bytes, swizzle, step[2];
} mock_map;
_Static_assert(sizeof(mock_map) <= 128, "a tensor map has 128 bytes");

/* Runs all blocks of a launch. so: path of what emu_image wrote (tests/emu); params: kinds of the arguments ("ptr,tmap"); args: as cuLaunchKernel
 * gets them. NULL, or what went wrong on the device. In libcuda_emu.so alone. */
const char *mock_emulate(const char *so, int launch, unsigned grid, unsigned threads, unsigned cluster, const char *params, void **args);
#endif
