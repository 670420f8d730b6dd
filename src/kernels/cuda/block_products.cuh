// Products of few rows with matrices in the blocks of GGUF. Activations are rounded to eight bits once for all matrices
// that read them; a warp has a row of a matrix, and a lane a piece of 32 or 64 numbers at a time.
#pragma once

// Activations: the rounded numbers row by row; for each 32 of them their scale, and the scale times their sum.
#define ROUNDED 32

// Where the sixteen numbers of this index are kept: in another order within each 64, so that lanes that read neighbouring
// pieces meet different banks of shared memory.
__device__ __forceinline__ u64 kept_at(u64 sixteen) { return sixteen ^ (sixteen >> 3 & 3); }

// Rounds a number of each lane.
__device__ __forceinline__ void round_numbers(float number, u64 block, signed char *numbers, float2 *scales) {
    const u32 lane = threadIdx.x % 32;
    float largest = fabsf(number);
    for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    const float scale = largest / 127.f;
    const int rounded = largest > 0.f ? (int)rintf(number / scale) : 0;
    numbers[kept_at(block * (ROUNDED / 16) + lane / 16) * 16 + lane % 16] = (signed char)rounded;
    int sum = rounded;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0) scales[block] = make_float2(scale, scale * (float)sum);
}

template <typename T>
__device__ __forceinline__ void round_rows(const T *x, signed char *numbers, float2 *scales, u32 blocks) {
    const u32 block = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (block >= blocks) return;
    round_numbers(wide(x[(u64)block * ROUNDED + threadIdx.x % 32]), block, numbers, scales);
}

#define ROUND_ROWS(name, T)                                                                                            \
    extern "C" __global__ void round_rows_##name(const T *x, signed char *numbers, float2 *scales, u32 blocks) {       \
        round_rows<T>(x, numbers, scales, blocks);                                                                     \
    }
FOR_ALL_TYPES(ROUND_ROWS)

// Four bytes of an address that is a multiple of two.
__device__ __forceinline__ int int_of_halves(const unsigned char *from) {
    const unsigned short *halves = reinterpret_cast<const unsigned short *>(from);
    return (int)(halves[0] | (u32)halves[1] << 16);
}
__device__ __forceinline__ int int_of_words(const unsigned char *from) { return *reinterpret_cast<const int *>(from); }
__device__ __forceinline__ float half_at(const unsigned char *from) {
    return __half2float(*reinterpret_cast<const __half *>(from));
}
// The bits of four numbers that an int of further bits has, as the fifth bits of four bytes.
__device__ __forceinline__ int fifth_bits(int bits, int first) {
    int four = bits >> first;
    return (four << 4 & 0x10) | (four << 11 & 0x1000) | (four << 18 & 0x100000) | (four << 25 & 0x10000000);
}

// A piece of a row. Its numbers are RUNS runs, each `scale * number + least` with numbers of eight bits.
template <int NUMBERS, int RUNS> struct Piece {
    int numbers[NUMBERS / 4];
    float scales[RUNS], least[RUNS];
};

// The formats of blocks: BLOCK_NUMBERS in BLOCK_BYTES, a piece of PIECE numbers with a scale for each of its runs. `start` is
// the place of a run in the row, and IS_SHIFTED says whether runs have a least number.
struct Q4_0 {
    static constexpr u32 BLOCK_NUMBERS = 32, BLOCK_BYTES = 18, PIECE = 32, RUNS = 1;
    static constexpr bool IS_SHIFTED = true;
    static __device__ __forceinline__ u32 start(u32 piece, u32) { return piece * PIECE; }
    static __device__ __forceinline__ void load(const unsigned char *row, u32 piece, Piece<PIECE, RUNS> &to) {
        const unsigned char *block = row + (u64)piece * BLOCK_BYTES;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int both = int_of_halves(block + 2 + 4 * i);
            to.numbers[i] = both & 0x0f0f0f0f;
            to.numbers[4 + i] = both >> 4 & 0x0f0f0f0f;
        }
        to.scales[0] = half_at(block);
        to.least[0] = -8.f * to.scales[0];
    }
};

struct Q4_1 {
    static constexpr u32 BLOCK_NUMBERS = 32, BLOCK_BYTES = 20, PIECE = 32, RUNS = 1;
    static constexpr bool IS_SHIFTED = true;
    static __device__ __forceinline__ u32 start(u32 piece, u32) { return piece * PIECE; }
    static __device__ __forceinline__ void load(const unsigned char *row, u32 piece, Piece<PIECE, RUNS> &to) {
        const unsigned char *block = row + (u64)piece * BLOCK_BYTES;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int both = int_of_words(block + 4 + 4 * i);
            to.numbers[i] = both & 0x0f0f0f0f;
            to.numbers[4 + i] = both >> 4 & 0x0f0f0f0f;
        }
        to.scales[0] = half_at(block);
        to.least[0] = half_at(block + 2);
    }
};

struct Q5_0 {
    static constexpr u32 BLOCK_NUMBERS = 32, BLOCK_BYTES = 22, PIECE = 32, RUNS = 1;
    static constexpr bool IS_SHIFTED = true;
    static __device__ __forceinline__ u32 start(u32 piece, u32) { return piece * PIECE; }
    static __device__ __forceinline__ void load(const unsigned char *row, u32 piece, Piece<PIECE, RUNS> &to) {
        const unsigned char *block = row + (u64)piece * BLOCK_BYTES;
        int high = int_of_halves(block + 2);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int both = int_of_halves(block + 6 + 4 * i);
            to.numbers[i] = (both & 0x0f0f0f0f) | fifth_bits(high, 4 * i);
            to.numbers[4 + i] = (both >> 4 & 0x0f0f0f0f) | fifth_bits(high, 16 + 4 * i);
        }
        to.scales[0] = half_at(block);
        to.least[0] = -16.f * to.scales[0];
    }
};

struct Q5_1 {
    static constexpr u32 BLOCK_NUMBERS = 32, BLOCK_BYTES = 24, PIECE = 32, RUNS = 1;
    static constexpr bool IS_SHIFTED = true;
    static __device__ __forceinline__ u32 start(u32 piece, u32) { return piece * PIECE; }
    static __device__ __forceinline__ void load(const unsigned char *row, u32 piece, Piece<PIECE, RUNS> &to) {
        const unsigned char *block = row + (u64)piece * BLOCK_BYTES;
        int high = int_of_words(block + 4);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int both = int_of_words(block + 8 + 4 * i);
            to.numbers[i] = (both & 0x0f0f0f0f) | fifth_bits(high, 4 * i);
            to.numbers[4 + i] = (both >> 4 & 0x0f0f0f0f) | fifth_bits(high, 16 + 4 * i);
        }
        to.scales[0] = half_at(block);
        to.least[0] = half_at(block + 2);
    }
};

struct Q8_0 {
    static constexpr u32 BLOCK_NUMBERS = 32, BLOCK_BYTES = 34, PIECE = 32, RUNS = 1;
    static constexpr bool IS_SHIFTED = false;
    static __device__ __forceinline__ u32 start(u32 piece, u32) { return piece * PIECE; }
    static __device__ __forceinline__ void load(const unsigned char *row, u32 piece, Piece<PIECE, RUNS> &to) {
        const unsigned char *block = row + (u64)piece * BLOCK_BYTES;
#pragma unroll
        for (int i = 0; i < 8; i++) to.numbers[i] = int_of_halves(block + 2 + 4 * i);
        to.scales[0] = half_at(block);
    }
};

// Scale and least number of 32 numbers, in six bits each, of the eight that twelve bytes have.
__device__ __forceinline__ void six_bits(const unsigned char *scales, u32 at, u32 &scale, u32 &least) {
    if (at < 4) {
        scale = scales[at] & 63;
        least = scales[at + 4] & 63;
    } else {
        scale = (scales[at + 4] & 15) | scales[at - 4] >> 6 << 4;
        least = scales[at + 4] >> 4 | scales[at] >> 6 << 4;
    }
}

struct Q4_K {
    static constexpr u32 BLOCK_NUMBERS = 256, BLOCK_BYTES = 144, PIECE = 64, RUNS = 2;
    static constexpr bool IS_SHIFTED = true;
    static __device__ __forceinline__ u32 start(u32 piece, u32 run) { return piece * PIECE + 32 * run; }
    static __device__ __forceinline__ void load(const unsigned char *row, u32 piece, Piece<PIECE, RUNS> &to) {
        const unsigned char *block = row + (u64)(piece / 4) * BLOCK_BYTES;
        const uint4 *from = reinterpret_cast<const uint4 *>(block + 16 + piece % 4 * 32);
        const uint4 first = from[0], second = from[1];
        const u32 both[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            to.numbers[i] = both[i] & 0x0f0f0f0f;
            to.numbers[8 + i] = both[i] >> 4 & 0x0f0f0f0f;
        }
        const float scale = half_at(block), least = half_at(block + 2);
#pragma unroll
        for (int run = 0; run < 2; run++) {
            u32 of_scale, of_least;
            six_bits(block + 4, piece % 4 * 2 + run, of_scale, of_least);
            to.scales[run] = scale * (float)of_scale;
            to.least[run] = -least * (float)of_least;
        }
    }
};

struct Q5_K {
    static constexpr u32 BLOCK_NUMBERS = 256, BLOCK_BYTES = 176, PIECE = 64, RUNS = 2;
    static constexpr bool IS_SHIFTED = true;
    static __device__ __forceinline__ u32 start(u32 piece, u32 run) { return piece * PIECE + 32 * run; }
    static __device__ __forceinline__ void load(const unsigned char *row, u32 piece, Piece<PIECE, RUNS> &to) {
        const unsigned char *block = row + (u64)(piece / 4) * BLOCK_BYTES;
        const u32 pair = piece % 4;
#pragma unroll
        for (int side = 0; side < 2; side++) {
            const uint4 four = *reinterpret_cast<const uint4 *>(block + 48 + pair * 32 + 16 * side);
            const uint4 fifth = *reinterpret_cast<const uint4 *>(block + 16 + 16 * side);
            const u32 both[4] = {four.x, four.y, four.z, four.w}, high[4] = {fifth.x, fifth.y, fifth.z, fifth.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                to.numbers[4 * side + i] = (both[i] & 0x0f0f0f0f) | (high[i] >> 2 * pair & 0x01010101) << 4;
                to.numbers[8 + 4 * side + i] = (both[i] >> 4 & 0x0f0f0f0f) | (high[i] >> (2 * pair + 1) & 0x01010101) << 4;
            }
        }
        const float scale = half_at(block), least = half_at(block + 2);
#pragma unroll
        for (int run = 0; run < 2; run++) {
            u32 of_scale, of_least;
            six_bits(block + 4, pair * 2 + run, of_scale, of_least);
            to.scales[run] = scale * (float)of_scale;
            to.least[run] = -least * (float)of_least;
        }
    }
};

// Formats with a scale for 16 numbers: a piece has four runs of 16, at the same place of four neighbours of 32.
__device__ __forceinline__ u32 start_of_sixteen(u32 piece, u32 run) {
    return piece / 2 * 128 + run * 32 + piece % 2 * 16;
}
// The number of a run's scale among the sixteen of a block.
__device__ __forceinline__ u32 scale_of_sixteen(u32 piece, u32 run) { return piece % 4 / 2 * 8 + run * 2 + piece % 2; }

struct Q6_K {
    static constexpr u32 BLOCK_NUMBERS = 256, BLOCK_BYTES = 210, PIECE = 64, RUNS = 4;
    static constexpr bool IS_SHIFTED = false;
    static __device__ __forceinline__ u32 start(u32 piece, u32 run) { return start_of_sixteen(piece, run); }
    static __device__ __forceinline__ void load(const unsigned char *row, u32 piece, Piece<PIECE, RUNS> &to) {
        const unsigned char *block = row + (u64)(piece / 4) * BLOCK_BYTES;
        const u32 half = piece % 4 / 2, first = piece % 2 * 16;
        const unsigned char *low = block + half * 64 + first, *high = block + 128 + half * 32 + first;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int a = int_of_halves(low + 4 * i), b = int_of_halves(low + 32 + 4 * i), two = int_of_halves(high + 4 * i);
            const int numbers[4] = {
                (a & 0x0f0f0f0f) | (two & 0x03030303) << 4,
                (b & 0x0f0f0f0f) | (two >> 2 & 0x03030303) << 4,
                (a >> 4 & 0x0f0f0f0f) | (two >> 4 & 0x03030303) << 4,
                (b >> 4 & 0x0f0f0f0f) | (two >> 6 & 0x03030303) << 4,
            };
#pragma unroll
            for (int run = 0; run < 4; run++) to.numbers[4 * run + i] = __vsubss4(numbers[run], 0x20202020);
        }
        const float scale = half_at(block + 208);
#pragma unroll
        for (int run = 0; run < 4; run++)
            to.scales[run] = scale * (float)(signed char)block[192 + scale_of_sixteen(piece, run)];
    }
};

struct Q3_K {
    static constexpr u32 BLOCK_NUMBERS = 256, BLOCK_BYTES = 110, PIECE = 64, RUNS = 4;
    static constexpr bool IS_SHIFTED = false;
    static __device__ __forceinline__ u32 start(u32 piece, u32 run) { return start_of_sixteen(piece, run); }
    static __device__ __forceinline__ void load(const unsigned char *row, u32 piece, Piece<PIECE, RUNS> &to) {
        const unsigned char *block = row + (u64)(piece / 4) * BLOCK_BYTES;
        const u32 half = piece % 4 / 2, first = piece % 2 * 16;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int two = int_of_halves(block + 32 + half * 32 + first + 4 * i), third = int_of_halves(block + first + 4 * i);
#pragma unroll
            for (int run = 0; run < 4; run++) {
                const int number = (two >> 2 * run & 0x03030303) | (third >> (4 * half + run) & 0x01010101) << 2;
                to.numbers[4 * run + i] = __vsubss4(number, 0x04040404);
            }
        }
        const float scale = half_at(block + 108);
        const unsigned char *scales = block + 96;
#pragma unroll
        for (int run = 0; run < 4; run++) {
            const u32 at = scale_of_sixteen(piece, run);
            const u32 low = at < 8 ? scales[at] & 15 : scales[at - 8] >> 4, high = scales[8 + at % 4] >> at / 4 * 2 & 3;
            to.scales[run] = scale * (float)((int)(low | high << 4) - 32);
        }
    }
};

struct Q2_K {
    static constexpr u32 BLOCK_NUMBERS = 256, BLOCK_BYTES = 84, PIECE = 64, RUNS = 4;
    static constexpr bool IS_SHIFTED = true;
    static __device__ __forceinline__ u32 start(u32 piece, u32 run) { return start_of_sixteen(piece, run); }
    static __device__ __forceinline__ void load(const unsigned char *row, u32 piece, Piece<PIECE, RUNS> &to) {
        const unsigned char *block = row + (u64)(piece / 4) * BLOCK_BYTES;
        const u32 half = piece % 4 / 2, first = piece % 2 * 16;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int two = int_of_words(block + 16 + half * 32 + first + 4 * i);
#pragma unroll
            for (int run = 0; run < 4; run++) to.numbers[4 * run + i] = two >> 2 * run & 0x03030303;
        }
        const float scale = half_at(block + 80), least = half_at(block + 82);
#pragma unroll
        for (int run = 0; run < 4; run++) {
            const u32 both = block[scale_of_sixteen(piece, run)];
            to.scales[run] = scale * (float)(both & 15);
            to.least[run] = -least * (float)(both >> 4);
        }
    }
};

// Several matrices with the same columns. `ends` are the warps of all up to each matrix.
struct BlockMatrices {
    const unsigned char *weights[4];
    u32 rows[4], ends[4];
    void *results[4];
    u32 count;
};

// The products of R rows of a matrix with N rows of activations, of which `rows` are there. A lane adds its pieces in
// order, whatever N and R are.
template <typename F, int N, int R>
__device__ __forceinline__ void products_of_rows(const unsigned char *const (&weights)[R], const signed char *numbers,
                                                 const float2 *scales, u32 rows, u32 columns, float (&sums)[R][N]) {
    constexpr u32 LENGTH = F::PIECE / F::RUNS;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int n = 0; n < N; n++) sums[r][n] = 0.f;
    for (u32 index = threadIdx.x % 32; index < columns / F::PIECE; index += 32) {
        Piece<F::PIECE, F::RUNS> pieces[R];
#pragma unroll
        for (int r = 0; r < R; r++) F::load(weights[r], index, pieces[r]);
#pragma unroll
        for (int n = 0; n < N; n++) {
            if (n >= (int)rows) break;
#pragma unroll
            for (u32 run = 0; run < F::RUNS; run++) {
                const u32 start = F::start(index, run);
                const u64 sixteen = ((u64)n * columns + start) / 16;
                int products[R] = {}, sum = 0;
#pragma unroll
                for (u32 four = 0; four < LENGTH / 16; four++) {
                    const uint4 part = reinterpret_cast<const uint4 *>(numbers)[kept_at(sixteen + four)];
                    const int of_part[4] = {(int)part.x, (int)part.y, (int)part.z, (int)part.w};
#pragma unroll
                    for (u32 i = 0; i < 4; i++) {
#pragma unroll
                        for (int r = 0; r < R; r++)
                            products[r] = __dp4a(pieces[r].numbers[LENGTH / 4 * run + 4 * four + i], of_part[i], products[r]);
                        if (F::IS_SHIFTED && LENGTH < ROUNDED) sum = __dp4a(0x01010101, of_part[i], sum);
                    }
                }
                const float2 scale = scales[((u64)n * columns + start) / ROUNDED];
                const float shift = LENGTH < ROUNDED ? scale.x * (float)sum : scale.y;
#pragma unroll
                for (int r = 0; r < R; r++) {
                    sums[r][n] = fmaf(pieces[r].scales[run] * scale.x, (float)products[r], sums[r][n]);
                    if (F::IS_SHIFTED) sums[r][n] = fmaf(pieces[r].least[run], shift, sums[r][n]);
                }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int n = 0; n < N; n++) sums[r][n] = of_warp(sums[r][n]);
}

// `activation` is negative for plain products. Else the two matrices, of as many rows, are gates and ups.
template <typename F, int N, int R>
__device__ __forceinline__ void few_rows(const BlockMatrices &matrices, const signed char *numbers, const float2 *scales,
                                         u32 rows, u32 columns, int result, int activation) {
    const u32 warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const u64 row_bytes = (u64)(columns / F::BLOCK_NUMBERS) * F::BLOCK_BYTES;
    const bool is_gated = activation >= 0;
    const unsigned char *weights = matrices.weights[0];
    void *to = matrices.results[0];
    u32 first = 0, last = matrices.ends[0], all = matrices.rows[0];
#pragma unroll
    for (u32 next = 1; next < 4; next++) {
        if (!is_gated && next < matrices.count && warp >= last) {
            weights = matrices.weights[next];
            to = matrices.results[next];
            all = matrices.rows[next];
            first = last;
            last = matrices.ends[next];
        }
    }
    if (warp >= last) return;
    u32 own[R];
    const unsigned char *from[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        own[r] = min((warp - first) * R + r, all - 1);
        from[r] = weights + own[r] * row_bytes;
    }
    float sums[R][N];
    products_of_rows<F, N, R>(from, numbers, scales, rows, columns, sums);
    if (is_gated) {
        float ups[R][N];
#pragma unroll
        for (int r = 0; r < R; r++) from[r] = matrices.weights[1] + own[r] * row_bytes;
        products_of_rows<F, N, R>(from, numbers, scales, rows, columns, ups);
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int n = 0; n < N; n++) sums[r][n] = activated(sums[r][n], activation) * ups[r][n];
    }
    // A lane for each result.
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int n = 0; n < N; n++)
            if (lane == r * N + n && n < (int)rows) write_as(to, (u64)n * all + own[r], sums[r][n], result);
}

// The product of one row of activations, which each block rounds for its warps.
#define MOST_COLUMNS 16384
template <typename F>
__device__ __forceinline__ void one_row(const BlockMatrices &matrices, const void *x, int given, u32 columns, int result,
                                        int activation) {
    __shared__ __align__(16) signed char numbers[MOST_COLUMNS];
    __shared__ float2 scales[MOST_COLUMNS / ROUNDED];
    for (u32 block = threadIdx.x / 32; block < columns / ROUNDED; block += blockDim.x / 32)
        round_numbers(read_as(x, block * ROUNDED + threadIdx.x % 32, given), block, numbers, scales);
    __syncthreads();
    few_rows<F, 1, 1>(matrices, numbers, scales, 1, columns, result, activation);
}

// Two rows of a matrix share the activations that a lane reads where there are several rows of them.
#define FEW_ROWS_OF(name, F, N)                                                                                        \
    extern "C" __global__ void __launch_bounds__(128) few_rows_##name##_##N(BlockMatrices matrices,                    \
                                                                            const signed char *numbers,                \
                                                                            const float2 *scales, u32 rows,            \
                                                                            u32 columns, int result, int activation) { \
        few_rows<F, N, 2>(matrices, numbers, scales, rows, columns, result, activation);                               \
    }
#define FEW_ROWS(name, F)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256) one_row_##name(BlockMatrices matrices, const void *x, int given, \
                                                                     u32 columns, int result, int activation) {        \
        one_row<F>(matrices, x, given, columns, result, activation);                                                   \
    }                                                                                                                  \
    FEW_ROWS_OF(name, F, 2) FEW_ROWS_OF(name, F, 4) FEW_ROWS_OF(name, F, 8)
FEW_ROWS(q4_0, Q4_0)
FEW_ROWS(q4_1, Q4_1)
FEW_ROWS(q5_0, Q5_0)
FEW_ROWS(q5_1, Q5_1)
FEW_ROWS(q8_0, Q8_0)
FEW_ROWS(q2_k, Q2_K)
FEW_ROWS(q3_k, Q3_K)
FEW_ROWS(q4_k, Q4_K)
FEW_ROWS(q5_k, Q5_K)
FEW_ROWS(q6_k, Q6_K)
