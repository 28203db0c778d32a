// Nearest-neighbour enlargement of NHWC maps, and its gradient.
//   nearest_sum: maps [N, H / f_i, W / f_i, C] -> out [N, H, W, C], out[y, x] = sum of map_i[y / f_i, x / f_i]; factor 1 is the
//                map of full size, one map of factor 2 is an upsampling
//   block_sum:   d_x [N, H, W, C] = (or +=) the sum over blocks of factor x factor of d_y's pieces; factor 1 is a plain sum
//
// One thread per (output pixel, group of L channels): 16 bytes where everything is aligned; threadIdx.x is the group.
//
// Why that is fast enough: each output is written once; an enlarged map is read once from memory, for its other reads come
// from the caches. Upsampling 64 * 40 * 40 * 512 bf16 is 105 MB read and 420 MB written, 125 us at 4.3 TB/s.
#include "common.cuh"

#define MAX_MAPS 8

struct SmallMap {
    const T* data;
    int pixel_stride;
    int factor;
};
struct SmallMaps {
    SmallMap map[MAX_MAPS];
    int n;
    int unused;
};

// n_rows is images * height: the images of a batch are one tall image, for the height is a multiple of every factor.
template <int L>
__device__ __forceinline__ void enlarge(const SmallMaps& maps, int n_rows, int width, int n_channels, const Pieces& outs) {
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * L;
    if (channel >= n_channels) return;
    const int n_pixels = n_rows * width;
    for (int pixel = blockIdx.x * blockDim.y + threadIdx.y; pixel < n_pixels; pixel += gridDim.x * blockDim.y) {
        const int y = pixel / width, x = pixel - y * width;
        Floats<L> sum;
#pragma unroll
        for (int l = 0; l < L; ++l) sum.x[l] = 0.0f;
#pragma unroll 4
        for (int i = 0; i < maps.n; ++i) {
            const SmallMap& map = maps.map[i];
            const int source = (y / map.factor) * (width / map.factor) + x / map.factor;
            const Floats<L> value = unpack(load_packet<L>(map.data + (size_t)source * map.pixel_stride + channel));
#pragma unroll
            for (int l = 0; l < L; ++l) sum.x[l] += value.x[l];
        }
        store_pieces<L>(outs, pixel, channel, pack(sum));
    }
}

// n_rows and width are those of d_x.
template <int L>
__device__ __forceinline__ void sum_blocks(const Pieces& d_ys, int factor, int n_rows, int width, int n_channels, T* d_x, int pixel_stride,
                                           int accumulate) {
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * L;
    if (channel >= n_channels) return;
    const int n_pixels = n_rows * width;
    for (int pixel = blockIdx.x * blockDim.y + threadIdx.y; pixel < n_pixels; pixel += gridDim.x * blockDim.y) {
        const int y = pixel / width, x = pixel - y * width;
        T* to = d_x + (size_t)pixel * pixel_stride + channel;
        Floats<L> sum;
#pragma unroll
        for (int l = 0; l < L; ++l) sum.x[l] = 0.0f;
        if (accumulate) sum = unpack(load_packet<L>(to));
        for (int i = 0; i < d_ys.n; ++i) {
            const Piece& piece = d_ys.piece[i];
            if (!covers(piece, channel)) continue;
            for (int row = 0; row < factor; ++row) {
                const int from = (y * factor + row) * width * factor + x * factor;
                const T* at = piece.data + (size_t)from * piece.pixel_stride + (channel - piece.first);
#pragma unroll 4
                for (int column = 0; column < factor; ++column, at += piece.pixel_stride) {
                    const Floats<L> value = unpack(load_packet<L>(at));
#pragma unroll
                    for (int l = 0; l < L; ++l) sum.x[l] += value.x[l];
                }
            }
        }
        store_packet<L>(to, pack(sum));
    }
}

#define ENLARGE_PARAMETERS const SmallMaps maps, int n_rows, int width, int n_channels, const Pieces outs
#define ENLARGE_ARGUMENTS maps, n_rows, width, n_channels, outs
extern "C" __global__ void __launch_bounds__(256) nearest_sum_vec(ENLARGE_PARAMETERS) { enlarge<LANES>(ENLARGE_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) nearest_sum_scalar(ENLARGE_PARAMETERS) { enlarge<1>(ENLARGE_ARGUMENTS); }

#define BLOCK_SUM_PARAMETERS \
    const Pieces d_ys, int factor, int n_rows, int width, int n_channels, T *d_x, int pixel_stride, int accumulate
#define BLOCK_SUM_ARGUMENTS d_ys, factor, n_rows, width, n_channels, d_x, pixel_stride, accumulate
extern "C" __global__ void __launch_bounds__(256) block_sum_vec(BLOCK_SUM_PARAMETERS) { sum_blocks<LANES>(BLOCK_SUM_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) block_sum_scalar(BLOCK_SUM_PARAMETERS) { sum_blocks<1>(BLOCK_SUM_ARGUMENTS); }
