// 3x3 convolutions with stride 1 and few channels, where cuDNN's kernels are two to eight times slower than memory allows.
//
//   forward          y[p, o]       = act(sum over taps, i of x[p + tap, i] * w[o, tap, i] + bias[o])
//   backward input   d_x[p, i]     = sum over taps, o of d_y[p - tap, o] * w[o, tap, i]
//   backward weight  d_w[o, tap, i] = sum over p of d_y[p, o] * x[p + tap, i]
//
// x, y [N, H, W, GROUPS * C] packed T; w [GROUPS * C, 3, 3, C] T; as many channels in as out, C of them a group. Sums in f32.
//
// The first two are one algorithm with different weights. A block keeps all weights in registers, as fragments of tensor-core
// instructions (m16n8k16), and walks over tiles of 8 x 8*XT output pixels: the tile of x with its margin comes to shared
// memory by asynchronous copies, two tiles ahead. A warp owns two rows of a tile; the 16 rows of its left fragment are
// 2 x 8 pixels, read at the tap's offset with `ldmatrix`. So x is read from memory once (plus margins, mostly from L2), y is
// written once, in whole sectors, and shared memory feeds each left fragment to NT products.
//
// For the weights' gradient, pixels are what is summed over: both fragments are read transposed from the tiles of d_y and x;
// a warp owns some taps and some pixels of a tile. Each block writes its sums to a partial result, and `conv3x3_weight_sum`
// adds those in a fixed order.
//
// A pixel in shared memory is 16 bytes longer than its channels, so that the 8 rows of a matrix lie in different banks.
#include "common.cuh"

#if defined(HAS_MMA)

// Tiles that are on their way or in use.
constexpr int STAGES = 3;
// Rows of a tile.
constexpr int TILE_H = 8;

__device__ __forceinline__ u32 pair(T low, T high) { return (u32)low.bits | (u32)high.bits << 16; }

// Where tile number `tile` begins.
struct TilePlace {
    int image, y, x;
};

template <int TILE_W>
__device__ __forceinline__ TilePlace place_of(int tile, int height, int width) {
    const int across = (width + TILE_W - 1) / TILE_W, down = (height + TILE_H - 1) / TILE_H;
    const int row = tile / across;
    return {row / down, row % down * TILE_H, tile % across * TILE_W};
}

// Bytes of a pixel in shared memory.
template <int CHANNELS>
__device__ constexpr int pixel_bytes() {
    return CHANNELS * 2 + 16;
}

// Begins to copy H x W pixels from (y0, x0) on; zeros outside of the image.
template <int CHANNELS, int H, int W, int THREADS>
__device__ __forceinline__ void load_pixels(u32 to, const T* __restrict__ from, int image, int y0, int x0, int height, int width) {
    constexpr int CHUNKS = CHANNELS / 8;
    for (int i = threadIdx.x; i < H * W * CHUNKS; i += THREADS) {
        const int pixel = i / CHUNKS, chunk = i % CHUNKS;
        const int y = y0 + pixel / W, x = x0 + pixel % W;
        const bool is_inside = (u32)y < (u32)height && (u32)x < (u32)width;
        const size_t at = is_inside ? ((size_t)(image * height + y) * width + x) * CHANNELS + chunk * 8 : 0;
        copy_async(to + pixel * pixel_bytes<CHANNELS>() + chunk * 16, from + at, is_inside);
    }
}

// Forward, or backward to the input. NT: right fragments (8 output channels each) that a warp owns of each group, NW of
// which cover a group; 4 * NW warps.
template <int GROUPS, int C, int NT, int NW, int XT, bool BACKWARD>
__device__ __forceinline__ void correlate(const T* __restrict__ x, const T* __restrict__ weight, const float* __restrict__ bias,
                                          T* __restrict__ y, int n, int height, int width, int silu) {
    static_assert(NT * NW * 8 == C && C % 16 == 0, "fragments cover a group");
    constexpr int CHANNELS = GROUPS * C, THREADS = 128 * NW, TILE_W = 8 * XT, PIXEL = pixel_bytes<CHANNELS>();
    constexpr int HALO_W = TILE_W + 2, HALO_H = TILE_H + 2, STAGE = HALO_H * HALO_W * PIXEL, CHUNKS = C / 16;
    extern __shared__ __align__(16) u8 shared[];
    const u32 stages = shared_address(shared);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warp_rows = warp % 4, warp_channels = warp / 4;
    const int quad = lane / 4, in_quad = lane % 4;

    const int n_tiles = n * ((height + TILE_H - 1) / TILE_H) * ((width + TILE_W - 1) / TILE_W);
    auto load = [&](int tile, int stage) {
        if (tile < n_tiles) {
            const TilePlace at = place_of<TILE_W>(tile, height, width);
            load_pixels<CHANNELS, HALO_H, HALO_W, THREADS>(stages + stage * STAGE, x, at.image, at.y - 1, at.x - 1, height, width);
        }
        end_copies();
    };
    int tile = blockIdx.x;
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) load(tile + stage * (int)gridDim.x, stage);

    // Column 2q + e of fragment f is channel 2 * NT * q + 2 * f + e of the warp: a lane's results are neighbours in memory.
    u32 b[GROUPS][9][CHUNKS][NT][2];
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
#pragma unroll
        for (int tap = 0; tap < 9; ++tap) {
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; ++chunk) {
#pragma unroll
                for (int f = 0; f < NT; ++f) {
                    const int out = warp_channels * NT * 8 + quad / 2 * 2 * NT + 2 * f + quad % 2;
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const int in = chunk * 16 + half * 8 + in_quad * 2;
                        if (BACKWARD) {
                            const T* at = weight + ((group * C + in) * 9 + 8 - tap) * C + out;
                            b[group][tap][chunk][f][half] = pair(at[0], at[9 * C]);
                        } else {
                            b[group][tap][chunk][f][half] = *(const u32*)(weight + ((group * C + out) * 9 + tap) * C + in);
                        }
                    }
                }
            }
        }
    }

    const u32 lane_offset = ((2 * warp_rows + lane / 8 % 2) * HALO_W + lane % 8) * PIXEL + lane / 16 * 16;
    for (int stage = 0; tile < n_tiles; tile += gridDim.x, stage = stage + 1 == STAGES ? 0 : stage + 1) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();  // All have the tile, and nobody reads the one before it any more.
        load(tile + (STAGES - 1) * (int)gridDim.x, stage == 0 ? STAGES - 1 : stage - 1);

        const TilePlace at = place_of<TILE_W>(tile, height, width);
        const u32 from = stages + stage * STAGE + lane_offset;
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            float sums[XT][NT][4] = {};
#pragma unroll
            for (int tap = 0; tap < 9; ++tap) {
#pragma unroll
                for (int chunk = 0; chunk < CHUNKS; ++chunk) {
#pragma unroll
                    for (int j = 0; j < XT; ++j) {
                        u32 a[4];
                        load_matrices(a, from + (tap / 3 * HALO_W + tap % 3 + 8 * j) * PIXEL + (group * C + chunk * 16) * 2);
#pragma unroll
                        for (int f = 0; f < NT; ++f)
                            multiply_add(sums[j][f], a, b[group][tap][chunk][f][0], b[group][tap][chunk][f][1]);
                    }
                }
            }
            const int channel = group * C + warp_channels * NT * 8 + in_quad * 2 * NT;
#pragma unroll
            for (int j = 0; j < XT; ++j) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int out_y = at.y + 2 * warp_rows + half, out_x = at.x + 8 * j + quad;
                    u32 packed[NT];
#pragma unroll
                    for (int f = 0; f < NT; ++f) {
                        float low = sums[j][f][2 * half], high = sums[j][f][2 * half + 1];
                        if (!BACKWARD && bias != nullptr) {
                            low += bias[channel + 2 * f];
                            high += bias[channel + 2 * f + 1];
                        }
                        if (!BACKWARD && silu) {
                            low *= sigmoid_f32(low);
                            high *= sigmoid_f32(high);
                        }
                        packed[f] = pair(from_f32(low), from_f32(high));
                    }
                    if (out_y < height && out_x < width) {
                        T* to = y + ((size_t)(at.image * height + out_y) * width + out_x) * CHANNELS + channel;
                        static_assert(NT == 2 || NT == 4, "stores of 8 or 16 bytes");
                        if (NT == 4) {
                            *(uint4*)to = make_uint4(packed[0], packed[1], packed[NT - 2], packed[NT - 1]);
                        } else {
                            *(uint2*)to = make_uint2(packed[0], packed[1]);
                        }
                    }
                }
            }
        }
    }
}

// The weights' gradient. A warp owns TAPS taps of a group and every PARTS-th strip of 2 x 8 pixels of a tile;
// GROUPS * 9 / TAPS * PARTS warps. `partials` has as many results as there are blocks.
template <int GROUPS, int C, int TAPS, int PARTS, int XT>
__device__ __forceinline__ void correlate_weight(const T* __restrict__ x, const T* __restrict__ dy, float* __restrict__ partials, int n,
                                                 int height, int width) {
    static_assert(9 % TAPS == 0 && C % 16 == 0 && 4 * XT % PARTS == 0, "work is divided evenly");
    constexpr int CHANNELS = GROUPS * C, WARPS = GROUPS * 9 / TAPS * PARTS, THREADS = 32 * WARPS, TILE_W = 8 * XT;
    constexpr int PIXEL = pixel_bytes<CHANNELS>(), HALO_W = TILE_W + 2, HALO_H = TILE_H + 2;
    constexpr int X_BYTES = HALO_H * HALO_W * PIXEL, STAGE = X_BYTES + TILE_H * TILE_W * PIXEL, LEN = CHANNELS * 9 * C;
    extern __shared__ __align__(16) u8 shared[];
    const u32 stages = shared_address(shared);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int part = warp % PARTS, first_tap = warp / PARTS % (9 / TAPS) * TAPS, group = warp / PARTS / (9 / TAPS);

    const int n_tiles = n * ((height + TILE_H - 1) / TILE_H) * ((width + TILE_W - 1) / TILE_W);
    auto load = [&](int tile, int stage) {
        if (tile < n_tiles) {
            const TilePlace at = place_of<TILE_W>(tile, height, width);
            const u32 to = stages + stage * STAGE;
            load_pixels<CHANNELS, HALO_H, HALO_W, THREADS>(to, x, at.image, at.y - 1, at.x - 1, height, width);
            load_pixels<CHANNELS, TILE_H, TILE_W, THREADS>(to + X_BYTES, dy, at.image, at.y, at.x, height, width);
        }
        end_copies();
    };
    int tile = blockIdx.x;
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) load(tile + stage * (int)gridDim.x, stage);

    // Left: matrices (channels, pixels) in the order 0 0, 1 0, 0 1, 1 1; right: 0 0, 0 1, 1 0, 1 1.
    const int matrix = lane / 8;
    const u32 left = X_BYTES + (matrix / 2 * TILE_W + lane % 8) * PIXEL + group * C * 2 + matrix % 2 * 16;
    const u32 right = ((matrix % 2 + first_tap / 3) * HALO_W + lane % 8 + first_tap % 3) * PIXEL + group * C * 2 + matrix / 2 * 16;
    float sums[TAPS][C / 16][C / 8][4] = {};
    for (int stage = 0; tile < n_tiles; tile += gridDim.x, stage = stage + 1 == STAGES ? 0 : stage + 1) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();  // All have the tile, and nobody reads the one before it any more.
        load(tile + (STAGES - 1) * (int)gridDim.x, stage == 0 ? STAGES - 1 : stage - 1);

        const u32 from = stages + stage * STAGE;
#pragma unroll
        for (int k = 0; k < 4 * XT / PARTS; ++k) {
            const int strip = k * PARTS + part, row = strip / XT * 2, column = strip % XT * 8;
            u32 a[C / 16][4];
#pragma unroll
            for (int m = 0; m < C / 16; ++m) load_matrices_transposed(a[m], from + left + (row * TILE_W + column) * PIXEL + m * 32);
#pragma unroll
            for (int tap = 0; tap < TAPS; ++tap) {
                // TAPS is 1, a row of the kernel, or all of it.
                const u32 at = from + right + ((row + tap / 3) * HALO_W + column + tap % 3) * PIXEL;
#pragma unroll
                for (int f = 0; f < C / 16; ++f) {
                    u32 b[4];
                    load_matrices_transposed(b, at + f * 32);
#pragma unroll
                    for (int m = 0; m < C / 16; ++m) {
                        multiply_add(sums[tap][m][2 * f], a[m], b[0], b[1]);
                        multiply_add(sums[tap][m][2 * f + 1], a[m], b[2], b[3]);
                    }
                }
            }
        }
    }

    // The parts add up in the memory of the tiles, one after the other.
    wait_for_copies<0>();
    __syncthreads();
    float* total = (float*)shared;
    for (int turn = 0; turn < PARTS; ++turn) {
        if (turn == part) {
#pragma unroll
            for (int tap = 0; tap < TAPS; ++tap) {
#pragma unroll
                for (int m = 0; m < C / 16; ++m) {
#pragma unroll
                    for (int f = 0; f < C / 8; ++f) {
#pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            const int out = group * C + m * 16 + e / 2 * 8 + lane / 4, in = f * 8 + lane % 4 * 2 + e % 2;
                            float* at = total + (out * 9 + first_tap + tap) * C + in;
                            *at = turn == 0 ? sums[tap][m][f][e] : *at + sums[tap][m][f][e];
                        }
                    }
                }
            }
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < LEN; i += THREADS) partials[(size_t)blockIdx.x * LEN + i] = total[i];
}

// d_w[i] = sum over partials[.][i], always in the same order: 8 rows of a block take every 8th, then add up.
// Block (32, 8), one column for each i.
extern "C" __global__ void conv3x3_weight_sum(const float* __restrict__ partials, T* __restrict__ dw, int n_partials, int len) {
    __shared__ float rows[8][32];
    const int i = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    if (i < len) {
#pragma unroll 8
        for (int k = threadIdx.y; k < n_partials; k += 8) sum += partials[(size_t)k * len + i];
    }
    rows[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && i < len) {
        float total = 0.0f;
        for (int row = 0; row < 8; ++row) total += rows[row][threadIdx.x];
        dw[i] = from_f32(total);
    }
}

// One set of kernels; the numbers are those of src/engine/cuda/conv3x3.rs. BLOCKS and WEIGHT_BLOCKS a multiprocessor.
#define CONV3X3(NAME, GROUPS, C, NT, NW, XT, BLOCKS, TAPS, PARTS, WEIGHT_BLOCKS)                                                            \
    extern "C" __global__ void __launch_bounds__(128 * NW, BLOCKS)                                                                 \
        conv3x3_forward_##NAME(const T* x, const T* w, const float* bias, T* y, int n, int height, int width, int silu) {          \
        correlate<GROUPS, C, NT, NW, XT, false>(x, w, bias, y, n, height, width, silu);                                            \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(128 * NW, BLOCKS)                                                                 \
        conv3x3_backward_input_##NAME(const T* dy, const T* w, T* dx, int n, int height, int width) {                              \
        correlate<GROUPS, C, NT, NW, XT, true>(dy, w, nullptr, dx, n, height, width, 0);                                           \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(32 * GROUPS * 9 / TAPS * PARTS, WEIGHT_BLOCKS)                                    \
        conv3x3_backward_weight_##NAME(const T* x, const T* dy, float* partials, int n, int height, int width) {                   \
        correlate_weight<GROUPS, C, TAPS, PARTS, XT>(x, dy, partials, n, height, width);                                           \
    }

CONV3X3(16, 1, 16, 2, 1, 2, 4, 9, 8, 2)
CONV3X3(32, 1, 32, 4, 1, 2, 2, 3, 4, 1)
CONV3X3(32_narrow, 1, 32, 4, 1, 1, 2, 3, 4, 1)
CONV3X3(48, 1, 48, 2, 3, 1, 1, 1, 1, 1)
CONV3X3(4x16, 4, 16, 2, 1, 2, 2, 9, 2, 1)
CONV3X3(4x16_narrow, 4, 16, 2, 1, 1, 2, 9, 2, 2)

#endif
