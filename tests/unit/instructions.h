/* Instructions that tests of schedules and lowering add to their targets: small, and of every kind that matters. */
#ifndef TESTS_INSTRUCTIONS_H
#define TESTS_INSTRUCTIONS_H
#include "intrin/intrin.h"
#include <stdio.h>
#include <stdlib.h>

static inline void add_instructions(kiln_arena *a, kn_hw *hw)
{
    static const kn_hw_intrin list[] = {
        { .name = "gemm4", .compute = "d[I,J] +=! a[I,R] * b[R,J] where I in 4, J in 4, R in 4", .dtypes = "d=f32 a=f32 b=f32" },
        { .name = "gemm242", .compute = "d[I,J] +=! a[I,R] * b[R,J] where I in 2, J in 4, R in 2", .dtypes = "d=f32 a=f32 b=f32" },
        { .name = "gemmt4", .compute = "d[J,I] +=! b[J,R] * a[I,R] where I in 4, J in 4, R in 4", .dtypes = "d=f32 a=f32 b=f32" },
        { .name = "dot4", .compute = "d[I] +=! cast(a[I,R],i32) * cast(b[I,R],i32) where I in 4, R in 4", .dtypes = "d=i32 a=u8 b=i8" },
        { .name = "outer4", .compute = "d[I,J] +=! a[I] * b[J] where I in 4, J in 4", .dtypes = "d=f32 a=f32 b=f32" },
        { .name = "axpy8", .compute = "d[I] +=! a[] * b[I] where I in 8", .dtypes = "d=f32 a=f32 b=f32" },
        { .name = "max4", .compute = "d[I] >=! a[I,R] where I in 4, R in 2", .dtypes = "d=f32 a=f32" },
        { .name = "relu4", .compute = "d[I] = max(a[I], 0.0) where I in 4", .dtypes = "d=f32 a=f32" },
        { .name = "half4", .compute = "d[I,J] +=! cast(a[I,R],f32) * cast(b[R,J],f32) where I in 4, J in 4, R in 4", .dtypes = "d=f32 a=f16 b=f16" },
        { .name = "vpdpbusd", .compute = "d[I] +=! cast(a[R],i32) * cast(b[I,R],i32) where I in 16, R in 4", .dtypes = "d=i32 a=u8 b=i8",
          .spelling = "_mm512_dpbusd_epi32" },
        { .name = "words_i8", .compute = "d[I] +=! cast(a[R],i32) * cast(b[I,R],i32) where I in 8, R in 2", .dtypes = "d=i32 a=i16 b=i8",
          .spelling = "_mm256_madd_epi16" },
        { .name = "words_u8", .compute = "d[I] +=! cast(a[R],i32) * cast(b[I,R],i32) where I in 8, R in 2", .dtypes = "d=i32 a=i16 b=u8",
          .spelling = "_mm256_madd_epi16" },
        { .name = "fma16", .compute = "d[I] +=! a[] * b[I] where I in 16", .dtypes = "d=f32 a=f32 b=f32", .spelling = "_mm512_fmadd_ps" },
        { .name = "fma4d", .compute = "d[I] +=! a[] * b[I] where I in 4", .dtypes = "d=f64 a=f64 b=f64", .spelling = "_mm256_fmadd_pd" },
        { .name = "tf4", .compute = "d[I,J] +=! a[I,R] * b[R,J] where I in 4, J in 4, R in 4", .dtypes = "d=f32 a=f32 b=f32",
          .significand_bits = 11 },
        { .name = "narrow4", .compute = "d[I,J] +=! a[I,R] * b[R,J] where I in 4, J in 4, R in 4", .dtypes = "d=f16 a=f16 b=f16" },
    };
    kiln_diag d = { 0 };
    hw->nintrins = (int)(sizeof list / sizeof *list);
    for (int i = 0; i < hw->nintrins; i++) hw->intrins[i] = list[i];
    if (kn_intrins_parse(a, hw, &d)) {
        fprintf(stderr, "%s: %s\n", d.pointer, d.message);
        abort();
    }
}
#endif
