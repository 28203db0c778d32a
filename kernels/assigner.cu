// Task-aligned assignment for the detection loss: which anchor points learn which ground-truth boxes, for all heads at once.
//   reg, cls of each level; truth [B, G, 5] f32: class, x1, y1, x2, y2 (class -1 or corners that sum to 0 or less: padding)
//     ->  row, score [H, B, N]: ground-truth row of each anchor point (-1: background) and what the score of its class
//         should become; share [H] f64: weight of the head / max(sum of its scores, 1)
// overlap = max(0, CIoU(truth, predicted)), metric = sigmoid(cls)^alpha * overlap^beta. A box takes the `top_k` anchor points
// inside it with the largest metric above 0, the earlier one first among equals; a point that several boxes took goes to the
// one of all boxes of the image that it overlaps most, the first among equals; then
// score = metric * largest overlap of the box / (largest metric of the box + eps), over the points that it got.
//
// Four kernels, each waiting for the whole of the one before:
//   assign_corners     a thread per (anchor point, side): 16 logits to one coordinate, the only pass over all distributions
//   assign_candidates  a block per (row, image, head): threads walk over the cells of each level that the box covers, keep
//                      their best in registers, and merge
//   assign_resolve     a thread per anchor point; those without a claim (nearly all) stop after one read
//   assign_scores      a thread per anchor point
// CIoU is f64, as tiny boxes cancel; only pairs with a common area get so far. A row whose class the network does not have
// counts as padding: the loader refuses such labels. Integer atomics only, so the result never depends on their order.
#include "common.cuh"

// Most points of one box; MAX_TOP_K in src/engine/cuda/assigner.rs.
#define MAX_TOP_K 10
// Threads of a block of assign_candidates.
#define CANDIDATE_THREADS 128
// A centre this near to an edge (in pixels) counts as outside.
#define EDGE 1e-9f

// Workspace and results of all heads; index of anchor point n of image b of head h: (h * B + b) * N + n.
struct Assignment {
    float4* corners;
    int* n_claims;
    int* row;
    float* metric;
    float* overlap;
    float* score;
    // Bits of the largest metric and overlap of each (head, image, row).
    int2* largest;
    double* partials;
    double* share;
    // One a head, and one for the loss.
    u32* counters;
};

struct Rule {
    int n_rows;
    int top_k;
    float alpha;
    float beta;
    float eps;
    float head_weight[MAX_HEADS];
    int unused;
};

struct Truth {
    int cls;
    float x1, y1, x2, y2;
    // Width, height plus epsilon, and the angle of the aspect, for CIoU.
    double w, h, angle;
};

// Reads a row; false if it is padding.
__device__ __forceinline__ bool read_truth(const float* row, int n_classes, Truth& truth) {
    const float cls = row[0];
    truth.x1 = row[1], truth.y1 = row[2], truth.x2 = row[3], truth.y2 = row[4];
    truth.cls = (int)cls;
    return cls >= 0.0f && cls < (float)n_classes && truth.x1 + truth.y1 + truth.x2 + truth.y2 > 0.0f;
}

__device__ __forceinline__ void prepare(Truth& truth) {
    truth.w = (double)truth.x2 - (double)truth.x1;
    truth.h = (double)truth.y2 - (double)truth.y1 + 1e-7;
    truth.angle = atan(truth.w / truth.h);
}

__device__ __forceinline__ bool meets(const Truth& truth, float4 box) {
    return fminf(truth.x2, box.z) > fmaxf(truth.x1, box.x) && fminf(truth.y2, box.w) > fmaxf(truth.y1, box.y);
}

// max(0, CIoU) of boxes that meet.
__device__ float overlap_of(const Truth& truth, float4 box) {
    const double eps = 1e-7;
    const double x1 = truth.x1, y1 = truth.y1, x2 = truth.x2, y2 = truth.y2;
    const double px1 = box.x, py1 = box.y, px2 = box.z, py2 = box.w;
    const double w = px2 - px1, h = py2 - py1 + eps;
    const double inter = fmax(fmin(x2, px2) - fmax(x1, px1), 0.0) * fmax(fmin(y2, py2) - fmax(y1, py1), 0.0);
    const double iou = inter / (truth.w * truth.h + w * h - inter + eps);
    const double cw = fmax(x2, px2) - fmin(x1, px1), ch = fmax(y2, py2) - fmin(y1, py1);
    const double dx = px1 + px2 - x1 - x2, dy = py1 + py2 - y1 - y2;
    const double distance = (dx * dx + dy * dy) / 4.0 / (cw * cw + ch * ch + eps);
    const double angle = atan(w / h) - truth.angle;
    const double v = 0.40528473456935108577551785283891 * angle * angle;  // 4 / pi^2
    return (float)fmax(iou - (distance + v * (v / (v - iou + 1.0 + eps))), 0.0);
}

__device__ __forceinline__ float metric_of(float logit, float overlap, const Rule& rule) {
    return powf(1.0f / (1.0f + expf(-logit)), rule.alpha) * powf(overlap, rule.beta);
}

__device__ __forceinline__ float class_logit(const Level& level, int image, int anchor, int cls) {
    const int pixel = image * level.height * level.width + anchor - level.first_anchor;
    return to_f32(level.cls[(size_t)pixel * level.cls_stride + cls]);
}

// Grid (4 * B * N threads, heads). Also takes back all claims, and sets the counters to 0.
extern "C" __global__ void assign_corners(const __grid_constant__ Levels levels, const __grid_constant__ Assignment to) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, head = blockIdx.y;
    if (i == 0 && head == 0) {
        for (int counter = 0; counter <= MAX_HEADS; ++counter) to.counters[counter] = 0;
    }
    const int point = i / 4, side = i % 4;
    if (point >= levels.batch * levels.n_anchors) return;
    const int image = point / levels.n_anchors, anchor = point - image * levels.n_anchors;
    const Level& level = level_of_anchor(levels, head, anchor);
    const int cell = anchor - level.first_anchor;
    const size_t pixel = (size_t)image * (level.height * level.width) + cell;
    const float distance = expected_bin(level.reg + pixel * level.reg_stride + side * BINS, is_aligned_16(level.reg, level.reg_stride));

    const int place = side % 2 == 0 ? cell % level.width : cell / level.width;
    const float centre = (place + 0.5f) * level.stride, pixels = distance * level.stride;
    const size_t at = (size_t)head * levels.batch * levels.n_anchors + point;
    ((float*)to.corners)[at * 4 + side] = side < 2 ? centre - pixels : centre + pixels;
    if (side == 0) to.n_claims[at] = 0;
}

// Cells of a level whose centres may lie between two coordinates: the first, and how many.
__device__ __forceinline__ int2 covered(float low, float high, float stride, int n_cells) {
    const float last = (float)(n_cells - 1);
    const int from = (int)fminf(fmaxf(floorf(low / stride - 0.5f), 0.0f), last);
    const int to = (int)fminf(fmaxf(ceilf(high / stride - 0.5f), 0.0f), last);
    return make_int2(from, max(to - from + 1, 0));
}

// Keeps the largest keys, descending.
__device__ __forceinline__ void insert(u64* best, u64 key) {
#pragma unroll
    for (int k = 0; k < MAX_TOP_K; ++k) {
        const u64 larger = max(best[k], key);
        key = min(best[k], key);
        best[k] = larger;
    }
}

// Grid (rows, B, heads), CANDIDATE_THREADS threads. A key is the bits of a metric, then the inverted anchor point: larger
// keys are wanted first, and no two are equal.
extern "C" __global__ void assign_candidates(const __grid_constant__ Levels levels, const __grid_constant__ Rule rule, const float* truth_rows,
                                             const __grid_constant__ Assignment to) {
    const int row = blockIdx.x, image = blockIdx.y, head = blockIdx.z;
    if (row >= rule.n_rows) return;
    const int truth_index = image * rule.n_rows + row;
    if (threadIdx.x == 0) to.largest[head * levels.batch * rule.n_rows + truth_index] = make_int2(0, 0);
    Truth truth;
    if (!read_truth(truth_rows + (size_t)truth_index * 5, levels.n_classes, truth)) return;
    prepare(truth);

    const size_t base = ((size_t)head * levels.batch + image) * levels.n_anchors;
    u64 best[MAX_TOP_K];
#pragma unroll
    for (int k = 0; k < MAX_TOP_K; ++k) best[k] = 0;
    for (int l = 0; l < levels.n_levels; ++l) {
        const Level& level = levels.level[head * levels.n_levels + l];
        const int2 columns = covered(truth.x1, truth.x2, level.stride, level.width);
        const int2 lines = covered(truth.y1, truth.y2, level.stride, level.height);
        for (int i = threadIdx.x; i < columns.y * lines.y; i += CANDIDATE_THREADS) {
            const int cell_x = columns.x + i % columns.y, cell_y = lines.x + i / columns.y;
            const float x = (cell_x + 0.5f) * level.stride, y = (cell_y + 0.5f) * level.stride;
            if (fminf(fminf(x - truth.x1, y - truth.y1), fminf(truth.x2 - x, truth.y2 - y)) <= EDGE) continue;
            const int anchor = level.first_anchor + cell_y * level.width + cell_x;
            const float4 box = to.corners[base + anchor];
            if (!meets(truth, box)) continue;
            const float overlap = overlap_of(truth, box);
            if (!(overlap > 0.0f)) continue;
            const float metric = metric_of(class_logit(level, image, anchor, truth.cls), overlap, rule);
            // Also false of a metric that is not a number.
            if (!(metric > 0.0f)) continue;
            const u64 key = (u64)__float_as_uint(metric) << 32 | (u32)~anchor;
            if (key > best[MAX_TOP_K - 1]) insert(best, key);
        }
    }

    // Each round takes the largest of what the threads have left; thread r remembers the winner of round r.
    __shared__ u64 of_warps[2][CANDIDATE_THREADS / 32];
    u64 mine = 0;
    for (int round = 0; round < rule.top_k; ++round) {
        u64 largest = best[0];
        for (int offset = 16; offset > 0; offset /= 2) largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
        if (threadIdx.x % 32 == 0) of_warps[round % 2][threadIdx.x / 32] = largest;
        __syncthreads();
        for (int warp = 0; warp < CANDIDATE_THREADS / 32; ++warp) largest = max(largest, of_warps[round % 2][warp]);
        if (largest == 0) break;
        if (best[0] == largest) {
#pragma unroll
            for (int k = 0; k + 1 < MAX_TOP_K; ++k) best[k] = best[k + 1];
            best[MAX_TOP_K - 1] = 0;
        }
        if ((int)threadIdx.x == round) mine = largest;
    }
    if (mine != 0) {
        const size_t at = base + (u32) ~(u32)mine;
        // Of several claims any may stay here: the point is looked at again then.
        atomicAdd(&to.n_claims[at], 1);
        to.row[at] = row;
        to.metric[at] = __uint_as_float((u32)(mine >> 32));
        to.overlap[at] = overlap_of(truth, to.corners[at]);
    }
}

// Grid (B * N threads, heads). Settles points with several claims, and finds the largest metric and overlap of each box.
extern "C" __global__ void assign_resolve(const __grid_constant__ Levels levels, const __grid_constant__ Rule rule, const float* truth_rows,
                                          const __grid_constant__ Assignment to) {
    const int point = blockIdx.x * blockDim.x + threadIdx.x, head = blockIdx.y;
    if (point >= levels.batch * levels.n_anchors) return;
    const size_t at = (size_t)head * levels.batch * levels.n_anchors + point;
    const int n_claims = to.n_claims[at];
    if (n_claims == 0) {
        to.row[at] = -1;
        return;
    }
    const int image = point / levels.n_anchors, anchor = point - image * levels.n_anchors;
    int winner = to.row[at];
    float metric = to.metric[at], most = to.overlap[at];
    if (n_claims > 1) {
        const float4 box = to.corners[at];
        int cls = 0;
        winner = 0, most = -1.0f;
        for (int row = 0; row < rule.n_rows; ++row) {
            Truth truth;
            if (!read_truth(truth_rows + (size_t)(image * rule.n_rows + row) * 5, levels.n_classes, truth) || !meets(truth, box)) continue;
            prepare(truth);
            const float overlap = overlap_of(truth, box);
            if (overlap > most) winner = row, most = overlap, cls = truth.cls;
        }
        metric = metric_of(class_logit(level_of_anchor(levels, head, anchor), image, anchor, cls), most, rule);
        to.row[at] = winner;
        to.metric[at] = metric;
        to.overlap[at] = most;
    }
    // Neither is negative, so their bits have the order of the values.
    int2* largest = &to.largest[(head * levels.batch + image) * rule.n_rows + winner];
    atomicMax(&largest->x, __float_as_int(metric));
    atomicMax(&largest->y, __float_as_int(most));
}

// Grid (B * N threads, heads).
extern "C" __global__ void assign_scores(const __grid_constant__ Levels levels, const __grid_constant__ Rule rule,
                                         const __grid_constant__ Assignment to) {
    const int point = blockIdx.x * blockDim.x + threadIdx.x, head = blockIdx.y;
    double score = 0.0;
    if (point < levels.batch * levels.n_anchors) {
        const size_t at = (size_t)head * levels.batch * levels.n_anchors + point;
        const int row = to.row[at];
        if (row >= 0) {
            const int2 largest = to.largest[(head * levels.batch + point / levels.n_anchors) * rule.n_rows + row];
            const float of_point = to.metric[at] * __int_as_float(largest.y) / (__int_as_float(largest.x) + rule.eps);
            to.score[at] = of_point;
            score = of_point;
        }
    }
    const double sum = sum_of_block(score);
    if (threadIdx.x == 0) to.partials[(size_t)head * gridDim.x + blockIdx.x] = sum;
    if (!is_last_block(&to.counters[head], gridDim.x)) return;
    double part = 0.0;
    for (int block = threadIdx.x; block < (int)gridDim.x; block += blockDim.x) part += __ldcg(&to.partials[(size_t)head * gridDim.x + block]);
    const double total = sum_of_block(part);
    if (threadIdx.x == 0) to.share[head] = rule.head_weight[head] / fmax(total, 1.0);
}
