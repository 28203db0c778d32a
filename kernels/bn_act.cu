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
// Pixels are dealt out in runs of at most U * blockDim.y, which a block loads at once; a block takes every gridDim.x-th run. The
// passes with sums go up, those that follow them on the same tensors down, where what was read last is still in the cache.
//
// Sums over pixels: f32 in a thread (some hundred terms), by columns over the block's threads, then to the workspace. The block
// that comes last for its channels adds up what all wrote, in an order that does not depend on which block that is. There is one
// large block a multiprocessor: smaller ones would have as many loads in flight, but leave more sums to the last block.
//
// Why that is fast enough: each kernel reads and writes every element once, which is the least that is possible. At 4.3 TB/s a
// multiprocessor has to issue 4.6 elements a cycle where 4 bytes an element are moved: 27 instructions and 3.4 calls of the
// special function unit for each. kernels/NOTES.md has what they take, and the times.
#include "common.cuh"

// Channels of one block: at most, in the passes without and with sums.
#define MAX_CHANNELS 256
#define MAX_SUM_CHANNELS 64
// Threads of one block: of passes without sums; of those with them; of those that read more than two tensors, where a thread
// needs twice the registers and has twice the bytes in flight.
#define APPLY_THREADS 256
#define SUM_THREADS 1024
#define FEW_SUM_THREADS 512
// Loads in flight a thread are this many packets of each tensor; those of f32 are twice as large.
#define IN_FLIGHT(N) ((N) * 2 / (int)sizeof(T) > 0 ? (N) * 2 / (int)sizeof(T) : 1)

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
// Two calls of the special function unit, both exact to about 2^-22. __expf and __fdividef are the same with five more
// instructions for tiny numbers; tanh.approx would be one call, but far below zero its 2^-11 is all there is.
__device__ __forceinline__ float logistic(float z) {
    float power, inverse;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(z * -1.442695041f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
    return inverse;
}
#endif

// The derivative of SiLU: s + s z (1 - s).
__device__ __forceinline__ float silu_slope(float z) {
    const float s = logistic(z);
    return s * (z - s * z) + s;
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
#pragma unroll 1
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

// ---- Runs of pixels ----

// What a block loads at once: pixels up to `end`, of which this thread has every `blockDim.y`-th from `pixel` on.
template <int U> struct Run {
    int pixel;
    int end;
    bool full;  // U pixels for each thread

    __device__ __forceinline__ Run(int run, int run_pixels, int n_pixels) {
        const int begin = run * run_pixels;
        end = min(begin + run_pixels, n_pixels);
        pixel = begin + threadIdx.y;
        full = end - begin == U * (int)blockDim.y;
    }
    __device__ __forceinline__ int at(int u) const { return pixel + u * blockDim.y; }
    __device__ __forceinline__ bool has(int u) const { return at(u) < end; }
};

__device__ __forceinline__ int n_runs(int run_pixels, int n_pixels) { return (n_pixels + run_pixels - 1) / run_pixels; }

// Elements of one pixel after another: one wide multiplication and addition.
__device__ __forceinline__ const T* pixel_at(const T* data, int pixel, int stride_bytes) {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(data) + (long long)pixel * stride_bytes);
}
__device__ __forceinline__ T* pixel_at(T* data, int pixel, int stride_bytes) {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(data) + (long long)pixel * stride_bytes);
}

// Zeros for pixels that are not in the run.
template <int L, int U>
__device__ __forceinline__ void load_run(const T* data, int pixel_stride, const Run<U>& run, Packet<L> (&packets)[U]) {
    const int stride_bytes = pixel_stride * (int)sizeof(T);
    if (run.full) {
#pragma unroll
        for (int u = 0; u < U; ++u) packets[u] = load_packet<L>(pixel_at(data, run.at(u), stride_bytes));
    } else {
#pragma unroll
        for (int u = 0; u < U; ++u) {
            packets[u] = {};
            if (run.has(u)) packets[u] = load_packet<L>(pixel_at(data, run.at(u), stride_bytes));
        }
    }
}

template <int L, int N_BRANCHES, int U>
__device__ __forceinline__ void load_branches(const Branches& branches, int channel, const Run<U>& run, Packet<L> (&packets)[N_BRANCHES][U]) {
#pragma unroll
    for (int b = 0; b < N_BRANCHES; ++b) {
        load_run<L, U>(branches.branch[b].y + channel, branches.branch[b].pixel_stride, run, packets[b]);
    }
}

// The pieces of a gradient that hold a thread's channels, at most K of them, found once. A thread with fewer adds zeros.
template <int L, int K, int U> struct GradientReader {
    const T* data[K];
    int pixel_stride[K];
    Packet<L> packets[K][U];

    __device__ __forceinline__ GradientReader(const Pieces& pieces, int channel) {
        int i = 0;
#pragma unroll
        for (int k = 0; k < K; ++k) {
            data[k] = nullptr;
            pixel_stride[k] = 0;
            while (i < pieces.n && !covers(pieces.piece[i], channel)) ++i;
            if (i < pieces.n) {
                const Piece& piece = pieces.piece[i++];
                data[k] = piece.data + (channel - piece.first);
                pixel_stride[k] = piece.pixel_stride;
            }
#pragma unroll
            for (int u = 0; u < U; ++u) packets[k][u] = {};
        }
    }

    __device__ __forceinline__ void load(const Run<U>& run) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            if (data[k] != nullptr) load_run<L, U>(data[k], pixel_stride[k], run, packets[k]);
        }
    }

    __device__ __forceinline__ Floats<L> sum(int u) const {
        Floats<L> sum = unpack(packets[0][u]);
#pragma unroll
        for (int k = 1; k < K; ++k) {
            const Floats<L> x = unpack(packets[k][u]);
#pragma unroll
            for (int l = 0; l < L; ++l) sum.x[l] += x.x[l];
        }
        return sum;
    }
};

// ---- Sums over the threads of a block ----

// Values of all threads, as rows of N * groups columns: value v of the group g of channels is column v * groups + g. A column is
// summed by several threads, then by thread `column`. Rows are padded so that these threads meet in no bank.
template <int N, int L, int THREADS> struct Columns {
    float values[N * (THREADS + MAX_SUM_CHANNELS / L)];

    __device__ __forceinline__ static int n() { return N * blockDim.x; }
    // Threads that share a column.
    __device__ __forceinline__ static int n_parts() { return n_threads() / n(); }

    __device__ __forceinline__ void put(int v, float value) { values[v * (n_threads() + blockDim.x) + thread_index()] = value; }
    __device__ __forceinline__ float get(int column, int row) const {
        return values[column / blockDim.x * (n_threads() + blockDim.x) + row * blockDim.x + column % blockDim.x];
    }
};

// Whether this block is the last one of its channels to come here; if so, what all others wrote before is visible.
__device__ __forceinline__ bool is_last_block(u32* counters) {
    __shared__ bool last;
    __syncthreads();
    if (thread_index() == 0) {
        // Orders what the barrier before has gathered, and what the one after lets go on: a fence in one thread is enough.
        u32 before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counters + blockIdx.y) : "memory");
        last = before == gridDim.x - 1;
        if (last) counters[blockIdx.y] = 0;  // for the next launch
    }
    __syncthreads();
    return last;
}

// ---- Statistics ----

// Means and squared deviations of parts, merged without a division for each: all are taken from the mean of one of them, which
// is near the others (Chan and others, 1979).
template <class Sum> struct Merged {
    float base;
    Sum n, sum, square;

    __device__ __forceinline__ explicit Merged(float base) : base(base), n(0), sum(0), square(0) {}
    __device__ __forceinline__ void add(float mean, float squared, float count) {
        const Sum delta = mean - base;
        n += count;
        sum += count * delta;
        square += squared + count * delta * delta;
    }
};

// One pass: each thread sums deviations from its own first pixel and their squares, which is exact enough because a thread sees
// few pixels; from then on it is means and squared deviations that are merged.
// workspace [chunks of channels, blocks, 2, columns]: mean and sum of squared deviations over the block's pixels.
template <int L>
__device__ __forceinline__ void stats_batch(const T* y, int pixel_stride, int n_pixels, int n_channels, int run_pixels, double inverse_pixels,
                                            float eps, float momentum, float* workspace, u32* counters, float* stats, float* running_mean,
                                            float* running_var) {
    constexpr int U = IN_FLIGHT(8);
    constexpr int MAX_PARTS = SUM_THREADS / 2;  // of all columns
    __shared__ Columns<L, L, SUM_THREADS> means, squares;
    __shared__ float counts[SUM_THREADS];  // of a row
    __shared__ float part_means[MAX_PARTS], part_squares[MAX_PARTS], part_counts[MAX_PARTS];

    const int channel = first_channel<L>() + threadIdx.x * L;
    const int me = thread_index();
    const int runs = n_runs(run_pixels, n_pixels);

    Floats<L> shift, sum, square;
#pragma unroll
    for (int l = 0; l < L; ++l) shift.x[l] = sum.x[l] = square.x[l] = 0.0f;
    int count = 0;
    if (channel < n_channels) {
        for (int index = blockIdx.x; index < runs; index += gridDim.x) {
            const Run<U> run(index, run_pixels, n_pixels);
            Packet<L> packets[U];
            load_run<L, U>(y + channel, pixel_stride, run, packets);
            // A thread without a pixel in the first run has none in the others.
            if (index == blockIdx.x) shift = unpack(packets[0]);
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (!run.full && !run.has(u)) continue;
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
        means.put(l, shift.x[l] + sum.x[l] * share);
        squares.put(l, square.x[l] - sum.x[l] * sum.x[l] * share);
    }
    if (threadIdx.x == 0) counts[threadIdx.y] = count;
    __syncthreads();

    // A row has no more pixels than those before it: if the first row of a part has none, the part has none.
    const int columns = means.n(), parts = min(means.n_parts(), MAX_PARTS / columns);
    const int column = me % columns, part = me / columns;
    if (part < parts) {
        Merged<float> merged(means.get(column, part));
#pragma unroll 4
        for (int row = part; row < blockDim.y; row += parts) merged.add(means.get(column, row), squares.get(column, row), counts[row]);
        const float mean = merged.n > 0.0f ? merged.sum / merged.n : 0.0f;
        part_means[me] = merged.base + mean;
        part_squares[me] = merged.square - merged.sum * mean;
        part_counts[me] = merged.n;
    }
    __syncthreads();
    float* of_chunk = workspace + (size_t)blockIdx.y * gridDim.x * 2 * columns;
    if (me < columns) {
        Merged<float> merged(part_means[me]);
#pragma unroll 8
        for (int i = me; i < parts * columns; i += columns) merged.add(part_means[i], part_squares[i], part_counts[i]);
        const float mean = merged.sum / merged.n;
        float* partial = of_chunk + blockIdx.x * 2 * columns;
        partial[me] = merged.base + mean;
        partial[columns + me] = merged.square - merged.sum * mean;
    }
    if (!is_last_block(counters)) return;

    // Deviations from the first block's mean, so that little cancels.
    const int c = first_channel<L>() + me % blockDim.x * L + me / blockDim.x;
    const bool writes = me < columns && c < n_channels;
    float old_mean = 0.0f, old_var = 0.0f;
    if (writes && running_mean != nullptr) old_mean = running_mean[c];
    if (writes && running_var != nullptr) old_var = running_var[c];
    const float base = __ldcg(of_chunk + column);
    const int shares = means.n_parts();  // the memory of all columns is free now
    if (part < shares) {
        Merged<float> merged(base);
#pragma unroll 8
        for (int block = part; block < gridDim.x; block += shares) {
            const float* partial = of_chunk + block * 2 * columns + column;
            // The last run may be shorter than the others.
            const int its_runs = (runs - block + (int)gridDim.x - 1) / (int)gridDim.x;
            const int missing = (runs - 1) % (int)gridDim.x == block ? runs * run_pixels - n_pixels : 0;
            merged.add(__ldcg(partial), __ldcg(partial + columns), its_runs * run_pixels - missing);
        }
        means.values[me] = merged.sum;
        squares.values[me] = merged.square;
    }
    __syncthreads();
    if (!writes) return;
    double sum_n = 0.0, square_n = 0.0;
#pragma unroll 8
    for (int i = me; i < shares * columns; i += columns) {
        sum_n += means.values[i];
        square_n += squares.values[i];
    }
    const float mean = base + sum_n * inverse_pixels;
    const float squared = fmax(square_n - sum_n * sum_n * inverse_pixels, 0.0);
    stats[c] = mean;
    stats[n_channels + c] = 1.0f / sqrtf(squared * (float)inverse_pixels + eps);
    if (running_mean != nullptr) running_mean[c] = old_mean + momentum * (mean - old_mean);
    if (running_var != nullptr && n_pixels > 1) running_var[c] = old_var + momentum * (squared / (n_pixels - 1) - old_var);
}

#define STATS_PARAMETERS                                                                                                                     \
    const T *y, int pixel_stride, int n_pixels, int n_channels, int run_pixels, double inverse_pixels, float eps, float momentum,           \
        float *workspace, u32 *counters, float *stats, float *running_mean, float *running_var
#define STATS_ARGUMENTS                                                                                                                     \
    y, pixel_stride, n_pixels, n_channels, run_pixels, inverse_pixels, eps, momentum, workspace, counters, stats, running_mean, running_var

extern "C" __global__ void __launch_bounds__(SUM_THREADS) bn_stats_batch_vec(STATS_PARAMETERS) { stats_batch<4>(STATS_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(SUM_THREADS) bn_stats_batch_scalar(STATS_PARAMETERS) { stats_batch<1>(STATS_ARGUMENTS); }

// One thread a channel.
extern "C" __global__ void bn_stats_running(const float* running_mean, const float* running_var, int n_channels, float eps, float* stats) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= n_channels) return;
    stats[c] = running_mean[c];
    stats[n_channels + c] = 1.0 / sqrt((double)running_var[c] + eps);
}

// ---- Forward ----

template <int L, int N_BRANCHES, bool HAS_RESIDUAL>
__device__ __forceinline__ void act_forward(const Branches& branches, int act, const T* residual, int residual_stride, const Pieces& outs,
                                            int n_pixels, int n_channels, int run_pixels) {
    constexpr int U = IN_FLIGHT(N_BRANCHES == 1 && !HAS_RESIDUAL ? 8 : 4);
    __shared__ __align__(16) float scales[N_BRANCHES][MAX_CHANNELS];
    __shared__ __align__(16) float shifts[MAX_CHANNELS];
    const int channel = first_channel<L>() + threadIdx.x * L;
    const int last = channel < n_channels ? n_runs(run_pixels, n_pixels) - 1 : -1;

    // The first loads are on their way while the factors are.
    Packet<L> y[N_BRANCHES][U], added[U];
    int index = last - blockIdx.x;
    if (index >= 0) {
        const Run<U> run(index, run_pixels, n_pixels);
        load_branches<L, N_BRANCHES, U>(branches, channel, run, y);
        if (HAS_RESIDUAL) load_run<L, U>(residual + channel, residual_stride, run, added);
    }
    fill_affine<L>(branches, n_channels, scales, shifts);
    __syncthreads();
    if (index < 0) return;

    Floats<L> scale[N_BRANCHES];
#pragma unroll
    for (int b = 0; b < N_BRANCHES; ++b) scale[b] = row<L>(scales[b]);
    const Floats<L> shift = row<L>(shifts);
    while (true) {
        const Run<U> run(index, run_pixels, n_pixels);
        Packet<L> out[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            Floats<L> z = shift;
#pragma unroll
            for (int b = 0; b < N_BRANCHES; ++b) {
                const Floats<L> x = unpack(y[b][u]);
#pragma unroll
                for (int l = 0; l < L; ++l) z.x[l] += x.x[l] * scale[b].x[l];
            }
            if (act == ACT_SILU) {
#pragma unroll
                for (int l = 0; l < L; ++l) z.x[l] *= logistic(z.x[l]);
            }
            if (HAS_RESIDUAL) {
                const Floats<L> x = unpack(added[u]);
#pragma unroll
                for (int l = 0; l < L; ++l) z.x[l] += x.x[l];
            }
            out[u] = pack(z);
        }
        for (int i = 0; i < outs.n; ++i) {
            const Piece& piece = outs.piece[i];
            if (!covers(piece, channel)) continue;
            T* to = piece.data + (channel - piece.first);
            const int stride_bytes = piece.pixel_stride * (int)sizeof(T);
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (run.has(u)) store_packet<L>(pixel_at(to, run.at(u), stride_bytes), out[u]);
            }
        }
        index -= gridDim.x;
        if (index < 0) return;
        const Run<U> next(index, run_pixels, n_pixels);
        load_branches<L, N_BRANCHES, U>(branches, channel, next, y);
        if (HAS_RESIDUAL) load_run<L, U>(residual + channel, residual_stride, next, added);
    }
}

#define FORWARD_PARAMETERS                                                                                                                 \
    const Branches branches, int act, const T *residual, int residual_stride, const Pieces outs, int n_pixels, int n_channels, int run_pixels
#define FORWARD_ARGUMENTS branches, act, residual, residual_stride, outs, n_pixels, n_channels, run_pixels

extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 4) bn_act_forward_1_vec(FORWARD_PARAMETERS) {
    act_forward<4, 1, false>(FORWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 4) bn_act_forward_1_residual_vec(FORWARD_PARAMETERS) {
    act_forward<4, 1, true>(FORWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 4) bn_act_forward_2_vec(FORWARD_PARAMETERS) {
    act_forward<4, 2, false>(FORWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 4) bn_act_forward_2_residual_vec(FORWARD_PARAMETERS) {
    act_forward<4, 2, true>(FORWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 4) bn_act_forward_1_scalar(FORWARD_PARAMETERS) {
    act_forward<1, 1, false>(FORWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 4) bn_act_forward_1_residual_scalar(FORWARD_PARAMETERS) {
    act_forward<1, 1, true>(FORWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 4) bn_act_forward_2_scalar(FORWARD_PARAMETERS) {
    act_forward<1, 2, false>(FORWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 4) bn_act_forward_2_residual_scalar(FORWARD_PARAMETERS) {
    act_forward<1, 2, true>(FORWARD_ARGUMENTS);
}

// ---- Backward, first pass ----

// z = sum over branches of scale * (y - mean), + shift. xhat comes from deviations because sum(g * y) - mean * sum(g) would
// cancel in f32 where a mean is large; it costs one instruction in fourteen.
// workspace [chunks of channels, blocks, columns]: sums of g, and of g * (y - mean) of each branch, over the block's pixels.
template <int L, int N_BRANCHES, int K, int U, bool ALWAYS_SILU, int THREADS>
__device__ __forceinline__ void backward_reduce(const Pieces& d_outs, const Branches& branches, int act, int n_pixels, int n_channels,
                                                int run_pixels, float* workspace, u32* counters, float* sums,
                                                const ParamGradients& gradients) {
    constexpr int N_SUMS = 1 + N_BRANCHES;
    __shared__ __align__(16) float scales[N_BRANCHES][MAX_SUM_CHANNELS];
    __shared__ __align__(16) float means[N_BRANCHES][MAX_SUM_CHANNELS];
    __shared__ __align__(16) float shifts[MAX_SUM_CHANNELS];
    __shared__ Columns<N_SUMS * L, L, THREADS> all;
    __shared__ float of_parts[THREADS];

    const int me = thread_index();
    const int channel = first_channel<L>() + threadIdx.x * L;
    const int runs = channel < n_channels ? n_runs(run_pixels, n_pixels) : 0;

    // The first loads are on their way while the factors are.
    GradientReader<L, K, U> reader(d_outs, channel);
    Packet<L> y[N_BRANCHES][U];
    int index = blockIdx.x;
    if (index < runs) {
        const Run<U> run(index, run_pixels, n_pixels);
        load_branches<L, N_BRANCHES, U>(branches, channel, run, y);
        reader.load(run);
    }
#pragma unroll 1
    for (int i = me; i < block_channels<L>(n_channels); i += n_threads()) {
        const int c = first_channel<L>() + i;
        float shift = 0.0f;
#pragma unroll
        for (int b = 0; b < N_BRANCHES; ++b) {
            const Branch& branch = branches.branch[b];
            means[b][i] = branch.stats[c];
            scales[b][i] = branch.gamma[c] * branch.stats[n_channels + c];
            shift += branch.beta[c];
        }
        shifts[i] = shift;
    }
    __syncthreads();

    Floats<L> totals[N_SUMS];
#pragma unroll
    for (int s = 0; s < N_SUMS; ++s) {
#pragma unroll
        for (int l = 0; l < L; ++l) totals[s].x[l] = 0.0f;
    }
    if (index < runs) {
        Floats<L> scale[N_BRANCHES], mean[N_BRANCHES];
#pragma unroll
        for (int b = 0; b < N_BRANCHES; ++b) {
            scale[b] = row<L>(scales[b]);
            mean[b] = row<L>(means[b]);
        }
        const Floats<L> shift = row<L>(shifts);
        while (true) {
            // Pixels that are not in the run have gradients of zero.
#pragma unroll
            for (int u = 0; u < U; ++u) {
                Floats<L> g = reader.sum(u);
                Floats<L> x[N_BRANCHES];
#pragma unroll
                for (int b = 0; b < N_BRANCHES; ++b) {
                    x[b] = unpack(y[b][u]);
#pragma unroll
                    for (int l = 0; l < L; ++l) x[b].x[l] -= mean[b].x[l];
                }
                if (ALWAYS_SILU || act == ACT_SILU) {
#pragma unroll
                    for (int l = 0; l < L; ++l) {
                        float z = shift.x[l];
#pragma unroll
                        for (int b = 0; b < N_BRANCHES; ++b) z += x[b].x[l] * scale[b].x[l];
                        g.x[l] *= silu_slope(z);
                    }
                }
#pragma unroll
                for (int l = 0; l < L; ++l) {
                    totals[0].x[l] += g.x[l];
#pragma unroll
                    for (int b = 0; b < N_BRANCHES; ++b) totals[1 + b].x[l] += g.x[l] * x[b].x[l];
                }
            }
            index += gridDim.x;
            if (index >= runs) break;
            const Run<U> next(index, run_pixels, n_pixels);
            load_branches<L, N_BRANCHES, U>(branches, channel, next, y);
            reader.load(next);
        }
    }
#pragma unroll
    for (int s = 0; s < N_SUMS; ++s) {
#pragma unroll
        for (int l = 0; l < L; ++l) all.put(s * L + l, totals[s].x[l]);
    }
    __syncthreads();
    const int columns = all.n(), parts = all.n_parts();
    const int column = me % columns, part = me / columns;
    if (part < parts) {
        float sum = 0.0f;
#pragma unroll 8
        for (int r = part; r < blockDim.y; r += parts) sum += all.get(column, r);
        of_parts[me] = sum;
    }
    __syncthreads();
    float* of_chunk = workspace + (size_t)blockIdx.y * gridDim.x * columns;
    if (me < columns) {
        float sum = 0.0f;
#pragma unroll 8
        for (int i = me; i < parts * columns; i += columns) sum += of_parts[i];
        of_chunk[blockIdx.x * columns + me] = sum;
    }
    if (!is_last_block(counters)) return;

    // What thread `column` adds its sum to is on its way while the sums are.
    const int value = me / blockDim.x;
    const int c = first_channel<L>() + me % blockDim.x * L + value % L;
    const bool writes = me < columns && c < n_channels;
    float gamma_before[N_BRANCHES], beta_before[N_BRANCHES], rstd[N_BRANCHES];
#pragma unroll
    for (int b = 0; b < N_BRANCHES; ++b) {
        gamma_before[b] = beta_before[b] = rstd[b] = 0.0f;
        if (writes) {
            gamma_before[b] = gradients.gamma[b][c];
            beta_before[b] = gradients.beta[b][c];
            rstd[b] = branches.branch[b].stats[n_channels + c];
        }
    }
    if (part < parts) {
        float sum = 0.0f;
#pragma unroll 16
        for (int block = part; block < gridDim.x; block += parts) sum += __ldcg(of_chunk + block * columns + column);
        of_parts[me] = sum;
    }
    __syncthreads();
    if (!writes) return;
    double sum = 0.0;
#pragma unroll 8
    for (int i = me; i < parts * columns; i += columns) sum += of_parts[i];
#pragma unroll
    for (int b = 0; b < N_BRANCHES; ++b) {
        if (value / L == 0) {
            const float sum_g = sum;
            sums[2 * b * n_channels + c] = sum_g;
            gradients.beta[b][c] = beta_before[b] + sum_g;
        } else if (value / L == 1 + b) {
            const float sum_gx = sum * rstd[b];
            sums[(2 * b + 1) * n_channels + c] = sum_gx;
            gradients.gamma[b][c] = gamma_before[b] + sum_gx;
        }
    }
}

#define REDUCE_PARAMETERS                                                                                                                \
    const Pieces d_outs, const Branches branches, int act, int n_pixels, int n_channels, int run_pixels, float *workspace,              \
        u32 *counters, float *sums, const ParamGradients gradients
#define REDUCE_ARGUMENTS d_outs, branches, act, n_pixels, n_channels, run_pixels, workspace, counters, sums, gradients

// For up to 1, 2, 3, 5 pieces that hold the same channel, then for all the rest.
extern "C" __global__ void __launch_bounds__(SUM_THREADS) bn_act_backward_reduce_1_vec_1(REDUCE_PARAMETERS) {
    backward_reduce<4, 1, 1, IN_FLIGHT(4), true, SUM_THREADS>(REDUCE_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(FEW_SUM_THREADS) bn_act_backward_reduce_1_vec_2(REDUCE_PARAMETERS) {
    backward_reduce<4, 1, 2, IN_FLIGHT(5), true, FEW_SUM_THREADS>(REDUCE_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(FEW_SUM_THREADS) bn_act_backward_reduce_1_vec_3(REDUCE_PARAMETERS) {
    backward_reduce<4, 1, 3, IN_FLIGHT(4), true, FEW_SUM_THREADS>(REDUCE_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(FEW_SUM_THREADS) bn_act_backward_reduce_1_vec_5(REDUCE_PARAMETERS) {
    backward_reduce<4, 1, 5, IN_FLIGHT(3), true, FEW_SUM_THREADS>(REDUCE_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(FEW_SUM_THREADS) bn_act_backward_reduce_1_vec(REDUCE_PARAMETERS) {
    backward_reduce<4, 1, MAX_PIECES, IN_FLIGHT(2), false, FEW_SUM_THREADS>(REDUCE_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(FEW_SUM_THREADS) bn_act_backward_reduce_2_vec_1(REDUCE_PARAMETERS) {
    backward_reduce<4, 2, 1, IN_FLIGHT(4), true, FEW_SUM_THREADS>(REDUCE_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(FEW_SUM_THREADS) bn_act_backward_reduce_2_vec(REDUCE_PARAMETERS) {
    backward_reduce<4, 2, MAX_PIECES, IN_FLIGHT(1), false, FEW_SUM_THREADS>(REDUCE_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(FEW_SUM_THREADS) bn_act_backward_reduce_1_scalar(REDUCE_PARAMETERS) {
    backward_reduce<1, 1, MAX_PIECES, IN_FLIGHT(1), false, FEW_SUM_THREADS>(REDUCE_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(FEW_SUM_THREADS) bn_act_backward_reduce_2_scalar(REDUCE_PARAMETERS) {
    backward_reduce<1, 2, MAX_PIECES, IN_FLIGHT(1), false, FEW_SUM_THREADS>(REDUCE_ARGUMENTS);
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
template <int L, int N_BRANCHES, int K, int U, bool ALWAYS_SILU, bool MAY_HAVE_RESIDUAL>
__device__ __forceinline__ void act_backward(const Pieces& d_outs, const Branches& branches, int act, const float* sums,
                                             const BranchGradients& d_ys, T* d_residual, int residual_stride, int accumulate_residual,
                                             int n_pixels, int n_channels, int run_pixels) {
    __shared__ __align__(16) float scales[N_BRANCHES][MAX_CHANNELS];
    __shared__ __align__(16) float shifts[MAX_CHANNELS];
    __shared__ __align__(16) float slopes[N_BRANCHES][MAX_CHANNELS];
    __shared__ __align__(16) float offsets[N_BRANCHES][MAX_CHANNELS];

    const int channel = first_channel<L>() + threadIdx.x * L;
    const int last = channel < n_channels ? n_runs(run_pixels, n_pixels) - 1 : -1;

    // The first loads are on their way while the factors are.
    GradientReader<L, K, U> reader(d_outs, channel);
    Packet<L> y[N_BRANCHES][U];
    int index = last - blockIdx.x;
    if (index >= 0) {
        const Run<U> run(index, run_pixels, n_pixels);
        load_branches<L, N_BRANCHES, U>(branches, channel, run, y);
        reader.load(run);
    }
    fill_affine<L>(branches, n_channels, scales, shifts);
    const float share = 1.0f / n_pixels;
#pragma unroll 1
    for (int i = thread_index(); i < block_channels<L>(n_channels); i += n_threads()) {
        const int c = first_channel<L>() + i;
#pragma unroll
        for (int b = 0; b < N_BRANCHES; ++b) {
            const float mean_g = sums[2 * b * n_channels + c] * share;
            const float mean_gx = sums[(2 * b + 1) * n_channels + c] * share;
            const float scale = scales[b][i];  // written by this thread
            const float slope = -scale * branches.branch[b].stats[n_channels + c] * mean_gx;
            slopes[b][i] = slope;
            offsets[b][i] = -scale * mean_g - slope * branches.branch[b].stats[c];
        }
    }
    __syncthreads();
    if (index < 0) return;

    Floats<L> scale[N_BRANCHES], slope[N_BRANCHES], offset[N_BRANCHES];
#pragma unroll
    for (int b = 0; b < N_BRANCHES; ++b) {
        scale[b] = row<L>(scales[b]);
        slope[b] = row<L>(slopes[b]);
        offset[b] = row<L>(offsets[b]);
    }
    const Floats<L> shift = row<L>(shifts);
    while (true) {
        const Run<U> run(index, run_pixels, n_pixels);
#pragma unroll
        for (int u = 0; u < U; ++u) {
            Floats<L> g = reader.sum(u);
            if (MAY_HAVE_RESIDUAL && d_residual != nullptr && run.has(u)) {
                T* to = pixel_at(d_residual + channel, run.at(u), residual_stride * (int)sizeof(T));
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
            if (ALWAYS_SILU || act == ACT_SILU) {
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
                if (run.has(u)) store_packet<L>(pixel_at(to.d_y + channel, run.at(u), to.pixel_stride * (int)sizeof(T)), pack(x[b]));
            }
        }
        index -= gridDim.x;
        if (index < 0) return;
        const Run<U> next(index, run_pixels, n_pixels);
        load_branches<L, N_BRANCHES, U>(branches, channel, next, y);
        reader.load(next);
    }
}

#define BACKWARD_PARAMETERS                                                                                                                \
    const Pieces d_outs, const Branches branches, int act, const float *sums, const BranchGradients d_ys, T *d_residual,                  \
        int residual_stride, int accumulate_residual, int n_pixels, int n_channels, int run_pixels
#define BACKWARD_ARGUMENTS                                                                                                                 \
    d_outs, branches, act, sums, d_ys, d_residual, residual_stride, accumulate_residual, n_pixels, n_channels, run_pixels

// As above; a residual goes with the last two.
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 4) bn_act_backward_1_vec_1(BACKWARD_PARAMETERS) {
    act_backward<4, 1, 1, IN_FLIGHT(4), true, false>(BACKWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 4) bn_act_backward_1_vec_2(BACKWARD_PARAMETERS) {
    act_backward<4, 1, 2, IN_FLIGHT(3), true, false>(BACKWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 3) bn_act_backward_1_vec_3(BACKWARD_PARAMETERS) {
    act_backward<4, 1, 3, IN_FLIGHT(2), true, false>(BACKWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 2) bn_act_backward_1_vec_5(BACKWARD_PARAMETERS) {
    act_backward<4, 1, 5, IN_FLIGHT(2), true, true>(BACKWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 2) bn_act_backward_1_vec(BACKWARD_PARAMETERS) {
    act_backward<4, 1, MAX_PIECES, IN_FLIGHT(1), false, true>(BACKWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 3) bn_act_backward_2_vec_1(BACKWARD_PARAMETERS) {
    act_backward<4, 2, 1, IN_FLIGHT(3), true, false>(BACKWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 2) bn_act_backward_2_vec(BACKWARD_PARAMETERS) {
    act_backward<4, 2, MAX_PIECES, IN_FLIGHT(1), false, true>(BACKWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 2) bn_act_backward_1_scalar(BACKWARD_PARAMETERS) {
    act_backward<1, 1, MAX_PIECES, IN_FLIGHT(1), false, true>(BACKWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 2) bn_act_backward_2_scalar(BACKWARD_PARAMETERS) {
    act_backward<1, 2, MAX_PIECES, IN_FLIGHT(1), false, true>(BACKWARD_ARGUMENTS);
}
