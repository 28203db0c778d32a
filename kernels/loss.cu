// The detection loss with its gradients, of all heads at once, after kernels/assigner.cu has decided what learns what.
//   reg [B, h, w, 4 * 16], cls [B, h, w, nc] of each level and head, compute type; truth [B, G, 5]; row, score [H, B, N];
//   share [H]  ->  d_reg, d_cls (every element overwritten), items [4 + 3 * MAX_HEADS] f32
// items = box, cls, dfl (gains and head weights applied), B * their sum, then box, cls, dfl of each head (0 for one that is not
// there). Gradients are those of B * the sum, times `loss_scale`.
//
// class_loss: nearly all targets are zero, so a block treats its tile as background first: flat over the memory where pixels
//   are packed, 16 bytes at a time, four accesses in flight. softplus(x) = max(x, 0) + ln(1 + e^-|x|), and a sum of logarithms
//   is the logarithm of a product, here kept less 1, so that small factors are not lost: one logarithm for LANES logits. Then
//   a thread per pixel looks for positives and writes their one element anew (all elements of the pixel with label smoothing).
// box_loss: a block sets its tile of d_reg to 0 and lists its positives; a warp takes one of them, 16 lanes to a side, two
//   sides after each other. Softmax is f32, CIoU and its gradient f64 (tiny boxes cancel). The last block adds up all sums.
// Traffic: cls and d_cls once each, d_reg once; reg is read for positives alone.
#include "common.cuh"

struct LossRule {
    int n_rows;
    float box_gain;
    float cls_gain;
    float dfl_gain;
    // Multiplies the part of the class loss that wants a score up.
    float positive_weight;
    // Shares of a positive's score that are wanted of its class, and of each other one.
    float class_share;
    float other_share;
    // Pixels of a tile of class_loss, a multiple of 8, and first tile of each level.
    int class_tile;
    int first_class_tile[MAX_LEVELS];
    int first_box_tile[MAX_LEVELS];
};

struct LossData {
    const float* truth;
    const int* row;
    const float* score;
    const double* share;
    const float* loss_scale;
    // [H, class tiles], and [H, box tiles, 2]: box, distribution.
    double* class_partials;
    double* box_partials;
    u32* counter;
    float* items;
};

// Pixels of a block of box_loss, one a thread; BOX_TILE in src/engine/cuda/loss.rs.
#define BOX_TILE 256
#define THREADS 256
// 16-byte accesses in flight a thread.
#define IN_FLIGHT 4

// Which pixels of which level a block has.
struct Tile {
    int level;
    int first;
    int count;
};

__device__ __forceinline__ Tile tile_of_block(const Levels& levels, const int* first_tile, int length) {
    int level = 0;
    while (level + 1 < levels.n_levels && (int)blockIdx.x >= first_tile[level + 1]) ++level;
    const int first = ((int)blockIdx.x - first_tile[level]) * length;
    return {level, first, min(length, levels.batch * levels.level[level].height * levels.level[level].width - first)};
}

// The index of a pixel's anchor point in `row` and `score`, and its image.
__device__ __forceinline__ int anchor_index(const Levels& levels, const Level& level, int head, int pixel, int& image) {
    const int n_cells = level.height * level.width;
    image = pixel / n_cells;
    return (head * levels.batch + image) * levels.n_anchors + level.first_anchor + pixel - image * n_cells;
}

// Sums of the losses of logits with target 0: max(x, 0), and the product of 1 + e^-|x|, less 1.
struct Background {
    float positive_part, product;
};

// Adds a logit, and returns its gradient.
__device__ __forceinline__ float add_background(Background& sums, float x, float scale) {
    const float e = __expf(-fabsf(x));
    sums.positive_part += fmaxf(x, 0.0f);
    sums.product = fmaf(sums.product, e, sums.product + e);
    return scale * __fdividef(x >= 0.0f ? 1.0f : e, 1.0f + e);
}

__device__ __forceinline__ float total(const Background& sums) { return sums.positive_part + log1pf(sums.product); }

// Grid (class tiles, heads), THREADS threads.
extern "C" __global__ void __launch_bounds__(THREADS)
    class_loss(const __grid_constant__ Levels levels, const __grid_constant__ LossRule rule, const __grid_constant__ LossData data) {
    const int head = blockIdx.y, n_classes = levels.n_classes;
    const Tile tile = tile_of_block(levels, rule.first_class_tile, rule.class_tile);
    const Level& level = levels.level[head * levels.n_levels + tile.level];
    __shared__ float shared_scale;
    if (threadIdx.x == 0) shared_scale = (float)(rule.cls_gain * data.share[head] * levels.batch) * *data.loss_scale;
    __syncthreads();
    const float scale = shared_scale;

    const T* cls = level.cls + (size_t)tile.first * level.cls_stride;
    T* d_cls = level.d_cls + (size_t)tile.first * level.d_cls_stride;
    const int n = tile.count * n_classes;
    float loss = 0.0f;
    const bool packed = level.cls_stride == n_classes && level.d_cls_stride == n_classes;
    // The tile begins at a multiple of 8 elements.
    if (packed && is_aligned_16(level.cls, 0) && is_aligned_16(level.d_cls, 0)) {
        const int n_vectors = n / LANES;
        for (int base = threadIdx.x; base < n_vectors; base += IN_FLIGHT * THREADS) {
            Packet<LANES> logits[IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; ++k) {
                if (base + k * THREADS < n_vectors) logits[k] = load_packet<LANES>(cls + (base + k * THREADS) * LANES);
            }
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; ++k) {
                if (base + k * THREADS >= n_vectors) continue;
                Floats<LANES> values = unpack(logits[k]);
                Background sums = {0.0f, 0.0f};
#pragma unroll
                for (int lane = 0; lane < LANES; ++lane) values.x[lane] = add_background(sums, values.x[lane], scale);
                loss += total(sums);
                store_packet<LANES>(d_cls + (base + k * THREADS) * LANES, pack(values));
            }
        }
        const int i = n_vectors * LANES + threadIdx.x;
        if (i < n) {
            Background sums = {0.0f, 0.0f};
            d_cls[i] = from_f32(add_background(sums, to_f32(cls[i]), scale));
            loss += total(sums);
        }
    } else {
        for (int i = threadIdx.x; i < n; i += THREADS) {
            const int pixel = i / n_classes, channel = i - pixel * n_classes;
            Background sums = {0.0f, 0.0f};
            const float x = to_f32(cls[(size_t)pixel * level.cls_stride + channel]);
            d_cls[(size_t)pixel * level.d_cls_stride + channel] = from_f32(add_background(sums, x, scale));
            loss += total(sums);
        }
    }
    __syncthreads();

    for (int i = threadIdx.x; i < tile.count; i += THREADS) {
        int image;
        const int anchor = anchor_index(levels, level, head, tile.first + i, image);
        const int row = data.row[anchor];
        if (row < 0) continue;
        const float weight = rule.positive_weight;
        const int of_truth = (int)data.truth[(size_t)(image * rule.n_rows + row) * 5];
        const bool smooth = rule.other_share > 0.0f;
        for (int channel = smooth ? 0 : of_truth; channel < (smooth ? n_classes : of_truth + 1); ++channel) {
            const float target = data.score[anchor] * (channel == of_truth ? rule.class_share : rule.other_share);
            const float x = to_f32(cls[(size_t)i * level.cls_stride + channel]);
            const float e = expf(-fabsf(x));
            const float softplus = fmaxf(x, 0.0f) + log1pf(e), score = (x >= 0.0f ? 1.0f : e) / (1.0f + e);
            loss += target * (weight * (softplus - x) - softplus);
            const float gradient = score + target * (weight * (score - 1.0f) - score);
            d_cls[(size_t)i * level.d_cls_stride + channel] = from_f32(scale * gradient);
        }
    }
    const double sum = sum_of_block(loss);
    if (threadIdx.x == 0) data.class_partials[(size_t)head * gridDim.x + blockIdx.x] = sum;
}

// 1, 1/2 or 0: how much of a minimum's gradient the first of two values gets.
__device__ __forceinline__ double smaller(double a, double b) { return a < b ? 1.0 : (a == b ? 0.5 : 0.0); }

// CIoU of two boxes x1, y1, x2, y2, and its gradient for the corners of `p`; the weight of the aspect counts as a constant.
__device__ double ciou_gradient(const double* p, const double* q, double* gradient) {
    const double eps = 1e-7, aspect_factor = 0.40528473456935108577551785283891;  // 4 / pi^2
    const double w = p[2] - p[0], h = p[3] - p[1] + eps, qw = q[2] - q[0], qh = q[3] - q[1] + eps;
    const double inter_w = fmax(fmin(p[2], q[2]) - fmax(p[0], q[0]), 0.0), inter_h = fmax(fmin(p[3], q[3]) - fmax(p[1], q[1]), 0.0);
    const double inter = inter_w * inter_h;
    const double to_union = 1.0 / (w * h + qw * qh - inter + eps);
    const double iou = inter * to_union;
    const double cw = fmax(p[2], q[2]) - fmin(p[0], q[0]), ch = fmax(p[3], q[3]) - fmin(p[1], q[1]);
    const double to_diagonal = 1.0 / (cw * cw + ch * ch + eps);
    const double dx = q[0] + q[2] - p[0] - p[2], dy = q[1] + q[3] - p[1] - p[3];
    const double distance = (dx * dx + dy * dy) / 4.0 * to_diagonal;
    const double angle = atan(qw / qh) - atan(w / h);
    const double v = aspect_factor * angle * angle;
    const double a = v / (v - iou + 1.0 + eps);

    const double open_w = inter_w > 0.0 ? inter_h : 0.0, open_h = inter_h > 0.0 ? inter_w : 0.0;
    const double d_v_d_angle = -2.0 * aspect_factor * angle / (w * w + h * h);
    const double d_inter[4] = {-smaller(q[0], p[0]) * open_w, -smaller(q[1], p[1]) * open_h, smaller(p[2], q[2]) * open_w,
                               smaller(p[3], q[3]) * open_h};
    const double d_area[4] = {-h, -w, h, w};
    const double d_diagonal[4] = {-2.0 * cw * smaller(p[0], q[0]), -2.0 * ch * smaller(p[1], q[1]), 2.0 * cw * smaller(q[2], p[2]),
                                  2.0 * ch * smaller(q[3], p[3])};
    const double d_rho2[4] = {-dx / 2.0, -dy / 2.0, -dx / 2.0, -dy / 2.0};
    const double d_v[4] = {-d_v_d_angle * h, d_v_d_angle * w, d_v_d_angle * h, -d_v_d_angle * w};
#pragma unroll
    for (int side = 0; side < 4; ++side) {
        const double d_iou = (d_inter[side] - iou * (d_area[side] - d_inter[side])) * to_union;
        gradient[side] = d_iou - (d_rho2[side] - distance * d_diagonal[side]) * to_diagonal - a * d_v[side];
    }
    return iou - (distance + v * a);
}

// Sums and maxima over 16 lanes.
__device__ __forceinline__ float sum_of_16(float x) {
    for (int offset = 8; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

__device__ __forceinline__ float max_of_16(float x) {
    for (int offset = 8; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

// Box and distribution loss of one positive by one warp, all in strides: lane l has bin l % 16 of sides l / 16 and
// l / 16 + 2. Writes the gradient of weights.x * box + weights.y * distribution.
__device__ float2 positive_loss(const T* logits, T* d_logits, double2 point, const double* target, double2 weights) {
    const int lane = threadIdx.x % 32, bin = lane % 16;
    const bool upper = lane >= 16;
    float x[2], log_total[2], share[2], mean[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        x[k] = to_f32(logits[k * 32 + lane]);
        const float peak = max_of_16(x[k]);
        const float e = expf(x[k] - peak), sum = sum_of_16(e);
        share[k] = e / sum;
        mean[k] = sum_of_16(bin * e) / sum;
        log_total[k] = peak + logf(sum);
    }
    const double left = __shfl_sync(0xffffffffu, mean[0], 0), top = __shfl_sync(0xffffffffu, mean[0], 16);
    const double right = __shfl_sync(0xffffffffu, mean[1], 0), bottom = __shfl_sync(0xffffffffu, mean[1], 16);
    const double corners[4] = {point.x - left, point.y - top, point.x + right, point.y + bottom};
    double d_corners[4];
    const double ciou = ciou_gradient(corners, target, d_corners);

    float dfl = 0.0f;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        // Left and top move their corner down: d corner / d distance is -1. The loss is 1 - CIoU: another minus.
        const double d_distance = weights.x * (k == 0 ? (upper ? d_corners[1] : d_corners[0]) : -(upper ? d_corners[3] : d_corners[2]));
        const double wanted = k == 0 ? (upper ? point.y - target[1] : point.x - target[0]) : (upper ? target[3] - point.y : target[2] - point.x);
        // Less than the last bin, so that the bin above always exists.
        const double clamped = fmin(fmax(wanted, 0.0), BINS - 1 - 0.01);
        const int below = (int)clamped;
        const float above_share = (float)(clamped - below);
        const float wanted_share = bin == below ? 1.0f - above_share : (bin == below + 1 ? above_share : 0.0f);
        if (wanted_share != 0.0f) dfl -= wanted_share * (x[k] - log_total[k]);
        const float gradient = (float)d_distance * (share[k] * (bin - mean[k])) + (float)(weights.y / 4.0) * (share[k] - wanted_share);
        d_logits[k * 32 + lane] = from_f32(gradient);
    }
    dfl = sum_of_16(dfl);
    dfl += __shfl_xor_sync(0xffffffffu, dfl, 16);
    return make_float2((float)(1.0 - ciou), dfl / 4.0f);
}

// Sum of partials in fixed order, by all threads of a block.
__device__ __forceinline__ double sum_of_partials(const double* partials, int n, int step) {
    double sum = 0.0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += __ldcg(partials + (size_t)i * step);
    return sum_of_block(sum);
}

// Grid (box tiles, heads), BOX_TILE threads; `n_class_tiles` is what class_loss, which ran before, had.
extern "C" __global__ void __launch_bounds__(BOX_TILE)
    box_loss(const __grid_constant__ Levels levels, const __grid_constant__ LossRule rule, const __grid_constant__ LossData data, int n_class_tiles) {
    const int head = blockIdx.y;
    const Tile tile = tile_of_block(levels, rule.first_box_tile, BOX_TILE);
    const Level& level = levels.level[head * levels.n_levels + tile.level];
    T* d_reg = level.d_reg + (size_t)tile.first * level.d_reg_stride;
    if (is_aligned_16(level.d_reg, level.d_reg_stride)) {
        const int per_pixel = 4 * BINS / LANES;
        for (int i = threadIdx.x; i < tile.count * per_pixel; i += BOX_TILE) {
            *(uint4*)(d_reg + (size_t)(i / per_pixel) * level.d_reg_stride + i % per_pixel * LANES) = make_uint4(0, 0, 0, 0);
        }
    } else {
        for (int i = threadIdx.x; i < tile.count * 4 * BINS; i += BOX_TILE) {
            d_reg[(size_t)(i / (4 * BINS)) * level.d_reg_stride + i % (4 * BINS)] = from_f32(0.0f);
        }
    }

    // The positives of the tile, in the order of pixels.
    __shared__ short positives[BOX_TILE];
    __shared__ int of_warps[BOX_TILE / 32];
    __shared__ double shared_weights[2];
    if (threadIdx.x == 0) {
        const double common = data.share[head] * levels.batch * *data.loss_scale;
        shared_weights[0] = rule.box_gain * common;
        shared_weights[1] = rule.dfl_gain * common;
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int image = 0, row = -1;
    if ((int)threadIdx.x < tile.count) row = data.row[anchor_index(levels, level, head, tile.first + threadIdx.x, image)];
    const u32 mask = __ballot_sync(0xffffffffu, row >= 0);
    if (lane == 0) of_warps[warp] = __popc(mask);
    __syncthreads();
    int n_positives = 0, before = 0;
    for (int other = 0; other < BOX_TILE / 32; ++other) {
        if (other == warp) before = n_positives;
        n_positives += of_warps[other];
    }
    if (row >= 0) positives[before + __popc(mask & ((1u << lane) - 1))] = (short)threadIdx.x;
    __syncthreads();

    double box = 0.0, dfl = 0.0;
    for (int i = warp; i < n_positives; i += BOX_TILE / 32) {
        const int in_tile = positives[i], pixel = tile.first + in_tile;
        const int anchor = anchor_index(levels, level, head, pixel, image);
        const int cell = anchor - (head * levels.batch + image) * levels.n_anchors - level.first_anchor;
        const float* truth = data.truth + (size_t)(image * rule.n_rows + data.row[anchor]) * 5;
        const double stride = level.stride, score = data.score[anchor];
        const double target[4] = {truth[1] / stride, truth[2] / stride, truth[3] / stride, truth[4] / stride};
        const double2 point = make_double2(cell % level.width + 0.5, cell / level.width + 0.5);
        const double2 weights = make_double2(shared_weights[0] * score, shared_weights[1] * score);
        const float2 losses =
            positive_loss(level.reg + (size_t)pixel * level.reg_stride, d_reg + (size_t)in_tile * level.d_reg_stride, point, target, weights);
        box += losses.x * score;
        dfl += losses.y * score;
    }
    const double box_sum = sum_of_block(lane == 0 ? box : 0.0), dfl_sum = sum_of_block(lane == 0 ? dfl : 0.0);
    if (threadIdx.x == 0) {
        double* partials = data.box_partials + ((size_t)head * gridDim.x + blockIdx.x) * 2;
        partials[0] = box_sum;
        partials[1] = dfl_sum;
    }
    if (!is_last_block(data.counter, gridDim.x * gridDim.y)) return;

    double items[3] = {0.0, 0.0, 0.0};
    for (int head = 0; head < MAX_HEADS; ++head) {
        double of_head[3] = {0.0, 0.0, 0.0};
        if (head < levels.n_heads) {
            const double* of_boxes = data.box_partials + (size_t)head * gridDim.x * 2;
            of_head[0] = sum_of_partials(of_boxes, gridDim.x, 2) * rule.box_gain * data.share[head];
            of_head[1] = sum_of_partials(data.class_partials + (size_t)head * n_class_tiles, n_class_tiles, 1) * rule.cls_gain * data.share[head];
            of_head[2] = sum_of_partials(of_boxes + 1, gridDim.x, 2) * rule.dfl_gain * data.share[head];
        }
        for (int item = 0; item < 3; ++item) {
            items[item] += of_head[item];
            if (threadIdx.x == 0) data.items[4 + 3 * head + item] = (float)of_head[item];
        }
    }
    if (threadIdx.x == 0) {
        for (int item = 0; item < 3; ++item) data.items[item] = (float)items[item];
        data.items[3] = (float)(levels.batch * (items[0] + items[1] + items[2]));
    }
}
