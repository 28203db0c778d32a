// Box distributions and class logits into boxes and scores, for what comes after a network.
//   reg [B, h, w, 4 * 16], cls [B, h, w, nc] of each level, compute type  ->  out [B, N, 4 + nc] f32
//   out = cx, cy, w, h in input pixels, then sigmoid(cls); distance to a side = sum over r of r * softmax(reg)[r], in strides
// A block takes TILE pixels of one level. First a thread per (pixel, side) reads 16 logits (two 16-byte accesses) and gives
// its distance to the others of its pixel; then threads walk over the scores of the tile, in order, so that reads and
// writes are coalesced: 16 bytes of logits at a time where the number of classes allows, else one by one.
// Reads and writes everything once: B * N * (2 * (64 + nc) + 4 * (4 + nc)) bytes.
#include "common.cuh"

// Pixels of a block; DECODE_TILE in src/engine/cuda/decode.rs.
#define TILE 64

// 4 * TILE threads. `first_tile[l]` is the first block of level l.
extern "C" __global__ void decode_boxes(const __grid_constant__ Levels levels, const __grid_constant__ int4 first_tile, float* out) {
    const int starts[MAX_LEVELS] = {first_tile.x, first_tile.y, first_tile.z, first_tile.w};
    int index = 0, start = 0;
#pragma unroll
    for (int l = 1; l < MAX_LEVELS; ++l) {
        if (l < levels.n_levels && (int)blockIdx.x >= starts[l]) {
            index = l;
            start = starts[l];
        }
    }
    const Level& level = levels.level[index];
    const int n_cells = level.height * level.width;
    const int first = ((int)blockIdx.x - start) * TILE;
    const int count = min(TILE, levels.batch * n_cells - first);
    const int n_classes = levels.n_classes, row_length = 4 + n_classes;

    const int pixel = first + threadIdx.x / 4, side = threadIdx.x % 4;
    float distance = 0.0f;
    if (pixel < first + count) {
        distance = expected_bin(level.reg + (size_t)pixel * level.reg_stride + side * BINS, is_aligned_16(level.reg, level.reg_stride));
    }
    // The distance to the opposite side: left and right, top and bottom.
    const float opposite = __shfl_xor_sync(0xffffffffu, distance, 2);
    if (pixel < first + count) {
        const int image = pixel / n_cells, cell = pixel - image * n_cells;
        const float place = (side % 2 == 0 ? cell % level.width : cell / level.width) + 0.5f;
        const float value = side < 2 ? place + (opposite - distance) / 2.0f : distance + opposite;
        out[((size_t)image * levels.n_anchors + level.first_anchor + cell) * row_length + side] = value * level.stride;
    }

    // Rows begin at 16 bytes where the number of classes allows vectors at all, since it is a multiple of 4 then.
    const bool vectors = n_classes % LANES == 0 && is_aligned_16(level.cls, level.cls_stride) && ((u64)out & 15) == 0;
    const int width = vectors ? LANES : 1;
    const int per_pixel = n_classes / width;
    for (int i = threadIdx.x; i < count * per_pixel; i += blockDim.x) {
        const int pixel = first + i / per_pixel, from = i % per_pixel * width;
        const int image = pixel / n_cells, cell = pixel - image * n_cells;
        const T* logits = level.cls + (size_t)pixel * level.cls_stride + from;
        float* scores = out + ((size_t)image * levels.n_anchors + level.first_anchor + cell) * row_length + 4 + from;
        if (vectors) {
            const Floats<LANES> lanes = unpack(load_packet<LANES>(logits));
            const float* x = lanes.x;
#pragma unroll
            for (int k = 0; k < LANES; k += 4) {
                *(float4*)(scores + k) =
                    make_float4(sigmoid_f32(x[k]), sigmoid_f32(x[k + 1]), sigmoid_f32(x[k + 2]), sigmoid_f32(x[k + 3]));
            }
        } else {
            *scores = sigmoid_f32(to_f32(*logits));
        }
    }
}
