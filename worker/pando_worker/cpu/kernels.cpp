// The model step's inner loops for CPUs, in float32: linear layers over few rows, normalisation,
// gated activations, rotary positions, and attention of one new token a row straight from the paged
// KV pool. Plain C functions on raw pointers, compiled for the machine they run on by build.py.
//
// At the few rows of a decode step the library behind torch packs the weights anew for each call,
// which costs more than the product. Here both operands are read as they lie: a tile of NR weight rows
// and MR input rows is NR x MR dot products along their common, contiguous dimension.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <omp.h>
#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int VL = 16;
#elif defined(__AVX2__)
constexpr int VL = 8;
#else
constexpr int VL = 4;
#endif

typedef float Vec __attribute__((vector_size(VL * 4)));
typedef float UnalignedVec __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int32_t IntVec __attribute__((vector_size(VL * 4)));

inline Vec load(const float* p) { return *reinterpret_cast<const UnalignedVec*>(p); }
inline Vec load_first(const float* p, long count) {  // and zeros
    Vec v = {};
    for (long i = 0; i < count; ++i) v[i] = p[i];
    return v;
}
inline void store(float* p, Vec v) { *reinterpret_cast<UnalignedVec*>(p) = v; }
inline Vec broadcast(float x) { return Vec{} + x; }

// a * b + c, rounded once. Left to the compiler, tiles of one sum would be rounded twice.
inline Vec multiply_add(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
    return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
    return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

inline float sum(Vec v) {
    float total = 0;
    for (int i = 0; i < VL; ++i) total += v[i];
    return total;
}

// The sums of four vectors' lanes.
#if defined(__AVX2__) && defined(__FMA__)
inline __m256 fold(Vec v) {
#if defined(__AVX512F__)
    return _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
#else
    return (__m256)v;
#endif
}
inline void sum4(Vec a, Vec b, Vec c, Vec d, float* out) {
    __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(fold(a), fold(b)), _mm256_hadd_ps(fold(c), fold(d)));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
}
#else
inline void sum4(Vec a, Vec b, Vec c, Vec d, float* out) {
    out[0] = sum(a), out[1] = sum(b), out[2] = sum(c), out[3] = sum(d);
}
#endif

// exp for x <= 88: 2^n * e^r with |r| <= ln 2 / 2, e^r by its Taylor series to r^6 (error 1.2e-7).
inline Vec exp_vec(Vec x) {
    x = x < broadcast(-87.0f) ? broadcast(-87.0f) : x;
    x = x > broadcast(88.0f) ? broadcast(88.0f) : x;
    Vec turns = x * 1.44269504f;
    IntVec n = __builtin_convertvector(turns + (turns < broadcast(0) ? broadcast(-0.5f) : broadcast(0.5f)), IntVec);
    Vec nf = __builtin_convertvector(n, Vec);
    Vec r = x - nf * 0.693359375f + nf * 2.12194440e-4f;  // ln 2 in two parts
    Vec p = broadcast(1.0f / 720);
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    IntVec bits = (n + 127) << 23;
    return p * (Vec)bits;
}

// out[i][j] = dot(x_i, w_j) for MR rows of x and NR rows of w, each of k floats. The sums of a pair of
// rows are the same to the last bit in tiles of any size.
template <int NR, int MR>
inline void tile(const float* const* w, const float* const* x, long k, float out[MR][NR]) {
    Vec acc[MR][NR] = {};
    auto step = [&](auto load_at) {
        Vec xv[MR];
        for (int i = 0; i < MR; ++i) xv[i] = load_at(x[i]);
        for (int j = 0; j < NR; ++j) {
            Vec wv = load_at(w[j]);
            for (int i = 0; i < MR; ++i) acc[i][j] = multiply_add(xv[i], wv, acc[i][j]);
        }
    };
    long at = 0;
    for (; at + VL <= k; at += VL) step([&](const float* p) { return load(p + at); });
    if (at < k)  // in the same order as all else: a tile's size must not show in its results
        step([&](const float* p) { return load_first(p + at, k - at); });
    for (int i = 0; i < MR; ++i) {
        int j = 0;
        for (; j + 4 <= NR; j += 4)
            sum4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3], &out[i][j]);
        for (; j < NR; ++j) out[i][j] = sum(acc[i][j]);
    }
}

struct Linear {
    const float *x, *w, *bias;
    float* y;
    long m, n, k, x_stride;
};

template <int NR, int MR>
inline void linear_tile(const Linear& a, long i, long j, long from, long len) {
    const float *w[NR], *x[MR];
    for (int r = 0; r < NR; ++r) w[r] = a.w + (j + r) * a.k + from;
    for (int r = 0; r < MR; ++r) x[r] = a.x + (i + r) * a.x_stride + from;
    float out[MR][NR];
    tile<NR, MR>(w, x, len, out);
    for (int r = 0; r < MR; ++r)
        for (int c = 0; c < NR; ++c) {
            float& y = a.y[(i + r) * a.n + j + c];
            y = out[r][c] + (from ? y : a.bias ? a.bias[j + c] : 0.0f);
        }
}

template <int NR>
inline void linear_rows(const Linear& a, long j, long from, long len) {
    constexpr int MR = VL == 16 ? 6 : 3;  // NR x MR sums, MR inputs and one weight in registers
    long i = 0;
    for (; i + MR <= a.m; i += MR) linear_tile<NR, MR>(a, i, j, from, len);
    for (; i + 2 <= a.m; i += 2) linear_tile<NR, 2>(a, i, j, from, len);
    for (; i < a.m; ++i) linear_tile<NR, 1>(a, i, j, from, len);
}

constexpr long K_BLOCK = 2048;  // weights of a tile stay in the first cache while all rows pass

void linear_columns(const Linear& a, long begin, long end) {
    for (long from = 0; from < a.k; from += K_BLOCK) {
        long len = std::min(K_BLOCK, a.k - from);
        long j = begin;
        if (a.m == 1)  // eight sums at once hide the latency of each
            for (; j + 8 <= end; j += 8) linear_tile<8, 1>(a, 0, j, from, len);
        for (; j + 4 <= end; j += 4) linear_rows<4>(a, j, from, len);
        for (; j < end; ++j) linear_rows<1>(a, j, from, len);
    }
}

// Threads that are worth waking for so many multiplications.
inline int threads_for(double work, int most) {
    return std::max(1, std::min<int>(most, static_cast<int>(work / 30000)));
}

float gelu_tanh(float x) {
    return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

struct Attend {
    const float *q, *k, *v;
    float* out;
    const int32_t *pages, *lengths, *extends;
    const float* sinks;
    long heads, kv_heads, dim, v_dim, q_stride, table_stride, page_size, window;
    float scale, soft_cap;
};

// Neighbouring new tokens of a row: they see almost the same keys.
struct Queries {
    long row, token, position, count;
};

// Scores of P queries, four keys at a time; the room behind the last key is written, too.
template <int P>
void score(const Attend& a, const float* const* q, const float* const* keys, long count, float* out,
           long stride) {
    for (long t = 0; t < count; t += 4) {
        const float* few[4];
        for (int c = 0; c < 4; ++c) few[c] = keys[std::min(t + c, count - 1)];
        float sums[P][4];
        tile<4, P>(few, q, a.dim, sums);
        for (int i = 0; i < P; ++i) std::memcpy(out + i * stride + t, sums[i], sizeof sums[i]);
    }
}

// Sums of values weighted by P queries' probabilities, times a factor each.
template <int P, int WIDTH>
void weigh_at(const Attend& a, const float* const* values, const float* probs, long stride, long count,
              float* const* out, const float* factors, long at) {
    Vec acc[P][WIDTH] = {};
    for (long t = 0; t < count; ++t) {
        Vec p[P];
        for (int i = 0; i < P; ++i) p[i] = broadcast(probs[i * stride + t]);
        for (int c = 0; c < WIDTH; ++c) {
            Vec v = load(values[t] + at + c * VL);
            for (int i = 0; i < P; ++i) acc[i][c] = multiply_add(v, p[i], acc[i][c]);
        }
    }
    for (int i = 0; i < P; ++i)
        for (int c = 0; c < WIDTH; ++c) store(out[i] + at + c * VL, acc[i][c] * factors[i]);
}

template <int P>
void weigh(const Attend& a, const float* const* values, const float* probs, long stride, long count,
           float* const* out, const float* factors) {
    long at = 0;
    for (; at + 4 * VL <= a.v_dim; at += 4 * VL)
        weigh_at<P, 4>(a, values, probs, stride, count, out, factors, at);
    for (; at + VL <= a.v_dim; at += VL)
        weigh_at<P, 1>(a, values, probs, stride, count, out, factors, at);
    for (; at < a.v_dim; ++at)
        for (int i = 0; i < P; ++i) {
            float acc = 0;
            for (long t = 0; t < count; ++t) acc += values[t][at] * probs[i * stride + t];
            out[i][at] = acc * factors[i];
        }
}

// Scores to exp(score - their maximum) where seen (from..to of count), to 0 where not; returns 1 over
// their sum. Whole vectors are read and written: there is room for VL floats behind the last.
float soften(const Attend& a, float* s, long from, long to, long count, long head) {
    if (a.soft_cap > 0)
        for (long t = from; t < to; ++t) s[t] = a.soft_cap * std::tanh(s[t] * a.scale / a.soft_cap);
    else
        for (long t = from; t < to; ++t) s[t] *= a.scale;
    float most = a.sinks ? a.sinks[head] : -INFINITY;
    for (long t = from; t < to; ++t) most = std::max(most, s[t]);
    for (long t = 0; t < from; ++t) s[t] = -INFINITY;
    for (long t = to; t < count + VL; ++t) s[t] = -INFINITY;
    Vec total = {};
    for (long t = 0; t < count; t += VL) {
        Vec x = load(s + t);
        Vec e = x == broadcast(-INFINITY) ? Vec{} : exp_vec(x - most);
        store(s + t, e);
        total += e;
    }
    return 1 / (sum(total) + (a.sinks ? std::exp(a.sinks[head] - most) : 0.0f));
}

struct Scratch {
    std::vector<float> scores;
    std::vector<const float*> keys, values;

    void reserve(size_t floats, size_t tokens) {
        if (scores.size() < floats) scores.resize(floats);
        if (keys.size() < tokens) keys.resize(tokens), values.resize(tokens);
    }
};

// All query heads of one KV head, for neighbouring queries: P (query, head) pairs at a time.
void attend_block(const Attend& a, const Queries& block, long kv_head) {
    thread_local Scratch scratch;
    long group = a.heads / a.kv_heads, last = block.position + block.count;
    long first = a.window > 0 ? std::max(0L, block.position + 1 - a.window) : 0;
    long stride = last - first + 2 * VL;
    scratch.reserve(stride * 3, last - first);
    const int32_t* pages = a.pages + block.row * a.table_stride;
    for (long at = first; at < last; ++at) {
        long slot = pages[at / a.page_size] * a.page_size + at % a.page_size;
        scratch.keys[at - first] = a.k + (slot * a.kv_heads + kv_head) * a.dim;
        scratch.values[at - first] = a.v + (slot * a.kv_heads + kv_head) * a.v_dim;
    }
    long pair = 0, pairs = block.count * group;
    auto run = [&](auto width) {
        constexpr int P = decltype(width)::value;
        const float* queries[P];
        float* out[P];
        float factors[P];
        // The last pair's query sees the most.
        long count = block.position + (pair + P - 1) / group + 1 - first;
        for (int i = 0; i < P; ++i) {
            long token = block.token + (pair + i) / group, head = kv_head * group + (pair + i) % group;
            queries[i] = a.q + token * a.q_stride + head * a.dim;
            out[i] = a.out + (token * a.heads + head) * a.v_dim;
        }
        score<P>(a, queries, scratch.keys.data(), count, scratch.scores.data(), stride);
        for (int i = 0; i < P; ++i) {
            long to = block.position + (pair + i) / group + 1;
            long from = a.window > 0 ? std::max(first, to - a.window) : first;
            factors[i] = soften(a, scratch.scores.data() + i * stride, from - first, to - first, count,
                                kv_head * group + (pair + i) % group);
        }
        weigh<P>(a, scratch.values.data(), scratch.scores.data(), stride, count, out, factors);
        pair += P;
    };
    // A single new token's pairs see the same keys; no triple wastes on another's.
    while (pair + 3 <= pairs) run(std::integral_constant<int, 3>());
    while (pair + 2 <= pairs) run(std::integral_constant<int, 2>());
    while (pair < pairs) run(std::integral_constant<int, 1>());
}

constexpr long QUERY_BLOCK = 16;

}  // namespace

extern "C" {

// Raised when a function's arguments change, so that an older library is never called.
int pando_abi() { return 1; }

// y [m, n] = x [m, k] . w [n, k]^T + bias [n]; rows of x lie x_stride floats apart, bias may be null.
void pando_linear(const float* x, long x_stride, const float* w, const float* bias, float* y, long m,
                  long n, long k, int threads) {
    Linear a{x, w, bias, y, m, n, k, x_stride};
    int used = threads_for(static_cast<double>(m) * n * k, threads);
    if (used == 1) return linear_columns(a, 0, n);
#pragma omp parallel num_threads(used)
    {
        long blocks = (n + 7) / 8, team = omp_get_num_threads(), me = omp_get_thread_num();
        linear_columns(a, blocks * me / team * 8, std::min(n, blocks * (me + 1) / team * 8));
    }
}

// y [m, k] = x / sqrt(mean(x^2) + eps) * (weight + shift), rows of x x_stride floats apart.
void pando_rms_norm(const float* x, long x_stride, const float* weight, float shift, float* y, long m,
                    long k, float eps) {
    for (long i = 0; i < m; ++i) {
        const float* row = x + i * x_stride;
        float* to = y + i * k;
        Vec squares = {};
        float rest = 0;
        long at = 0;
        for (; at + VL <= k; at += VL) squares += load(row + at) * load(row + at);
        for (; at < k; ++at) rest += row[at] * row[at];
        float factor = 1 / std::sqrt((sum(squares) + rest) / k + eps);
        for (at = 0; at + VL <= k; at += VL)
            store(to + at, load(row + at) * factor * (load(weight + at) + shift));
        for (; at < k; ++at) to[at] = row[at] * factor * (weight[at] + shift);
    }
}

// x [m, k] += added, and y [m, k] its norm as above; y may be `added`.
void pando_add_rms_norm(float* x, const float* added, const float* weight, float* y, long m, long k,
                        float eps) {
    for (long i = 0; i < m * k; ++i) x[i] += added[i];
    pando_rms_norm(x, k, weight, 0.0f, y, m, k, eps);
}

// out [m, n] = act(gate_up[:, :n]) * gate_up[:, n:]; act is silu (0) or gelu's tanh form (1).
void pando_gated(const float* gate_up, float* out, long m, long n, int act, int threads) {
#pragma omp parallel for num_threads(threads_for(double(m) * n * 4, threads)) if (m * n > 30000)
    for (long i = 0; i < m; ++i) {
        const float *gate = gate_up + i * 2 * n, *up = gate + n;
        float* to = out + i * n;
        long at = 0;
        if (act == 0)
            for (; at + VL <= n; at += VL) {
                Vec g = load(gate + at);
                store(to + at, g / (1.0f + exp_vec(-g)) * load(up + at));
            }
        for (; at < n; ++at) {
            float g = gate[at];
            to[at] = (act == 0 ? g / (1 + std::exp(-g)) : gelu_tanh(g)) * up[at];
        }
    }
}

// out [tokens, heads, dim] = x * cos + (x, halves swapped) * sin; cos and sin are [tokens, dim].
void pando_rotate(const float* x, long x_stride, const float* cos, const float* sin, float* out,
                  long tokens, long heads, long dim) {
    long half = dim / 2;
    for (long t = 0; t < tokens; ++t)
        for (long h = 0; h < heads; ++h) {
            const float *from = x + t * x_stride + h * dim, *c = cos + t * dim, *s = sin + t * dim;
            float* to = out + (t * heads + h) * dim;
            for (long i = 0; i < half; ++i) {
                float a = from[i], b = from[i + half];
                to[i] = a * c[i] + b * s[i];
                to[i + half] = b * c[i + half] + a * s[i + half];
            }
        }
}

// Rows of `width` floats into slots of the pool.
void pando_store(const float* x, long x_stride, const int64_t* slots, float* pool, long tokens,
                 long width) {
    for (long t = 0; t < tokens; ++t)
        std::memcpy(pool + slots[t] * width, x + t * x_stride, width * sizeof(float));
}

// Causal attention of the new tokens of all rows, which are in the pool already. Row r has the last
// extends[r] of its lengths[r] tokens in q [tokens, heads, dim] and out [tokens, heads, v_dim], one row
// after the other; pages is [rows, table_stride]. window 0 and soft_cap 0 mean none; sinks [heads]
// may be null.
void pando_attend(const float* q, long q_stride, const float* k, const float* v, float* out,
                  const int32_t* pages, long table_stride, const int32_t* lengths,
                  const int32_t* extends, const float* sinks, long rows, long heads, long kv_heads,
                  long dim, long v_dim, long page_size, long window, float scale, float soft_cap,
                  int threads) {
    Attend a{q,     k,        v,   out,   pages,    lengths,      extends,   sinks,
             heads, kv_heads, dim, v_dim, q_stride, table_stride, page_size, window,
             scale, soft_cap};
    std::vector<Queries> blocks;
    double keys = 0;
    for (long r = 0, token = 0; r < rows; token += extends[r++])
        for (long at = 0; at < extends[r]; at += QUERY_BLOCK) {
            long count = std::min(QUERY_BLOCK, extends[r] - at);
            blocks.push_back({r, token + at, lengths[r] - extends[r] + at, count});
            keys += double(lengths[r]) * count;
        }
    int used = threads_for(keys * heads * (dim + v_dim), threads);
    long items = static_cast<long>(blocks.size()) * kv_heads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(used) if (used > 1)
    for (long i = 0; i < items; ++i) attend_block(a, blocks[i / kv_heads], i % kv_heads);
}
}
