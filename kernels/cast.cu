// Conversions into the compute type, and copies and zeros of strided tensors.
//   u8_to_compute:  rgb [P, 3] bytes -> images [P, C] T, byte / 255; channels from 3 on are 0
//   f32_to_compute: x [n] f32 -> y [n] T
//   copy_pixels:    from [P, C] T, strided -> to [P, C] T, strided
//   zero_pixels:    to [P, C] T, strided = 0
//
// Every thread moves 16 bytes of the compute type at a time where everything is aligned. Images are one thread a pixel: three
// bytes in, which neighbouring threads find in the same cache lines, and one store of C = 4 or 8 elements.
//
// Why that is fast enough: bytes are read and written once. 64 * 640 * 640 pixels to 4 bf16 channels: 79 + 210 MB, 67 us at
// 4.3 TB/s. Casting 25 M weights: 100 + 50 MB, 35 us.
#include "common.cuh"

template <int C> __device__ __forceinline__ void image_pixels(const u8* rgb, int n_pixels, T* images) {
    for (int pixel = blockIdx.x * blockDim.x + threadIdx.x; pixel < n_pixels; pixel += gridDim.x * blockDim.x) {
        Floats<C> values;
#pragma unroll
        for (int c = 0; c < C; ++c) values.x[c] = c < 3 ? rgb[(size_t)pixel * 3 + c] / 255.0f : 0.0f;
        T* to = images + (size_t)pixel * C;
        if constexpr (C == 4 || C == LANES) {
            store_packet<C>(to, pack(values));
        } else {
#pragma unroll
            for (int c = 0; c < C; ++c) to[c] = from_f32(values.x[c]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) u8_to_compute_3(const u8* rgb, int n_pixels, T* images) { image_pixels<3>(rgb, n_pixels, images); }
extern "C" __global__ void __launch_bounds__(256) u8_to_compute_4(const u8* rgb, int n_pixels, T* images) { image_pixels<4>(rgb, n_pixels, images); }
extern "C" __global__ void __launch_bounds__(256) u8_to_compute_8(const u8* rgb, int n_pixels, T* images) { image_pixels<8>(rgb, n_pixels, images); }

template <int L> __device__ __forceinline__ Floats<L> load_f32(const float* at) {
    Floats<L> values;
    if constexpr (L % 4 == 0) {
#pragma unroll
        for (int i = 0; i < L / 4; ++i) {
            const float4 x = reinterpret_cast<const float4*>(at)[i];
            values.x[4 * i] = x.x, values.x[4 * i + 1] = x.y, values.x[4 * i + 2] = x.z, values.x[4 * i + 3] = x.w;
        }
    } else {
#pragma unroll
        for (int l = 0; l < L; ++l) values.x[l] = at[l];
    }
    return values;
}

// n_packets of L elements, then the rest one by one by the first threads.
template <int L> __device__ __forceinline__ void cast_f32(const float* x, u64 n, T* y) {
    const u64 first = blockIdx.x * (u64)blockDim.x + threadIdx.x, step = gridDim.x * (u64)blockDim.x;
    const u64 n_packets = n / L;
    for (u64 i = first; i < n_packets; i += step) store_packet<L>(y + i * L, pack(load_f32<L>(x + i * L)));
    for (u64 i = n_packets * L + first; i < n; i += step) y[i] = from_f32(x[i]);
}

extern "C" __global__ void __launch_bounds__(256) f32_to_compute_vec(const float* x, u64 n, T* y) { cast_f32<LANES>(x, n, y); }
extern "C" __global__ void __launch_bounds__(256) f32_to_compute_scalar(const float* x, u64 n, T* y) { cast_f32<1>(x, n, y); }

// `from` null: zeros.
template <int L>
__device__ __forceinline__ void move_pixels(const T* from, int from_stride, T* to, int to_stride, int n_pixels, int n_channels) {
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * L;
    if (channel >= n_channels) return;
    Floats<L> nothing;
#pragma unroll
    for (int l = 0; l < L; ++l) nothing.x[l] = 0.0f;
    const Packet<L> zeros = pack(nothing);
#pragma unroll 4
    for (int pixel = blockIdx.x * blockDim.y + threadIdx.y; pixel < n_pixels; pixel += gridDim.x * blockDim.y) {
        const Packet<L> packet = from == nullptr ? zeros : load_packet<L>(from + (size_t)pixel * from_stride + channel);
        store_packet<L>(to + (size_t)pixel * to_stride + channel, packet);
    }
}

#define COPY_PARAMETERS const T *from, int from_stride, T *to, int to_stride, int n_pixels, int n_channels
#define COPY_ARGUMENTS from, from_stride, to, to_stride, n_pixels, n_channels
extern "C" __global__ void __launch_bounds__(256) copy_pixels_vec(COPY_PARAMETERS) { move_pixels<LANES>(COPY_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) copy_pixels_scalar(COPY_PARAMETERS) { move_pixels<1>(COPY_ARGUMENTS); }

#define ZERO_PARAMETERS T *to, int to_stride, int n_pixels, int n_channels
extern "C" __global__ void __launch_bounds__(256) zero_pixels_vec(ZERO_PARAMETERS) {
    move_pixels<LANES>(nullptr, 0, to, to_stride, n_pixels, n_channels);
}
extern "C" __global__ void __launch_bounds__(256) zero_pixels_scalar(ZERO_PARAMETERS) {
    move_pixels<1>(nullptr, 0, to, to_stride, n_pixels, n_channels);
}
