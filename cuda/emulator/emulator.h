// What a CUDA kernel needs to run on the CPU: its threads are fibers that wait for each other at barriers and in
// exchanges of a warp. `emulator.cpp` runs them, `driver.cpp` launches them. The matrix units are emulated by the
// layouts that the PTX manual documents.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include <vector_functions.h>
#include <vector_types.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#undef __global__
#undef __device__
#undef __host__
#undef __forceinline__
#undef __noinline__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __align__
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __constant__
// One block runs at a time: its shared memory is that of the library, which is poisoned before each block.
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __CUDA_ARCH__ 800

namespace emulator {

struct Index {
    unsigned x, y, z;
};
extern "C" {
extern Index emulator_thread, emulator_block, emulator_threads, emulator_blocks;
// The number of the running thread within its warp.
unsigned emulator_lane();
void emulator_barrier();
// Waits until the whole warp has given `bytes` at `mine`; the last has `all` make the results, then each has its own.
void emulator_exchange(const void *mine, unsigned bytes, void *result, unsigned result_bytes,
                       void (*all)(const void *given, void *results, unsigned lanes, const void *how), const void *how);
void *emulator_dynamic_shared();
}

// Room of a lane in an exchange.
constexpr unsigned ROOM = 64;

template <typename T> T given_by(const void *given, unsigned lane) {
    T value;
    std::memcpy(&value, (const char *)given + ROOM * lane, sizeof value);
    return value;
}

template <typename T> void put_for(void *results, unsigned lane, const T &value) {
    static_assert(sizeof value <= ROOM);
    std::memcpy((char *)results + ROOM * lane, &value, sizeof value);
}

// Each lane has what the lane `from(lane)` gave.
template <typename T> T shuffled(T mine, unsigned (*from)(unsigned lane, int by), int by) {
    static_assert(sizeof mine <= ROOM);
    struct How {
        unsigned (*from)(unsigned, int);
        int by;
    } how{from, by};
    T result;
    emulator_exchange(
        &mine, sizeof mine, &result, sizeof result,
        [](const void *given, void *results, unsigned lanes, const void *how) {
            const How &way = *(const How *)how;
            for (unsigned lane = 0; lane < lanes; lane++) {
                unsigned source = way.from(lane, way.by);
                put_for(results, lane, given_by<T>(given, source < lanes ? source : lane));
            }
        },
        &how);
    return result;
}

inline float half_of(uint32_t pair, unsigned which) {
    uint16_t bits = pair >> (16 * which);
    __half value;
    std::memcpy(&value, &bits, sizeof bits);
    return __half2float(value);
}

// mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
inline void multiply_blocks(float sums[4], const uint32_t a[4], uint32_t first, uint32_t second) {
    struct Given {
        uint32_t a[4], b[2];
        float sums[4];
    } mine{{a[0], a[1], a[2], a[3]}, {first, second}, {sums[0], sums[1], sums[2], sums[3]}};
    struct Sums {
        float of[4];
    } result;
    emulator_exchange(
        &mine, sizeof mine, &result, sizeof result,
        [](const void *given, void *results, unsigned lanes, const void *) {
            float left[16][16], right[16][8];
            for (unsigned lane = 0; lane < lanes; lane++) {
                Given from = given_by<Given>(given, lane);
                for (unsigned i = 0; i < 8; i++)
                    left[lane / 4 + i / 2 % 2 * 8][lane % 4 * 2 + i % 2 + i / 4 * 8] = half_of(from.a[i / 2], i % 2);
                for (unsigned i = 0; i < 4; i++) right[lane % 4 * 2 + i % 2 + i / 2 * 8][lane / 4] = half_of(from.b[i / 2], i % 2);
            }
            for (unsigned lane = 0; lane < lanes; lane++) {
                Given from = given_by<Given>(given, lane);
                Sums sums;
                for (unsigned i = 0; i < 4; i++) {
                    double sum = from.sums[i];
                    for (unsigned k = 0; k < 16; k++)
                        sum += (double)left[lane / 4 + i / 2 * 8][k] * right[k][lane % 4 * 2 + i % 2];
                    sums.of[i] = (float)sum;
                }
                put_for(results, lane, sums);
            }
        },
        nullptr);
    std::memcpy(sums, result.of, sizeof result.of);
}

// ldmatrix.sync.aligned.m8n8.x4[.trans].shared.b16: a lane has the address of a row of the block `lane / 8`.
inline void load_matrix(uint32_t blocks[4], const void *row, bool is_transposed) {
    struct Four {
        uint32_t of[4];
    } result;
    emulator_exchange(
        &row, sizeof row, &result, sizeof result,
        [](const void *given, void *results, unsigned lanes, const void *how) {
            bool is_transposed = *(const bool *)how;
            for (unsigned lane = 0; lane < lanes; lane++) {
                Four four;
                for (unsigned block = 0; block < 4; block++) {
                    uint16_t two[2];
                    for (unsigned i = 0; i < 2; i++) {
                        unsigned row = is_transposed ? lane % 4 * 2 + i : lane / 4;
                        unsigned column = is_transposed ? lane / 4 : lane % 4 * 2 + i;
                        two[i] = given_by<const uint16_t *>(given, block * 8 + row)[column];
                    }
                    four.of[block] = two[0] | (uint32_t)two[1] << 16;
                }
                put_for(results, lane, four);
            }
        },
        &is_transposed);
    std::memcpy(blocks, result.of, sizeof result.of);
}

// A kernel by its name, called with the addresses of its arguments.
struct Kernel {
    const char *name;
    void (*call)(void **arguments);
};

template <auto F> struct Caller;
template <typename... Arguments, void (*F)(Arguments...)> struct Caller<F> {
    template <size_t... I> static void with(void **arguments, std::index_sequence<I...>) {
        F(*(Arguments *)arguments[I]...);
    }
    static void call(void **arguments) { with(arguments, std::index_sequence_for<Arguments...>()); }
};

}  // namespace emulator

#define threadIdx emulator::emulator_thread
#define blockIdx emulator::emulator_block
#define blockDim emulator::emulator_threads
#define gridDim emulator::emulator_blocks
#define warpSize 32

inline void __syncthreads() { emulator::emulator_barrier(); }
inline void __syncwarp(unsigned = ~0u) { emulator::shuffled(0, [](unsigned lane, int) { return lane; }, 0); }
template <typename T> T __shfl_xor_sync(unsigned, T mine, int mask, int = 32) {
    return emulator::shuffled(mine, [](unsigned lane, int mask) { return lane ^ mask; }, mask);
}
template <typename T> T __shfl_down_sync(unsigned, T mine, int by, int = 32) {
    return emulator::shuffled(mine, [](unsigned lane, int by) { return lane + by; }, by);
}
template <typename T> T __shfl_sync(unsigned, T mine, int from, int = 32) {
    return emulator::shuffled(mine, [](unsigned, int from) { return (unsigned)from; }, from);
}

// Functions that CUDA has for all types.
inline float normcdff(float x) { return 0.5f * std::erfc(-x * 0.70710678118654752f); }
inline double normcdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752); }
#define EMULATED_OF_HALVES(name, function)                                                                             \
    inline __half name(__half x) { return __float2half(function(__half2float(x))); }                                   \
    inline __nv_bfloat16 name(__nv_bfloat16 x) { return __float2bfloat16(function(__bfloat162float(x))); }
EMULATED_OF_HALVES(hsqrt, std::sqrt)
EMULATED_OF_HALVES(hcos, std::cos)
EMULATED_OF_HALVES(hsin, std::sin)
EMULATED_OF_HALVES(hlog, std::log)
EMULATED_OF_HALVES(hexp, std::exp)
EMULATED_OF_HALVES(hceil, std::ceil)
EMULATED_OF_HALVES(hfloor, std::floor)
EMULATED_OF_HALVES(hrint, std::rint)
EMULATED_OF_HALVES(htrunc, std::trunc)
EMULATED_OF_HALVES(hrcp, 1.f /)
inline float rsqrtf(float x) { return 1.f / std::sqrt(x); }
inline double rsqrt(double x) { return 1. / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __int_as_float(int bits) { float value; std::memcpy(&value, &bits, 4); return value; }
inline int __float_as_int(float value) { int bits; std::memcpy(&bits, &value, 4); return bits; }
inline unsigned __float_as_uint(float value) { unsigned bits; std::memcpy(&bits, &value, 4); return bits; }
inline float __uint_as_float(unsigned bits) { float value; std::memcpy(&value, &bits, 4); return value; }
inline long long __double_as_longlong(double value) { long long bits; std::memcpy(&bits, &value, 8); return bits; }
inline double __longlong_as_double(long long bits) { double value; std::memcpy(&value, &bits, 8); return value; }
using std::isinf, std::isnan, std::signbit;
// Of four bytes each: the sum of products, and the difference with its limits.
inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 4; i++) sum += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return sum;
}
inline int __vsubss4(int a, int b) {
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        int difference = (int8_t)(a >> 8 * i) - (int8_t)(b >> 8 * i);
        result |= (uint32_t)(uint8_t)std::clamp(difference, -128, 127) << 8 * i;
    }
    return result;
}
template <typename T> T __ldg(const T *from) { return *from; }
// Threads change places only where they wait.
template <typename T> T atomicAdd(T *to, T value) { T old = *to; *to = old + value; return old; }
template <typename T> T atomicCAS(T *to, T wanted, T value) { T old = *to; if (old == wanted) *to = value; return old; }
template <typename T, typename V> T atomicMax(T *to, V value) { T old = *to; *to = std::max(old, (T)value); return old; }
template <typename T, typename V> T atomicMin(T *to, V value) { T old = *to; *to = std::min(old, (T)value); return old; }
template <typename A, typename B> auto max(A a, B b) -> std::common_type_t<A, B> {
    using T = std::common_type_t<A, B>;
    return (T)a > (T)b ? (T)a : (T)b;
}
template <typename A, typename B> auto min(A a, B b) -> std::common_type_t<A, B> {
    using T = std::common_type_t<A, B>;
    return (T)a < (T)b ? (T)a : (T)b;
}
