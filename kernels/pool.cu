// Average and max pooling of NHWC maps, and their gradients.
//   avg_pool2: x [N, H, W, C] -> [N, H-1, W-1, C], mean of 2x2 at stride 1
//   max_pool:  x [N, H, W, C] -> [N, OH, OW, C], padding never wins, a NaN in the window comes out
//   backward:  d_x = (or +=) what each pixel gets of the windows that it is part of; a window's gradient goes to its first
//              maximum, by row, then column
//
// One thread per (pixel, group of L channels): 16 bytes where everything is aligned. threadIdx.x is the group, so neighbouring
// threads read neighbouring channels; overlapping windows come from the caches.
//
// The backward of max_pool is two kernels, so that no window is searched twice and nothing is added by atomics: the first writes
// the place of each window's maximum as one byte, the second gathers for each pixel from the windows that name it.
//
// Why that is fast enough: avg_pool2 and its backward read and write every element once from memory (64 * 160 * 160 * 256 bf16:
// 2 * 839 MB, 390 us at 4.3 TB/s). A 5x5 window is 25 reads of the first-level cache: 16 * 20 * 20 * 256 takes about 5 us.
#include "common.cuh"

struct Map {
    int n;
    int height;
    int width;
};

struct Window {
    int kernel;
    int stride;
    int pad;
};

template <int L> struct Codes;
template <> struct Codes<1> { u8 x[1]; };
template <> struct alignas(4) Codes<4> { u8 x[4]; };
template <> struct alignas(8) Codes<8> { u8 x[8]; };

// Calls `f(image, y, x, pixel, channel)` for this thread's pixels of a map.
template <int L, typename F> __device__ __forceinline__ void for_each_pixel(const Map& map, int n_channels, F f) {
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * L;
    if (channel >= n_channels) return;
    const int n_pixels = map.n * map.height * map.width;
    for (int pixel = blockIdx.x * blockDim.y + threadIdx.y; pixel < n_pixels; pixel += gridDim.x * blockDim.y) {
        const int line = pixel / map.width, image = line / map.height;
        f(image, line - image * map.height, pixel - line * map.width, pixel, channel);
    }
}

template <int L> __device__ __forceinline__ Floats<L> filled(float value) {
    Floats<L> values;
#pragma unroll
    for (int l = 0; l < L; ++l) values.x[l] = value;
    return values;
}

template <int L> __device__ __forceinline__ void add(Floats<L>& sum, const Floats<L>& x) {
#pragma unroll
    for (int l = 0; l < L; ++l) sum.x[l] += x.x[l];
}

// What d_x begins with.
template <int L> __device__ __forceinline__ Floats<L> before(const T* d_x, int accumulate) {
    return accumulate ? unpack(load_packet<L>(d_x)) : filled<L>(0.0f);
}

// `map` is the output's.
template <int L>
__device__ __forceinline__ void avg_pool2_forward(const T* x, int pixel_stride, const Map& map, int n_channels, const Pieces& outs) {
    const int width = map.width + 1;
    for_each_pixel<L>(map, n_channels, [&](int image, int row, int column, int pixel, int channel) {
        const T* corner = x + (size_t)((image * (map.height + 1) + row) * width + column) * pixel_stride + channel;
        const Packet<L> packets[4] = {load_packet<L>(corner), load_packet<L>(corner + pixel_stride),
                                      load_packet<L>(corner + (size_t)width * pixel_stride),
                                      load_packet<L>(corner + (size_t)(width + 1) * pixel_stride)};
        const Floats<L> a = unpack(packets[0]), b = unpack(packets[1]), c = unpack(packets[2]), d = unpack(packets[3]);
        Floats<L> mean;
#pragma unroll
        for (int l = 0; l < L; ++l) mean.x[l] = ((a.x[l] + b.x[l]) + (c.x[l] + d.x[l])) * 0.25f;
        store_pieces<L>(outs, pixel, channel, pack(mean));
    });
}

// `map` is the input's.
template <int L>
__device__ __forceinline__ void avg_pool2_gather(const Pieces& d_ys, const Map& map, int n_channels, T* d_x, int pixel_stride, int accumulate) {
    for_each_pixel<L>(map, n_channels, [&](int image, int row, int column, int pixel, int channel) {
        T* to = d_x + (size_t)pixel * pixel_stride + channel;
        Floats<L> sum = filled<L>(0.0f);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int y = row - 1 + i / 2, x = column - 1 + i % 2;
            if (y < 0 || y >= map.height - 1 || x < 0 || x >= map.width - 1) continue;
            add_pieces<L>(d_ys, 0, (image * (map.height - 1) + y) * (map.width - 1) + x, channel, sum);
        }
        Floats<L> total = before<L>(to, accumulate);
#pragma unroll
        for (int l = 0; l < L; ++l) total.x[l] += sum.x[l] * 0.25f;
        store_packet<L>(to, pack(total));
    });
}

// The rows (or columns) of a window that lie inside: `begin..end`.
__device__ __forceinline__ int window_begin(const Window& window, int index) { return max(index * window.stride - window.pad, 0); }
__device__ __forceinline__ int window_end(const Window& window, int index, int side) {
    return min(index * window.stride - window.pad + window.kernel, side);
}

// `map` is the input's, `out` the output's.
template <int L>
__device__ __forceinline__ void max_pool_forward(const T* x, int pixel_stride, const Map& map, const Window& window, const Map& out, int n_channels,
                                                 const Pieces& outs) {
    for_each_pixel<L>(out, n_channels, [&](int image, int row, int column, int pixel, int channel) {
        const int x_begin = window_begin(window, column), x_end = window_end(window, column, map.width);
        const int y_begin = window_begin(window, row), y_end = window_end(window, row, map.height);
        Floats<L> best = filled<L>(-__int_as_float(0x7f800000));
        for (int y = y_begin; y < y_end; ++y) {
            const T* at = x + (size_t)((image * map.height + y) * map.width + x_begin) * pixel_stride + channel;
#pragma unroll 5
            for (int i = x_begin; i < x_end; ++i, at += pixel_stride) {
                const Floats<L> value = unpack(load_packet<L>(at));
                // Keeps a NaN that is there, takes one that comes.
#pragma unroll
                for (int l = 0; l < L; ++l) best.x[l] = best.x[l] >= value.x[l] || best.x[l] != best.x[l] ? best.x[l] : value.x[l];
            }
        }
        store_pieces<L>(outs, pixel, channel, pack(best));
    });
}

// The place of each window's first maximum, row * kernel + column counted from the window's corner (which may be padding).
template <int L>
__device__ __forceinline__ void max_pool_codes(const T* x, int pixel_stride, const Map& map, const Window& window, const Map& out, int n_channels,
                                               u8* codes) {
    for_each_pixel<L>(out, n_channels, [&](int image, int row, int column, int pixel, int channel) {
        const int x_begin = window_begin(window, column), x_end = window_end(window, column, map.width);
        const int y_begin = window_begin(window, row), y_end = window_end(window, row, map.height);
        const int x_corner = column * window.stride - window.pad, y_corner = row * window.stride - window.pad;
        Floats<L> best = filled<L>(-__int_as_float(0x7f800000));
        int winner[L];
        // A window of minus infinities gives its gradient to its first element.
#pragma unroll
        for (int l = 0; l < L; ++l) winner[l] = (y_begin - y_corner) * window.kernel + x_begin - x_corner;
        for (int y = y_begin; y < y_end; ++y) {
            const T* at = x + (size_t)((image * map.height + y) * map.width + x_begin) * pixel_stride + channel;
#pragma unroll 5
            for (int i = x_begin; i < x_end; ++i, at += pixel_stride) {
                const Floats<L> value = unpack(load_packet<L>(at));
                const int code = (y - y_corner) * window.kernel + i - x_corner;
#pragma unroll
                for (int l = 0; l < L; ++l) {
                    const bool wins = value.x[l] > best.x[l];
                    winner[l] = wins ? code : winner[l];
                    best.x[l] = wins ? value.x[l] : best.x[l];
                }
            }
        }
        Codes<L> packed;
#pragma unroll
        for (int l = 0; l < L; ++l) packed.x[l] = winner[l];
        *reinterpret_cast<Codes<L>*>(codes + (size_t)pixel * n_channels + channel) = packed;
    });
}

// The first output whose window reaches `position`, and the one after the last.
__device__ __forceinline__ int first_window(const Window& window, int position) {
    const int past = position + window.pad - window.kernel;  // the last position of the window before, less one stride
    return past < 0 ? 0 : past / window.stride + 1;
}
__device__ __forceinline__ int end_window(const Window& window, int position, int n_windows) {
    return min((position + window.pad) / window.stride + 1, n_windows);
}

template <int L>
__device__ __forceinline__ void max_pool_gather(const u8* codes, const Pieces& d_ys, const Map& map, const Window& window, const Map& out,
                                                int n_channels, T* d_x, int pixel_stride, int accumulate) {
    for_each_pixel<L>(map, n_channels, [&](int image, int row, int column, int pixel, int channel) {
        T* to = d_x + (size_t)pixel * pixel_stride + channel;
        Floats<L> total = before<L>(to, accumulate);
        const int x_begin = first_window(window, column), x_end = end_window(window, column, out.width);
        const int y_end = end_window(window, row, out.height);
        for (int y = first_window(window, row); y < y_end; ++y) {
            for (int x = x_begin; x < x_end; ++x) {
                const int from = (image * out.height + y) * out.width + x;
                const int code = (row + window.pad - y * window.stride) * window.kernel + column + window.pad - x * window.stride;
                const Codes<L> winners = *reinterpret_cast<const Codes<L>*>(codes + (size_t)from * n_channels + channel);
                bool any = false;
#pragma unroll
                for (int l = 0; l < L; ++l) any |= winners.x[l] == code;
                if (!any) continue;
                Floats<L> d = filled<L>(0.0f);
                add_pieces<L>(d_ys, 0, from, channel, d);
#pragma unroll
                for (int l = 0; l < L; ++l) {
                    if (winners.x[l] == code) total.x[l] += d.x[l];
                }
            }
        }
        store_packet<L>(to, pack(total));
    });
}

#define AVG_PARAMETERS const T *x, int pixel_stride, const Map map, int n_channels, const Pieces outs
#define AVG_ARGUMENTS x, pixel_stride, map, n_channels, outs
extern "C" __global__ void __launch_bounds__(256) avg_pool2_vec(AVG_PARAMETERS) { avg_pool2_forward<LANES>(AVG_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) avg_pool2_scalar(AVG_PARAMETERS) { avg_pool2_forward<1>(AVG_ARGUMENTS); }

#define AVG_BACKWARD_PARAMETERS const Pieces d_ys, const Map map, int n_channels, T *d_x, int pixel_stride, int accumulate
#define AVG_BACKWARD_ARGUMENTS d_ys, map, n_channels, d_x, pixel_stride, accumulate
extern "C" __global__ void __launch_bounds__(256) avg_pool2_backward_vec(AVG_BACKWARD_PARAMETERS) {
    avg_pool2_gather<LANES>(AVG_BACKWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(256) avg_pool2_backward_scalar(AVG_BACKWARD_PARAMETERS) {
    avg_pool2_gather<1>(AVG_BACKWARD_ARGUMENTS);
}

#define MAX_PARAMETERS const T *x, int pixel_stride, const Map map, const Window window, const Map out, int n_channels
#define MAX_ARGUMENTS x, pixel_stride, map, window, out, n_channels
extern "C" __global__ void __launch_bounds__(256) max_pool_vec(MAX_PARAMETERS, const Pieces outs) {
    max_pool_forward<LANES>(MAX_ARGUMENTS, outs);
}
extern "C" __global__ void __launch_bounds__(256) max_pool_scalar(MAX_PARAMETERS, const Pieces outs) {
    max_pool_forward<1>(MAX_ARGUMENTS, outs);
}
extern "C" __global__ void __launch_bounds__(256) max_pool_codes_vec(MAX_PARAMETERS, u8* codes) { max_pool_codes<LANES>(MAX_ARGUMENTS, codes); }
extern "C" __global__ void __launch_bounds__(256) max_pool_codes_scalar(MAX_PARAMETERS, u8* codes) { max_pool_codes<1>(MAX_ARGUMENTS, codes); }

#define GATHER_PARAMETERS                                                                                                        \
    const u8 *codes, const Pieces d_ys, const Map map, const Window window, const Map out, int n_channels, T *d_x, int pixel_stride, \
        int accumulate
#define GATHER_ARGUMENTS codes, d_ys, map, window, out, n_channels, d_x, pixel_stride, accumulate
extern "C" __global__ void __launch_bounds__(256) max_pool_gather_vec(GATHER_PARAMETERS) { max_pool_gather<LANES>(GATHER_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) max_pool_gather_scalar(GATHER_PARAMETERS) { max_pool_gather<1>(GATHER_ARGUMENTS); }
