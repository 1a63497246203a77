// The inner loops of a model step on CPUs, in float32: plain C functions on raw pointers, which
// library.py compiles for the machine they run on. A recorded call keeps its arguments: the memory that
// they point to may change, and must live as long as the tape.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "attention.h"
#include "grouped.h"
#include "half.h"
#include "linear.h"
#include "logits.h"
#include "lora.h"
#include "team.h"
#include "vectors.h"

namespace {

// What weights consist of, as in ops.py.
enum Numbers { FLOATS, BFLOATS, HALVES };

// Both activations are x * sigmoid(something): silu (0), and gelu's tanh form (1).
template <class X>
inline X opening(X x, int act) {
    return act == 0 ? x : 1.5957691216f * (x + 0.044715f * x * x * x);
}

// y = x / sqrt(mean(x^2) + eps) * (weight + shift) of one row of k floats.
void norm_row(const float* x, const float* weight, float shift, float* y, long k, float eps) {
    Vec squares = {};
    float rest = 0;
    long at = 0;
    for (; at + VL <= k; at += VL) squares += load(x + at) * load(x + at);
    for (; at < k; ++at) rest += x[at] * x[at];
    float factor = 1 / std::sqrt((sum(squares) + rest) / k + eps);
    for (at = 0; at + VL <= k; at += VL)
        store(y + at, load(x + at) * factor * (load(weight + at) + shift));
    for (; at < k; ++at) y[at] = x[at] * factor * (weight[at] + shift);
}

// y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias of one row of k floats.
void layer_norm_row(const float* x, const float* weight, const float* bias, float* y, long k, float eps) {
    Vec total = {}, squares = {};
    float rest = 0;
    long at = 0;
    for (; at + VL <= k; at += VL) total += load(x + at);
    for (; at < k; ++at) rest += x[at];
    float mean = (sum(total) + rest) / k;
    rest = 0;
    for (at = 0; at + VL <= k; at += VL) {
        Vec off = load(x + at) - mean;
        squares += off * off;
    }
    for (; at < k; ++at) rest += (x[at] - mean) * (x[at] - mean);
    float factor = 1 / std::sqrt((sum(squares) + rest) / k + eps);
    for (at = 0; at + VL <= k; at += VL)
        store(y + at, (load(x + at) - mean) * factor * load(weight + at) + (bias ? load(bias + at) : Vec{}));
    for (; at < k; ++at) y[at] = (x[at] - mean) * factor * weight[at] + (bias ? bias[at] : 0.0f);
}

// x * (1 + erf(x / sqrt(2))) / 2; 1 - erf by Abramowitz and Stegun, 7.1.26 (error 1.5e-7).
inline Vec gelu(Vec x) {
    Vec z = larger(x, -x) * 0.70710678f, t = 1.0f / (1.0f + 0.3275911f * z);
    Vec p = broadcast(1.061405429f);
    p = multiply_add(p, t, broadcast(-1.453152027f));
    p = multiply_add(p, t, broadcast(1.421413741f));
    p = multiply_add(p, t, broadcast(-0.284496736f));
    p = multiply_add(p, t, broadcast(0.254829592f));
    Vec tail = 0.5f * x * (p * t * exp_vec(-z * z));
    return x < Vec{} ? tail : x - tail;
}

// Columns of act(gate) * up of one row; the first one is a multiple of VL.
void gate_row(const float* gate, const float* up, float* out, Range columns, int act) {
    long at = columns.begin;
    for (; at + VL <= columns.end; at += VL) {
        Vec g = load(gate + at);
        store(out + at, g / (1.0f + exp_vec(-opening(g, act))) * load(up + at));
    }
    for (; at < columns.end; ++at) {
        float g = gate[at];
        out[at] = g / (1 + std::exp(-opening(g, act))) * up[at];
    }
}

// The arguments of pando_linear.
template <class Number>
void linear(const float* x, long x_stride, const void* w, const float* bias, float* y, long m, long n, long k,
            int threads) {
    Linear<Number> a{x, static_cast<const Number*>(w), bias, y, m, n, k, x_stride};
    auto cost = [=] { return double(m) * n * k; };
    run(threads, cost, [=](Team team) { linear_columns(a, team.share(n, 8)); });
}

template <class Number>
void embed_row(const void* table, long id, float* out, long width) {
    widen(static_cast<const Number*>(table) + id * width, out, width);
}

// x * cos + (x, halves swapped) * sin, of one head.
void rotate_head(const float* x, const float* cos, const float* sin, float* out, long dim) {
    long half = dim / 2;
    for (long i = 0; i < half; ++i) {
        float a = x[i], b = x[i + half];
        out[i] = a * cos[i] + b * sin[i];
        out[i + half] = b * cos[i + half] + a * sin[i + half];
    }
}

}  // namespace

extern "C" {

Tape* pando_tape_new() { return new Tape; }
void pando_tape_free(Tape* tape) { delete tape; }

// From now on this thread's calls are recorded on the tape as well as made, until it is null.
void pando_record(Tape* tape) { recording = tape; }

// Repeats the calls on the tape.
void pando_play(Tape* tape, int threads) { play(*tape, threads); }

// y [m, n] = x [m, k] . w [n, k]^T + bias [n]; rows of x are x_stride floats apart; bias may be null. The
// weights are Numbers.
void pando_linear(const float* x, long x_stride, const void* w, const float* bias, float* y, long m, long n,
                  long k, int numbers, int threads) {
    auto of = numbers == FLOATS ? linear<float> : numbers == BFLOATS ? linear<Bfloat> : linear<Half>;
    of(x, x_stride, w, bias, y, m, n, k, threads);
}

// h [tokens of the step, sections, most rank] = scale * x . A^T of the step's adapters, see lora.h. The
// step's tokens and their slots are sorted by slot; `count` is how many there are now.
void pando_lora_shrink(const LoraSite* site, const float* x, long x_stride, const int32_t* tokens,
                       const int32_t* slots, const int32_t* count, float* h, int threads) {
    Shrink a{*site, {tokens, slots, count}, x, x_stride, h};
    auto cost = [=] { return lora_cost(a.site, a.step, true); };
    run(threads, cost, [=](Team team) {
        a.site.halves ? shrink<Bfloat>(a, team) : shrink<float>(a, team);
    });
}

// y [num_tokens, columns] += h . B^T.
void pando_lora_expand(const LoraSite* site, const float* h, const int32_t* tokens, const int32_t* slots,
                       const int32_t* count, float* y, long y_stride, long columns, int threads) {
    Expand a{*site, {tokens, slots, count}, h, y, y_stride};
    auto cost = [=] { return lora_cost(a.site, a.step, false); };
    run(threads, cost, [=](Team team) {
        Range mine = team.share(columns, 4 * LINE);
        a.site.halves ? expand<Bfloat>(a, mine) : expand<float>(a, mine);
    });
}

// Quantizes rows of x [m, k] to bytes for the product below, with its `group`; see QuantizedRows.
void pando_quantize(const float* x, long x_stride, long m, long k, int group, int8_t* values,
                    float* scales, float* sums, int threads) {
    long runs = (k + RUN - 1) / RUN;
    auto cost = [=] { return double(m) * k * 8; };
    run(threads, cost, [=](Team team) {
        Range rows = team.share(m, 1);
        for (long i = rows.begin; i < rows.end; ++i)
            quantize_row(x + i * x_stride, k, group, values + i * runs * RUN, scales + i * runs,
                         sums + i * runs * RUN / group);
    });
}

// y [m, n] = x . w^T + bias [n] of quantized rows and weights; rows of y are y_stride floats apart; bias
// may be null.
void pando_grouped_linear(const int8_t* values, const float* scales, const float* sums,
                          const uint8_t* weight, const void* weight_scales, const void* minimums,
                          int bits, int group, int halves, const float* bias, float* y, long y_stride,
                          long m, long n, long k, int threads) {
    GroupedWeight w{weight, weight_scales, minimums, n, k, bits, group, halves};
    GroupedProduct a{w, {values, scales, sums}, bias, y, m, y_stride};
    auto cost = [=] { return double(m) * n * k / 4 + double(n) * k / 4; };
    run(threads, cost, [=](Team team) { grouped_product(a, team.share(a.weight.tiles(), 1)); });
}

// Rows `ids` of a quantized table [rows, width]; NaN for an id outside the table.
void pando_grouped_embed(const int64_t* ids, const uint8_t* weight, const void* scales,
                         const void* minimums, int bits, int group, int halves, float* out, long tokens,
                         long rows, long width) {
    GroupedWeight w{weight, scales, minimums, rows, width, bits, group, halves};
    run(1, [] { return 0.0; }, [=](Team team) {
        Range mine = team.share(tokens, 1);
        for (long t = mine.begin; t < mine.end; ++t)
            if (0 <= ids[t] && ids[t] < rows)
                grouped_row(w, ids[t], out + t * width);
            else
                std::fill_n(out + t * width, width, NAN);
    });
}

// y [m, k] = x / sqrt(mean(x^2) + eps) * (weight + shift), rows of x x_stride floats apart.
void pando_rms_norm(const float* x, long x_stride, const float* weight, float shift, float* y, long m,
                    long k, float eps) {
    run(1, [] { return 0.0; }, [=](Team team) {
        Range rows = team.share(m, 1);
        for (long i = rows.begin; i < rows.end; ++i)
            norm_row(x + i * x_stride, weight, shift, y + i * k, k, eps);
    });
}

// y [m, k] = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias of each row of x [m, k]; bias may be
// null.
void pando_layer_norm(const float* x, const float* weight, const float* bias, float* y, long m, long k,
                      float eps, int threads) {
    auto cost = [=] { return double(m) * k * 2; };
    run(threads, cost, [=](Team team) {
        Range rows = team.share(m, 1);
        for (long i = rows.begin; i < rows.end; ++i)
            layer_norm_row(x + i * k, weight, bias, y + i * k, k, eps);
    });
}

// out [count] = x + y
void pando_add(const float* x, const float* y, float* out, long count, int threads) {
    auto cost = [=] { return double(count); };
    run(threads, cost, [=](Team team) {
        Range mine = team.share(count, LINE);
        for (long at = mine.begin; at < mine.end; ++at) out[at] = x[at] + y[at];
    });
}

// out [count] = gelu(x), with the error function
void pando_gelu(const float* x, float* out, long count, int threads) {
    auto cost = [=] { return double(count) * 8; };
    run(threads, cost, [=](Team team) {
        Range mine = team.share(count, LINE);
        long at = mine.begin;
        for (; at + VL <= mine.end; at += VL) store(out + at, gelu(load(x + at)));
        if (at < mine.end) {
            Vec last = gelu(load_first(x + at, mine.end - at));
            for (long i = 0; at + i < mine.end; ++i) out[at + i] = last[i];
        }
    });
}

// x [m, k] += added; y [m, k] is its norm as above. y may be `added`.
void pando_add_rms_norm(float* x, const float* added, const float* weight, float shift, float* y,
                        long m, long k, float eps) {
    run(1, [] { return 0.0; }, [=](Team team) {
        Range rows = team.share(m, 1);
        for (long i = rows.begin; i < rows.end; ++i) {
            for (long at = i * k; at < (i + 1) * k; ++at) x[at] += added[at];
            norm_row(x + i * k, weight, shift, y + i * k, k, eps);
        }
    });
}

// out [m, n] = act(gate_up[:, :n]) * gate_up[:, n:]; act is silu (0) or gelu's tanh form (1).
void pando_gated(const float* gate_up, float* out, long m, long n, int act, int threads) {
    auto cost = [=] { return double(m) * n * 4; };
    run(threads, cost, [=](Team team) {
        Range columns = team.share(n, LINE);
        for (long i = 0; i < m; ++i) {
            const float* gate = gate_up + i * 2 * n;
            gate_row(gate, gate + n, out + i * n, columns, act);
        }
    });
}

// Rows `ids` of a table [rows, width] of Numbers; NaN for an id outside the table.
void pando_embed(const int64_t* ids, const void* table, float* out, long tokens, long rows, long width,
                 int numbers) {
    auto row = numbers == FLOATS ? embed_row<float> : numbers == BFLOATS ? embed_row<Bfloat> : embed_row<Half>;
    run(1, [] { return 0.0; }, [=](Team team) {
        Range mine = team.share(tokens, 1);
        for (long t = mine.begin; t < mine.end; ++t)
            if (0 <= ids[t] && ids[t] < rows)
                row(table, ids[t], out + t * width, width);
            else
                std::fill_n(out + t * width, width, NAN);
    });
}

// The arguments of `pando_rotate` from positions and radians per position [half]: cosines, repeated, and
// sines, the first half negated. Both are [tokens, 2 * half], times scale.
void pando_angles(const int64_t* positions, const float* frequencies, float scale, float* cos,
                  float* sin, long tokens, long half) {
    run(1, [] { return 0.0; }, [=](Team team) {
        Range mine = team.share(tokens, 1);
        for (long t = mine.begin; t < mine.end; ++t)
            for (long i = 0; i < half; ++i) {
                float turn = positions[t] * frequencies[i];
                float *c = cos + t * 2 * half + i, *s = sin + t * 2 * half + i;
                c[0] = c[half] = std::cos(turn) * scale;
                s[half] = std::sin(turn) * scale;
                s[0] = -s[half];
            }
    });
}

// The largest of each row's n values and its first index; NaN if the row has one.
void pando_best(const float* x, long x_stride, float* best, int64_t* tokens, long rows, long n,
                int threads) {
    auto cost = [=] { return double(rows) * n / 4; };
    run(threads, cost, [=](Team team) {
        Range mine = team.share(rows, 1);
        for (long r = mine.begin; r < mine.end; ++r) best_of(x + r * x_stride, n, best + r, tokens + r);
    });
}

// totals [rows] = log(sum(exp(x))) of rows of x of n values, x_stride floats apart.
void pando_totals(const float* x, long x_stride, float* totals, long rows, long n, int threads) {
    auto cost = [=] { return double(rows) * n * 4; };
    run(threads, cost, [=](Team team) {
        Range mine = team.share(rows, 1);
        for (long r = mine.begin; r < mine.end; ++r) totals[r] = total_of(x + r * x_stride, n);
    });
}

// Adds -inf to the values of x [rows, n] whose bits in mask [rows, mask_stride] are not set; rows of x are
// x_stride floats apart.
void pando_forbid(float* x, long x_stride, const int32_t* mask, long mask_stride, long rows, long n,
                  int threads) {
    auto cost = [=] { return double(rows) * n / 2; };
    run(threads, cost, [=](Team team) {
        Range mine = team.share(rows, 1);
        for (long r = mine.begin; r < mine.end; ++r) forbid(x + r * x_stride, mask + r * mask_stride, n);
    });
}

// out [tokens, heads, dim] = x * cos + (x, halves swapped) * sin; cos and sin are [tokens, dim].
void pando_rotate(const float* x, long x_stride, const float* cos, const float* sin, float* out,
                  long tokens, long heads, long dim) {
    run(1, [] { return 0.0; }, [=](Team team) {
        Range mine = team.share(tokens, 1);
        for (long t = mine.begin; t < mine.end; ++t)
            for (long h = 0; h < heads; ++h)
                rotate_head(x + t * x_stride + h * dim, cos + t * dim, sin + t * dim,
                            out + (t * heads + h) * dim, dim);
    });
}

// Writes rows of `width` floats into slots of the pool, as bfloat16 if `halves`.
void pando_store(const float* x, long x_stride, const int64_t* slots, void* pool, long tokens, long width,
                 int halves) {
    run(1, [] { return 0.0; }, [=](Team team) {
        Range mine = team.share(tokens, 1);
        for (long t = mine.begin; t < mine.end; ++t)
            if (halves)
                narrow(x + t * x_stride, static_cast<Bfloat*>(pool) + slots[t] * width, width);
            else
                narrow(x + t * x_stride, static_cast<float*>(pool) + slots[t] * width, width);
    });
}

// Attention of the new tokens of all rows, whose keys and values are already in the pool.
// q [tokens, heads, dim] and out [tokens, heads, v_dim] hold the rows one after the other: of row r the
// last extends[r] of its lengths[r] tokens. pages is [rows, table_stride]. window 0 and soft_cap 0 mean
// none; sinks [heads] may be null. seen [tokens] is the number of its row's tokens that each new token
// sees, ascending in each row; if null, a token sees those up to itself. biases [.., heads] may be null; to
// the score of a key d tokens before its query is added the row buckets[min(d, distances - 1)] of it, and
// then no token sees later ones. Where `latent`, a key's first v_dim of dim dimensions are its value, and k
// has only the others.
void pando_attend(const float* q, long q_stride, const void* k, const void* v, float* out,
                  const int32_t* pages, long table_stride, const int32_t* lengths,
                  const int32_t* extends, const float* sinks, const int32_t* seen,
                  const float* biases, const int32_t* buckets, long distances, long rows,
                  long heads, long kv_heads, long dim, long v_dim, long page_size, long window,
                  float scale, float soft_cap, int halves, int latent, int threads) {
    Attend a{q,      k,       v,    out,   pages,    lengths,      extends,   sinks,  seen,
             biases, buckets, rows, heads, kv_heads, dim,          v_dim,     q_stride,
             table_stride,    page_size,   window,   distances,    scale,     soft_cap, halves,
             latent};
    auto cost = [=] { return double(attend_cost(a)) * heads * (dim + v_dim); };
    run(threads, cost, [=](Team team) { attend(a, team); });
}
}
