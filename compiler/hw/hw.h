/* A device as data: parsed and checked from hwspecs/NAME.json (schema: api/schemas/hwspec.json, prose: hwspecs/README.md). */
#ifndef KN_HW_H
#define KN_HW_H
#include "te/te.h"

/* A memory level, far to near: [0] is DRAM, the last is the register file. Bandwidth is the whole chip's, towards the next nearer level. */
typedef struct kn_hw_level {
    const char *name;         /* "dram", "l2", "shared", "reg" */
    int64_t capacity_bytes;   /* of one instance; DRAM: the device */
    double bandwidth_gbs;     /* sustained, whole chip; 0 for registers */
    int64_t transaction_bytes;
    int banks, bank_bytes;    /* 0: not banked */
    int shared_by_units;      /* execution units that share one instance; 1 = private; units.count = chip-wide */
    double latency_ns;
    int ways;                 /* lines of one set of a cache */
    double energy_pj_per_byte;/* 0: unknown */
} kn_hw_level;

typedef struct kn_hw_peak { enum kn_dtype dtype; double gflops; } kn_hw_peak; /* whole chip, a multiply-add is two */

/* What moves beside an instruction cost a core, in cycles: fields.def. Where a hwspec has none, those of cores that start two loads, one store
 * and one shuffle a cycle. */
typedef struct kn_hw_costs {
    double store_element, copy_element, read_lane, insert_lane, interleave_element, window_factor, copy_vector, turn_tile, keep_result;
    double panel_vector; /* 0: not given */
} kn_hw_costs;

/* A hardware instruction as a tensor expression; latency and interval in cycles, 0: unknown. */
typedef struct kn_hw_intrin {
    const char *name, *compute, *dtypes, *memory, *fewer, *spelling;
    double latency, interval;
    int significand_bits; /* 0: all that the operands' dtypes have */
    int sum_bits;         /* of its sums; 0: all that the destination's dtype has */
    const struct kn_intrin *parsed; /* the compute text read: intrin/intrin.h */
} kn_hw_intrin;

struct kiln_hw {
    const char *id, *name, *vendor;
    bool gpu;
    const char *language;     /* "c", "cuda", "source-only" languages later */
    const char *arch;         /* "sm_90a"; "x86-64-v4" */
    int nlevels;
    kn_hw_level levels[KILN_MAX_LEVELS];
    /* execution units: SMs or cores */
    int units;
    int rates_for_units;      /* as given; peaks and bandwidths below are already scaled from it to `units` */
    int lanes;                /* schedulable unit: warp or wavefront; CPU: 1 */
    int vector_bytes;         /* CPU: SIMD register; GPU: widest load of one thread (16) */
    int streaming_vector_bytes; /* CPU: of the vectors that stream memory fastest where no cache holds it */
    int row_streams; /* CPU: rows of a large operand that memory brings soonest side by side; 0: not given */
    int halves_vectors; /* CPU: 1: two instructions over half a vector start while one over a whole one does */
    int follows_runs; /* CPU: 1: kernels that wait for memory do not ask for lines of runs ahead */
    int streaming_store_bytes; /* CPU: what a kernel touches above which it writes whole lines past the caches; 0: never */
    int tile_registers;       /* CPU: of an instruction's own unit */
    int tile_idle_cycles;     /* CPU: after so many without a store of a tile the next one has to wake the unit; 0: never */
    int vector_registers;     /* CPU: architectural SIMD registers; GPU: 0 */
    int registers_per_unit;   /* GPU: 32-bit registers of one SM */
    int registers_per_thread; /* GPU */
    int max_threads_per_block, max_threads_per_unit, max_blocks_per_unit;
    int64_t max_shared_per_block, max_shared_per_unit; /* bytes */
    int partitions;           /* warp schedulers of one unit */
    int fma_latency, fma_per_cycle; /* CPU: cycles, and vector FMAs issued each cycle by one core */
    double clock_ghz;
    int npeaks;
    kn_hw_peak peaks[KN_DTYPE_COUNT];
    double launch_us;         /* of one kernel or one fork-join */
    int nfeatures; const char *features[32];
    int nflags; const char *flags[32];
    int nintrins; kn_hw_intrin intrins[128];
    kn_hw_costs costs;        /* CPU */
    /* constants of the published ROLLER artifact (policy "roller"); present == false when the spec has none */
    struct {
        bool present;
        double bandwidth_gbs[2], peak_gflops;
        int64_t reg_cap[2], smem_cap, transaction_bytes[2];
        int max_cores, warp, partitions, bank_bytes, banks;
    } roller;
    kiln_bytes canon;         /* canonical bytes of what changes generated code: kind, language, arch, features, flags, shape of the machine */
};
typedef kiln_hw kn_hw;
/* kiln_hw_parse but for the texts of instructions, which stay as they are. */
kiln_status kn_hw_parse(kiln_arena *a, kiln_bytes json, kn_hw **out, kiln_diag *d);
/* A CPU with so few vector registers that a tile wants every one, and counting a loop shows beside their worth of sums. */
bool kn_hw_few_registers(const kn_hw *hw);
enum { KN_HW_WRITTEN_STEPS = 4 }; /* steps of a loop that lowering writes out behind each other there */
/* Sets of a cache: bytes from one line of a set to the next (what is no power of two is made smaller); bytes between two of the sets that lines so
 * many bytes apart fall into, from a line's to those of a way, where all of them fall into one; how many such lines the cache holds. */
int64_t kn_hw_way_bytes(const kn_hw_level *l);
int64_t kn_hw_sets_apart(const kn_hw_level *l, int64_t step);
int64_t kn_hw_lines_held(const kn_hw_level *l, int64_t step);
bool kn_hw_in_one_set(const kn_hw_level *l, int64_t step); /* false: NULL */
/* What a kernel touches in so many bytes is not in the caches when it comes again, so that lines of its results are best written past them
 * (streaming_store_bytes); squares that are turned, from half as much again on. */
bool kn_hw_past_caches(const kn_hw *hw, double bytes);
bool kn_hw_squares_past_caches(const kn_hw *hw, double bytes);
/* Vectors of `lanes` elements of so many bytes that n elements along an axis of a sum take; half a one at the end where that is enough and these
 * start twice as often (halves_vectors; lower/halves.c). */
double kn_hw_vectors(const kn_hw *hw, int64_t n, int64_t lanes, int64_t bytes);
const kn_hw_level *kn_hw_level_named(const kn_hw *hw, const char *name); /* NULL */
bool kn_hw_multiplies(const kn_hw *hw, enum kn_dtype t); /* has an instruction with operands of that dtype */
double kn_hw_peak_gflops(const kn_hw *hw, enum kn_dtype t);              /* falls back to f32's, scaled by size for wider types */
#endif
