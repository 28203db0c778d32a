// What every kernel file begins with: the compute type, its conversions, and pieces of tensors.
//
// A file is compiled three times, with COMPUTE_BF16, COMPUTE_F16 or COMPUTE_F32 defined; `T` is the type of activations, of
// their gradients and of what convolutions read. Arithmetic is always f32 (or f64 where said). No toolkit header is used.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#if defined(COMPUTE_F32)
typedef float T;
__device__ __forceinline__ float to_f32(T x) { return x; }
__device__ __forceinline__ T from_f32(float x) { return x; }
#elif defined(COMPUTE_BF16)
struct T { u16 bits; };
__device__ __forceinline__ float to_f32(T x) { return __uint_as_float((u32)x.bits << 16); }
// Rounds to nearest, ties to even; a NaN stays one.
__device__ __forceinline__ T from_f32(float x) {
    T y;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    u32 bits = __float_as_uint(x);
    y.bits = (bits & 0x7fffffffu) > 0x7f800000u ? (u16)((bits >> 16) | 0x40u) : (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
    return y;
}
#elif defined(COMPUTE_F16)
struct T { u16 bits; };
__device__ __forceinline__ float to_f32(T x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
__device__ __forceinline__ T from_f32(float x) { T y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); return y; }
#else
#error "define COMPUTE_BF16, COMPUTE_F16 or COMPUTE_F32"
#endif

// Elements that one 16-byte access holds.
#define LANES (16 / (int)sizeof(T))

// A tensor that holds channels `first .. first + count` of a value with the same pixels. Pixel p, channel c of the value
// (if it is in the range) is `data[p * pixel_stride + c - first]`.
struct Piece {
    T* data;
    int pixel_stride;
    int first;
    int count;
    int unused;
};

// Places to write a value to, or gradients whose sum is wanted. MAX_PIECES as in src/engine/cuda/pieces.rs.
#define MAX_PIECES 8
struct Pieces {
    Piece piece[MAX_PIECES];
    int n;
    int unused;
};

__device__ __forceinline__ float sigmoid_f32(float x) { return 1.0f / (1.0f + __expf(-x)); }
