// Attention of new tokens straight from the paged KV pool, nothing gathered.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "linear.h"
#include "team.h"

struct Attend {
    const float *q, *k, *v;
    float* out;
    const int32_t *pages, *lengths, *extends;
    const float* sinks;
    long rows, heads, kv_heads, dim, v_dim, q_stride, table_stride, page_size, window;
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
inline float soften(const Attend& a, float* s, long from, long to, long count, long head) {
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
inline void attend_block(const Attend& a, const Queries& block, long kv_head) {
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

// Calls `each` with all blocks of neighbouring new tokens and what each costs: the keys it reads.
template <class Each>
void for_each_block(const Attend& a, Each each) {
    for (long r = 0, token = 0; r < a.rows; token += a.extends[r++])
        for (long at = 0; at < a.extends[r]; at += QUERY_BLOCK) {
            long count = std::min<long>(QUERY_BLOCK, a.extends[r] - at);
            each(Queries{r, token + at, a.lengths[r] - a.extends[r] + at, count}, a.lengths[r] * count);
        }
}

// Keys read by all queries of one head.
inline long attend_cost(const Attend& a) {
    long total = 0;
    for_each_block(a, [&](const Queries&, long cost) { total += cost; });
    return total;
}

// Every thread walks through all blocks and takes those that begin in its part of the cost.
inline void attend(const Attend& a, Team team) {
    long total = attend_cost(a) * a.kv_heads, before = 0;
    for_each_block(a, [&](const Queries& block, long cost) {
        for (long head = 0; head < a.kv_heads; ++head, before += cost)
            if (before * team.size / total == team.me) attend_block(a, block, head);
    });
}
