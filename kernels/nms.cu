// Non-maximum suppression of decoded predictions, with the result of `geom::nms`.
//   rows [B, N, 4 + nc] f32: cx, cy, w, h, then a score a class
//     ->  detections [B, max_detections, 6] f32: x1, y1, x2, y2, score, class, best first; n_detections [B]
// A candidate is a (row, class) with a score above `conf`, or with one label a row its best class. Its key is the bits of the
// score, then the inverted number row * nc + class: keys are unique, and larger ones go first, so the order does not depend on
// how candidates were collected. Only the MAX_CANDIDATES largest are looked at.
//
// nms_collect: many blocks an image read all scores once; a row belongs to `group` lanes of a warp. Keys go to a list in no
//   order.
// nms_detect: a block an image. Where the list was too short (thousands of classes times rows above a very low `conf`), it
//   finds the smallest wanted key by a radix select over the rows, and collects again. Then a bitonic sort, tiles in shared
//   memory. Then 1024 candidates at a time: each against all detections so far, then, while any is left, the first becomes a
//   detection and strikes out others. A round costs one barrier, so 300 detections take some 30 us.
// IoU is rounded step by step as on the CPU: no fused multiply-add.
#include "common.cuh"

// Most candidates of an image, and the power of two above: as in src/engine/cuda.rs.
#define MAX_CANDIDATES 30000
#define CAPACITY 32768
#define DETECT_THREADS 1024
// Keys that are sorted in shared memory at a time.
#define SORT_TILE 4096
#define DIGIT 11

struct NmsRule {
    int n_rows;
    int n_classes;
    float conf;
    float iou;
    int max_detections;
    int multi_label;
    int agnostic;
    // Lanes of a row, a power of two up to 32.
    int group;
};

// Calls `each(key)` in all lanes of a warp at once, for rows `first .. end` of an image; a key of 0 is none.
template <class Each>
__device__ __forceinline__ void for_each_candidate(const float* rows, const NmsRule& rule, int first, int end, Each each) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, per_warp = 32 / rule.group;
    const int in_group = lane % rule.group;
    for (int base = first + warp * per_warp; base < end; base += blockDim.x / 32 * per_warp) {
        const int row = base + lane / rule.group;
        const float* scores = rows + (size_t)row * (4 + rule.n_classes) + 4;
        u64 best = 0;
        for (int from = 0; from < rule.n_classes; from += rule.group) {
            const int cls = from + in_group;
            u64 key = 0;
            if (row < end && cls < rule.n_classes) {
                const float score = scores[cls];
                if (score > rule.conf) key = (u64)__float_as_uint(score) << 32 | ~((u32)row * rule.n_classes + cls);
            }
            if (rule.multi_label) {
                each(key);
            } else {
                best = max(best, key);
            }
        }
        if (!rule.multi_label) {
            for (int offset = rule.group / 2; offset > 0; offset /= 2) best = max(best, __shfl_xor_sync(0xffffffffu, best, offset));
            each(in_group == 0 ? best : 0);
        }
    }
}

// Appends the keys of a warp to a list of at most `capacity`; counts them all.
__device__ __forceinline__ void append(u64 key, u64* list, int* count, int capacity) {
    const u32 mask = __ballot_sync(0xffffffffu, key != 0);
    if (mask == 0) return;
    const int lane = threadIdx.x % 32, leader = __ffs(mask) - 1;
    int slot = 0;
    if (lane == leader) slot = atomicAdd(count, __popc(mask));
    slot = __shfl_sync(0xffffffffu, slot, leader) + __popc(mask & ((1u << lane) - 1));
    if (key != 0 && slot < capacity) list[slot] = key;
}

extern "C" __global__ void nms_clear(int* counts, int batch) {
    const int image = blockIdx.x * blockDim.x + threadIdx.x;
    if (image < batch) counts[image] = 0;
}

// Grid (blocks of `rows_per_block` rows, B), whole warps. `counts` is 0 before.
extern "C" __global__ void nms_collect(const float* rows, const __grid_constant__ NmsRule rule, int rows_per_block, u64* lists, int* counts) {
    const int image = blockIdx.y, first = blockIdx.x * rows_per_block;
    const float* of_image = rows + (size_t)image * rule.n_rows * (4 + rule.n_classes);
    u64* list = lists + (size_t)image * CAPACITY;
    for_each_candidate(of_image, rule, first, min(first + rows_per_block, rule.n_rows),
                       [&](u64 key) { append(key, list, &counts[image], MAX_CANDIDATES); });
}

// The key of the last wanted candidate, or a smaller one above the next; `histogram` has 2^DIGIT + 2 numbers.
__device__ u64 smallest_wanted(const float* rows, const NmsRule& rule, u32* histogram) {
    u64 prefix = 0, decided = 0;
    u32 wanted = MAX_CANDIDATES;
    u32* found = histogram + (1 << DIGIT);
    for (int top = 64; top > 0;) {
        const int width = min(DIGIT, top), shift = top - width;
        const u32 digits = (1u << width) - 1;
        for (int i = threadIdx.x; i < 1 << DIGIT; i += blockDim.x) histogram[i] = 0;
        __syncthreads();
        for_each_candidate(rows, rule, 0, rule.n_rows, [&](u64 key) {
            if (key != 0 && (key & decided) == prefix) atomicAdd(&histogram[(u32)(key >> shift) & digits], 1u);
        });
        __syncthreads();
        if (threadIdx.x < 32) {
            // Lane 0 has the largest digits.
            const int each = (1 << DIGIT) / 32, last = (31 - (int)threadIdx.x) * each;
            u32 sum = 0;
            for (int i = 0; i < each; ++i) sum += histogram[last + i];
            u32 above = sum;
            for (int offset = 1; offset < 32; offset *= 2) {
                const u32 other = __shfl_up_sync(0xffffffffu, above, offset);
                if ((int)threadIdx.x >= offset) above += other;
            }
            above -= sum;
            if (above < wanted && wanted <= above + sum) {
                int digit = last + each - 1;
                while (above + histogram[digit] < wanted) above += histogram[digit--];
                found[0] = digit;
                found[1] = above;
            }
        }
        __syncthreads();
        const u32 digit = found[0];
        prefix |= (u64)digit << shift;
        decided |= (u64)digits << shift;
        wanted -= found[1];
        const bool all = histogram[digit] == wanted;
        __syncthreads();
        if (all) break;
        top = shift;
    }
    return prefix;
}

__device__ __forceinline__ void exchange(u64& a, u64& b, bool descending) {
    if (descending ? a < b : a > b) {
        const u64 old = a;
        a = b;
        b = old;
    }
}

// Sorts `size` keys (a power of two), descending.
__device__ void sort_descending(u64* keys, int size, u64* shared) {
    const int tile = min(size, SORT_TILE);
    // Stages of one tile at `start`: lengths k from `first_k`, from the stride that fits the tile.
    auto sort_tile = [&](int start, int first_k, int last_k) {
        for (int i = threadIdx.x; i < tile; i += blockDim.x) shared[i] = keys[start + i];
        __syncthreads();
        for (int k = first_k; k <= last_k; k *= 2) {
            for (int j = min(k, tile) / 2; j > 0; j /= 2) {
                for (int i = threadIdx.x; i < tile / 2; i += blockDim.x) {
                    const int a = i / j * 2 * j + i % j;
                    exchange(shared[a], shared[a + j], ((start + a) & k) == 0);
                }
                __syncthreads();
            }
        }
        for (int i = threadIdx.x; i < tile; i += blockDim.x) keys[start + i] = shared[i];
        __syncthreads();
    };
    for (int start = 0; start < size; start += tile) sort_tile(start, 2, tile);
    for (int k = tile * 2; k <= size; k *= 2) {
        for (int j = k / 2; j >= tile; j /= 2) {
            for (int i = threadIdx.x; i < size / 2; i += blockDim.x) {
                const int a = i / j * 2 * j + i % j;
                exchange(keys[a], keys[a + j], (a & k) == 0);
            }
            __syncthreads();
        }
        for (int start = 0; start < size; start += tile) sort_tile(start, k, k);
    }
}

__device__ __forceinline__ float area(float4 box) { return __fmul_rn(__fsub_rn(box.z, box.x), __fsub_rn(box.w, box.y)); }

__device__ __forceinline__ float iou(float4 a, float4 b) {
    const float width = fmaxf(__fsub_rn(fminf(a.z, b.z), fmaxf(a.x, b.x)), 0.0f);
    const float height = fmaxf(__fsub_rn(fminf(a.w, b.w), fmaxf(a.y, b.y)), 0.0f);
    const float inter = __fmul_rn(width, height);
    return inter > 0.0f ? __fdiv_rn(inter, __fsub_rn(__fadd_rn(area(a), area(b)), inter)) : 0.0f;
}

// Grid B, DETECT_THREADS threads.
extern "C" __global__ void __launch_bounds__(DETECT_THREADS)
    nms_detect(const float* rows, const __grid_constant__ NmsRule rule, u64* lists, int* counts, float* detections, int* n_detections) {
    __shared__ u64 shared[SORT_TILE];
    __shared__ u32 words[2][DETECT_THREADS / 32];
    const int image = blockIdx.x, row_length = 4 + rule.n_classes;
    rows += (size_t)image * rule.n_rows * row_length;
    u64* keys = lists + (size_t)image * CAPACITY;
    detections += (size_t)image * rule.max_detections * 6;

    int n = counts[image];
    __syncthreads();
    if (n > MAX_CANDIDATES) {
        const u64 smallest = smallest_wanted(rows, rule, (u32*)shared);
        if (threadIdx.x == 0) counts[image] = 0;
        __syncthreads();
        for_each_candidate(rows, rule, 0, rule.n_rows,
                           [&](u64 key) { append(key >= smallest ? key : 0, keys, &counts[image], MAX_CANDIDATES); });
        n = MAX_CANDIDATES;
    }
    int size = 2;
    while (size < n) size *= 2;
    for (int i = n + threadIdx.x; i < size; i += DETECT_THREADS) keys[i] = 0;
    __syncthreads();
    sort_descending(keys, size, shared);

    // Of the candidates that are looked at together.
    float4* boxes = (float4*)shared;
    int* classes = (int*)(boxes + DETECT_THREADS);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int n_kept = 0, parity = 0;
    for (int base = 0; base < n && n_kept < rule.max_detections; base += DETECT_THREADS) {
        bool alive = base + (int)threadIdx.x < n;
        float4 box = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        float score = 0.0f;
        int cls = 0;
        if (alive) {
            const u64 key = keys[base + threadIdx.x];
            const u32 number = ~(u32)key;
            const float* xywh = rows + (size_t)(number / rule.n_classes) * row_length;
            const float half_w = xywh[2] * 0.5f, half_h = xywh[3] * 0.5f;
            box = make_float4(__fsub_rn(xywh[0], half_w), __fsub_rn(xywh[1], half_h), __fadd_rn(xywh[0], half_w), __fadd_rn(xywh[1], half_h));
            score = __uint_as_float((u32)(key >> 32));
            cls = number % rule.n_classes;
        }
        // Classes do not meet, unless all count as one.
        const int kind = rule.agnostic ? 0 : cls;
        for (int k = 0; k < n_kept && alive; ++k) {
            const float* kept = detections + k * 6;
            if (!rule.agnostic && (int)kept[5] != cls) continue;
            alive = !(iou(make_float4(kept[0], kept[1], kept[2], kept[3]), box) > rule.iou);
        }
        boxes[threadIdx.x] = box;
        classes[threadIdx.x] = kind;
        for (; n_kept < rule.max_detections; ++n_kept, parity ^= 1) {
            const u32 mask = __ballot_sync(0xffffffffu, alive);
            if (lane == 0) words[parity][warp] = mask;
            __syncthreads();
            const u32 word = words[parity][lane];
            const u32 with_any = __ballot_sync(0xffffffffu, word != 0);
            if (with_any == 0) break;
            const int first_warp = __ffs(with_any) - 1;
            const int first = first_warp * 32 + __ffs(__shfl_sync(0xffffffffu, word, first_warp)) - 1;
            if ((int)threadIdx.x == first) {
                float* row = detections + n_kept * 6;
                row[0] = box.x, row[1] = box.y, row[2] = box.z, row[3] = box.w, row[4] = score, row[5] = (float)cls;
                alive = false;
            } else if (alive && classes[first] == kind) {
                alive = !(iou(boxes[first], box) > rule.iou);
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) n_detections[image] = n_kept;
}
