// Fused pointer attention for a CPU: glimpse, logits, clipping, masked softmax, and the selection of an
// action or the log-probability of a chosen one, forward and backward, in float32.
//
// The definition is the reference implementation in torch (PointerAttention, filter_logits). Nothing of
// size queries x nodes is ever stored, so the backward pass recomputes from what fits into the caches.
//
// Two layouts:
//   wide    a block of up to W queries of one instance, one query per vector lane; arrays over nodes or
//           dimensions hold one vector per entry. Forward and backward.
//   narrow  one query at a time, vector lanes over the dimensions of a head, then over nodes. For
//           decoding steps with few queries per instance.
// Both skip nodes that no query of the block may choose (if masks apply to glimpse and logits).
//
// This file is compiled once per instruction set (POINTER_LEVEL, POINTER_LANES; see build.py). All helpers
// have internal linkage, so that no level can end up with the code of another. The interface is plain C:
// functions named pointer_<name>_<level> that take a `Call` and a range of instances (or rows). Threads are
// the caller's business: instances are independent, so results do not depend on how they are split.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>

#ifndef POINTER_LEVEL
#define POINTER_LEVEL base
#define POINTER_LANES 4
#endif

#define INLINE static inline __attribute__((always_inline))
#define INLINE_METHOD inline __attribute__((always_inline))
#define JOIN_(a, b, c) a##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define EXPORT(name) extern "C" __attribute__((visibility("default"))) int JOIN(pointer_, name, POINTER_LEVEL)

// Stops the compiler from computing an address anew at every use.
#define KEEP_IN_REGISTER(pointer) asm("" : "+r"(pointer))

#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, decltype(as_int(a)){__VA_ARGS__})
#endif

// Arguments of all functions; mirrored field by field by `_Call` in pointer.py. Strides count entries, and
// the last axis of every tensor is contiguous. What a function does not use may be zero.
extern "C" struct Call {
    // Inputs: query [B, Q, D], key, value and logit_key [B, N, D], bias [B, N] or null, mask [B, Q, N].
    const float *query, *key, *value, *logit_key, *bias;
    const uint8_t *mask;
    int64_t query_batch, query_row, key_batch, key_row, value_batch, value_row, logit_key_batch,
        logit_key_row, bias_batch, mask_batch, mask_row;
    int64_t queries, nodes, heads, head_size;
    int64_t mask_inner, mask_logits;
    double temperature, clipping;
    // Outputs [B, Q] or inputs of the backward pass; logits [B, Q, N]. `uniform` is null for greedy.
    float *logits;
    const float *uniform;
    int64_t *action;
    float *log_prob, *entropy;
    // Kept for the backward pass: heads [B, Q, D], log2 of the sum of the glimpse's weights [B, Q, H],
    // log of the sum of the actions' weights [B, Q].
    float *glimpse, *glimpse_total, *total;
    // Gradients, all contiguous; `grad_entropy`, `grad_bias` may be null.
    const float *grad_log_prob, *grad_entropy;
    float *grad_query, *grad_key, *grad_value, *grad_logit_key, *grad_bias;
};

namespace {

// ---------------------------------------------------------------------------------------------- vectors

constexpr int W = POINTER_LANES;

template <int L> struct Vectors {
    typedef float Float __attribute__((vector_size(4 * L)));
    typedef int32_t Int __attribute__((vector_size(4 * L)));
};
typedef Vectors<W>::Float vf;
typedef Vectors<W>::Int vi;

constexpr float FORBIDDEN = -1e30f;  // added to scores; its exponential is zero, and it is finite
constexpr float LOG2_E = 1.44269504f, LOG_2 = 0.69314718f;

template <class V> INLINE auto as_int(V x) { return (typename Vectors<sizeof(V) / 4>::Int)x; }

template <class V> INLINE V load(const float *from) {
    V x;
    memcpy(&x, from, sizeof(V));
    return x;
}
template <class V> INLINE void store(float *to, V x) { memcpy(to, &x, sizeof(V)); }

INLINE vf splat(float x) { return vf{} + x; }

// The larger of both; NaN if x is.
INLINE vf at_least(vf x, vf lowest) { return x < lowest ? lowest : x; }

// 2^x for x of at most 127, to 2e-7; zero below -126. NaN stays.
INLINE vf exp2(vf x) {
    x = at_least(x, splat(-127.f));
    // Adding 1.5 * 2^23 rounds to a whole number k; with 127 more its low bits are the exponent of 2^k.
    const vf shifted = x + (12582912.f + 127.f);
    const vf f = x - (shifted - (12582912.f + 127.f));  // in [-1/2, 1/2]
    vf y = splat(1.3264740e-3f);
    y = y * f + 9.6715158e-3f;
    y = y * f + 5.5507336e-2f;
    y = y * f + 2.4022242e-1f;
    y = y * f + 6.9314700e-1f;
    y = y * f + 1.f;
    return y * (vf)(as_int(shifted) << 23);
}

INLINE vf exp(vf x) { return exp2(x * LOG2_E); }

// log2(x) for normal positive x; NaN stays.
INLINE vf log2(vf x) {
    const vi exponent = (as_int(x) - 0x3f3504f3) >> 23;  // of x / sqrt(1/2), so that m is close to 1
    const vf m = (vf)(as_int(x) - (exponent << 23));     // in [sqrt(1/2), sqrt(2))
    const vf u = (m - 1.f) / (m + 1.f), v = u * u;       // log(m) = 2 artanh(u)
    const vf series = u * (((v * (1 / 9.f) + 1 / 7.f) * v + 1 / 5.f) * v + 1 / 3.f) * v + u;
    const vf y = series * (2 * LOG2_E) + __builtin_convertvector(exponent, vf);
    return x == x ? y : x;
}

INLINE vf tanh(vf x) {
    const vi sign = as_int(x) & (int32_t)0x80000000;
    const vf e = exp2((vf)(as_int(x) ^ sign) * (-2 * LOG2_E));
    return (vf)(as_int((1.f - e) / (1.f + e)) | sign);
}

// Lanes of both halves in turn: a0 b0 a1 b1 ...; `interleave_high` starts in the middle.
INLINE Vectors<4>::Float interleave_low(Vectors<4>::Float a, Vectors<4>::Float b) {
    return SHUFFLE(a, b, 0, 4, 1, 5);
}
INLINE Vectors<4>::Float interleave_high(Vectors<4>::Float a, Vectors<4>::Float b) {
    return SHUFFLE(a, b, 2, 6, 3, 7);
}
#if POINTER_LANES >= 8
INLINE Vectors<8>::Float interleave_low(Vectors<8>::Float a, Vectors<8>::Float b) {
    return SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
INLINE Vectors<8>::Float interleave_high(Vectors<8>::Float a, Vectors<8>::Float b) {
    return SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
#endif
#if POINTER_LANES >= 16
INLINE Vectors<16>::Float interleave_low(Vectors<16>::Float a, Vectors<16>::Float b) {
    return SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
INLINE Vectors<16>::Float interleave_high(Vectors<16>::Float a, Vectors<16>::Float b) {
    return SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#endif

template <class V> constexpr int lanes_of() { return sizeof(V) / 4; }

// Transposes a square of L vectors with L lanes.
template <class V> INLINE void transpose(V *x) {
    constexpr int L = lanes_of<V>();
    V y[L];
    for (int size = 1; size < L; size *= 2) {
        for (int i = 0; i < L / 2; i++) {
            y[2 * i] = interleave_low(x[i], x[i + L / 2]);
            y[2 * i + 1] = interleave_high(x[i], x[i + L / 2]);
        }
        for (int i = 0; i < L; i++) x[i] = y[i];
    }
}

// Sums of L vectors with L lanes: lane j of the result is the sum of x[j]. Destroys x.
template <class V> INLINE V row_sums(V *x) {
    constexpr int L = lanes_of<V>();
    for (int half = L / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            x[i] = interleave_low(x[i], x[i + half]) + interleave_high(x[i], x[i + half]);
    return x[0];
}

template <class V> INLINE float sum(V x) {
    float total = 0;
    for (int i = 0; i < lanes_of<V>(); i++) total += x[i];
    return total;
}

// `live` rows of `size` floats to one vector per column; lanes behind the live ones are zero.
static void rows_to_lanes(const float *rows, int64_t stride, int live, int64_t size, vf *columns) {
    int64_t e = 0;
    for (; e + W <= size; e += W) {
        vf square[W];
        for (int i = 0; i < W; i++) square[i] = i < live ? load<vf>(rows + i * stride + e) : vf{};
        transpose(square);
        for (int i = 0; i < W; i++) columns[e + i] = square[i];
    }
    for (; e < size; e++) {
        vf column{};
        for (int i = 0; i < live; i++) column[i] = rows[i * stride + e];
        columns[e] = column;
    }
}

// Rows that are needed soon: hardware does not foresee jumps between so many.
INLINE void prefetch_rows(const float *rows, int64_t stride, int64_t count, int64_t size) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t e = 0; e < size; e += 16) __builtin_prefetch(rows + i * stride + e, 0, 2);
}

static void lanes_to_rows(const vf *columns, int64_t size, float *rows, int64_t stride, int live) {
    int64_t e = 0;
    for (; e + W <= size; e += W) {
        vf square[W];
        for (int i = 0; i < W; i++) square[i] = columns[e + i];
        transpose(square);
        for (int i = 0; i < W; i++)
            if (i < live) store(rows + i * stride + e, square[i]);
    }
    for (; e < size; e++)
        for (int i = 0; i < live; i++) rows[i * stride + e] = columns[e][i];
}

INLINE vf load_lanes(const float *from, int live) {
    vf x{};
    memcpy(&x, from, 4 * live);
    return x;
}
INLINE void store_lanes(float *to, vf x, int live) { memcpy(to, &x, 4 * live); }

// ---------------------------------------------------------------------------------------------- scratch

// Memory of one call, in aligned pieces.
struct Scratch {
    char *memory = nullptr, *next = nullptr;
    explicit Scratch(size_t bytes) {
        if (posix_memalign((void **)&memory, 64, bytes)) memory = nullptr;
        next = memory;
    }
    ~Scratch() { free(memory); }
    Scratch(const Scratch &) = delete;
    template <class T> T *take(int64_t count) {
        T *piece = (T *)next;
        next += (count * sizeof(T) + 63) / 64 * 64;
        return piece;
    }
};

// ---------------------------------------------------------------------------------------------- filter

// From raw to filtered logits: tanh clipping, then temperature. Masks come on top.
struct Filter {
    bool clips;
    float clipping, factor;

    explicit Filter(const Call &call)
        : clips(call.clipping > 0), clipping((float)call.clipping),
          factor((float)(1 / call.temperature)) {}

    INLINE_METHOD vf operator()(vf z) const { return (clips ? tanh(z) * clipping : z) * factor; }

    // Filtered logits and their derivative.
    INLINE_METHOD vf with_slope(vf z, vf &slope) const {
        slope = splat(factor);
        if (!clips) return z * factor;
        const vf t = tanh(z);
        slope *= clipping * (1.f - t * t);
        return t * (clipping * factor);
    }
};

// The bound of a draw, strictly below the total even after rounding (see sample_weights).
constexpr float BELOW_TOTAL = 1.f - 0x1p-20f;

// ---------------------------------------------------------------------------------------------- products
// Of lanes (one vector per entry) with the rows of a matrix, for a list of its rows. Tiles of T rows or
// columns keep T sums in registers.

struct Matrix {
    const float *data;
    int64_t stride;
    INLINE_METHOD const float *row(int64_t n) const { return data + n * stride; }
};

template <int T>
INLINE void dot_tile(const vf *x, int64_t size, Matrix matrix, const int32_t *nodes, vf *out) {
    const float *rows[T];
    vf sums[T];
    for (int j = 0; j < T; j++) rows[j] = matrix.row(nodes[j]), sums[j] = vf{};
    for (int j = 0; j < T; j++) KEEP_IN_REGISTER(rows[j]);
    for (int64_t e = 0; e < size; e++) {
        const vf column = x[e];
        for (int j = 0; j < T; j++) sums[j] += column * rows[j][e];
    }
    for (int j = 0; j < T; j++) out[j] = sums[j];
}

// out[m] = sum over e of x[e] * matrix[nodes[m]][e]
INLINE void dot_rows(
    const vf *x, int64_t size, Matrix matrix, const int32_t *nodes, int64_t count, vf *out) {
    int64_t m = 0;
    for (; m + 8 <= count; m += 8) dot_tile<8>(x, size, matrix, nodes + m, out + m);
    if (count - m >= 4) dot_tile<4>(x, size, matrix, nodes + m, out + m), m += 4;
    if (count - m >= 2) dot_tile<2>(x, size, matrix, nodes + m, out + m), m += 2;
    if (count - m >= 1) dot_tile<1>(x, size, matrix, nodes + m, out + m);
}

// out[e] = sum over m of weights[m] * matrix[nodes[m]][e], for a number of columns divisible by T
template <int T>
INLINE void sum_rows(
    const vf *weights, Matrix matrix, const int32_t *nodes, int64_t count, int64_t size, vf *out) {
    for (int64_t e = 0; e < size; e += T) {
        vf sums[T];
        for (int j = 0; j < T; j++) sums[j] = vf{};
        for (int64_t m = 0; m < count; m++) {
            const float *row = matrix.row(nodes[m]) + e;
            const vf weight = weights[m];
            for (int j = 0; j < T; j++) sums[j] += weight * row[j];
        }
        for (int j = 0; j < T; j++) out[e + j] = sums[j];
    }
}

// out[nodes[m]] += sum over lanes i of weights[m][i] * rows[i], for a number of columns divisible by 8
template <int L>
INLINE void add_outer(
    const vf *weights, Matrix rows, int live, const int32_t *nodes, int64_t count, int64_t size,
    float *out, int64_t stride) {
    typedef typename Vectors<L>::Float rf;
    for (int64_t e = 0; e < size; e += L) {
        rf x[W];
        for (int i = 0; i < W; i++) x[i] = i < live ? load<rf>(rows.row(i) + e) : rf{};
        for (int64_t m = 0; m < count; m++) {
            float *to = out + nodes[m] * stride + e;
            const float *weight = (const float *)&weights[m];
            rf even = load<rf>(to), odd{};
            for (int i = 0; i < W; i += 2) even += x[i] * weight[i], odd += x[i + 1] * weight[i + 1];
            store(to, even + odd);
        }
    }
}

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// The part of a tensor [B, rows, D] that belongs to instance b, from column e on.
INLINE Matrix part(const float *data, int64_t batch, int64_t row, int64_t b, int64_t e = 0) {
    return {data + b * batch + e, row};
}

// ---------------------------------------------------------------------------------------------- wide

// Queries of one instance in blocks, one per lane; d is the size of a head.
template <int d> class Wide {
    static constexpr int R = d < W ? d : W;              // lanes over the dimensions of a head
    static constexpr int T = d >= 16 && W == 16 ? 16 : 8;  // columns of a tile, half of the registers

    const Call &call;
    const Filter filter;
    const int64_t D, N;
    const float scale;  // of the glimpse's scores
    Scratch scratch;
    vf *query, *heads, *grad_heads, *grad_query;  // [D]
    vf *allow, *open;                             // [N], added to scores
    vf *logit, *score, *weight;                   // [N]
    float *rows;                                  // [W, D]
    uint16_t *bits;                               // [N], allowed lanes
    int32_t *nodes, *place;                       // [N], nodes of the block, and where a node is among them
    uint8_t *seen;                                // [N]

    // The block: queries first..first + live of an instance, and `count` nodes.
    int64_t instance = 0, first = 0, count = 0;
    int live = 0;
    vi alive{};  // lanes with an action

    static size_t bytes(int64_t D, int64_t N) {
        return (4 * D + 5 * N) * sizeof(vf) + W * D * sizeof(float) + N * (2 + 4 + 4 + 1) + 64 * 16;
    }

  public:
    explicit Wide(const Call &call)
        : call(call), filter(call), D(call.heads * d), N(call.nodes), scale(1 / __builtin_sqrtf(d)),
          scratch(bytes(D, N)) {
        if (!scratch.memory) return;
        for (vf **x : {&query, &heads, &grad_heads, &grad_query}) *x = scratch.take<vf>(D);
        for (vf **x : {&allow, &open, &logit, &score, &weight}) *x = scratch.take<vf>(N);
        rows = scratch.take<float>(W * D);
        bits = scratch.take<uint16_t>(N);
        nodes = scratch.take<int32_t>(N), place = scratch.take<int32_t>(N);
        seen = scratch.take<uint8_t>(N);
        for (int64_t n = 0; n < N; n++) open[n] = vf{};
    }

    bool has_memory() const { return scratch.memory; }

    // Logits of instance b, not filtered.
    void logits(int64_t b) {
        for (start(b); next_block(false);) {
            attend();
            score_actions();
            lanes_to_rows(logit, N, call.logits + row() * N, N, live);
        }
    }

    // Actions of instance b and their log-probabilities.
    void decide(int64_t b) {
        for (start(b); next_block(true);) {
            attend();
            score_actions();
            const vf highest = filter_logits();
            vf total{};
            for (int64_t m = 0; m < count; m++) total += weight[m] = exp(logit[m] - highest);
            const vi chosen = call.uniform ? draw(total) : best();
            const vf log_total = highest + log2(total) * LOG_2;
            for (int i = 0; i < live; i++) {
                const bool any = alive[i];
                const int64_t m = chosen[i];
                // Without an allowed action: what argmax and searchsorted return.
                const int64_t none = call.uniform ? N - 1 : 0;
                call.action[row() + i] = any && m < count ? nodes[m] : none;
                call.log_prob[row() + i] =
                    any ? logit[least(m, count - 1)][i] - log_total[i] : __builtin_nanf("");
            }
        }
    }

    // Log-probabilities and entropies of the actions of instance b; false if there is no such action.
    bool log_prob(int64_t b) {
        for (start(b); next_block(true);) {
            attend();
            score_actions();
            const vf highest = filter_logits();
            vf total{}, mean{};
            for (int64_t m = 0; m < count; m++) {
                const vf x = logit[m] - highest, w = exp(x);
                total += w, mean += w * x;
            }
            const vf nan = splat(__builtin_nanf("")), log_total = log2(total) * LOG_2;
            const vf log_all = highest + log_total;
            for (int i = 0; i < live; i++) {
                const int64_t action = call.action[row() + i];
                if (action < 0 || action >= N) return false;
                call.log_prob[row() + i] = !alive[i]              ? nan[i]
                                           : !allows(action, i)   ? -__builtin_inff()
                                                                  : logit[place[action]][i] - log_all[i];
            }
            if (call.entropy)
                store_lanes(call.entropy + row(), alive ? log_total - mean / total : nan, live);
            if (!call.glimpse) continue;  // no backward pass
            lanes_to_rows(heads, D, call.glimpse + row() * D, D, live);
            store_lanes(call.total + row(), log_all, live);
        }
        return true;
    }

    // Gradients of instance b from what `log_prob` kept.
    void backward(int64_t b) {
        float *grad_key = call.grad_key + b * N * D, *grad_value = call.grad_value + b * N * D;
        float *grad_logit_key = call.grad_logit_key + b * N * D;
        for (float *x : {grad_key, grad_value, grad_logit_key}) memset(x, 0, N * D * sizeof(float));
        if (call.grad_bias) memset(call.grad_bias + b * N, 0, N * sizeof(float));
        for (start(b); next_block(true);) {
            const Matrix block_queries = {queries().row(first), call.query_row};
            const Matrix block_heads = {call.glimpse + row() * D, D};
            load_query();
            rows_to_lanes(block_heads.data, D, live, D, heads);
            prefetch_rows(block_heads.row(live), D, following(), D);
            score_actions();
            grad_logits();  // in `logit`
            sum_rows<T>(logit, logit_keys(), nodes, count, D, grad_heads);
            add_outer<R>(logit, block_heads, live, nodes, count, D, grad_logit_key, D);
            lanes_to_rows(grad_heads, D, rows, D, W);
            for (int64_t h = 0; h < call.heads; h++) {
                const int64_t at = h * d;
                grad_scores(h);  // in `score`, and the weights in `weight`
                sum_rows<T>(score, keys(at), nodes, count, d, grad_query + at);
                add_outer<R>(score, {block_queries.data + at, block_queries.stride}, live, nodes, count, d,
                             grad_key + at, D);
                add_outer<R>(weight, {rows + at, D}, live, nodes, count, d, grad_value + at, D);
            }
            lanes_to_rows(grad_query, D, call.grad_query + row() * D, D, live);
        }
    }

  private:
    Matrix queries(int64_t e = 0) const { return part(call.query, call.query_batch, call.query_row, instance, e); }
    Matrix keys(int64_t e) const { return part(call.key, call.key_batch, call.key_row, instance, e); }
    Matrix values(int64_t e) const { return part(call.value, call.value_batch, call.value_row, instance, e); }
    Matrix logit_keys() const {
        return part(call.logit_key, call.logit_key_batch, call.logit_key_row, instance);
    }

    // The first query of the block, counted over all instances.
    int64_t row() const { return instance * call.queries + first; }

    // log2 of the sums of weights [B, H, Q] that a head of the block keeps.
    float *glimpse_total(int64_t h) const {
        return call.glimpse_total + (instance * call.heads + h) * call.queries + first;
    }

    bool allows(int64_t n, int lane) const { return !call.mask_logits || bits[n] >> lane & 1; }

    // ------------------------------------------------------------------------------------------ blocks

    void start(int64_t b) { instance = b, first = 0, live = 0; }

    // Takes the next queries, and the nodes that matter to them; false behind the last.
    bool next_block(bool may_skip) {
        first += live;
        if (first >= call.queries) return false;
        const bool masked = call.mask_inner || call.mask_logits;
        const bool skips = may_skip && call.mask_inner && call.mask_logits;
        const uint8_t *mask = call.mask + instance * call.mask_batch + first * call.mask_row;
        live = (int)least(W, call.queries - first);
        if (skips) live = similar(mask);
        if (masked) {
            memset(bits, 0, N * sizeof(*bits));
            for (int i = 0; i < live; i++)
                for (int64_t n = 0; n < N; n++)
                    bits[n] |= (uint16_t)((mask[i * call.mask_row + n] != 0) << i);
        }
        count = 0;
        for (int64_t n = 0; n < N; n++) {
            nodes[count] = (int32_t)n, place[n] = (int32_t)count;
            count += !skips || bits[n];
        }
        vi lane_bit, any{};
        for (int i = 0; i < W; i++) lane_bit[i] = 1 << i;
        if (masked)
            for (int64_t m = 0; m < count; m++) {
                const vi allowed = (vi{} + bits[nodes[m]]) & lane_bit;
                allow[m] = allowed != 0 ? vf{} : splat(FORBIDDEN);
                any |= allowed;
            }
        alive = call.mask_logits ? any != 0 : lane_bit != 0;
        return true;
    }

    // How many queries of the instance the next block has at most.
    int64_t following() const { return least(W, call.queries - first - live); }

    // How many of the next queries to take. Consecutive steps of a solution allow fewer and fewer nodes;
    // where the next solution begins, a block of its own is cheaper than another lane in this one.
    int similar(const uint8_t *mask) {
        const int most = (int)least(W, call.queries - first);
        if (!call.mask_row) return most;
        int64_t total = 0;
        for (int64_t n = 0; n < N; n++) total += (seen[n] = mask[n]) & 1;
        for (int i = 1; i < most; i++) {
            const uint8_t *other = mask + i * call.mask_row;
            int64_t added = 0;
            for (int64_t n = 0; n < N; n++) added += other[n] & ~seen[n] & 1;
            if (added > total) return i;
            if (!added) continue;
            total += added;
            for (int64_t n = 0; n < N; n++) seen[n] |= other[n];
        }
        return most;
    }

    // ------------------------------------------------------------------------------------------ forward

    // Queries, scaled so that the softmax of scores is one of powers of two.
    void load_query() {
        rows_to_lanes(queries().row(first), call.query_row, live, D, query);
        prefetch_rows(queries().row(first + live), call.query_row, following(), D);
        for (int64_t e = 0; e < D; e++) query[e] *= scale * LOG2_E;
    }

    // The glimpse: all heads.
    void attend() {
        load_query();
        const vf *inner = call.mask_inner ? allow : open;
        for (int64_t h = 0; h < call.heads; h++) {
            dot_rows(query + h * d, d, keys(h * d), nodes, count, score);
            vf highest = splat(2 * FORBIDDEN), total{};
            for (int64_t m = 0; m < count; m++) highest = at_least(score[m] += inner[m], highest);
            highest = highest < 0.5f * FORBIDDEN ? vf{} : highest;  // nothing to attend to
            for (int64_t m = 0; m < count; m++) total += score[m] = exp2(score[m] - highest);
            total = total == 0.f ? splat(1.f) : total;
            sum_rows<T>(score, values(h * d), nodes, count, d, heads + h * d);
            const vf inverse = 1.f / total;
            for (int e = 0; e < d; e++) heads[h * d + e] *= inverse;
            if (call.glimpse) store_lanes(glimpse_total(h), highest + log2(total), live);
        }
    }

    void score_actions() {
        dot_rows(heads, D, logit_keys(), nodes, count, logit);
        if (!call.bias) return;
        const float *bias = call.bias + instance * call.bias_batch;
        for (int64_t m = 0; m < count; m++) logit[m] += bias[nodes[m]];
    }

    // Filters and masks the logits, and returns the highest (zero without an action).
    vf filter_logits() {
        const vf *outer = call.mask_logits ? allow : open;
        vf highest = splat(2 * FORBIDDEN);
        for (int64_t m = 0; m < count; m++)
            highest = at_least(logit[m] = filter(logit[m]) + outer[m], highest);
        return alive ? highest : vf{};
    }

    // Where the highest logit is; the first of equal ones, or the first that is not a number.
    vi best() const {
        vf highest = logit[0];
        vi at{};
        for (int64_t m = 1; m < count; m++) {
            const vi better = (vi)(logit[m] > highest) | ((vi)(logit[m] != logit[m]) & (vi)(highest == highest));
            highest = better ? logit[m] : highest;
            at = better ? vi{} + (int32_t)m : at;
        }
        return at;
    }

    // Where the uniform numbers fall; `count` if weights are not numbers.
    vi draw(vf total) const {
        const vf bound = load_lanes(call.uniform + row(), live) * (total * BELOW_TOTAL);
        vf cumulative{};
        vi at{};
        for (int64_t m = 0; m < count; m++) {
            cumulative += weight[m];
            at += (vi)(cumulative > bound) + 1;  // a true comparison is -1
        }
        return at;
    }

    // ------------------------------------------------------------------------------------------ backward

    // Replaces the logits, not filtered, by their gradients.
    void grad_logits() {
        const vf *outer = call.mask_logits ? allow : open;
        vf upper = load_lanes(call.grad_log_prob + row(), live), upper_entropy{}, entropy{};
        const vf log_all = load_lanes(call.total + row(), live);
        if (call.grad_entropy) {
            upper_entropy = alive ? load_lanes(call.grad_entropy + row(), live) : vf{};
            entropy = alive ? load_lanes(call.entropy + row(), live) : vf{};
        }
        for (int i = 0; i < live; i++)
            if (!allows(call.action[row() + i], i)) upper[i] = 0;
        // d log p(a) / dz_j = [j = a] - p_j, d H / dz_j = -p_j (log p_j + H)
        for (int64_t m = 0; m < count; m++) {
            vf slope;
            const vf log_p = filter.with_slope(logit[m], slope) + outer[m] - log_all;
            score[m] = slope;
            logit[m] = -exp(log_p) * (upper + upper_entropy * (log_p + entropy));
        }
        for (int i = 0; i < live; i++) logit[place[call.action[row() + i]]][i] += upper[i];
        for (int64_t m = 0; m < count; m++) logit[m] *= score[m];
        if (!call.grad_bias) return;
        float *grad = call.grad_bias + instance * N;
        for (int64_t m = 0; m < count; m++) grad[nodes[m]] += sum(logit[m]);
    }

    // Weights of a head's glimpse in `weight`, and gradients of its scores in `score`.
    void grad_scores(int64_t h) {
        const vf *inner = call.mask_inner ? allow : open;
        const vf *grad = grad_heads + h * d;
        dot_rows(query + h * d, d, keys(h * d), nodes, count, score);
        dot_rows(grad, d, values(h * d), nodes, count, weight);
        vf mean{};
        for (int e = 0; e < d; e++) mean += grad[e] * heads[h * d + e];
        const vf total = load_lanes(glimpse_total(h), live);
        for (int64_t m = 0; m < count; m++) {
            const vf p = exp2(score[m] + inner[m] - total);
            score[m] = p * (weight[m] - mean) * scale;
            weight[m] = p;
        }
    }
};

// ---------------------------------------------------------------------------------------------- choice

// Chooses among the logits of one row. Arrays are padded to whole vectors.
class Chooser {
    const Filter filter;
    float *weight, *cumulative;

  public:
    Chooser(const Call &call, Scratch &scratch)
        : filter(call), weight(scratch.take<float>(call.nodes + W)),
          cumulative(scratch.take<float>(call.nodes + W)) {}

    static size_t bytes(int64_t N) { return 2 * ((N + W) * sizeof(float) + 64); }

    // Position of the action among `count` logits, not filtered and at least one; `count` if a draw falls
    // nowhere as there are no numbers. Replaces the logits by filtered ones.
    int64_t choose(float *logit, int64_t count, const float *uniform, float &log_prob) {
        const int64_t padded = (count + W - 1) / W * W;
        for (int64_t m = count; m < padded; m++) logit[m] = 0;
        for (int64_t m = 0; m < padded; m += W) store(logit + m, filter(load<vf>(logit + m)));
        for (int64_t m = count; m < padded; m++) logit[m] = 2 * FORBIDDEN;
        vf highs = splat(2 * FORBIDDEN), sums{};
        for (int64_t m = 0; m < padded; m += W) highs = at_least(load<vf>(logit + m), highs);
        float highest = highs[0];
        for (int i = 1; i < W; i++) highest = highs[i] > highest ? highs[i] : highest;
        for (int64_t m = 0; m < padded; m += W) {
            const vf w = exp(load<vf>(logit + m) - highest);
            store(weight + m, w);
            sums += w;
        }
        const float total = sum(sums);
        const int64_t at = uniform ? draw(count, *uniform) : best(logit, count, highest, total);
        log_prob = logit[least(at, count - 1)] - highest - log2(splat(total))[0] * LOG_2;
        return at;
    }

  private:
    static int64_t best(const float *logit, int64_t count, float highest, float total) {
        if (total != total)  // the first that is not a number
            for (int64_t m = 0; m < count; m++)
                if (logit[m] != logit[m]) return m;
        int64_t m = 0;
        while (m < count - 1 && logit[m] != highest) m++;
        return m;
    }

    int64_t draw(int64_t count, float uniform) {
        double total = 0;
        for (int64_t m = 0; m < count; m++) cumulative[m] = (float)(total += weight[m]);
        const float bound = uniform * (cumulative[count - 1] * BELOW_TOTAL);
        int32_t at = 0;
        for (int64_t m = 0; m < count; m++) at += !(cumulative[m] > bound);
        return at;
    }
};

// ---------------------------------------------------------------------------------------------- narrow

// One query at a time; d is the size of a head.
template <int d> class Narrow {
    static constexpr int R = d < W ? d : W;  // lanes over the dimensions of a head
    typedef typename Vectors<R>::Float rf;

    const Call &call;
    const int64_t D, N, pitch;  // of the scores of a head
    Scratch scratch;
    float *query, *heads;     // [D]
    float *score, *logit;     // [H, pitch], [pitch]
    int32_t *nodes, *inner;   // [N], those that may be chosen and that are attended to
    int64_t *all;
    Chooser chooser;

    static size_t bytes(const Call &call, int64_t D, int64_t pitch) {
        return (2 * D + (call.heads + 1) * pitch) * sizeof(float) + 2 * pitch * sizeof(int32_t) + 64 * 8 +
               Chooser::bytes(call.nodes);
    }

  public:
    explicit Narrow(const Call &call)
        : call(call), D(call.heads * d), N(call.nodes), pitch((call.nodes + 2 * W - 1) / W * W),
          scratch(bytes(call, D, pitch)), query(scratch.take<float>(D)), heads(scratch.take<float>(D)),
          score(scratch.take<float>(call.heads * pitch)), logit(scratch.take<float>(pitch)),
          nodes(scratch.take<int32_t>(pitch)), inner(scratch.take<int32_t>(pitch)),
          chooser(call, scratch) {}

    bool has_memory() const { return scratch.memory; }

    void logits(int64_t b) {
        for (int64_t q = 0; q < call.queries; q++) {
            attend(b, q);
            const int64_t count = list(b, q, false, nodes);
            score_actions(b, count);
            memcpy(call.logits + (b * call.queries + q) * N, logit, N * sizeof(float));
        }
    }

    void decide(int64_t b) {
        for (int64_t q = 0; q < call.queries; q++) {
            const int64_t row = b * call.queries + q;
            const int64_t count = list(b, q, call.mask_logits, nodes);
            if (!count) {  // what argmax and searchsorted return
                call.action[row] = call.uniform ? N - 1 : 0;
                call.log_prob[row] = __builtin_nanf("");
                continue;
            }
            attend(b, q);
            score_actions(b, count);
            const float *uniform = call.uniform ? call.uniform + row : nullptr;
            const int64_t at = chooser.choose(logit, count, uniform, call.log_prob[row]);
            call.action[row] = at < count ? nodes[at] : N - 1;
        }
    }

  private:
    // Lists the nodes that query q of instance b may use.
    int64_t list(int64_t b, int64_t q, bool masked, int32_t *out) const {
        const uint8_t *mask = call.mask + b * call.mask_batch + q * call.mask_row;
        int64_t count = 0;
        for (int64_t n = 0; n < N; n++) {
            out[count] = (int32_t)n;
            count += !masked || mask[n];
        }
        return count;
    }

    // Sums of products of x with rows nodes[0..R) of a matrix; rows behind the last are repeated.
    template <int size_of_head>
    INLINE_METHOD rf dots(const float *x, Matrix matrix, const int32_t *some, int64_t left, int64_t size) const {
        rf sums[R];
        for (int j = 0; j < R; j += 4) {
            const float *rows[4];
            rf tile[4];
            for (int k = 0; k < 4; k++) rows[k] = matrix.row(some[least(j + k, left - 1)]), tile[k] = rf{};
            for (int64_t e = 0; e < size; e += R) {
                const rf column = load<rf>(x + e);
                for (int k = 0; k < 4; k++) tile[k] += column * load<rf>(rows[k] + e);
            }
            for (int k = 0; k < 4; k++) sums[j + k] = tile[k];
        }
        return row_sums(sums);
    }

    void attend(int64_t b, int64_t q) {
        const Matrix keys = part(call.key, call.key_batch, call.key_row, b);
        const Matrix values = part(call.value, call.value_batch, call.value_row, b);
        const float *from = call.query + b * call.query_batch + q * call.query_row;
        const int64_t count = list(b, q, call.mask_inner, inner);
        const float scale = LOG2_E / __builtin_sqrtf(d);
        for (int64_t e = 0; e < D; e++) query[e] = from[e] * scale, heads[e] = 0;
        for (int64_t m = 0; m < count; m += R)
            for (int64_t h = 0; h < call.heads; h++)
                store(score + h * pitch + m,
                      dots<d>(query + h * d, {keys.data + h * d, keys.stride}, inner + m, count - m, d));
        for (int64_t h = 0; h < call.heads; h++) normalize(score + h * pitch, count);
        for (int64_t m = 0; m < count; m += R) {
            const int64_t end = least(m + R, count);
            for (int64_t h = 0; h < call.heads; h++) {
                const float *weight = score + h * pitch;
                rf sums[d / R];
                for (int c = 0; c < d / R; c++) sums[c] = load<rf>(heads + h * d + c * R);
                for (int64_t j = m; j < end; j++)
                    for (int c = 0; c < d / R; c++)
                        sums[c] += load<rf>(values.row(inner[j]) + h * d + c * R) * weight[j];
                for (int c = 0; c < d / R; c++) store(heads + h * d + c * R, sums[c]);
            }
        }
    }

    // The softmax, to the base of two, of a head's scores.
    static void normalize(float *score, int64_t count) {
        const int64_t padded = (count + W - 1) / W * W;
        for (int64_t m = count; m < padded; m++) score[m] = 2 * FORBIDDEN;
        vf highs = splat(2 * FORBIDDEN), sums{};
        for (int64_t m = 0; m < padded; m += W) highs = at_least(load<vf>(score + m), highs);
        float highest = highs[0];
        for (int i = 1; i < W; i++) highest = highs[i] > highest ? highs[i] : highest;
        for (int64_t m = 0; m < padded; m += W) {
            const vf w = exp2(load<vf>(score + m) - highest);
            store(score + m, w);
            sums += w;
        }
        const float inverse = 1 / sum(sums);
        for (int64_t m = 0; m < padded; m += W) store(score + m, load<vf>(score + m) * inverse);
    }

    void score_actions(int64_t b, int64_t count) {
        const Matrix logit_keys = part(call.logit_key, call.logit_key_batch, call.logit_key_row, b);
        for (int64_t m = 0; m < count; m += R)
            store(logit + m, dots<0>(heads, logit_keys, nodes + m, count - m, D));
        if (!call.bias) return;
        for (int64_t m = 0; m < count; m++) logit[m] += call.bias[b * call.bias_batch + nodes[m]];
    }
};

// Queries per instance up to which the narrow layout is faster.
constexpr int64_t NARROW = W / 2;

enum Status { DONE = 0, NO_MEMORY = 1, NO_SUCH_ACTION = 2, UNKNOWN_HEAD_SIZE = 3 };

template <int d> Status run_logits(const Call &call, int64_t begin, int64_t end) {
    if (call.queries <= NARROW) {
        Narrow<d> narrow(call);
        if (!narrow.has_memory()) return NO_MEMORY;
        for (int64_t b = begin; b < end; b++) narrow.logits(b);
        return DONE;
    }
    Wide<d> wide(call);
    if (!wide.has_memory()) return NO_MEMORY;
    for (int64_t b = begin; b < end; b++) wide.logits(b);
    return DONE;
}

template <int d> Status run_decide(const Call &call, int64_t begin, int64_t end) {
    if (call.queries <= NARROW) {
        Narrow<d> narrow(call);
        if (!narrow.has_memory()) return NO_MEMORY;
        for (int64_t b = begin; b < end; b++) narrow.decide(b);
        return DONE;
    }
    Wide<d> wide(call);
    if (!wide.has_memory()) return NO_MEMORY;
    for (int64_t b = begin; b < end; b++) wide.decide(b);
    return DONE;
}

template <int d> Status run_log_prob(const Call &call, int64_t begin, int64_t end) {
    Wide<d> wide(call);
    if (!wide.has_memory()) return NO_MEMORY;
    for (int64_t b = begin; b < end; b++)
        if (!wide.log_prob(b)) return NO_SUCH_ACTION;
    return DONE;
}

template <int d> Status run_backward(const Call &call, int64_t begin, int64_t end) {
    Wide<d> wide(call);
    if (!wide.has_memory()) return NO_MEMORY;
    for (int64_t b = begin; b < end; b++) wide.backward(b);
    return DONE;
}

}  // namespace

#define BY_HEAD_SIZE(function)                                   \
    switch (call->head_size) {                                   \
    case 8: return function<8>(*call, begin, end);               \
    case 16: return function<16>(*call, begin, end);             \
    case 32: return function<32>(*call, begin, end);             \
    default: return UNKNOWN_HEAD_SIZE;                           \
    }

// Raw logits [B, Q, N] of instances begin..end.
EXPORT(logits)(const Call *call, int64_t begin, int64_t end) { BY_HEAD_SIZE(run_logits) }

// Actions, drawn with uniform numbers or greedy, and their log-probabilities.
EXPORT(decide)(const Call *call, int64_t begin, int64_t end) { BY_HEAD_SIZE(run_decide) }

// Log-probabilities of given actions, and entropies.
EXPORT(log_prob)(const Call *call, int64_t begin, int64_t end) { BY_HEAD_SIZE(run_log_prob) }

// Gradients of these.
EXPORT(backward)(const Call *call, int64_t begin, int64_t end) { BY_HEAD_SIZE(run_backward) }

// The choice of `decide` from raw logits: rows begin..end of `logits` [B * Q, N].
EXPORT(select)(const Call *call, int64_t begin, int64_t end) {
    const int64_t N = call->nodes;
    Scratch scratch(Chooser::bytes(N) + (N + W) * (sizeof(float) + sizeof(int32_t)) + 128);
    if (!scratch.memory) return NO_MEMORY;
    Chooser chooser(*call, scratch);
    float *logit = scratch.take<float>(N + W);
    int32_t *nodes = scratch.take<int32_t>(N + W);
    for (int64_t row = begin; row < end; row++) {
        const int64_t b = row / call->queries, q = row % call->queries;
        const uint8_t *mask = call->mask + b * call->mask_batch + q * call->mask_row;
        int64_t count = 0;
        for (int64_t n = 0; n < N; n++) {
            nodes[count] = (int32_t)n, logit[count] = call->logits[row * N + n];
            count += !call->mask_logits || mask[n];
        }
        if (!count) {  // what argmax and searchsorted return
            call->action[row] = call->uniform ? N - 1 : 0;
            call->log_prob[row] = __builtin_nanf("");
            continue;
        }
        const float *uniform = call->uniform ? call->uniform + row : nullptr;
        const int64_t at = chooser.choose(logit, count, uniform, call->log_prob[row]);
        call->action[row] = at < count ? nodes[at] : N - 1;
    }
    return DONE;
}

#ifdef POINTER_DISPATCH
// Whether this processor can run the functions of a level.
extern "C" __attribute__((visibility("default"))) int pointer_runs(const char *level) {
#ifdef __x86_64__
    __builtin_cpu_init();
    if (!strcmp(level, "avx512"))
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (!strcmp(level, "avx2")) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return !strcmp(level, "base");
}
#endif
