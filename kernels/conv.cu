// What a convolution needs beside cuDNN: its bias and activation where cuDNN does not fuse them well, and numbers to time
// plans with.
#include "common.cuh"

// y[i] = act(y[i] + bias[i % channels]) + residual[i], in place; without residual where that is null.
//   y, residual [pixels * channels] T, packed and 16-byte aligned; bias [channels] f32
// A thread takes 16 bytes of the flat tensor, wherever a pixel begins, so any number of channels is read in full width;
// neighbouring threads take neighbouring 16 bytes. Bound by memory: one read and one write of y.
extern "C" __global__ void conv_bias_act(T* __restrict__ y, const float* __restrict__ bias, const T* __restrict__ residual,
                                         int n_elements, int channels, int silu) {
    const u32 start = (blockIdx.x * (u32)blockDim.x + threadIdx.x) * LANES;
    if (start >= (u32)n_elements) return;
    const int n = min(LANES, n_elements - (int)start);
    int channel = start % (u32)channels;

    union { uint4 whole; T lanes[LANES]; } values, added;
    T* at = y + start;
    if (residual && n == LANES) added.whole = *(const uint4*)(residual + start);
    if (n == LANES) {
        values.whole = *(const uint4*)at;
    } else {
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) if (lane < n) values.lanes[lane] = at[lane];
    }
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) {
        if (lane < n) {
            const float x = to_f32(values.lanes[lane]) + bias[channel];
            float value = silu ? x * sigmoid_f32(x) : x;
            if (residual) value += to_f32(n == LANES ? added.lanes[lane] : residual[start + lane]);
            values.lanes[lane] = from_f32(value);
            channel = channel + 1 == channels ? 0 : channel + 1;
        }
    }
    if (n == LANES) {
        *(uint4*)at = values.whole;
    } else {
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) if (lane < n) at[lane] = values.lanes[lane];
    }
}

// x[i] = a number in -1..1 that depends on i and the seed. Zeros would let the GPU run faster than real data do.
// A thread takes every (number of threads)-th element.
extern "C" __global__ void conv_fill(T* __restrict__ x, u64 n_elements, u32 seed) {
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n_elements; i += gridDim.x * (u64)blockDim.x) {
        u32 bits = (u32)i * 0x9e3779b9u + seed;
        bits = (bits ^ (bits >> 16)) * 0x85ebca6bu;
        bits = (bits ^ (bits >> 13)) * 0xc2b2ae35u;
        bits ^= bits >> 16;
        x[i] = from_f32((float)(int)bits * (1.0f / 2147483648.0f));
    }
}
