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

// L elements that are read or written by one access: 1, 4 or LANES, with address and stride aligned to them. Loads stay in this
// form until they are used, so that many of them in flight need few registers.
template <int L> struct Packet;
template <> struct Packet<1> { T x; };
template <> struct Packet<LANES> { uint4 x; };

template <int L> struct Floats { float x[L]; };

template <int L> __device__ __forceinline__ Packet<L> load_packet(const T* at) { return *reinterpret_cast<const Packet<L>*>(at); }
template <int L> __device__ __forceinline__ void store_packet(T* at, Packet<L> packet) { *reinterpret_cast<Packet<L>*>(at) = packet; }

__device__ __forceinline__ Floats<1> unpack(Packet<1> packet) { return {{to_f32(packet.x)}}; }
__device__ __forceinline__ Packet<1> pack(const Floats<1>& values) { return {from_f32(values.x[0])}; }

#if defined(COMPUTE_F32)
__device__ __forceinline__ Floats<LANES> unpack(Packet<LANES> packet) {
    const uint4 w = packet.x;
    return {{__uint_as_float(w.x), __uint_as_float(w.y), __uint_as_float(w.z), __uint_as_float(w.w)}};
}
__device__ __forceinline__ Packet<LANES> pack(const Floats<LANES>& values) {
    const float* x = values.x;
    return {make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3]))};
}
#else
template <> struct Packet<4> { uint2 x; };

// The lower half of a word is the element at the lower address.
__device__ __forceinline__ void unpack_word(u32 word, float& low, float& high) {
#if defined(COMPUTE_BF16)
    low = __uint_as_float(word << 16);
    high = __uint_as_float(word & 0xffff0000u);
#else
    low = to_f32(T{(u16)word});
    high = to_f32(T{(u16)(word >> 16)});
#endif
}
__device__ __forceinline__ u32 pack_word(float low, float high) {
    u32 word;
#if __CUDA_ARCH__ >= 800 && defined(COMPUTE_BF16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#elif __CUDA_ARCH__ >= 800
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#else
    word = (u32)from_f32(low).bits | (u32)from_f32(high).bits << 16;
#endif
    return word;
}
__device__ __forceinline__ Floats<LANES> unpack(Packet<LANES> packet) {
    Floats<LANES> values;
    unpack_word(packet.x.x, values.x[0], values.x[1]);
    unpack_word(packet.x.y, values.x[2], values.x[3]);
    unpack_word(packet.x.z, values.x[4], values.x[5]);
    unpack_word(packet.x.w, values.x[6], values.x[7]);
    return values;
}
__device__ __forceinline__ Floats<4> unpack(Packet<4> packet) {
    Floats<4> values;
    unpack_word(packet.x.x, values.x[0], values.x[1]);
    unpack_word(packet.x.y, values.x[2], values.x[3]);
    return values;
}
__device__ __forceinline__ Packet<4> pack(const Floats<4>& values) {
    const float* x = values.x;
    return {make_uint2(pack_word(x[0], x[1]), pack_word(x[2], x[3]))};
}
__device__ __forceinline__ Packet<LANES> pack(const Floats<LANES>& values) {
    const float* x = values.x;
    return {make_uint4(pack_word(x[0], x[1]), pack_word(x[2], x[3]), pack_word(x[4], x[5]), pack_word(x[6], x[7]))};
}
#endif

// Whether a piece holds the channels from `channel` on (L of them, when its range is aligned to L).
__device__ __forceinline__ bool covers(const Piece& piece, int channel) { return (unsigned)(channel - piece.first) < (unsigned)piece.count; }

// Writes the same packet to every piece that holds its channels.
template <int L> __device__ __forceinline__ void store_pieces(const Pieces& pieces, int pixel, int channel, Packet<L> packet) {
    for (int i = 0; i < pieces.n; ++i) {
        const Piece& piece = pieces.piece[i];
        if (covers(piece, channel)) store_packet<L>(piece.data + (size_t)pixel * piece.pixel_stride + (channel - piece.first), packet);
    }
}

// Adds the pieces of one pixel, from piece number `begin` on, to `sum`.
template <int L> __device__ __forceinline__ void add_pieces(const Pieces& pieces, int begin, int pixel, int channel, Floats<L>& sum) {
    for (int i = begin; i < pieces.n; ++i) {
        const Piece& piece = pieces.piece[i];
        if (!covers(piece, channel)) continue;
        const Floats<L> x = unpack(load_packet<L>(piece.data + (size_t)pixel * piece.pixel_stride + (channel - piece.first)));
#pragma unroll
        for (int l = 0; l < L; ++l) sum.x[l] += x.x[l];
    }
}

// Whether all pixels of a tensor can be read and written 16 bytes at a time.
__device__ __forceinline__ bool is_aligned_16(const T* data, int pixel_stride) {
    return (((u64)data | (u64)pixel_stride * sizeof(T)) & 15) == 0;
}

// The sum over the threads of a block (whole warps), in an order that never changes; every thread gets it.
__device__ __forceinline__ double sum_of_block(double x) {
    __shared__ double of_warps[32];
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
    __syncthreads();
    double sum = 0.0;
    for (int warp = 0; warp < (int)blockDim.x / 32; ++warp) sum += of_warps[warp];
    __syncthreads();
    return sum;
}

// True in all threads of the block that comes here last of `n_blocks`, which then sees what thread 0 of every block wrote
// before. Sets the counter back to 0.
__device__ __forceinline__ bool is_last_block(u32* counter, u32 n_blocks) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(counter, 1u) == n_blocks - 1;
        if (is_last) *counter = 0;
        __threadfence();
    }
    __syncthreads();
    return is_last;
}

// The levels of detection heads, as in src/engine/cuda/levels.rs: box distributions (4 sides of BINS logits: left, top,
// right, bottom) and class logits a pixel. Anchor points of an image are numbered over the levels, each row by row.
#define MAX_HEADS 2
#define MAX_LEVELS 4
#define BINS 16
struct Level {
    const T* reg;
    const T* cls;
    // Null where no gradient is wanted.
    T* d_reg;
    T* d_cls;
    int reg_stride;
    int cls_stride;
    int d_reg_stride;
    int d_cls_stride;
    int height;
    int width;
    int first_anchor;
    // Input pixels per cell.
    float stride;
};

// Level l of head h is `level[h * n_levels + l]`; heads do not differ in sizes.
struct Levels {
    Level level[MAX_HEADS * MAX_LEVELS];
    int n_heads;
    int n_levels;
    int batch;
    int n_anchors;
    int n_classes;
    int unused;
};

// The level of head `head` that has an anchor point.
__device__ __forceinline__ const Level& level_of_anchor(const Levels& levels, int head, int anchor) {
    int level = 0;
    while (level + 1 < levels.n_levels && anchor >= levels.level[level + 1].first_anchor) ++level;
    return levels.level[head * levels.n_levels + level];
}

// The mean of softmax(logits) over the bins 0, 1, 2, …: the distance to one side of a box, in strides.
__device__ __forceinline__ float expected_bin(const T* logits, bool aligned) {
    float x[BINS];
    if (aligned) {
#pragma unroll
        for (int bin = 0; bin < BINS; bin += LANES) {
            const Floats<LANES> lanes = unpack(load_packet<LANES>(logits + bin));
#pragma unroll
            for (int k = 0; k < LANES; ++k) x[bin + k] = lanes.x[k];
        }
    } else {
#pragma unroll
        for (int bin = 0; bin < BINS; ++bin) x[bin] = to_f32(logits[bin]);
    }
    float peak = x[0];
#pragma unroll
    for (int bin = 1; bin < BINS; ++bin) peak = fmaxf(peak, x[bin]);
    float total = 0.0f, weighted = 0.0f;
#pragma unroll
    for (int bin = 0; bin < BINS; ++bin) {
        const float e = expf(x[bin] - peak);
        total += e;
        weighted += bin * e;
    }
    return weighted / total;
}

// Tensor cores and asynchronous copies, for 16-bit types from sm_80 on.
#if !defined(COMPUTE_F32) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800)
#define HAS_MMA

#if defined(COMPUTE_BF16)
#define MMA_TYPES "bf16.bf16"
#else
#define MMA_TYPES "f16.f16"
#endif

__device__ __forceinline__ u32 shared_address(const void* pointer) { return (u32)__cvta_generic_to_shared(pointer); }

// Copies 16 bytes, or fills with zeros.
__device__ __forceinline__ void copy_async(u32 to, const T* from, bool is_inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)), "r"(is_inside ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all but the last `PENDING` groups of this thread's copies.
template <int PENDING>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Four 8x8 matrices; lanes 8m..8m+7 name the rows of matrix m.
__device__ __forceinline__ void load_matrices(u32 (&matrices)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(u32 (&matrices)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(address)
                 : "memory");
}

// sum[16x8] += a[16x16] * b[16x8]
__device__ __forceinline__ void multiply_add(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32." MMA_TYPES ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif
