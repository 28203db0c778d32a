// The stem: a 3x3 convolution with stride 2 and margin 1 of a picture with 3 channels, where cuDNN's gradient of the weights
// is 60 times slower than memory allows.
//
//   forward          y[p, o]     = act(sum over k of pixels[p, k] * w[o, k] + bias[o])
//   backward weight  d_w[o, k]   = sum over p of d_y[p, o] * pixels[p, k]
//
// x [N, H, W, 3], w [OUT, 3, 3, 3], y [N, (H + 1) / 2, (W + 1) / 2, OUT] packed T; k runs over the 27 weights of a channel.
// Sums in f32. There is no gradient of a picture.
//
// The three pixels that a row of the kernel reads are 9 neighbours in memory, from element 6 * column - 3 of a row of x on.
// From one element earlier on they are 5 aligned pairs: 15 pairs for the 3 rows, and with one more the k of two tensor-core
// instructions (m16n8k16). The weights of the elements too many are zero.
//
// Blocks stay, and walk over tiles of TILE_H x 64 output pixels. The rows of x come to shared memory as they are, by
// asynchronous copies of 16 bytes, two tiles ahead; a warp takes 16 neighbouring pixels at a time.
//   forward: pixels are the left fragment, read pair by pair; all weights stay in registers, and a lane's results are
//     neighbours in memory.
//   backward weight: pixels are what is summed over. d_y comes to shared memory, too, and is read transposed as the left
//     fragment; for the right one, pairs of two pixels are rearranged so that each holds one k of both. Each block writes its
//     sums to a partial result, and `conv3x3_weight_sum` adds those in a fixed order.
// So x and d_y are read once (x plus margins, from L2), and y is written once, in whole sectors.
#include "common.cuh"

#if defined(HAS_MMA)

// Tiles that are on their way or in use.
constexpr int STAGES = 3;
constexpr int WARPS = 8, THREADS = 32 * WARPS;
// Output pixels of a tile's row, and how many of them a warp takes at a time.
constexpr int TILE_W = 64, STRIP = 16;
// A row of x in shared memory, from 8 elements before the tile's first pixel of x on: 16-byte chunks, and 4-byte pairs.
constexpr int ROW_CHUNKS = TILE_W * 6 / 8 + 1, ROW_PAIRS = ROW_CHUNKS * 4;
// Pairs that a row of the kernel reads, pairs between neighbouring output pixels, and the first one of a tile's first pixel.
constexpr int KERNEL_PAIRS = 5, PIXEL_PAIRS = 3, FIRST_PAIR = 2;
// Weights of an output channel.
constexpr int TAPS = 27;

template <int TILE_H>
__device__ constexpr int rows_bytes() {
    return (2 * TILE_H + 1) * ROW_CHUNKS * 16;
}

// Where a tile begins, in output pixels.
struct TilePlace {
    int image, y, x;
};

template <int TILE_H>
__device__ __forceinline__ int count_tiles(int n, int out_h, int out_w) {
    return n * ((out_h + TILE_H - 1) / TILE_H) * ((out_w + TILE_W - 1) / TILE_W);
}

template <int TILE_H>
__device__ __forceinline__ TilePlace place_of(int tile, int out_h, int out_w) {
    const int across = (out_w + TILE_W - 1) / TILE_W, down = (out_h + TILE_H - 1) / TILE_H;
    const int row = tile / across;
    return {row / down, row % down * TILE_H, tile % across * TILE_W};
}

// Begins to copy the rows of x that a tile needs; zeros outside of the picture. Where rows of x are not aligned to 16 bytes,
// copies them at once, element by element: such pictures are rare.
template <int TILE_H>
__device__ __forceinline__ void load_rows(u8* to, const T* __restrict__ x, const TilePlace& at, int height, int width) {
    constexpr int CHUNKS = (2 * TILE_H + 1) * ROW_CHUNKS;
    const int first_y = 2 * at.y - 1, first = 6 * at.x - 8, row_len = 3 * width;
    const T* image = x + (size_t)at.image * height * row_len;
    if (width % 8 == 0) {
        const u32 address = shared_address(to);
        for (int i = threadIdx.x; i < CHUNKS; i += THREADS) {
            const int y = first_y + i / ROW_CHUNKS, element = first + i % ROW_CHUNKS * 8;
            const bool is_inside = (u32)y < (u32)height && (u32)element < (u32)row_len;
            copy_async(address + i * 16, is_inside ? image + (size_t)y * row_len + element : x, is_inside);
        }
    } else {
        for (int i = threadIdx.x; i < CHUNKS * 8; i += THREADS) {
            const int y = first_y + i / (ROW_CHUNKS * 8), element = first + i % (ROW_CHUNKS * 8);
            const bool is_inside = (u32)y < (u32)height && (u32)element < (u32)row_len;
            ((T*)to)[i] = is_inside ? image[(size_t)y * row_len + element] : T{0};
        }
    }
}

// Where pair `pair` of the k lies, from a pixel's first pair on. The last pair counts for nothing; it is read where another
// one is, so that it is a number.
__device__ __forceinline__ int place_of_pair(int pair) {
    const int read = pair < 3 * KERNEL_PAIRS ? pair : 3 * KERNEL_PAIRS - 1;
    return read / KERNEL_PAIRS * ROW_PAIRS + read % KERNEL_PAIRS;
}

// Which of a channel's weights an element of a pair belongs to; -1 for none.
__device__ __forceinline__ int tap_of(int pair, int element) {
    const int in_row = pair % KERNEL_PAIRS * 2 + element - 1;
    return pair < 3 * KERNEL_PAIRS && in_row >= 0 ? pair / KERNEL_PAIRS * 9 + in_row : -1;
}

template <int OUT>
__device__ __forceinline__ void stem_forward(const T* __restrict__ x, const T* __restrict__ weight, const float* __restrict__ bias,
                                             T* __restrict__ y, int n, int height, int width, int silu) {
    // Right fragments (8 channels each) whose results a lane stores at once, and how often.
    constexpr int NT = OUT < 32 ? OUT / 8 : 4, SETS = OUT / 8 / NT;
    static_assert(NT * SETS * 8 == OUT && (NT == 2 || NT == 4), "stores of 8 or 16 bytes");
    constexpr int TILE_H = 4, STAGE = rows_bytes<TILE_H>();
    extern __shared__ __align__(16) u8 shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad = lane / 4, in_quad = lane % 4;
    const int out_h = (height + 1) / 2, out_w = (width + 1) / 2;

    const int n_tiles = count_tiles<TILE_H>(n, out_h, out_w);
    auto load = [&](int tile, int stage) {
        if (tile < n_tiles) load_rows<TILE_H>(shared + stage * STAGE, x, place_of<TILE_H>(tile, out_h, out_w), height, width);
        end_copies();
    };
    int tile = blockIdx.x;
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) load(tile + stage * (int)gridDim.x, stage);

    // Column 2q + e of fragment f is channel 2 * NT * q + 2 * f + e of the set.
    u32 b[SETS][NT][4];
    int pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int pair = in_quad + 4 * i, low = tap_of(pair, 0), high = tap_of(pair, 1);
        pairs[i] = place_of_pair(pair);
#pragma unroll
        for (int set = 0; set < SETS; ++set) {
#pragma unroll
            for (int f = 0; f < NT; ++f) {
                const T* at = weight + (set * NT * 8 + quad / 2 * 2 * NT + 2 * f + quad % 2) * TAPS;
                b[set][f][i] = (low < 0 ? 0u : at[low].bits) | (high < 0 ? 0u : (u32)at[high].bits << 16);
            }
        }
    }

    for (int stage = 0; tile < n_tiles; tile += gridDim.x, stage = stage + 1 == STAGES ? 0 : stage + 1) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();  // All have the tile, and nobody reads the one before it any more.
        load(tile + (STAGES - 1) * (int)gridDim.x, stage == 0 ? STAGES - 1 : stage - 1);

        const TilePlace at = place_of<TILE_H>(tile, out_h, out_w);
        const u32* rows = (const u32*)(shared + stage * STAGE);
#pragma unroll
        for (int strip = warp; strip < TILE_H * TILE_W / STRIP; strip += WARPS) {
            const int row = strip / (TILE_W / STRIP), column = strip % (TILE_W / STRIP) * STRIP;
            const int out_y = at.y + row, out_x = at.x + column + quad;
            if (out_y >= out_h || at.x + column >= out_w) continue;
            const u32* pixel = rows + 2 * row * ROW_PAIRS + (column + quad) * PIXEL_PAIRS + FIRST_PAIR;
            u32 a[2][4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                a[i / 2][i % 2 * 2] = pixel[pairs[i]];
                a[i / 2][i % 2 * 2 + 1] = pixel[pairs[i] + 8 * PIXEL_PAIRS];
            }
            T* to = y + ((size_t)(at.image * out_h + out_y) * out_w + out_x) * OUT + in_quad * 2 * NT;
#pragma unroll
            for (int set = 0; set < SETS; ++set) {
                float sums[NT][4] = {};
#pragma unroll
                for (int f = 0; f < NT; ++f) {
                    multiply_add(sums[f], a[0], b[set][f][0], b[set][f][1]);
                    multiply_add(sums[f], a[1], b[set][f][2], b[set][f][3]);
                }
                const int channel = set * NT * 8 + in_quad * 2 * NT;
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    u32 packed[NT];
#pragma unroll
                    for (int f = 0; f < NT; ++f) {
                        float low = sums[f][2 * half], high = sums[f][2 * half + 1];
                        if (bias != nullptr) {
                            low += bias[channel + 2 * f];
                            high += bias[channel + 2 * f + 1];
                        }
                        if (silu) {
                            low *= sigmoid_f32(low);
                            high *= sigmoid_f32(high);
                        }
                        packed[f] = pack_word(low, high);
                    }
                    if (out_x + 8 * half < out_w) {
                        T* there = to + half * 8 * OUT + set * NT * 8;
                        if (NT == 4) {
                            *(uint4*)there = make_uint4(packed[0], packed[1], packed[NT - 2], packed[NT - 1]);
                        } else {
                            *(uint2*)there = make_uint2(packed[0], packed[1]);
                        }
                    }
                }
            }
        }
    }
}

// `partials` has as many results as there are blocks.
template <int OUT, int TILE_H>
__device__ __forceinline__ void stem_backward_weight(const T* __restrict__ x, const T* __restrict__ dy, float* __restrict__ partials,
                                                     int n, int height, int width) {
    // A pixel of d_y in shared memory is longer than its channels, so that the 8 rows of a matrix lie in different banks.
    constexpr int PIXEL = OUT * 2 + 16, CHUNKS = OUT / 8;
    constexpr int X_BYTES = rows_bytes<TILE_H>(), STAGE = X_BYTES + TILE_H * TILE_W * PIXEL, LEN = OUT * TAPS;
    static_assert(TILE_H * TILE_W / STRIP % WARPS == 0 && OUT % 16 == 0, "work is divided evenly");
    extern __shared__ __align__(16) u8 shared[];
    const u32 stages = shared_address(shared);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad = lane / 4, in_quad = lane % 4;
    const int out_h = (height + 1) / 2, out_w = (width + 1) / 2;

    const int n_tiles = count_tiles<TILE_H>(n, out_h, out_w);
    auto load = [&](int tile, int stage) {
        if (tile < n_tiles) {
            const TilePlace at = place_of<TILE_H>(tile, out_h, out_w);
            load_rows<TILE_H>(shared + stage * STAGE, x, at, height, width);
            const u32 to = stages + stage * STAGE + X_BYTES;
#pragma unroll
            for (int i = threadIdx.x; i < TILE_H * TILE_W * CHUNKS; i += THREADS) {
                const int pixel = i / CHUNKS, chunk = i % CHUNKS;
                const int out_y = at.y + pixel / TILE_W, out_x = at.x + pixel % TILE_W;
                const bool is_inside = out_y < out_h && out_x < out_w;
                const T* from = dy + ((size_t)(at.image * out_h + out_y) * out_w + out_x) * OUT + chunk * 8;
                copy_async(to + pixel * PIXEL + chunk * 16, is_inside ? from : dy, is_inside);
            }
        }
        end_copies();
    };
    int tile = blockIdx.x;
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) load(tile + stage * (int)gridDim.x, stage);

    // Matrices (channels, pixels) in the order 0 0, 1 0, 0 1, 1 1.
    const int matrix = lane / 8;
    const u32 left = X_BYTES + (matrix / 2 * 8 + lane % 8) * PIXEL + matrix % 2 * 16;
    // Columns of fragments 2 * f + e are elements e of pairs 8 * f and on.
    const int right[2] = {place_of_pair(quad), place_of_pair(8 + quad)};
    float sums[OUT / 16][4][4] = {};
    for (int stage = 0; tile < n_tiles; tile += gridDim.x, stage = stage + 1 == STAGES ? 0 : stage + 1) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();  // All have the tile, and nobody reads the one before it any more.
        load(tile + (STAGES - 1) * (int)gridDim.x, stage == 0 ? STAGES - 1 : stage - 1);

        const u32* rows = (const u32*)(shared + stage * STAGE);
        const u32 from = stages + stage * STAGE + left;
#pragma unroll
        for (int k = 0; k < TILE_H * TILE_W / STRIP / WARPS; ++k) {
            const int strip = k * WARPS + warp, row = strip / (TILE_W / STRIP), column = strip % (TILE_W / STRIP) * STRIP;
            u32 a[OUT / 16][4];
#pragma unroll
            for (int m = 0; m < OUT / 16; ++m) load_matrices_transposed(a[m], from + (row * TILE_W + column) * PIXEL + m * 32);
            const u32* pixel = rows + 2 * row * ROW_PAIRS + (column + in_quad * 2) * PIXEL_PAIRS + FIRST_PAIR;
#pragma unroll
            for (int f = 0; f < 2; ++f) {
                u32 b[2][2];
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const u32 one = pixel[right[f] + 8 * half * PIXEL_PAIRS], next = pixel[right[f] + (8 * half + 1) * PIXEL_PAIRS];
                    b[0][half] = __byte_perm(one, next, 0x5410);
                    b[1][half] = __byte_perm(one, next, 0x7632);
                }
#pragma unroll
                for (int e = 0; e < 2; ++e) {
#pragma unroll
                    for (int m = 0; m < OUT / 16; ++m) multiply_add(sums[m][2 * f + e], a[m], b[e][0], b[e][1]);
                }
            }
        }
    }

    // The warps add up in the memory of the tiles, one after the other.
    wait_for_copies<0>();
    __syncthreads();
    float* total = (float*)shared;
    for (int turn = 0; turn < WARPS; ++turn) {
        if (turn == warp) {
#pragma unroll
            for (int m = 0; m < OUT / 16; ++m) {
#pragma unroll
                for (int f = 0; f < 4; ++f) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const int tap = tap_of(f / 2 * 8 + in_quad * 2 + i % 2, f % 2);
                        if (tap < 0) continue;
                        float* at = total + (m * 16 + i / 2 * 8 + quad) * TAPS + tap;
                        *at = turn == 0 ? sums[m][f][i] : *at + sums[m][f][i];
                    }
                }
            }
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < LEN; i += THREADS) partials[(size_t)blockIdx.x * LEN + i] = total[i];
}

// One pair of kernels for each number of output channels; the numbers are those of src/engine/cuda/conv_stem.rs.
extern "C" __global__ void __launch_bounds__(THREADS, 4) conv_stem_forward_16(const T* x, const T* w, const float* bias, T* y, int n,
                                                                              int height, int width, int silu) {
    stem_forward<16>(x, w, bias, y, n, height, width, silu);
}
extern "C" __global__ void __launch_bounds__(THREADS, 3) conv_stem_forward_32(const T* x, const T* w, const float* bias, T* y, int n,
                                                                              int height, int width, int silu) {
    stem_forward<32>(x, w, bias, y, n, height, width, silu);
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) conv_stem_forward_64(const T* x, const T* w, const float* bias, T* y, int n,
                                                                              int height, int width, int silu) {
    stem_forward<64>(x, w, bias, y, n, height, width, silu);
}
extern "C" __global__ void __launch_bounds__(THREADS, 3) conv_stem_backward_weight_16(const T* x, const T* dy, float* partials, int n,
                                                                                      int height, int width) {
    stem_backward_weight<16, 4>(x, dy, partials, n, height, width);
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) conv_stem_backward_weight_32(const T* x, const T* dy, float* partials, int n,
                                                                                      int height, int width) {
    stem_backward_weight<32, 4>(x, dy, partials, n, height, width);
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) conv_stem_backward_weight_64(const T* x, const T* dy, float* partials, int n,
                                                                                      int height, int width) {
    stem_backward_weight<64, 2>(x, dy, partials, n, height, width);
}

#endif
