// Operations of networks that make and hear media. Activations are f32 and channels-last; operands of products are
// narrowed to halves where the weights are halves.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned int u32;
typedef unsigned long long u64;

// No input: see `axis.rs`.
#define NOTHING 0xffffffffu

template <typename T> __device__ __forceinline__ T narrow(float x);
template <> __device__ __forceinline__ float narrow<float>(float x) { return x; }
template <> __device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }
// Values beyond the range of f16 become its largest; what is no number stays none.
template <> __device__ __forceinline__ __half narrow<__half>(float x) {
    x = x > 65504.f ? 65504.f : x;
    return __float2half_rn(x < -65504.f ? -65504.f : x);
}

template <typename T, int N> struct alignas(N * sizeof(T)) Several {
    T values[N];
};

template <typename T, int N> __device__ __forceinline__ void copy_narrowed(const float *from, T *to) {
    Several<float, N> wide = *reinterpret_cast<const Several<float, N> *>(from);
    Several<T, N> narrowed;
#pragma unroll
    for (int i = 0; i < N; i++) narrowed.values[i] = narrow<T>(wide.values[i]);
    *reinterpret_cast<Several<T, N> *>(to) = narrowed;
}

// A convolution as a product: a row for each output with the inputs that its taps see.
template <typename T, int N>
__device__ __forceinline__ void lower(const float *x, T *rows, const u32 *ys, const u32 *xs, u32 first, u32 count,
                                      u32 height, u32 width, u32 channels, u32 from, u32 inputs, u32 out_height,
                                      u32 out_width, u32 tall, u32 wide) {
    u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u32 pieces = inputs / N, taps = tall * wide;
    if (index >= (u64)count * taps * pieces) return;
    u32 input = index % pieces * N;
    u64 rest = index / pieces;
    u32 tap = rest % taps, row = rest / taps;
    u32 place = first + row;
    u32 out_x = place % out_width, line = place / out_width;
    u32 out_y = line % out_height, image = line / out_height;
    u32 y = ys[out_y * tall + tap / wide], across = xs[out_x * wide + tap % wide];
    T *to = rows + ((u64)row * taps + tap) * inputs + input;
    if (y == NOTHING || across == NOTHING) {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = narrow<T>(0.f);
    } else {
        copy_narrowed<T, N>(x + (((u64)image * height + y) * width + across) * channels + from + input, to);
    }
}

#define LOWER(name, T, N)                                                                                              \
    extern "C" __global__ void name(const float *x, T *rows, const u32 *ys, const u32 *xs, u32 first, u32 count,       \
                                    u32 height, u32 width, u32 channels, u32 from, u32 inputs, u32 out_height,         \
                                    u32 out_width, u32 tall, u32 wide) {                                               \
        lower<T, N>(x, rows, ys, xs, first, count, height, width, channels, from, inputs, out_height, out_width, tall, \
                    wide);                                                                                             \
    }
LOWER(lower_f32_1, float, 1)
LOWER(lower_f32_4, float, 4)
LOWER(lower_f16_1, __half, 1)
LOWER(lower_f16_4, __half, 4)
LOWER(lower_bf16_1, __nv_bfloat16, 1)
LOWER(lower_bf16_4, __nv_bfloat16, 4)

template <typename T> __device__ __forceinline__ void narrow_all(const float *x, T *to, u64 count) {
    u64 index = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (index + 4 <= count) {
        copy_narrowed<T, 4>(x + index, to + index);
    } else {
        for (; index < count; index++) to[index] = narrow<T>(x[index]);
    }
}

extern "C" __global__ void narrow_f16(const float *x, __half *to, u64 count) { narrow_all(x, to, count); }
extern "C" __global__ void narrow_bf16(const float *x, __nv_bfloat16 *to, u64 count) { narrow_all(x, to, count); }

extern "C" __global__ void fill_rows(const float *row, float *to, u64 count, u32 columns) {
    u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count) to[index] = row[index % columns];
}

// Sums of a part of an image's places for each group, of values less a pivot, and of their squares. A block has a part
// of an image; its shared memory is two floats for each channel and lane.
extern "C" __global__ void group_sums(const float *x, float2 *sums, u32 places, u32 channels, u32 groups, u32 part) {
    extern __shared__ float2 of_channels[];
    u32 image = blockIdx.y, parts = gridDim.x, size = channels / groups;
    const float *from = x + (u64)image * places * channels;
    u32 first = blockIdx.x * part, last = min(places, first + part);
    u32 across = min(channels, blockDim.x), lanes = blockDim.x / across;
    u32 lane = threadIdx.x / across;
    if (lane < lanes) {
        for (u32 channel = threadIdx.x % across; channel < channels; channel += across) {
            float pivot = from[channel / size * size], sum = 0.f, squares = 0.f;
            for (u32 place = first + lane; place < last; place += lanes) {
                float value = from[(u64)place * channels + channel] - pivot;
                sum += value;
                squares += value * value;
            }
            of_channels[lane * channels + channel] = make_float2(sum, squares);
        }
    }
    __syncthreads();
    for (u32 group = threadIdx.x; group < groups; group += blockDim.x) {
        float sum = 0.f, squares = 0.f;
        for (u32 lane = 0; lane < lanes; lane++)
            for (u32 channel = group * size; channel < (group + 1) * size; channel++) {
                float2 found = of_channels[lane * channels + channel];
                sum += found.x;
                squares += found.y;
            }
        sums[((u64)image * groups + group) * parts + blockIdx.x] = make_float2(sum, squares);
    }
}

// Normalizes a part of an image by those sums; shared memory is two floats for each group.
extern "C" __global__ void group_apply(const float *x, const float2 *sums, const float *weight, const float *bias,
                                       float *to, u32 places, u32 channels, u32 groups, u32 part, u32 parts,
                                       float epsilon) {
    extern __shared__ float2 of_groups[];
    u32 image = blockIdx.y, size = channels / groups;
    u64 offset = (u64)image * places * channels;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (u32 group = warp; group < groups; group += blockDim.x / 32) {
        double sum = 0., squares = 0.;
        for (u32 index = lane; index < parts; index += 32) {
            float2 found = sums[((u64)image * groups + group) * parts + index];
            sum += found.x;
            squares += found.y;
        }
        for (int step = 16; step > 0; step /= 2) {
            sum += __shfl_down_sync(~0u, sum, step);
            squares += __shfl_down_sync(~0u, squares, step);
        }
        if (lane == 0) {
            double count = (double)places * size, mean = sum / count;
            double variance = squares / count - mean * mean;
            float scale = (float)(1. / sqrt(max(variance, 0.) + (double)epsilon));
            of_groups[group] = make_float2(x[offset + group * size] + (float)mean, scale);
        }
    }
    __syncthreads();
    u32 first = blockIdx.x * part, last = min(places, first + part);
    u64 count = (u64)(last - first) * channels;
    offset += (u64)first * channels;
    for (u64 index = threadIdx.x; index < count; index += blockDim.x) {
        u32 channel = index % channels;
        float2 of_group = of_groups[channel / size];
        float value = (x[offset + index] - of_group.x) * of_group.y;
        if (weight) value *= weight[channel];
        if (bias) value += bias[channel];
        to[offset + index] = value;
    }
}

__device__ __forceinline__ float of_warp(float sum) {
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
}

// A warp for each row.
extern "C" __global__ void layer_norm(const float *x, const float *weight, const float *bias, float *to, u32 rows,
                                      u32 columns, float epsilon) {
    u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const float *from = x + (u64)row * columns;
    float sum = 0.f, squares = 0.f;
    for (u32 column = lane; column < columns; column += 32) sum += from[column];
    float mean = of_warp(sum) / columns;
    for (u32 column = lane; column < columns; column += 32) {
        float value = from[column] - mean;
        squares += value * value;
    }
    float scale = 1.f / sqrtf(of_warp(squares) / columns + epsilon);
    for (u32 column = lane; column < columns; column += 32) {
        float value = (from[column] - mean) * scale;
        if (weight) value *= weight[column];
        if (bias) value += bias[column];
        to[(u64)row * columns + column] = value;
    }
}

__device__ __forceinline__ u32 shared_address(const void *pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}

// Four blocks of 8 by 8 halves; each lane has the address of a row.
__device__ __forceinline__ void load_blocks(u32 blocks[4], const __half *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
                 : "r"(shared_address(row)));
}

__device__ __forceinline__ void load_blocks_transposed(u32 blocks[4], const __half *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
                 : "r"(shared_address(row)));
}

// sums[16 by 8] += a[16 by 16] · b[16 by 8]
__device__ __forceinline__ void add_product(float sums[4], const u32 a[4], u32 first, u32 second) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(first), "r"(second));
}

__device__ __forceinline__ u32 pair(float first, float second) {
    __half2 both = __floats2half2_rn(first, second);
    return *reinterpret_cast<u32 *>(&both);
}

// Attention that never holds a whole score matrix. A block has QUERIES queries of a head, a warp 16 of them; keys
// and values come KEYS at a time. D is the size of a head, rounded up to what the matrix units take. Scores beyond `cap`
// are bent, unless it is zero. A query sees the keys of its chunk alone, unless `chunk` is zero. A sink is a score of
// each head in the softmax that no key has.
template <int D, int QUERIES, int KEYS>
__device__ __forceinline__ void attend(const __half *q, const __half *k, const __half *v, float *to, int queries,
                                       int keys, int heads, int kv_heads, int size, float scale, int before,
                                       int after, float cap, int chunk, const float *sinks, int has_sinks) {
    constexpr int STRIDE = D + 8, PIECES = D / 8;
    static_assert(QUERIES >= 2 * KEYS);
    __shared__ __align__(16) __half held[QUERIES * STRIDE];
    __half *held_keys = held, *held_values = held + KEYS * STRIDE;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first = blockIdx.x * QUERIES, head = blockIdx.y, image = blockIdx.z;
    const int kv_head = head / (heads / kv_heads);
    const uint4 zeros = make_uint4(0, 0, 0, 0);

    for (int index = threadIdx.x; index < QUERIES * PIECES; index += blockDim.x) {
        int row = index / PIECES, column = index % PIECES * 8;
        u64 at = (((u64)image * queries + first + row) * heads + head) * size + column;
        bool is_there = first + row < queries && column < size;
        *reinterpret_cast<uint4 *>(held + row * STRIDE + column) =
            is_there ? *reinterpret_cast<const uint4 *>(q + at) : zeros;
    }
    __syncthreads();
    u32 own[D / 16][4];
#pragma unroll
    for (int step = 0; step < D / 16; step++)
        load_blocks(own[step], held + (warp * 16 + lane % 16) * STRIDE + step * 16 + lane / 16 * 8);

    float sums[D / 8][4], most[2], total[2];
#pragma unroll
    for (int i = 0; i < D / 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sums[i][j] = 0.f;
    most[0] = most[1] = -INFINITY;
    total[0] = total[1] = 0.f;

    // The position of the first query among the keys, and the keys that any query of the block sees.
    const int shift = keys - queries;
    const int last = min(first + QUERIES, queries) - 1;
    // The oldest keys that the first and the last query see.
    int oldest = before < 0 ? 0 : max(0, first + shift - before);
    int oldest_of_last = before < 0 ? 0 : max(0, last + shift - before);
    if (chunk > 0) {
        oldest = max(oldest, (first + shift) / chunk * chunk);
        oldest_of_last = max(oldest_of_last, (last + shift) / chunk * chunk);
    }
    int from = oldest / KEYS * KEYS;
    int end = after < 0 ? keys : min(keys, last + shift + after + 1);
    const float factor = (cap > 0.f ? 1.f : scale) * 1.4426950408889634f;
    // The keys that the two queries of a thread see.
    int lowest[2], highest[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int place = first + warp * 16 + lane / 4 + half * 8 + shift;
        lowest[half] = before < 0 ? 0 : place - before;
        if (chunk > 0) lowest[half] = max(lowest[half], place / chunk * chunk);
        highest[half] = after < 0 ? keys - 1 : min(keys - 1, place + after);
    }

    for (int start = from; start < end; start += KEYS) {
        __syncthreads();
        for (int index = threadIdx.x; index < KEYS * PIECES; index += blockDim.x) {
            int row = index / PIECES, column = index % PIECES * 8;
            u64 at = (((u64)image * keys + start + row) * kv_heads + kv_head) * size + column;
            bool is_there = start + row < keys && column < size;
            *reinterpret_cast<uint4 *>(held_keys + row * STRIDE + column) =
                is_there ? *reinterpret_cast<const uint4 *>(k + at) : zeros;
            *reinterpret_cast<uint4 *>(held_values + row * STRIDE + column) =
                is_there ? *reinterpret_cast<const uint4 *>(v + at) : zeros;
        }
        __syncthreads();

        float scores[KEYS / 8][4];
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) scores[i][j] = 0.f;
#pragma unroll
        for (int step = 0; step < D / 16; step++)
#pragma unroll
            for (int two = 0; two < KEYS / 16; two++) {
                u32 blocks[4];
                int row = two * 16 + lane / 16 * 8 + lane % 8, column = step * 16 + lane / 8 % 2 * 8;
                load_blocks(blocks, held_keys + row * STRIDE + column);
                add_product(scores[2 * two], own[step], blocks[0], blocks[1]);
                add_product(scores[2 * two + 1], own[step], blocks[2], blocks[3]);
            }

        if (cap > 0.f) {
#pragma unroll
            for (int i = 0; i < KEYS / 8; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) scores[i][j] = cap * tanhf(scores[i][j] * scale / cap);
        }
        bool is_whole = start + KEYS <= keys && start >= oldest_of_last &&
                        (after < 0 || start + KEYS - 1 <= first + shift + after);
        if (!is_whole) {
#pragma unroll
            for (int i = 0; i < KEYS / 8; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int key = start + i * 8 + lane % 4 * 2 + j % 2;
                    bool is_seen = key >= lowest[j / 2] && key <= highest[j / 2];
                    if (!is_seen) scores[i][j] = -INFINITY;
                }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float largest = most[half];
#pragma unroll
            for (int i = 0; i < KEYS / 8; i++)
                largest = fmaxf(largest, fmaxf(scores[i][2 * half], scores[i][2 * half + 1]));
            largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
            float less = largest == -INFINITY ? 0.f : largest * factor;
            float kept = exp2f(most[half] * factor - less);
            most[half] = largest;
            float sum = 0.f;
#pragma unroll
            for (int i = 0; i < KEYS / 8; i++)
#pragma unroll
                for (int j = 2 * half; j < 2 * half + 2; j++) {
                    scores[i][j] = exp2f(scores[i][j] * factor - less);
                    sum += scores[i][j];
                }
            total[half] = total[half] * kept + sum;
#pragma unroll
            for (int i = 0; i < D / 8; i++) {
                sums[i][2 * half] *= kept;
                sums[i][2 * half + 1] *= kept;
            }
        }
#pragma unroll
        for (int step = 0; step < KEYS / 16; step++) {
            const float *low = scores[2 * step], *high = scores[2 * step + 1];
            u32 shares[4] = {pair(low[0], low[1]), pair(low[2], low[3]), pair(high[0], high[1]), pair(high[2], high[3])};
#pragma unroll
            for (int two = 0; two < D / 16; two++) {
                u32 blocks[4];
                int row = step * 16 + lane / 8 % 2 * 8 + lane % 8, column = two * 16 + lane / 16 * 8;
                load_blocks_transposed(blocks, held_values + row * STRIDE + column);
                add_product(sums[2 * two], shares, blocks[0], blocks[1]);
                add_product(sums[2 * two + 1], shares, blocks[2], blocks[3]);
            }
        }
    }

#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = total[half];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (has_sinks) sum += exp2f(sinks[head] * 1.4426950408889634f - most[half] * factor);
        // Not zero for sums that are no numbers.
        float share = sum == 0.f ? 0.f : 1.f / sum;
        int query = first + warp * 16 + lane / 4 + half * 8;
        if (query >= queries) continue;
        float *row = to + (((u64)image * queries + query) * heads + head) * size;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            int column = i * 8 + lane % 4 * 2;
            if (column < size)
                *reinterpret_cast<float2 *>(row + column) =
                    make_float2(sums[i][2 * half] * share, sums[i][2 * half + 1] * share);
        }
    }
}

// BLOCKS of them at once on a multiprocessor, at least.
#define ATTEND(D, QUERIES, KEYS, BLOCKS)                                                                               \
    extern "C" __global__ void __launch_bounds__(QUERIES * 2, BLOCKS)                                                  \
        attend_##D(const __half *q, const __half *k, const __half *v, float *to, int queries, int keys, int heads,     \
                   int kv_heads, int size, float scale, int before, int after, float cap, int chunk,                   \
                   const float *sinks, int has_sinks) {                                                                \
        attend<D, QUERIES, KEYS>(q, k, v, to, queries, keys, heads, kv_heads, size, scale, before, after, cap, chunk,  \
                                 sinks, has_sinks);                                                                    \
    }
ATTEND(32, 128, 64, 2)
ATTEND(48, 128, 64, 2)
ATTEND(64, 128, 64, 2)
ATTEND(80, 128, 64, 1)
ATTEND(96, 128, 64, 1)
ATTEND(128, 128, 64, 1)
ATTEND(160, 128, 64, 1)
ATTEND(256, 64, 32, 2)

// Text: activations are f32, f16 or bf16, and so are keys and values in pages.

template <typename T> __device__ __forceinline__ float wide(T x);
template <> __device__ __forceinline__ float wide<float>(float x) { return x; }
template <> __device__ __forceinline__ float wide<__half>(__half x) { return __half2float(x); }
template <> __device__ __forceinline__ float wide<__nv_bfloat16>(__nv_bfloat16 x) { return __bfloat162float(x); }

// Numbers of a type that is known at the launch: 0 is f32, 1 f16, 2 bf16.
__device__ __forceinline__ void write_as(void *to, u64 at, float value, int kind) {
    if (kind == 0)
        static_cast<float *>(to)[at] = value;
    else if (kind == 1)
        static_cast<__half *>(to)[at] = narrow<__half>(value);
    else
        static_cast<__nv_bfloat16 *>(to)[at] = narrow<__nv_bfloat16>(value);
}

__device__ __forceinline__ float read_as(const void *from, u64 at, int kind) {
    if (kind == 0) return static_cast<const float *>(from)[at];
    if (kind == 1) return wide(static_cast<const __half *>(from)[at]);
    return wide(static_cast<const __nv_bfloat16 *>(from)[at]);
}

#define FOR_ALL_TYPES(MAKE) MAKE(f32, float) MAKE(f16, __half) MAKE(bf16, __nv_bfloat16)

// Keys or values of a layer in pages.
template <typename P> struct Numbers {
    const P *numbers;
    template <int N> struct Piece {
        Several<P, N> some;
        __device__ __forceinline__ float operator[](int i) const { return wide(some.values[i]); }
    };
    template <int N> __device__ __forceinline__ Piece<N> load(u64 at) const {
        return {*reinterpret_cast<const Several<P, N> *>(numbers + at)};
    }
};

// The same as whole numbers of eight bits, stored 128 greater, and a scale for each 32 of them.
#define BLOCK 32
struct Blocks {
    const unsigned char *numbers;
    const __half *scales;
    template <int N> struct Piece {
        Several<unsigned char, N> some;
        float scale;
        __device__ __forceinline__ float operator[](int i) const { return ((int)some.values[i] - 128) * scale; }
    };
    template <int N> __device__ __forceinline__ Piece<N> load(u64 at) const {
        return {*reinterpret_cast<const Several<unsigned char, N> *>(numbers + at), __half2float(scales[at / BLOCK])};
    }
};

// A warp writes a block: its largest number becomes 127.
__device__ __forceinline__ void write_block(float x, u64 to, unsigned char *numbers, __half *scales) {
    u32 lane = threadIdx.x % 32;
    float largest = fabsf(x);
    for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    __half scale = narrow<__half>(largest / 127.f);
    float wide_scale = __half2float(scale);
    float number = wide_scale > 0.f ? rintf(x * (1.f / wide_scale)) : 0.f;
    numbers[to * BLOCK + lane] = (unsigned char)((int)fminf(fmaxf(number, -127.f), 127.f) + 128);
    if (lane == 0) scales[to] = scale;
}

// Rows of keys and values to their places in the pages, a warp for each block.
extern "C" __global__ void write_blocks(const float *keys, const float *values, const u32 *slots,
                                        unsigned char *key_pages, unsigned char *value_pages, __half *key_scales,
                                        __half *value_scales, u32 rows, u32 blocks) {
    u32 index = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (index >= rows * blocks) return;
    u64 to = (u64)slots[index / blocks] * blocks + index % blocks;
    write_block(keys[(u64)index * BLOCK + lane], to, key_pages, key_scales);
    write_block(values[(u64)index * BLOCK + lane], to, value_pages, value_scales);
}

// The tokens of pages in order, as f16 and eight numbers at a time: `width` numbers of each token.
template <typename S>
__device__ __forceinline__ void gather(S stored, const u32 *pages, __half *to, u64 count, u32 width) {
    u64 index = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (index >= count) return;
    u64 token = index / width;
    auto eight = stored.template load<8>(((u64)pages[token / 32] * 32 + token % 32) * width + index % width);
    Several<__half, 8> halves;
#pragma unroll
    for (int i = 0; i < 8; i++) halves.values[i] = narrow<__half>(eight[i]);
    *reinterpret_cast<Several<__half, 8> *>(to + index) = halves;
}

extern "C" __global__ void gather_f16(const __half *numbers, const u32 *pages, __half *to, u64 count, u32 width) {
    gather(Numbers<__half>{numbers}, pages, to, count, width);
}
extern "C" __global__ void gather_bf16(const __nv_bfloat16 *numbers, const u32 *pages, __half *to, u64 count,
                                       u32 width) {
    gather(Numbers<__nv_bfloat16>{numbers}, pages, to, count, width);
}
extern "C" __global__ void gather_q8_0(const unsigned char *numbers, const __half *scales, const u32 *pages, __half *to,
                                       u64 count, u32 width) {
    gather(Blocks{numbers, scales}, pages, to, count, width);
}

// Copies rows of keys and values into their places in the pages, sixteen bytes at a time.
extern "C" __global__ void write_rows(const uint4 *keys, const uint4 *values, const u32 *slots, uint4 *key_pages,
                                      uint4 *value_pages, u32 rows, u32 pieces) {
    u32 index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= rows * pieces) return;
    u64 to = (u64)slots[index / pieces] * pieces + index % pieces;
    key_pages[to] = keys[index];
    value_pages[to] = values[index];
}

template <typename T>
__device__ __forceinline__ void select_rows(const T *from, const u32 *rows, T *to, u32 count, u32 pieces) {
    u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index < (u64)count * pieces) to[index] = from[(u64)rows[index / pieces] * pieces + index % pieces];
}

// Copies the rows with these indices, so many bytes at a time.
extern "C" __global__ void select_rows_16(const uint4 *from, const u32 *rows, uint4 *to, u32 count, u32 pieces) {
    select_rows(from, rows, to, count, pieces);
}
extern "C" __global__ void select_rows_2(const unsigned short *from, const u32 *rows, unsigned short *to, u32 count,
                                         u32 pieces) {
    select_rows(from, rows, to, count, pieces);
}

// Turns the first `2 * half` values of each head; `apart` is how far the two that turn together lie from each other.
template <typename T>
__device__ __forceinline__ void rotate(const T *x, const float *cosines, const float *sines, const u32 *positions,
                                       T *to, u32 rows, u32 heads, u32 size, u32 half, u32 apart) {
    u32 rest = size - 2 * half, each = half + rest;
    u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (u64)rows * heads * each) return;
    u32 turn = index % each;
    u64 head = index / each;
    const T *from = x + head * size;
    T *into = to + head * size;
    if (turn >= half) {
        into[half + turn] = from[half + turn];
        return;
    }
    u32 first = apart == 1 ? 2 * turn : turn, second = first + apart;
    u64 angle = (u64)positions[head / heads] * half + turn;
    float a = wide(from[first]), b = wide(from[second]), c = cosines[angle], s = sines[angle];
    into[first] = narrow<T>(a * c - b * s);
    into[second] = narrow<T>(b * c + a * s);
}

#define ROTATE(name, T)                                                                                                \
    extern "C" __global__ void rotate_##name(const T *x, const float *cosines, const float *sines,                     \
                                             const u32 *positions, T *to, u32 rows, u32 heads, u32 size, u32 half,     \
                                             u32 apart) {                                                              \
        rotate<T>(x, cosines, sines, positions, to, rows, heads, size, half, apart);                                   \
    }
FOR_ALL_TYPES(ROTATE)

// Before attention: queries and keys are normed by their root mean square, where there are weights, and turned by the
// angles of their positions; keys and values go to pages. A warp has a head of a row.
template <typename T, typename P>
__device__ __forceinline__ void heads_into_pages(const T *q, const T *k, const T *v, const T *query_weight,
                                                 const T *key_weight, const float *cosines, const float *sines,
                                                 const u32 *positions, const u32 *slots, float *to, P *key_pages,
                                                 P *value_pages, u32 rows, u32 heads, u32 kv_heads, u32 size, u32 half,
                                                 u32 apart, float epsilon) {
    const u32 warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 of_row = heads + 2 * kv_heads, row = warp / of_row, head = warp % of_row;
    if (row >= rows) return;
    if (head >= heads + kv_heads) {
        const u32 value = head - heads - kv_heads;
        const T *from = v + ((u64)row * kv_heads + value) * size;
        P *into = value_pages + ((u64)slots[row] * kv_heads + value) * size;
        for (u32 at = lane; at < size; at += 32) into[at] = narrow<P>(wide(from[at]));
        return;
    }
    const bool is_key = head >= heads;
    const u32 own = is_key ? head - heads : head;
    const T *from = is_key ? k + ((u64)row * kv_heads + own) * size : q + ((u64)row * heads + own) * size;
    const T *weight = is_key ? key_weight : query_weight;
    float scale = 1.f;
    if (weight) {
        float squares = 0.f;
        for (u32 at = lane; at < size; at += 32) squares += wide(from[at]) * wide(from[at]);
        scale = 1.f / sqrtf(of_warp(squares) / size + epsilon);
    }
    float *query = to + ((u64)row * heads + own) * size;
    P *key = key_pages + ((u64)slots[row] * kv_heads + own) * size;
    const auto number = [&](u32 at) { return weight ? wide(from[at]) * scale * wide(weight[at]) : wide(from[at]); };
    const auto write = [&](u32 at, float value) {
        if (is_key)
            key[at] = narrow<P>(value);
        else
            query[at] = value;
    };
    for (u32 turn = lane; turn < size - half; turn += 32) {
        if (turn >= half) {
            write(half + turn, number(half + turn));
            continue;
        }
        const u32 first = apart == 1 ? 2 * turn : turn, second = first + apart;
        const u64 angle = (u64)positions[row] * half + turn;
        const float a = number(first), b = number(second), c = cosines[angle], s = sines[angle];
        write(first, a * c - b * s);
        write(second, b * c + a * s);
    }
}

#define HEADS_INTO_PAGES_OF(from, T, into, P)                                                                          \
    extern "C" __global__ void heads_into_pages_##from##_##into(                                                       \
        const T *q, const T *k, const T *v, const T *query_weight, const T *key_weight, const float *cosines,          \
        const float *sines, const u32 *positions, const u32 *slots, float *to, P *key_pages, P *value_pages, u32 rows, \
        u32 heads, u32 kv_heads, u32 size, u32 half, u32 apart, float epsilon) {                                       \
        heads_into_pages<T, P>(q, k, v, query_weight, key_weight, cosines, sines, positions, slots, to, key_pages,     \
                               value_pages, rows, heads, kv_heads, size, half, apart, epsilon);                        \
    }
#define HEADS_INTO_PAGES(name, T)                                                                                      \
    HEADS_INTO_PAGES_OF(name, T, f32, float)                                                                           \
    HEADS_INTO_PAGES_OF(name, T, f16, __half) HEADS_INTO_PAGES_OF(name, T, bf16, __nv_bfloat16)
FOR_ALL_TYPES(HEADS_INTO_PAGES)

// The function of a gate: 0 is SiLU, 1 GELU in its tanh approximation, 2 GELU.
__device__ __forceinline__ float activated(float x, int kind) {
    if (kind == 0) return x / (1.f + expf(-x));
    if (kind == 1) return .5f * x * (1.f + tanhf(.7978845608028654f * (x + .044715f * x * x * x)));
    return x * normcdff(x);
}

// `activation(gate) * up`.
template <typename T>
__device__ __forceinline__ void gate_up(const T *gates, const T *ups, T *to, u64 count, int kind) {
    u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    to[index] = narrow<T>(activated(wide(gates[index]), kind) * wide(ups[index]));
}

#define GATE(name, T)                                                                                                  \
    extern "C" __global__ void gate_##name(const T *gates, const T *ups, T *to, u64 count, int kind) {                 \
        gate_up<T>(gates, ups, to, count, kind);                                                                       \
    }
FOR_ALL_TYPES(GATE)

__device__ __forceinline__ float of_block(float sum) {
    __shared__ float of_warps[32];
    sum = of_warp(sum);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = threadIdx.x % 32 < blockDim.x / 32 ? of_warps[threadIdx.x % 32] : 0.f;
    return of_warp(sum);
}

// A block for each row: the sum, as it is stored, and the sum normed.
template <typename T>
__device__ __forceinline__ void add_rms(const T *x, const T *delta, const T *weight, T *sum, T *normed, u32 columns,
                                        float epsilon) {
    u64 first = (u64)blockIdx.x * columns;
    float squares = 0.f;
    for (u32 column = threadIdx.x; column < columns; column += blockDim.x) {
        T added = narrow<T>(wide(x[first + column]) + wide(delta[first + column]));
        sum[first + column] = added;
        squares += wide(added) * wide(added);
    }
    float scale = 1.f / sqrtf(of_block(squares) / columns + epsilon);
    for (u32 column = threadIdx.x; column < columns; column += blockDim.x)
        normed[first + column] = narrow<T>(wide(sum[first + column]) * scale * wide(weight[column]));
}

#define ADD_RMS(name, T)                                                                                               \
    extern "C" __global__ void add_rms_##name(const T *x, const T *delta, const T *weight, T *sum, T *normed,          \
                                              u32 columns, float epsilon) {                                            \
        add_rms<T>(x, delta, weight, sum, normed, columns, epsilon);                                                   \
    }
FOR_ALL_TYPES(ADD_RMS)

// Attention of single queries to keys and values in pages. A block has one query's heads that share a head of the keys,
// G of them at most, and a part of its context; 64 keys at a time. Parts are put together by `join_parts`.
#define PAGE 32
#define PART_KEYS 256
#define MOST_SIZE 256

template <typename S, int G>
__device__ __forceinline__ void attend_pages(const float *q, S keys, S values, const u32 *rows, const u32 *spans,
                                             const u32 *positions, const u32 *page_table, void *to, float *sums,
                                             u32 heads, u32 kv_heads, u32 size, u32 most_pages, float scale, u32 window,
                                             float cap, u32 chunk, const float *sinks, u32 has_sinks, int result) {
    __shared__ float own[G][MOST_SIZE], scores[G][64], of_heads[G][3], joined[G][MOST_SIZE];
    __shared__ float halves[G][64];
    const u32 kv_head = blockIdx.x, item = blockIdx.y, part = blockIdx.z, parts = gridDim.z;
    const u32 shared = heads / kv_heads, thread = threadIdx.x;
    const u32 row = rows[item], position = positions[item];
    const u32 *pages = page_table + (u64)spans[item] * most_pages;
    const u32 of_window = position + 1 > window ? position + 1 - window : 0;
    const u32 oldest = chunk > 0 ? max(of_window, position / chunk * chunk) : of_window;
    const u32 begin = max(part * PART_KEYS, oldest), end = min((part + 1) * PART_KEYS, position + 1);
    for (u32 index = thread; index < G * size; index += blockDim.x) {
        u32 head = index / size, at = index % size;
        own[head][at] = head < shared ? q[((u64)row * heads + kv_head * shared + head) * size + at] * scale : 0.f;
    }
    if (thread < G) {
        of_heads[thread][0] = -INFINITY;
        of_heads[thread][1] = 0.f;
    }
    // For the values: a thread has two numbers of a head, and every `strips`-th key.
    const u32 pairs = size / 2, strips = max(1u, blockDim.x / pairs), strip = thread / pairs, at = thread % pairs * 2;
    float found[G][2];
#pragma unroll
    for (int head = 0; head < G; head++) found[head][0] = found[head][1] = 0.f;
    const u32 width = kv_heads * size;
    __syncthreads();
    for (u32 start = begin; start < end; start += 64) {
        u32 count = min(64u, end - start);
        // Two threads for a key: each has half of the numbers, eight at a time.
        u32 key = thread % 64, side = thread / 64;
        float products[G];
#pragma unroll
        for (int head = 0; head < G; head++) products[head] = 0.f;
        if (key < count) {
            u32 place = start + key;
            u64 from = ((u64)pages[place / PAGE] * PAGE + place % PAGE) * width + kv_head * size;
            for (u32 piece = side * 8; piece < size; piece += 16) {
                auto eight = keys.template load<8>(from + piece);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    float number = eight[i];
#pragma unroll
                    for (int head = 0; head < G; head++) products[head] += own[head][piece + i] * number;
                }
            }
        }
        if (side == 1)
#pragma unroll
            for (int head = 0; head < G; head++) halves[head][key] = products[head];
        __syncthreads();
        if (side == 0)
#pragma unroll
            for (int head = 0; head < G; head++) {
                float score = products[head] + halves[head][key];
                if (cap > 0.f) score = cap * tanhf(score / cap);
                scores[head][key] = key < count ? score : -INFINITY;
            }
        __syncthreads();
        // A warp for each head in turn.
        for (u32 head = thread / 32; head < G; head += blockDim.x / 32) {
            u32 lane = thread % 32;
            float first = scores[head][lane], second = scores[head][lane + 32];
            float largest = fmaxf(first, second);
            for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
            largest = fmaxf(largest, of_heads[head][0]);
            first = expf(first - largest);
            second = expf(second - largest);
            float sum = of_warp(first + second);
            scores[head][lane] = first;
            scores[head][lane + 32] = second;
            __syncwarp();
            if (lane == 0) {
                float kept = expf(of_heads[head][0] - largest);
                of_heads[head][0] = largest;
                of_heads[head][1] = of_heads[head][1] * kept + sum;
                of_heads[head][2] = kept;
            }
        }
        __syncthreads();
        if (strip < strips) {
#pragma unroll
            for (int head = 0; head < G; head++) {
                found[head][0] *= of_heads[head][2];
                found[head][1] *= of_heads[head][2];
            }
            for (u32 key = strip; key < count; key += strips) {
                u32 place = start + key;
                u64 from = ((u64)pages[place / PAGE] * PAGE + place % PAGE) * width + kv_head * size + at;
                auto two = values.template load<2>(from);
                float first = two[0], second = two[1];
#pragma unroll
                for (int head = 0; head < G; head++) {
                    found[head][0] += scores[head][key] * first;
                    found[head][1] += scores[head][key] * second;
                }
            }
        }
        __syncthreads();
    }
    // The strips one after the other.
    for (u32 turn = 0; turn < strips; turn++) {
        if (strip == turn)
#pragma unroll
            for (int head = 0; head < G; head++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    joined[head][at + i] = found[head][i] + (turn > 0 ? joined[head][at + i] : 0.f);
        __syncthreads();
    }
    for (u32 index = thread; index < shared * size; index += blockDim.x) {
        u32 head = index / size, at = index % size, query = kv_head * shared + head;
        float sum = of_heads[head][1];
        if (parts == 1) {
            if (has_sinks) sum += expf(sinks[query] - of_heads[head][0]);
            write_as(to, ((u64)row * heads + query) * size + at, joined[head][at] / sum, result);
        } else {
            u64 into = ((u64)item * heads + query) * parts + part;
            static_cast<float *>(to)[into * size + at] = joined[head][at];
            if (at == 0) {
                sums[2 * into] = of_heads[head][0];
                sums[2 * into + 1] = sum;
            }
        }
    }
}

#define ATTEND_PAGES_OF(name, P, G)                                                                                    \
    extern "C" __global__ void __launch_bounds__(128) attend_pages_##name##_##G(                                       \
        const float *q, const P *keys, const P *values, const u32 *rows, const u32 *spans, const u32 *positions,       \
        const u32 *page_table, void *to, float *sums, u32 heads, u32 kv_heads, u32 size, u32 most_pages, float scale,  \
        u32 window, float cap, u32 chunk, const float *sinks, u32 has_sinks, int result) {                             \
        attend_pages<Numbers<P>, G>(q, {keys}, {values}, rows, spans, positions, page_table, to, sums, heads,          \
                                    kv_heads, size, most_pages, scale, window, cap, chunk, sinks, has_sinks, result);  \
    }
#define ATTEND_PAGES(name, P)                                                                                          \
    ATTEND_PAGES_OF(name, P, 1)                                                                                        \
    ATTEND_PAGES_OF(name, P, 2)                                                                                        \
    ATTEND_PAGES_OF(name, P, 4) ATTEND_PAGES_OF(name, P, 8)
FOR_ALL_TYPES(ATTEND_PAGES)

#define ATTEND_BLOCKS(G)                                                                                               \
    extern "C" __global__ void __launch_bounds__(128) attend_pages_q8_0_##G(                                           \
        const float *q, const unsigned char *keys, const unsigned char *values, const __half *key_scales,              \
        const __half *value_scales, const u32 *rows, const u32 *spans, const u32 *positions, const u32 *page_table,    \
        void *to, float *sums, u32 heads, u32 kv_heads, u32 size, u32 most_pages, float scale, u32 window, float cap,  \
        u32 chunk, const float *sinks, u32 has_sinks, int result) {                                                    \
        attend_pages<Blocks, G>(q, {keys, key_scales}, {values, value_scales}, rows, spans, positions, page_table, to, \
                                sums, heads, kv_heads, size, most_pages, scale, window, cap, chunk, sinks, has_sinks,  \
                                result);                                                                               \
    }
ATTEND_BLOCKS(1)
ATTEND_BLOCKS(2)
ATTEND_BLOCKS(4)
ATTEND_BLOCKS(8)

// A block for each head of each query.
extern "C" __global__ void join_parts(const float *parts_of, const float *sums, const u32 *rows, void *to, u32 heads,
                                      u32 size, u32 parts, const float *sinks, u32 has_sinks, int result) {
    u32 head = blockIdx.x, item = blockIdx.y;
    u64 first = ((u64)item * heads + head) * parts;
    float largest = -INFINITY, total = 0.f;
    for (u32 part = 0; part < parts; part++) largest = fmaxf(largest, sums[2 * (first + part)]);
    for (u32 part = 0; part < parts; part++)
        total += expf(sums[2 * (first + part)] - largest) * sums[2 * (first + part) + 1];
    if (has_sinks) total += expf(sinks[head] - largest);
    for (u32 at = threadIdx.x; at < size; at += blockDim.x) {
        float value = 0.f;
        for (u32 part = 0; part < parts; part++)
            value += expf(sums[2 * (first + part)] - largest) * parts_of[(first + part) * size + at];
        write_as(to, ((u64)rows[item] * heads + head) * size + at, value / total, result);
    }
}

// Recurrent layers: each span is a sequence with a state of its own, and its tokens go one after the other.
struct StateSpans {
    // Four numbers of each: its first row, its rows, its slot, and whether they are the first of their sequence.
    const u32 *numbers;
    __device__ __forceinline__ u32 first(u32 span) const { return numbers[4 * span]; }
    __device__ __forceinline__ u32 rows(u32 span) const { return numbers[4 * span + 1]; }
    __device__ __forceinline__ u32 slot(u32 span) const { return numbers[4 * span + 2]; }
    __device__ __forceinline__ bool is_new(u32 span) const { return numbers[4 * span + 3] != 0; }
};

#define MOST_TAPS 8

// A causal convolution of each channel over its last few tokens; a thread has a channel of a span. `states` are the rows
// before the span, `[slots, taps - 1, channels]`.
extern "C" __global__ void short_convolution(const float *x, const float *weight, const float *bias, const u32 *spans_of,
                                             float *states, float *to, u32 channels, u32 taps, u32 has_bias,
                                             u32 has_silu) {
    const StateSpans spans{spans_of};
    const u32 channel = blockIdx.x * blockDim.x + threadIdx.x, span = blockIdx.y;
    if (channel >= channels) return;
    float *past = states + (u64)spans.slot(span) * (taps - 1) * channels + channel;
    // The newest token last.
    float seen[MOST_TAPS], weights[MOST_TAPS];
#pragma unroll
    for (int tap = 0; tap < MOST_TAPS; tap++) {
        weights[tap] = tap < taps ? weight[(u64)tap * channels + channel] : 0.f;
        seen[tap] = tap + 1 < taps && !spans.is_new(span) ? past[(u64)tap * channels] : 0.f;
    }
    const float start = has_bias ? bias[channel] : 0.f;
    for (u32 row = spans.first(span); row < spans.first(span) + spans.rows(span); row++) {
        float newest = x[(u64)row * channels + channel], sum = start;
#pragma unroll
        for (int tap = 0; tap < MOST_TAPS; tap++) {
            if (tap + 1 == taps) seen[tap] = newest;
            if (tap < taps) sum += weights[tap] * seen[tap];
        }
        to[(u64)row * channels + channel] = has_silu ? sum / (1.f + expf(-sum)) : sum;
#pragma unroll
        for (int tap = 0; tap + 1 < MOST_TAPS; tap++) seen[tap] = seen[tap + 1];
    }
#pragma unroll
    for (int tap = 0; tap < MOST_TAPS; tap++)
        if (tap + 1 < taps) past[(u64)tap * channels] = seen[tap];
}

struct RecurrenceSizes {
    u32 key_heads, value_heads, key_dim, value_dim, is_tiled;
    // Numbers of a row, and where its queries, keys and values begin.
    u32 width, query_offset, key_offset, value_offset;
    // Numbers of the state of a sequence, of which all heads take these or less.
    u32 state_size;
    float least_step, most_step;
};

#define MOST_KEY_DIM 256
#define STATE_COLUMNS 32
#define STATE_SPLITS 4
#define STATE_THREADS (STATE_COLUMNS * STATE_SPLITS)

__device__ __forceinline__ float softplus(float x) { return x > 20.f ? x : log1pf(expf(x)); }

// Linear recurrences: a token lets the state of a head decay, writes its value there with its key, and reads with its query.
// With DELTA the share of the value that the key reads already is replaced, and keys and queries have unit length. A block
// has 32 columns of a head's state, four threads for each; EACH rows of a column belong to a thread.
template <int EACH, bool DELTA>
__device__ __forceinline__ void recurrence(const float *x, const float *steps, const float *betas, const float *rates,
                                           const float *biases, const float *skips, const u32 *spans_of, float *states,
                                           float *to, RecurrenceSizes sizes) {
    __shared__ float key[MOST_KEY_DIM], query[MOST_KEY_DIM], lengths[2];
    const StateSpans spans{spans_of};
    const u32 thread = threadIdx.x, split = thread % STATE_SPLITS;
    const u32 column = blockIdx.x * STATE_COLUMNS + thread / STATE_SPLITS;
    const u32 head = blockIdx.y, span = blockIdx.z;
    const u32 key_head = sizes.is_tiled ? head % sizes.key_heads : head / (sizes.value_heads / sizes.key_heads);
    const bool is_there = column < sizes.value_dim;
    float *own = states + (u64)spans.slot(span) * sizes.state_size + (u64)head * sizes.key_dim * sizes.value_dim + column;
    float state[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 row = i * STATE_SPLITS + split;
        bool is_kept = is_there && row < sizes.key_dim && !spans.is_new(span);
        state[i] = is_kept ? own[(u64)row * sizes.value_dim] : 0.f;
    }
    const u32 end = spans.first(span) + spans.rows(span);
    for (u32 at = spans.first(span); at < end; at++) {
        const float *row = x + (u64)at * sizes.width;
        __syncthreads();
        for (u32 index = thread; index < EACH * STATE_SPLITS; index += STATE_THREADS) {
            bool is_number = index < sizes.key_dim;
            key[index] = is_number ? row[sizes.key_offset + key_head * sizes.key_dim + index] : 0.f;
            query[index] = is_number ? row[sizes.query_offset + key_head * sizes.key_dim + index] : 0.f;
        }
        __syncthreads();
        float of_key = 1.f, of_query = 1.f;
        if (DELTA) {
            // A warp for each of both.
            if (thread < 64) {
                const float *numbers = thread < 32 ? key : query;
                float sum = 0.f;
                for (u32 index = thread % 32; index < EACH * STATE_SPLITS; index += 32)
                    sum += numbers[index] * numbers[index];
                sum = of_warp(sum);
                if (thread % 32 == 0) lengths[thread / 32] = rsqrtf(sum + 1e-6f);
            }
            __syncthreads();
            of_key = lengths[0];
            of_query = lengths[1] * rsqrtf((float)sizes.key_dim);
        }
        const u64 gate = (u64)at * sizes.value_heads + head;
        float step = softplus(steps[gate] + biases[head]);
        if (!DELTA) step = fminf(fmaxf(step, sizes.least_step), sizes.most_step);
        const float decay = expf(rates[head] * step);
        const float share = DELTA ? 1.f / (1.f + expf(-betas[gate])) : step;
        const float value = is_there ? row[sizes.value_offset + head * sizes.value_dim + column] : 0.f;
        float written = value * share;
        if (DELTA) {
            float known = 0.f;
#pragma unroll
            for (int i = 0; i < EACH; i++) known += state[i] * key[i * STATE_SPLITS + split];
            known += __shfl_xor_sync(~0u, known, 1);
            known += __shfl_xor_sync(~0u, known, 2);
            written = (value - known * of_key * decay) * share;
        }
        float read = 0.f;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            state[i] = state[i] * decay + key[i * STATE_SPLITS + split] * of_key * written;
            read += state[i] * query[i * STATE_SPLITS + split];
        }
        read += __shfl_xor_sync(~0u, read, 1);
        read += __shfl_xor_sync(~0u, read, 2);
        read *= of_query;
        if (!DELTA) read += skips[head] * value;
        if (is_there && split == 0) to[gate * sizes.value_dim + column] = read;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 row = i * STATE_SPLITS + split;
        if (is_there && row < sizes.key_dim) own[(u64)row * sizes.value_dim] = state[i];
    }
}

#define RECURRENCE(name, EACH, DELTA)                                                                                  \
    extern "C" __global__ void __launch_bounds__(STATE_THREADS)                                                        \
        name(const float *x, const float *steps, const float *betas, const float *rates, const float *biases,          \
             const float *skips, const u32 *spans, float *states, float *to, RecurrenceSizes sizes) {                  \
        recurrence<EACH, DELTA>(x, steps, betas, rates, biases, skips, spans, states, to, sizes);                      \
    }
RECURRENCE(delta_rule_64, 16, true)
RECURRENCE(delta_rule_128, 32, true)
RECURRENCE(delta_rule_256, 64, true)
RECURRENCE(state_space_64, 16, false)
RECURRENCE(state_space_128, 32, false)
RECURRENCE(state_space_256, 64, false)

// Products of matrices where no library of the vendor is at hand, in cuBLAS's terms: C = alpha · A · B + beta · C, C by
// columns. Steps say how far neighbours lie apart, so that either operand may be transposed. Sums are f32.
struct ProductSizes {
    u32 rows, columns, depth;
    // Of A from row to row and along the depth, of B along the depth and from column to column, of C from column to column.
    u64 a_row, a_depth, b_depth, b_column, c_column;
    // From one product of a batch to the next.
    u64 next_a, next_b, next_c;
    float alpha, beta;
};

template <typename C> __device__ __forceinline__ void put_product(C *to, float sum, float alpha, float beta) {
    *to = narrow<C>(beta == 0.f ? alpha * sum : alpha * sum + beta * wide(*to));
}

#define TILE 64
#define DEEP 16

// A block has a tile of 64 by 64 numbers, a thread 4 by 4 of them.
template <typename T, typename C>
__device__ __forceinline__ void product(const T *a, const T *b, C *c, ProductSizes sizes) {
    __shared__ float of_a[DEEP][TILE + 4], of_b[DEEP][TILE + 4];
    a += blockIdx.z * sizes.next_a;
    b += blockIdx.z * sizes.next_b;
    c += blockIdx.z * sizes.next_c;
    const u32 thread = threadIdx.x, first_row = blockIdx.x * TILE, first_column = blockIdx.y * TILE;
    const u32 row = thread % 16 * 4, column = thread / 16 * 4;
    float sums[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sums[i][j] = 0.f;
    for (u32 start = 0; start < sizes.depth; start += DEEP) {
        for (u32 index = thread; index < TILE * DEEP; index += blockDim.x) {
            // Neighbouring threads read neighbouring numbers, whichever way they lie.
            u32 at = sizes.a_depth == 1 ? index / DEEP : index % TILE;
            u32 deep = sizes.a_depth == 1 ? index % DEEP : index / TILE;
            bool is_there = first_row + at < sizes.rows && start + deep < sizes.depth;
            of_a[deep][at] = is_there ? wide(a[(first_row + at) * sizes.a_row + (start + deep) * sizes.a_depth]) : 0.f;
            at = sizes.b_depth == 1 ? index / DEEP : index % TILE;
            deep = sizes.b_depth == 1 ? index % DEEP : index / TILE;
            is_there = first_column + at < sizes.columns && start + deep < sizes.depth;
            of_b[deep][at] =
                is_there ? wide(b[(start + deep) * sizes.b_depth + (first_column + at) * sizes.b_column]) : 0.f;
        }
        __syncthreads();
#pragma unroll
        for (int deep = 0; deep < DEEP; deep++) {
            float4 x = *reinterpret_cast<const float4 *>(&of_a[deep][row]);
            float4 y = *reinterpret_cast<const float4 *>(&of_b[deep][column]);
            float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sums[i][j] += xs[i] * ys[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (first_row + row + i < sizes.rows && first_column + column + j < sizes.columns)
                put_product(c + (first_column + column + j) * sizes.c_column + first_row + row + i, sums[i][j],
                            sizes.alpha, sizes.beta);
}

#define FEW 8

// At most 8 columns, as where few texts are written: a warp has a row, and reads it once.
template <typename T, typename C>
__device__ __forceinline__ void product_of_few(const T *a, const T *b, C *c, ProductSizes sizes) {
    a += blockIdx.z * sizes.next_a;
    b += blockIdx.z * sizes.next_b;
    c += blockIdx.z * sizes.next_c;
    const u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= sizes.rows) return;
    float sums[FEW];
#pragma unroll
    for (int j = 0; j < FEW; j++) sums[j] = 0.f;
    for (u32 deep = lane; deep < sizes.depth; deep += 32) {
        float x = wide(a[row * sizes.a_row + deep * sizes.a_depth]);
#pragma unroll
        for (int j = 0; j < FEW; j++)
            if (j < sizes.columns) sums[j] += x * wide(b[deep * sizes.b_depth + j * sizes.b_column]);
    }
#pragma unroll
    for (int j = 0; j < FEW; j++) {
        float sum = of_warp(sums[j]);
        if (lane == 0 && j < sizes.columns)
            put_product(c + j * sizes.c_column + row, sum, sizes.alpha, sizes.beta);
    }
}

#define PRODUCTS(name, T, C)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256) product_##name(const T *a, const T *b, C *c, ProductSizes sizes) {\
        product<T, C>(a, b, c, sizes);                                                                                 \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        product_of_few_##name(const T *a, const T *b, C *c, ProductSizes sizes) {                                      \
        product_of_few<T, C>(a, b, c, sizes);                                                                          \
    }
PRODUCTS(f32, float, float)
PRODUCTS(f16, __half, __half)
PRODUCTS(bf16, __nv_bfloat16, __nv_bfloat16)
PRODUCTS(f16_f32, __half, float)
PRODUCTS(bf16_f32, __nv_bfloat16, float)

#include "block_products.cuh"
