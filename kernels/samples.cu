// Training samples from decoded pictures: tiles on a canvas, warped, mixed, with changed colours and flipped.
//   pictures u8 RGB, packed, anywhere in device memory
//   sample table (see src/engine/cuda/samples.rs)  ->  out [n, side, side, 3] u8 RGB
// The arithmetic is that of src/train/composition.rs and src/media/{warp,color}.rs, so the bytes are the same: positions in f64
// without fused multiply-add, all else in integers or in f32 that is exact.
// One thread an output pixel, neighbours in a row: they read neighbouring source pixels as long as the map hardly turns, from the
// cache. A sample reads some 12 bytes a pixel and layer, so 64 samples of 640 x 640 move less than 1 GB.
#include "common.cuh"

#define MAX_TILES 4
#define GRAY 114

struct Tile {
    const u8* picture;
    int picture_width;
    int source_x, source_y;
    int place_x, place_y;
    int width, height;
    int unused;
};

struct Layer {
    double map[9];
    int is_projective;
    int canvas_width, canvas_height;
    int n_tiles;
    Tile tiles[MAX_TILES];
    int first_span, n_spans;
};

struct Sample {
    Layer layers[2];
    u32 share;  // of the first layer, out of 65536: 65536 means that there is no second
    int flip_horizontal, flip_vertical;
    int colors;  // index of its table, or -1
};

struct Span { int y, start, end, unused; };

struct Colors {
    float fraction[256];
    float saturation[256];
    float value[256];
    u8 sector[256];
};

struct Rgb { int c[3]; };

__device__ __forceinline__ Rgb gray() { return {{GRAY, GRAY, GRAY}}; }

// The pixel of a canvas, from the tile that covers it; gray outside.
__device__ Rgb canvas_pixel(const Layer& layer, const Span* spans, int x, int y) {
    if ((u32)x >= (u32)layer.canvas_width || (u32)y >= (u32)layer.canvas_height) return gray();
    if (layer.n_spans > 0) {
        // The last span that begins at or before (y, x).
        int low = layer.first_span, high = layer.first_span + layer.n_spans;
        while (low < high) {
            const int middle = (low + high) / 2;
            const Span span = spans[middle];
            if (span.y < y || (span.y == y && span.start <= x)) low = middle + 1;
            else high = middle;
        }
        if (low > layer.first_span) {
            const Span span = spans[low - 1];
            if (span.y == y && x < span.end) x = layer.canvas_width - 1 - x;
        }
    }
    for (int t = 0; t < layer.n_tiles; ++t) {
        const Tile& tile = layer.tiles[t];
        const int column = x - tile.place_x, row = y - tile.place_y;
        if ((u32)column < (u32)tile.width && (u32)row < (u32)tile.height) {
            const u8* at = tile.picture + ((size_t)(tile.source_y + row) * tile.picture_width + tile.source_x + column) * 3;
            return {{at[0], at[1], at[2]}};
        }
    }
    return gray();
}

// Position `at` of an affine map in 1/32 of a canvas pixel; the sum wraps.
__device__ __forceinline__ int affine_position(double start, double step, double at) {
    const int row = __double2int_rn(__dmul_rn(start, 1024.0));
    const int column = __double2int_rn(__dmul_rn(__dmul_rn(step, at), 1024.0));
    return (int)((u32)row + 16u + (u32)column) >> 5;
}

__device__ Rgb layer_pixel(const Layer& layer, const Span* spans, int x, int y) {
    const double* m = layer.map;
    const double dx = x, dy = y;
    int column, row;
    if (layer.is_projective) {
        const double w = __dadd_rn(__dadd_rn(__dmul_rn(m[6], dx), __dmul_rn(m[7], dy)), m[8]);
        const double part = w == 0.0 ? 0.0 : __ddiv_rn(32.0, w);
        column = __double2int_rn(__dmul_rn(__dadd_rn(__dadd_rn(__dmul_rn(m[0], dx), __dmul_rn(m[1], dy)), m[2]), part));
        row = __double2int_rn(__dmul_rn(__dadd_rn(__dadd_rn(__dmul_rn(m[3], dx), __dmul_rn(m[4], dy)), m[5]), part));
    } else {
        column = affine_position(__dadd_rn(__dmul_rn(m[1], dy), m[2]), m[0], dx);
        row = affine_position(__dadd_rn(__dmul_rn(m[4], dy), m[5]), m[3], dx);
    }
    const int fx = column & 31, fy = row & 31, left = column >> 5, upper = row >> 5;
    if (left < -1 || upper < -1 || left >= layer.canvas_width || upper >= layer.canvas_height) return gray();
    const Rgb p00 = canvas_pixel(layer, spans, left, upper);
    const Rgb p01 = fx ? canvas_pixel(layer, spans, left + 1, upper) : p00;
    const Rgb p10 = fy ? canvas_pixel(layer, spans, left, upper + 1) : p00;
    const Rgb p11 = fx && fy ? canvas_pixel(layer, spans, left + 1, upper + 1) : p00;
    Rgb sum;
#pragma unroll
    for (int c = 0; c < 3; ++c) {
        const int value = p00.c[c] * (32 - fx) * (32 - fy) + p01.c[c] * fx * (32 - fy) + p10.c[c] * (32 - fx) * fy + p11.c[c] * fx * fy;
        sum.c[c] = (value + 512) >> 10;
    }
    return sum;
}

// `one / by` as a whole number, halves to even.
__device__ __forceinline__ int reciprocal(float one, int by) { return by == 0 ? 0 : __float2int_rn(__fdiv_rn(one, (float)by)); }

// Hue, saturation and value are looked up, and the colour is put together again.
__device__ Rgb shift_colors(const Colors& colors, Rgb rgb) {
    const int r = rgb.c[0], g = rgb.c[1], b = rgb.c[2];
    const int value = max(r, max(g, b)), range = value - min(r, min(g, b));
    const int saturation = (range * reciprocal(255.0f * 4096.0f, value) + 2048) >> 12;
    const int sixths = value == r ? g - b : value == g ? b - r + 2 * range : r - g + 4 * range;
    int hue = (sixths * reciprocal(30.0f * 4096.0f, range) + 2048) >> 12;
    if (hue < 0) hue += 180;
    const int sector = colors.sector[hue & 255];
    const float f = colors.fraction[hue & 255], s = colors.saturation[saturation & 255], v = colors.value[value];
    const int high = (int)__fmul_rn(v, 255.0f);
    const int low = (int)__fmul_rn(__fmul_rn(v, __fsub_rn(1.0f, s)), 255.0f);
    const int falling = (int)__fmul_rn(__fmul_rn(v, __fsub_rn(1.0f, __fmul_rn(s, f))), 255.0f);
    const int rising = (int)__fmul_rn(__fmul_rn(v, __fsub_rn(1.0f, __fmul_rn(s, __fsub_rn(1.0f, f)))), 255.0f);
    Rgb out;
    out.c[0] = sector == 0 ? high : sector == 1 ? falling : sector == 4 ? rising : sector == 5 ? high : low;
    out.c[1] = sector == 0 ? rising : sector == 1 || sector == 2 ? high : sector == 3 ? falling : low;
    out.c[2] = sector == 2 ? rising : sector == 3 || sector == 4 ? high : sector == 5 ? falling : low;
    return out;
}

extern "C" __global__ void __launch_bounds__(256)
make_samples(const Sample* __restrict__ samples, const Span* __restrict__ spans, const Colors* __restrict__ colors, u8* __restrict__ out, int side) {
    const Sample& sample = samples[blockIdx.y];
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= side * side) return;
    int y = at / side, x = at - y * side;
    if (sample.flip_vertical) y = side - 1 - y;
    if (sample.flip_horizontal) x = side - 1 - x;
    Rgb pixel = layer_pixel(sample.layers[0], spans, x, y);
    if (sample.share < 65536u) {
        const Rgb second = layer_pixel(sample.layers[1], spans, x, y);
#pragma unroll
        for (int c = 0; c < 3; ++c) pixel.c[c] = (int)(((u32)pixel.c[c] * sample.share + (u32)second.c[c] * (65536u - sample.share)) >> 16);
    }
    if (sample.colors >= 0) pixel = shift_colors(colors[sample.colors], pixel);
    u8* to = out + ((size_t)blockIdx.y * side * side + at) * 3;
#pragma unroll
    for (int c = 0; c < 3; ++c) to[c] = (u8)pixel.c[c];
}
