// Batch norm, activation and residual as one pass over memory, its backward as two, and the statistics in one.
//   y [P, C] T, strided       -> stats [2, C] f32: mean, 1 / sqrt(var + eps)
//   out = act(sum over branches of gamma * (y - mean) * rstd + beta) + residual, to every piece that wants it
//   g = d_out * act'(z), d_out the sum of its pieces;   sums [2 * branches, C]: of g, of g * xhat
//   d_y = gamma * rstd * (g - mean(g) - xhat * mean(g * xhat));   d_residual = d_out
//
// A block is threadIdx.x over groups of L channels (4 where everything is aligned to them, else 1) and threadIdx.y over pixels;
// blockIdx.y picks the channels. So a thread keeps its channels, whose factors stay in registers, and walks over pixels with
// several independent loads in flight. Neighbouring threads read neighbouring channels, then neighbouring pixels: a warp's load
// is whole sectors. With 8 channels (16 bytes) a thread, the factors take the registers that loads in flight need, and spill.
//
// Sums over pixels: f32 in a thread (some hundred terms), a tree over the block's rows, a partial sum to the workspace. The
// block that comes last for its channels adds the partial sums in f64, in an order that does not depend on which block that is.
//
// Why that is fast enough: each kernel reads and writes every element once, which is the least that is possible. SiLU takes two
// calls of the special function unit an element, at most 60 % of what it can do in the time of the memory's accesses.
// Expected at 4.3 TB/s, bf16, one branch, one piece, without residual:
//                                        a tensor     statistics      forward         backward reduce  backward
//   P = 64 * 320 * 320, C = 64          839 MB        839 MB, 195 us  1.68 GB, 390 us  1.68 GB, 390 us  2.52 GB, 585 us
//   P = 64 * 320 * 320, C = 16          210 MB         49 us           98 us            98 us           146 us
//   P = 16 * 20 * 20, C = 512 (in L2)   6.6 MB        1.5 us            3 us             3 us           4.6 us
// In the last case the start, the tree and the last block's sum, together about 4 us, count for more than the bytes. Sums are
// therefore made by blocks of at most 64 channels with a last block each, so that this sum is short and spread over the card.
#include "common.cuh"

// Channels of one block: at most, in the passes without and with sums.
#define MAX_CHANNELS 256
#define MAX_SUM_CHANNELS 64
// Threads of one block of the statistics.
#define STATS_THREADS 512
// Threads that share the last sum of one channel.
#define MAX_PARTS 32

struct Branch {
    const T* y;
    const float* stats;  // null: scale 1, shift beta (a bias)
    const float* gamma;
    const float* beta;  // null without stats: shift 0
    int pixel_stride;
    int unused;
};
struct Branches {
    Branch branch[2];
};

struct ParamGradients {
    float* gamma[2];
    float* beta[2];
};

#define ACT_NONE 0
#define ACT_SILU 1

#if defined(COMPUTE_F32)
__device__ __forceinline__ float logistic(float z) { return 1.0f / (1.0f + expf(-z)); }
#else
__device__ __forceinline__ float logistic(float z) { return __fdividef(1.0f, 1.0f + __expf(-z)); }
#endif

__device__ __forceinline__ float activate(float z, int act) { return act == ACT_SILU ? z * logistic(z) : z; }

// The derivative of SiLU: s + z s (1 - s).
__device__ __forceinline__ float silu_slope(float z) {
    const float s = logistic(z);
    return s * (1.0f + z * (1.0f - s));
}

__device__ __forceinline__ int thread_index() { return threadIdx.y * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int n_threads() { return blockDim.x * blockDim.y; }

template <int L> __device__ __forceinline__ int first_channel() { return blockIdx.y * blockDim.x * L; }

// Channels of this block.
template <int L> __device__ __forceinline__ int block_channels(int n_channels) { return min((int)blockDim.x * L, n_channels - first_channel<L>()); }

template <int L> __device__ __forceinline__ Floats<L> row(const float* table) {
    Floats<L> values;
#pragma unroll
    for (int l = 0; l < L; ++l) values.x[l] = table[threadIdx.x * L + l];
    return values;
}

// z = sum over branches of scale * y + shift. Fills the tables for the block's channels.
template <int L, int N_BRANCHES, int WIDTH>
__device__ __forceinline__ void fill_affine(const Branches& branches, int n_channels, float (&scale)[N_BRANCHES][WIDTH], float (&shift)[WIDTH]) {
    for (int i = thread_index(); i < block_channels<L>(n_channels); i += n_threads()) {
        const int c = first_channel<L>() + i;
        float total = 0.0f;
#pragma unroll
        for (int b = 0; b < N_BRANCHES; ++b) {
            const Branch& branch = branches.branch[b];
            if (branch.stats == nullptr) {
                scale[b][i] = 1.0f;
                if (branch.beta != nullptr) total += branch.beta[c];
            } else {
                const float factor = branch.gamma[c] * branch.stats[n_channels + c];
                scale[b][i] = factor;
                total += branch.beta[c] - branch.stats[c] * factor;
            }
        }
        shift[i] = total;
    }
}

// The channels of U pixels, `step` apart, that lie before `end`.
template <int L, int U>
__device__ __forceinline__ void load_pixels(const T* data, int pixel_stride, int pixel, int step, int end, Packet<L> (&packets)[U]) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
        if (pixel + u * step < end) packets[u] = load_packet<L>(data + (size_t)(pixel + u * step) * pixel_stride);
    }
}

// The pieces of a gradient that hold a thread's channels. The first two are found once and loaded ahead for U pixels, which covers
// nearly all values of a network; the others are loaded when they are added.
template <int L, int U> struct GradientReader {
    static constexpr int AHEAD = 2;
    const T* data[AHEAD];
    int pixel_stride[AHEAD];
    int rest;
    Packet<L> packets[AHEAD][U];

    __device__ __forceinline__ GradientReader(const Pieces& pieces, int channel) {
        rest = 0;
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            data[a] = nullptr;
            pixel_stride[a] = 0;
            while (rest < pieces.n && !covers(pieces.piece[rest], channel)) ++rest;
            if (rest < pieces.n) {
                const Piece& piece = pieces.piece[rest++];
                data[a] = piece.data + (channel - piece.first);
                pixel_stride[a] = piece.pixel_stride;
            }
        }
    }

    __device__ __forceinline__ void load(int pixel, int step, int end) {
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            if (data[a] != nullptr) load_pixels<L, U>(data[a], pixel_stride[a], pixel, step, end, packets[a]);
        }
    }

    // The sum for pixel `u` of those loaded, which is `pixel` of the tensor.
    __device__ __forceinline__ Floats<L> sum(const Pieces& pieces, int channel, int pixel, int u) const {
        Floats<L> sum;
#pragma unroll
        for (int l = 0; l < L; ++l) sum.x[l] = 0.0f;
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            if (data[a] == nullptr) continue;
            const Floats<L> x = unpack(packets[a][u]);
#pragma unroll
            for (int l = 0; l < L; ++l) sum.x[l] += x.x[l];
        }
        if (rest < pieces.n) add_pieces<L>(pieces, rest, pixel, channel, sum);
        return sum;
    }
};

// ---- Statistics ----

// Whether this block is the last one of its channels to come here; if so, what all others wrote before is visible.
__device__ __forceinline__ bool is_last_block(u32* counters) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (thread_index() == 0) {
        last = atomicAdd(&counters[blockIdx.y], 1u) == gridDim.x - 1;
        if (last) counters[blockIdx.y] = 0;  // for the next launch
    }
    __syncthreads();
    if (last) __threadfence();
    return last;
}

// Adds rows 1.. of `values[][row * blockDim.x + group]` to row 0, as a tree.
template <int L, int THREADS> __device__ __forceinline__ void sum_rows(float (&values)[L][THREADS]) {
    __syncthreads();
    for (int n = blockDim.y; n > 1;) {
        const int half = (n + 1) / 2;
        if (threadIdx.y + half < n) {
#pragma unroll
            for (int l = 0; l < L; ++l) values[l][thread_index()] += values[l][thread_index() + half * blockDim.x];
        }
        n = half;
        __syncthreads();
    }
}

// One pass: each thread sums deviations from its own first pixel and their squares, which is exact enough because a thread sees
// few pixels; from then on it is means and squared deviations that are merged (Chan and others, 1979).
// workspace [blocks, 2, C]: mean and sum of squared deviations over the block's pixels.
template <int L>
__device__ __forceinline__ void stats_batch(const T* y, int pixel_stride, int n_pixels, int n_channels, int block_pixels, float eps, float momentum,
                                            float* workspace, u32* counters, float* stats, float* running_mean, float* running_var) {
    constexpr int U = 8;
    __shared__ float means[L][STATS_THREADS];
    __shared__ float squares[L][STATS_THREADS];
    __shared__ int counts[STATS_THREADS];

    const int channel = first_channel<L>() + threadIdx.x * L;
    const int begin = blockIdx.x * block_pixels;
    const int end = min(begin + block_pixels, n_pixels);
    const int step = blockDim.y;
    const int me = thread_index();

    Floats<L> shift, sum, square;
#pragma unroll
    for (int l = 0; l < L; ++l) shift.x[l] = sum.x[l] = square.x[l] = 0.0f;
    int count = 0;
    if (channel < n_channels) {
        for (int pixel = begin + threadIdx.y; pixel < end; pixel += U * step) {
            Packet<L> packets[U];
            load_pixels<L, U>(y + channel, pixel_stride, pixel, step, end, packets);
            if (count == 0) shift = unpack(packets[0]);
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (pixel + u * step >= end) continue;
                const Floats<L> x = unpack(packets[u]);
#pragma unroll
                for (int l = 0; l < L; ++l) {
                    const float deviation = x.x[l] - shift.x[l];
                    sum.x[l] += deviation;
                    square.x[l] += deviation * deviation;
                }
                ++count;
            }
        }
    }
    const float share = count > 0 ? 1.0f / count : 0.0f;
#pragma unroll
    for (int l = 0; l < L; ++l) {
        means[l][me] = shift.x[l] + sum.x[l] * share;
        squares[l][me] = square.x[l] - sum.x[l] * sum.x[l] * share;
    }
    counts[me] = count;
    __syncthreads();

    for (int n = blockDim.y; n > 1;) {
        const int half = (n + 1) / 2;
        const int other = me + half * blockDim.x;
        if (threadIdx.y + half < n && counts[other] > 0) {
            const float mine = counts[me], others = counts[other];
            const float weight = others / (mine + others);
#pragma unroll
            for (int l = 0; l < L; ++l) {
                const float delta = means[l][other] - means[l][me];
                means[l][me] += delta * weight;
                squares[l][me] += squares[l][other] + delta * delta * mine * weight;
            }
            counts[me] += counts[other];
        }
        n = half;
        __syncthreads();
    }
    if (threadIdx.y == 0 && channel < n_channels) {
        float* partial = workspace + (size_t)blockIdx.x * 2 * n_channels + channel;
#pragma unroll
        for (int l = 0; l < L; ++l) {
            partial[l] = means[l][me];
            partial[n_channels + l] = squares[l][me];
        }
    }
    if (!is_last_block(counters)) return;

    // Each channel by several threads, then by one. Deviations from the first block's mean, so that little cancels.
    __shared__ double part_sums[STATS_THREADS], part_squares[STATS_THREADS];
    const int channels = block_channels<L>(n_channels);
    const int parts = min(MAX_PARTS, n_threads() / channels);
    const float* of_channel = workspace + first_channel<L>() + me % channels;
    const float base = __ldcg(of_channel);
    if (me < parts * channels) {
        double sum_n = 0.0, square_n = 0.0;
#pragma unroll 16
        for (int block = me / channels; block < gridDim.x; block += parts) {
            const float* partial = of_channel + (size_t)block * 2 * n_channels;
            const double n = min(block_pixels, n_pixels - block * block_pixels);
            const double delta = __ldcg(partial) - base;
            sum_n += n * delta;
            square_n += __ldcg(partial + n_channels) + n * delta * delta;
        }
        part_sums[me] = sum_n;
        part_squares[me] = square_n;
    }
    __syncthreads();
    if (me >= channels) return;
    double sum_n = 0.0, square_n = 0.0;
    for (int part = 0; part < parts; ++part) {
        sum_n += part_sums[part * channels + me];
        square_n += part_squares[part * channels + me];
    }
    const int c = first_channel<L>() + me;
    const double mean = base + sum_n / n_pixels;
    const double squared = fmax(square_n - sum_n * sum_n / n_pixels, 0.0);
    stats[c] = mean;
    stats[n_channels + c] = 1.0 / sqrt(squared / n_pixels + eps);
    if (running_mean != nullptr) running_mean[c] += momentum * ((float)mean - running_mean[c]);
    if (running_var != nullptr && n_pixels > 1) running_var[c] += momentum * ((float)(squared / (n_pixels - 1)) - running_var[c]);
}

#define STATS_PARAMETERS                                                                                                                        \
    const T *y, int pixel_stride, int n_pixels, int n_channels, int block_pixels, float eps, float momentum, float *workspace, u32 *counters,  \
        float *stats, float *running_mean, float *running_var
#define STATS_ARGUMENTS y, pixel_stride, n_pixels, n_channels, block_pixels, eps, momentum, workspace, counters, stats, running_mean, running_var

extern "C" __global__ void __launch_bounds__(STATS_THREADS, 2) bn_stats_batch_vec(STATS_PARAMETERS) { stats_batch<4>(STATS_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(STATS_THREADS, 2) bn_stats_batch_scalar(STATS_PARAMETERS) { stats_batch<1>(STATS_ARGUMENTS); }

// One thread a channel.
extern "C" __global__ void bn_stats_running(const float* running_mean, const float* running_var, int n_channels, float eps, float* stats) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= n_channels) return;
    stats[c] = running_mean[c];
    stats[n_channels + c] = 1.0 / sqrt((double)running_var[c] + eps);
}

// ---- Forward ----

template <int L, int N_BRANCHES>
__device__ __forceinline__ void act_forward(const Branches& branches, int act, const T* residual, int residual_stride, const Pieces& outs,
                                            int n_pixels, int n_channels) {
    constexpr int U = 4;
    __shared__ __align__(16) float scales[N_BRANCHES][MAX_CHANNELS];
    __shared__ __align__(16) float shifts[MAX_CHANNELS];
    fill_affine<L>(branches, n_channels, scales, shifts);
    __syncthreads();

    const int channel = first_channel<L>() + threadIdx.x * L;
    if (channel >= n_channels) return;
    Floats<L> scale[N_BRANCHES];
#pragma unroll
    for (int b = 0; b < N_BRANCHES; ++b) scale[b] = row<L>(scales[b]);
    const Floats<L> shift = row<L>(shifts);

    const int step = blockDim.y;
    for (int pixel = blockIdx.x * U * step + threadIdx.y; pixel < n_pixels; pixel += gridDim.x * U * step) {
        Packet<L> y[N_BRANCHES][U], added[U], out[U];
#pragma unroll
        for (int b = 0; b < N_BRANCHES; ++b) {
            load_pixels<L, U>(branches.branch[b].y + channel, branches.branch[b].pixel_stride, pixel, step, n_pixels, y[b]);
        }
        if (residual != nullptr) load_pixels<L, U>(residual + channel, residual_stride, pixel, step, n_pixels, added);
#pragma unroll
        for (int u = 0; u < U; ++u) {
            if (pixel + u * step >= n_pixels) continue;
            Floats<L> z = shift;
#pragma unroll
            for (int b = 0; b < N_BRANCHES; ++b) {
                const Floats<L> x = unpack(y[b][u]);
#pragma unroll
                for (int l = 0; l < L; ++l) z.x[l] += x.x[l] * scale[b].x[l];
            }
#pragma unroll
            for (int l = 0; l < L; ++l) z.x[l] = activate(z.x[l], act);
            if (residual != nullptr) {
                const Floats<L> x = unpack(added[u]);
#pragma unroll
                for (int l = 0; l < L; ++l) z.x[l] += x.x[l];
            }
            out[u] = pack(z);
        }
        for (int i = 0; i < outs.n; ++i) {
            const Piece& piece = outs.piece[i];
            if (!covers(piece, channel)) continue;
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (pixel + u * step >= n_pixels) continue;
                store_packet<L>(piece.data + (size_t)(pixel + u * step) * piece.pixel_stride + (channel - piece.first), out[u]);
            }
        }
    }
}

#define FORWARD_PARAMETERS \
    const Branches branches, int act, const T *residual, int residual_stride, const Pieces outs, int n_pixels, int n_channels
#define FORWARD_ARGUMENTS branches, act, residual, residual_stride, outs, n_pixels, n_channels

extern "C" __global__ void __launch_bounds__(256) bn_act_forward_1_vec(FORWARD_PARAMETERS) { act_forward<4, 1>(FORWARD_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) bn_act_forward_2_vec(FORWARD_PARAMETERS) { act_forward<4, 2>(FORWARD_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) bn_act_forward_1_scalar(FORWARD_PARAMETERS) { act_forward<1, 1>(FORWARD_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) bn_act_forward_2_scalar(FORWARD_PARAMETERS) { act_forward<1, 2>(FORWARD_ARGUMENTS); }

// ---- Backward, first pass ----

// workspace [blocks, 1 + branches, C]: sums of g, and of g * (y - mean) of each branch, over the block's pixels.
template <int L, int N_BRANCHES, int THREADS>
__device__ __forceinline__ void backward_reduce(const Pieces& d_outs, const Branches& branches, int act, int n_pixels, int n_channels,
                                                int block_pixels, float* workspace, u32* counters, float* sums,
                                                const ParamGradients& gradients) {
    constexpr int U = (N_BRANCHES == 1 ? 4 : 2) * 2 / (int)sizeof(T);
    constexpr int N_SUMS = 1 + N_BRANCHES;
    __shared__ __align__(16) float scales[N_BRANCHES][MAX_SUM_CHANNELS];
    __shared__ __align__(16) float shifts[MAX_SUM_CHANNELS];
    __shared__ float rows[L][THREADS];
    fill_affine<L>(branches, n_channels, scales, shifts);
    __syncthreads();

    const int channel = first_channel<L>() + threadIdx.x * L;
    const int end = min((int)(blockIdx.x + 1) * block_pixels, n_pixels);
    const int step = blockDim.y;
    const int me = thread_index();
    Floats<L> totals[N_SUMS];
#pragma unroll
    for (int s = 0; s < N_SUMS; ++s) {
#pragma unroll
        for (int l = 0; l < L; ++l) totals[s].x[l] = 0.0f;
    }
    if (channel < n_channels) {
        Floats<L> scale[N_BRANCHES], mean[N_BRANCHES];
#pragma unroll
        for (int b = 0; b < N_BRANCHES; ++b) {
            scale[b] = row<L>(scales[b]);
#pragma unroll
            for (int l = 0; l < L; ++l) mean[b].x[l] = branches.branch[b].stats[channel + l];
        }
        const Floats<L> shift = row<L>(shifts);
        GradientReader<L, U> reader(d_outs, channel);
        for (int pixel = blockIdx.x * block_pixels + threadIdx.y; pixel < end; pixel += U * step) {
            Packet<L> y[N_BRANCHES][U];
#pragma unroll
            for (int b = 0; b < N_BRANCHES; ++b) {
                load_pixels<L, U>(branches.branch[b].y + channel, branches.branch[b].pixel_stride, pixel, step, end, y[b]);
            }
            reader.load(pixel, step, end);
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (pixel + u * step >= end) continue;
                const Floats<L> d_out = reader.sum(d_outs, channel, pixel + u * step, u);
                Floats<L> x[N_BRANCHES];
#pragma unroll
                for (int b = 0; b < N_BRANCHES; ++b) x[b] = unpack(y[b][u]);
#pragma unroll
                for (int l = 0; l < L; ++l) {
                    float g = d_out.x[l];
                    if (act == ACT_SILU) {
                        float z = shift.x[l];
#pragma unroll
                        for (int b = 0; b < N_BRANCHES; ++b) z += x[b].x[l] * scale[b].x[l];
                        g *= silu_slope(z);
                    }
                    totals[0].x[l] += g;
#pragma unroll
                    for (int b = 0; b < N_BRANCHES; ++b) totals[1 + b].x[l] += g * (x[b].x[l] - mean[b].x[l]);
                }
            }
        }
    }
    // One kind of sum after the other through the same memory.
#pragma unroll
    for (int s = 0; s < N_SUMS; ++s) {
#pragma unroll
        for (int l = 0; l < L; ++l) rows[l][me] = totals[s].x[l];
        sum_rows<L, THREADS>(rows);
        if (threadIdx.y == 0 && channel < n_channels) {
            float* partial = workspace + ((size_t)blockIdx.x * N_SUMS + s) * n_channels + channel;
#pragma unroll
            for (int l = 0; l < L; ++l) partial[l] = rows[l][me];
        }
        __syncthreads();
    }
    if (!is_last_block(counters)) return;

    __shared__ double part_sums[N_SUMS][THREADS];
    const int channels = block_channels<L>(n_channels);
    const int parts = min(MAX_PARTS, n_threads() / channels);
    if (me < parts * channels) {
        double sum[N_SUMS];
#pragma unroll
        for (int s = 0; s < N_SUMS; ++s) sum[s] = 0.0;
        const float* of_channel = workspace + first_channel<L>() + me % channels;
#pragma unroll 16
        for (int block = me / channels; block < gridDim.x; block += parts) {
#pragma unroll
            for (int s = 0; s < N_SUMS; ++s) sum[s] += __ldcg(of_channel + ((size_t)block * N_SUMS + s) * n_channels);
        }
#pragma unroll
        for (int s = 0; s < N_SUMS; ++s) part_sums[s][me] = sum[s];
    }
    __syncthreads();
    if (me >= channels) return;
    const int c = first_channel<L>() + me;
    double sum[N_SUMS];
#pragma unroll
    for (int s = 0; s < N_SUMS; ++s) {
        sum[s] = 0.0;
        for (int part = 0; part < parts; ++part) sum[s] += part_sums[s][part * channels + me];
    }
#pragma unroll
    for (int b = 0; b < N_BRANCHES; ++b) {
        const float sum_g = sum[0];
        const float sum_gx = sum[1 + b] * branches.branch[b].stats[n_channels + c];
        sums[2 * b * n_channels + c] = sum_g;
        sums[(2 * b + 1) * n_channels + c] = sum_gx;
        gradients.beta[b][c] += sum_g;
        gradients.gamma[b][c] += sum_gx;
    }
}

#define REDUCE_PARAMETERS                                                                                                                \
    const Pieces d_outs, const Branches branches, int act, int n_pixels, int n_channels, int block_pixels, float *workspace,            \
        u32 *counters, float *sums, const ParamGradients gradients
#define REDUCE_ARGUMENTS d_outs, branches, act, n_pixels, n_channels, block_pixels, workspace, counters, sums, gradients

// Two branches need twice the registers.
extern "C" __global__ void __launch_bounds__(256, 3) bn_act_backward_reduce_1_vec(REDUCE_PARAMETERS) {
    backward_reduce<4, 1, 256>(REDUCE_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(256, 3) bn_act_backward_reduce_2_vec(REDUCE_PARAMETERS) {
    backward_reduce<4, 2, 256>(REDUCE_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(256, 3) bn_act_backward_reduce_1_scalar(REDUCE_PARAMETERS) {
    backward_reduce<1, 1, 256>(REDUCE_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(256, 3) bn_act_backward_reduce_2_scalar(REDUCE_PARAMETERS) {
    backward_reduce<1, 2, 256>(REDUCE_ARGUMENTS);
}

// ---- Backward, second pass ----

struct BranchGradient {
    T* d_y;
    int pixel_stride;
    int unused;
};
struct BranchGradients {
    BranchGradient branch[2];
};

// d_y = scale * g + slope * y + offset.
template <int L, int N_BRANCHES>
__device__ __forceinline__ void act_backward(const Pieces& d_outs, const Branches& branches, int act, const float* sums,
                                             const BranchGradients& d_ys, T* d_residual, int residual_stride, int accumulate_residual,
                                             int n_pixels, int n_channels) {
    constexpr int U = (N_BRANCHES == 1 ? 4 : 2) * 2 / (int)sizeof(T);
    __shared__ __align__(16) float scales[N_BRANCHES][MAX_CHANNELS];
    __shared__ __align__(16) float shifts[MAX_CHANNELS];
    __shared__ __align__(16) float slopes[N_BRANCHES][MAX_CHANNELS];
    __shared__ __align__(16) float offsets[N_BRANCHES][MAX_CHANNELS];
    fill_affine<L>(branches, n_channels, scales, shifts);
    for (int i = thread_index(); i < block_channels<L>(n_channels); i += n_threads()) {
        const int c = first_channel<L>() + i;
#pragma unroll
        for (int b = 0; b < N_BRANCHES; ++b) {
            const float mean_g = sums[2 * b * n_channels + c] / n_pixels;
            const float mean_gx = sums[(2 * b + 1) * n_channels + c] / n_pixels;
            const float scale = scales[b][i];  // written by this thread
            const float slope = -scale * branches.branch[b].stats[n_channels + c] * mean_gx;
            slopes[b][i] = slope;
            offsets[b][i] = -scale * mean_g - slope * branches.branch[b].stats[c];
        }
    }
    __syncthreads();

    const int channel = first_channel<L>() + threadIdx.x * L;
    if (channel >= n_channels) return;
    Floats<L> scale[N_BRANCHES], slope[N_BRANCHES], offset[N_BRANCHES];
#pragma unroll
    for (int b = 0; b < N_BRANCHES; ++b) {
        scale[b] = row<L>(scales[b]);
        slope[b] = row<L>(slopes[b]);
        offset[b] = row<L>(offsets[b]);
    }
    const Floats<L> shift = row<L>(shifts);
    GradientReader<L, U> reader(d_outs, channel);

    const int step = blockDim.y;
    for (int pixel = blockIdx.x * U * step + threadIdx.y; pixel < n_pixels; pixel += gridDim.x * U * step) {
        Packet<L> y[N_BRANCHES][U];
#pragma unroll
        for (int b = 0; b < N_BRANCHES; ++b) {
            load_pixels<L, U>(branches.branch[b].y + channel, branches.branch[b].pixel_stride, pixel, step, n_pixels, y[b]);
        }
        reader.load(pixel, step, n_pixels);
#pragma unroll
        for (int u = 0; u < U; ++u) {
            if (pixel + u * step >= n_pixels) continue;
            Floats<L> g = reader.sum(d_outs, channel, pixel + u * step, u);
            if (d_residual != nullptr) {
                T* to = d_residual + (size_t)(pixel + u * step) * residual_stride + channel;
                Floats<L> sum = g;
                if (accumulate_residual) {
                    const Floats<L> x = unpack(load_packet<L>(to));
#pragma unroll
                    for (int l = 0; l < L; ++l) sum.x[l] += x.x[l];
                }
                store_packet<L>(to, pack(sum));
            }
            Floats<L> x[N_BRANCHES];
#pragma unroll
            for (int b = 0; b < N_BRANCHES; ++b) x[b] = unpack(y[b][u]);
            if (act == ACT_SILU) {
#pragma unroll
                for (int l = 0; l < L; ++l) {
                    float z = shift.x[l];
#pragma unroll
                    for (int b = 0; b < N_BRANCHES; ++b) z += x[b].x[l] * scale[b].x[l];
                    g.x[l] *= silu_slope(z);
                }
            }
#pragma unroll
            for (int b = 0; b < N_BRANCHES; ++b) {
#pragma unroll
                for (int l = 0; l < L; ++l) {
                    x[b].x[l] = scale[b].x[l] * g.x[l] + (slope[b].x[l] * x[b].x[l] + offset[b].x[l]);
                }
                const BranchGradient& to = d_ys.branch[b];
                store_packet<L>(to.d_y + (size_t)(pixel + u * step) * to.pixel_stride + channel, pack(x[b]));
            }
        }
    }
}

#define BACKWARD_PARAMETERS                                                                                                                \
    const Pieces d_outs, const Branches branches, int act, const float *sums, const BranchGradients d_ys, T *d_residual,                  \
        int residual_stride, int accumulate_residual, int n_pixels, int n_channels
#define BACKWARD_ARGUMENTS d_outs, branches, act, sums, d_ys, d_residual, residual_stride, accumulate_residual, n_pixels, n_channels

extern "C" __global__ void __launch_bounds__(256, 3) bn_act_backward_1_vec(BACKWARD_PARAMETERS) { act_backward<4, 1>(BACKWARD_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 3) bn_act_backward_2_vec(BACKWARD_PARAMETERS) { act_backward<4, 2>(BACKWARD_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 3) bn_act_backward_1_scalar(BACKWARD_PARAMETERS) { act_backward<1, 1>(BACKWARD_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 3) bn_act_backward_2_scalar(BACKWARD_PARAMETERS) { act_backward<1, 2>(BACKWARD_ARGUMENTS); }
