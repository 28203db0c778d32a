// Norm of the gradient, clipping, SGD, Adam, AdamW or Lion, moving average, and the weights in compute type, over arenas of one layout.
//   values, gradients, averages, velocities (SGD) or means (Lion) or means, squares, largest (Adam): f32; copies, weight_gradients: compute
//   type. All have the same offsets in elements.
// A table cuts the arenas into segments of at most SEGMENT elements of one parameter; a block takes a segment. Nothing is
// read or written between parameters.
//
// The step also sums the squares of what it changes and of the values before: their norms' ratio is told with the results.
//
// Gradients hold the loss scale (1 but for fp16) until the step takes it out with the clip factor. `gradient_norm` decides
// everything that the step needs, once, in its last block: the factor, whether the step is skipped (a norm that is not
// finite), the share of the average, Adam's corrections, the next loss scale. So nothing of a step is decided by the host but
// learning rates and momentum, and a captured graph fits every step.
//
// One pass, memory-bound, 16 bytes a thread and arena at a time. Bytes a trained element: sgd_step reads 16 and writes
// 16 + sizeof(T) (9.6 M elements in bf16: 326 MB), lion_step as much, adam_step 20 and 20 + sizeof(T), amsgrad 4 + 4 more; gradient_norm reads 4,
// and for convolution weights reads sizeof(T) and writes 4.
#include "common.cuh"

// Elements of a block; SEGMENT in src/engine/cuda/optimizer.rs.
#define SEGMENT 2048
#define THREADS 256

struct Segment {
    u32 offset;
    int count;
    // Optimizer group; -1: running statistics, which are only averaged; -2: frozen, which nothing changes.
    int group;
    int is_conv_weight;
};

// Written by the host before a step.
struct Settings {
    float lr[3];
    // The first beta of Adam and Lion.
    float momentum;
    float beta2;
    // Of group 1.
    float weight_decay;
    float max_norm;
    int amsgrad;
    // Whether the loss scale moves.
    int scales;
    // Whether Adam's decay is part of the gradient.
    int coupled;
    double ema_decay;
    double ema_tau;
};

// Lives over the steps.
struct State {
    // Steps that were not skipped.
    int n_updates;
    // Of them, since the loss scale last moved.
    int n_since_scale;
    // At the next loss.
    float loss_scale;
    // What follows belongs to the last gradient_norm.
    int skipped;
    float norm;
    // Of the gradients: clipping, over the loss scale.
    float factor;
    // Of the velocity: 0 in the first step.
    float kept;
    float ema_keep;
    float ema_take;
    float correction1;
    float correction2;
    u32 counter;
    // Norm of the last update that was made over the norm of the values before it.
    float update_ratio;
};

// As the loss writes them.
#define ITEMS (4 + 3 * MAX_HEADS)

struct Results {
    float items[ITEMS];
    float norm;
    float loss_scale;
    int skipped;
    int n_updates;
    float update_ratio;
    int unused;
    u64 n_finished;
};

// The scale doubles after so many steps without a skip, and halves at a skip.
#define SCALE_STEPS 2000
#define MAX_SCALE 16777216.0f

// Up to four elements; `vector` if they may be one access.
__device__ __forceinline__ void load_4(const float* from, int n, bool vector, float* x) {
    if (vector && n == 4) {
        const float4 four = *(const float4*)from;
        x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = k < n ? from[k] : 0.0f;
}

__device__ __forceinline__ void store_4(float* to, int n, bool vector, const float* x) {
    if (vector && n == 4) {
        *(float4*)to = make_float4(x[0], x[1], x[2], x[3]);
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        if (k < n) to[k] = x[k];
    }
}

#if !defined(COMPUTE_F32)
__device__ __forceinline__ void load_4(const T* from, int n, bool vector, float* x) {
    if (vector && n == 4) {
        const Floats<4> four = unpack(load_packet<4>(from));
#pragma unroll
        for (int k = 0; k < 4; ++k) x[k] = four.x[k];
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = k < n ? to_f32(from[k]) : 0.0f;
}

__device__ __forceinline__ void store_4(T* to, int n, bool vector, const float* x) {
    if (vector && n == 4) {
        store_packet<4>(to, pack(Floats<4>{{x[0], x[1], x[2], x[3]}}));
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        if (k < n) to[k] = from_f32(x[k]);
    }
}
#endif

// A thread's fours of a segment: calls `each(offset, n, vector)`.
template <class Each>
__device__ __forceinline__ void for_each_4(const Segment& segment, Each each) {
    const bool vector = segment.offset % 4 == 0;
#pragma unroll
    for (int i = threadIdx.x * 4; i < SEGMENT; i += THREADS * 4) {
        if (i < segment.count) each((size_t)segment.offset + i, min(4, segment.count - i), vector);
    }
}

// Adds the convolutions' weight gradients to the others. A block a segment, as in all that follow, THREADS threads.
extern "C" __global__ void add_weight_gradients(const Segment* segments, float* gradients, const T* weight_gradients) {
    const Segment segment = segments[blockIdx.x];
    if (!segment.is_conv_weight) return;
    for_each_4(segment, [&](size_t at, int n, bool vector) {
        float sum[4], more[4];
        load_4(gradients + at, n, vector, sum);
        load_4(weight_gradients + at, n, vector, more);
#pragma unroll
        for (int k = 0; k < 4; ++k) sum[k] += more[k];
        store_4(gradients + at, n, vector, sum);
    });
}

// Norm over all trained parameters, and what follows from it for the step. Adds `weight_gradients` first, unless it is null.
// `partials` has an f64 for each segment.
extern "C" __global__ void gradient_norm(const Segment* segments, const Settings* settings, State* state, float* gradients,
                                         const T* weight_gradients, double* partials) {
    const Segment segment = segments[blockIdx.x];
    float squares = 0.0f;
    if (segment.group >= 0) {
        const bool adds = segment.is_conv_weight && weight_gradients;
        for_each_4(segment, [&](size_t at, int n, bool vector) {
            float x[4], more[4];
            load_4(gradients + at, n, vector, x);
            if (adds) {
                load_4(weight_gradients + at, n, vector, more);
#pragma unroll
                for (int k = 0; k < 4; ++k) x[k] += more[k];
                store_4(gradients + at, n, vector, x);
            }
            squares += x[0] * x[0] + x[1] * x[1] + (x[2] * x[2] + x[3] * x[3]);
        });
    }
    const double sum = sum_of_block(squares);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
    if (!is_last_block(&state->counter, gridDim.x)) return;

    double part = 0.0;
#pragma unroll 4
    for (int i = threadIdx.x; i < (int)gridDim.x; i += THREADS) part += __ldcg(partials + i);
    const double total = sum_of_block(part);
    if (threadIdx.x != 0) return;

    const float scale = state->loss_scale;
    const double norm = sqrt(total) / scale;
    state->norm = (float)norm;
    state->skipped = !isfinite((float)norm);
    state->factor = fminf((float)(settings->max_norm / (norm + 1e-6)), 1.0f) / scale;
    if (state->skipped) {
        state->n_since_scale = 0;
        if (settings->scales) state->loss_scale = fmaxf(scale / 2.0f, 1.0f);
        return;
    }
    state->kept = state->n_updates == 0 ? 0.0f : settings->momentum;
    const int n_updates = ++state->n_updates;
    const double keep = settings->ema_decay * (1.0 - exp(-n_updates / settings->ema_tau));
    state->ema_keep = (float)keep;
    state->ema_take = (float)(1.0 - keep);
    state->correction1 = (float)(1.0 - pow((double)settings->momentum, (double)n_updates));
    state->correction2 = sqrtf((float)(1.0 - pow((double)settings->beta2, (double)n_updates)));
    if (settings->scales && ++state->n_since_scale >= SCALE_STEPS) {
        state->n_since_scale = 0;
        state->loss_scale = fminf(scale * 2.0f, MAX_SCALE);
    }
}

// What all optimizers do around their rule `change(at, n, vector, value, gradient)`, gradients being clipped: averages,
// copies in compute type (unless null), gradients set to 0, and the ratio of the update. `partials` has two f64 a segment.
template <class Change>
__device__ __forceinline__ void step(const Segment& segment, State* state, float* values, float* gradients, float* averages, T* copies,
                                     double* partials, Change change) {
    const float none[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const bool trained = segment.group >= 0, skipped = state->skipped;
    const float keep = state->ema_keep, take = state->ema_take, factor = state->factor;
    float change_squares = 0.0f, value_squares = 0.0f;
    for_each_4(segment, [&](size_t at, int n, bool vector) {
        if (segment.group == -2) {
            // A frozen batch norm between layers that learn still gets gradients.
            store_4(gradients + at, n, vector, none);
            return;
        }
        if (skipped) {
            if (trained) store_4(gradients + at, n, vector, none);
            return;
        }
        float value[4], average[4];
        load_4(values + at, n, vector, value);
        load_4(averages + at, n, vector, average);
        if (trained) {
            float gradient[4], before[4];
            load_4(gradients + at, n, vector, gradient);
#pragma unroll
            for (int k = 0; k < 4; ++k) gradient[k] *= factor, before[k] = value[k];
            change(at, n, vector, value, gradient);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float difference = value[k] - before[k];
                change_squares += difference * difference;
                value_squares += before[k] * before[k];
            }
            store_4(values + at, n, vector, value);
            store_4(gradients + at, n, vector, none);
            if (copies) store_4(copies + at, n, vector, value);
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) average[k] = keep * average[k] + take * value[k];
        store_4(averages + at, n, vector, average);
    });
    // The same in all blocks.
    if (skipped) return;
    const double change_sum = sum_of_block(change_squares), value_sum = sum_of_block(value_squares);
    if (threadIdx.x == 0) {
        partials[2 * blockIdx.x] = change_sum;
        partials[2 * blockIdx.x + 1] = value_sum;
    }
    if (!is_last_block(&state->counter, gridDim.x)) return;

    double change_part = 0.0, value_part = 0.0;
    for (int i = threadIdx.x; i < (int)gridDim.x; i += THREADS) {
        change_part += __ldcg(partials + 2 * i);
        value_part += __ldcg(partials + 2 * i + 1);
    }
    const double all_changes = sum_of_block(change_part), all_values = sum_of_block(value_part);
    if (threadIdx.x == 0) state->update_ratio = all_values > 0.0 ? (float)sqrt(all_changes / all_values) : 0.0f;
}

// Nesterov: v = momentum * v + g, p -= lr * (g + momentum * v); v = g in the very first step. Decay adds to g.
extern "C" __global__ void __launch_bounds__(THREADS) sgd_step(const Segment* segments, const Settings* settings, State* state, float* values,
                                                               float* gradients, float* averages, T* copies, double* partials, float* velocities) {
    const Segment segment = segments[blockIdx.x];
    const float lr = settings->lr[max(segment.group, 0)], momentum = settings->momentum, kept = state->kept;
    const float decay = segment.group == 1 ? settings->weight_decay : 0.0f;
    step(segment, state, values, gradients, averages, copies, partials, [&](size_t at, int n, bool vector, float* value, const float* gradient) {
        float velocity[4];
        load_4(velocities + at, n, vector, velocity);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const float g = gradient[k] + decay * value[k];
            velocity[k] = kept * velocity[k] + g;
            value[k] -= lr * (g + momentum * velocity[k]);
        }
        store_4(velocities + at, n, vector, velocity);
    });
}

// Steps of one size against the sign of a mean that weighs the new gradient more than the remembered mean does. Decay first.
extern "C" __global__ void __launch_bounds__(THREADS) lion_step(const Segment* segments, const Settings* settings, State* state, float* values,
                                                                float* gradients, float* averages, T* copies, double* partials, float* means) {
    const Segment segment = segments[blockIdx.x];
    const float lr = settings->lr[max(segment.group, 0)], beta1 = settings->momentum, beta2 = settings->beta2;
    const float decay = segment.group == 1 ? settings->weight_decay : 0.0f;
    step(segment, state, values, gradients, averages, copies, partials, [&](size_t at, int n, bool vector, float* value, const float* gradient) {
        float mean[4];
        load_4(means + at, n, vector, mean);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            value[k] *= 1.0f - lr * decay;
            const float direction = beta1 * mean[k] + (1.0f - beta1) * gradient[k];
            value[k] -= direction == 0.0f ? 0.0f : copysignf(lr, direction);
            mean[k] = beta2 * mean[k] + (1.0f - beta2) * gradient[k];
        }
        store_4(means + at, n, vector, mean);
    });
}

// The corrected mean over the root of the corrected mean square, or of the largest so far (amsgrad; `largest` may be null
// without). Decay is part of the gradient (coupled: Adam), or comes first by itself (AdamW).
extern "C" __global__ void __launch_bounds__(THREADS) adam_step(const Segment* segments, const Settings* settings, State* state, float* values,
                                                                float* gradients, float* averages, T* copies, double* partials, float* means,
                                                                float* squares, float* largest) {
    const Segment segment = segments[blockIdx.x];
    const float lr = settings->lr[max(segment.group, 0)], beta1 = settings->momentum, beta2 = settings->beta2;
    const float decay = segment.group == 1 ? settings->weight_decay : 0.0f;
    const float rate = lr / state->correction1, correction2 = state->correction2;
    const bool amsgrad = settings->amsgrad;
    const float coupled = settings->coupled ? decay : 0.0f, decoupled = settings->coupled ? 0.0f : decay;
    step(segment, state, values, gradients, averages, copies, partials, [&](size_t at, int n, bool vector, float* value, const float* gradient) {
        float mean[4], square[4], divisor[4];
        load_4(means + at, n, vector, mean);
        load_4(squares + at, n, vector, square);
        if (amsgrad) load_4(largest + at, n, vector, divisor);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const float g = gradient[k] + coupled * value[k];
            mean[k] += (1.0f - beta1) * (g - mean[k]);
            square[k] = beta2 * square[k] + (1.0f - beta2) * g * g;
            divisor[k] = amsgrad ? fmaxf(divisor[k], square[k]) : square[k];
            value[k] -= lr * decoupled * value[k];
            value[k] -= rate * mean[k] / (sqrtf(divisor[k]) / correction2 + 1e-8f);
        }
        store_4(means + at, n, vector, mean);
        store_4(squares + at, n, vector, square);
        if (amsgrad) store_4(largest + at, n, vector, divisor);
    });
}

// Parameters but running statistics in compute type, when something else than a step has changed them.
extern "C" __global__ void copy_parameters(const Segment* segments, const float* values, T* copies) {
    const Segment segment = segments[blockIdx.x];
    if (segment.group == -1) return;
    for_each_4(segment, [&](size_t at, int n, bool vector) {
        float x[4];
        load_4(values + at, n, vector, x);
        store_4(copies + at, n, vector, x);
    });
}

// What the host wants to know of a step, in one place. One thread.
extern "C" __global__ void finish_step(const float* items, const State* state, Results* results) {
    for (int item = 0; item < ITEMS; ++item) results->items[item] = items[item];
    results->norm = state->norm;
    results->loss_scale = state->loss_scale;
    results->skipped = state->skipped;
    results->n_updates = state->n_updates;
    results->update_ratio = state->update_ratio;
    results->n_finished += 1;
}
