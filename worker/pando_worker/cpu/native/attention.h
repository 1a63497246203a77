// Attention of new tokens that reads the paged KV pool directly, without gathering it: one block of keys
// after the other, with the largest score so far (FlashAttention, arXiv:2205.14135). The keys of a block
// are packed by dimension, so that scores are sums down the columns; all queries of a group share them.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "bfloat.h"
#include "team.h"
#include "vectors.h"

struct Attend {
    const float* q;
    const void *k, *v;  // float or, where `halves`, bfloat16
    float* out;
    const int32_t *pages, *lengths, *extends;
    const float* sinks;
    const int32_t* seen;
    const float* biases;
    const int32_t* buckets;
    long rows, heads, kv_heads, dim, v_dim, q_stride, table_stride, page_size, window, distances;
    float scale, soft_cap;
    int halves;
    int latent;  // whether keys begin with their values, so that `k` has only the rest

    long k_dim() const { return latent ? dim - v_dim : dim; }
};

// The number of keys that the new token at this position sees if no window hides any: up to itself, and in
// an image also later ones.
inline long seen(const Attend& a, long token, long position) {
    return a.seen ? a.seen[token] : position + 1;
}

// Adjacent new tokens of a row, which see almost the same keys.
struct Queries {
    long row, token, position, count;
    long end;  // the number of keys that the last one sees
};

// A query of one head and its result over the keys so far: `out` holds the values weighted by
// exp(score - most), `total` the sum of these weights.
struct Pair {
    const float* q;
    float* out;
    long from, to;  // the keys it sees
    long position, head;
    float most;
    Vec total;  // its lanes add up to the sum
};

// Blocks begin at multiples of it whichever rows share a batch, so a row's sums do not depend on others.
constexpr long KEY_BLOCK = 64;

// Keys and values of a block and one head: keys [dim, KEY_BLOCK], values [KEY_BLOCK, v_dim].
struct Packed {
    const float *keys, *values;
    long begin, count;  // a multiple of 2 * VL; columns without a key are zero
};

// Scores of P queries and WIDTH vectors of keys.
template <int P, int WIDTH>
void score_at(const Attend& a, const Pair* pairs, const float* keys, float (*out)[KEY_BLOCK], long at) {
    Vec acc[P][WIDTH];
    for (int i = 0; i < P; ++i)
        for (int c = 0; c < WIDTH; ++c) acc[i][c] = Vec{};
    for (long d = 0; d < a.dim; ++d) {
        Vec k[WIDTH];
        for (int c = 0; c < WIDTH; ++c) k[c] = load(keys + d * KEY_BLOCK + at + c * VL);
        for (int i = 0; i < P; ++i) {
            Vec q = broadcast(pairs[i].q[d]);
            for (int c = 0; c < WIDTH; ++c) acc[i][c] = multiply_add(q, k[c], acc[i][c]);
        }
    }
    for (int i = 0; i < P; ++i)
        for (int c = 0; c < WIDTH; ++c) store(out[i] + at + c * VL, acc[i][c] * a.scale);
}

template <int P>
void score(const Attend& a, const Pair* pairs, const Packed& block, float (*out)[KEY_BLOCK]) {
    constexpr int WIDTH = P > 3 ? 2 : 4;
    long at = 0;
    for (; at + WIDTH * VL <= block.count; at += WIDTH * VL)
        score_at<P, WIDTH>(a, pairs, block.keys, out, at);
    if (at < block.count) score_at<P, 2>(a, pairs, block.keys, out, at);
}

// Adds the biases of the keys' distances; those of far keys are equal.
inline void add_biases(const Attend& a, const Pair& pair, long begin, long from, long to, float* s) {
    const float* biases = a.biases + pair.head;
    long last = a.distances - 1, near = std::clamp(pair.position - last - begin, from, to);
    float far = biases[a.buckets[last] * a.heads];
    for (long t = from; t < near; ++t) s[t] += far;
    for (long t = near; t < to; ++t) s[t] += biases[a.buckets[pair.position - begin - t] * a.heads];
}

// Turns scores into weights: 0 for keys that the query does not see.
inline void soften(const Attend& a, Pair& pair, long begin, long count, float* s) {
    long from = std::clamp(pair.from - begin, 0L, count);
    long to = std::clamp(pair.to - begin, 0L, count);
    if (from >= to) {
        std::fill_n(s, count, 0.0f);
        return;
    }
    if (to - from < count) {
        std::fill(s, s + from, -INFINITY);
        std::fill(s + to, s + count, -INFINITY);
    }
    if (a.soft_cap > 0)
        for (long t = from; t < to; ++t) s[t] = a.soft_cap * std::tanh(s[t] / a.soft_cap);
    if (a.biases) add_biases(a, pair, begin, from, to, s);
    Vec high = load(s);
    for (long t = VL; t < count; t += VL) high = larger(load(s + t), high);
    if (float most = largest(high); most > pair.most) {
        float factor = std::exp(pair.most - most);
        pair.most = most, pair.total *= factor;
        for (long at = 0; at < a.v_dim; ++at) pair.out[at] *= factor;
    }
    Vec total = pair.total;
    for (long t = 0; t < count; t += VL) {
        Vec e = exp_vec(load(s + t) - pair.most);
        store(s + t, e);
        total += e;
    }
    pair.total = total;
}

// Adds the values, by the weights of P queries, to the queries' results.
template <int P, int WIDTH>
void weigh_at(const Attend& a, const Pair* pairs, const Packed& block, const float (*weights)[KEY_BLOCK],
              long at) {
    Vec acc[P][WIDTH];
    for (int i = 0; i < P; ++i)
        for (int c = 0; c < WIDTH; ++c) acc[i][c] = load(pairs[i].out + at + c * VL);
    for (long t = 0; t < block.count; ++t) {
        Vec v[WIDTH];
        for (int c = 0; c < WIDTH; ++c) v[c] = load(block.values + t * a.v_dim + at + c * VL);
        for (int i = 0; i < P; ++i) {
            Vec w = broadcast(weights[i][t]);
            for (int c = 0; c < WIDTH; ++c) acc[i][c] = multiply_add(v[c], w, acc[i][c]);
        }
    }
    for (int i = 0; i < P; ++i)
        for (int c = 0; c < WIDTH; ++c) store(pairs[i].out + at + c * VL, acc[i][c]);
}

template <int P>
void weigh(const Attend& a, const Pair* pairs, const Packed& block, const float (*weights)[KEY_BLOCK]) {
    constexpr int WIDTH = P > 3 ? 2 : 4;
    long at = 0;
    for (; at + WIDTH * VL <= a.v_dim; at += WIDTH * VL) weigh_at<P, WIDTH>(a, pairs, block, weights, at);
    for (; at + VL <= a.v_dim; at += VL) weigh_at<P, 1>(a, pairs, block, weights, at);
    for (; at < a.v_dim; ++at)
        for (int i = 0; i < P; ++i)
            for (long t = 0; t < block.count; ++t)
                pairs[i].out[at] += block.values[t * a.v_dim + at] * weights[i][t];
}

template <int P>
void attend_few(const Attend& a, Pair* pairs, const Packed& block) {
    float scores[P][KEY_BLOCK];
    score<P>(a, pairs, block, scores);
    for (int i = 0; i < P; ++i) soften(a, pairs[i], block.begin, block.count, scores[i]);
    weigh<P>(a, pairs, block, scores);
}

inline void attend_block(const Attend& a, Pair* pairs, Pair* end, const Packed& block) {
    while (pairs < end && pairs->to <= block.begin) ++pairs;  // the first queries may see no key of it
    for (; end - pairs >= 6; pairs += 6) attend_few<6>(a, pairs, block);
    if (end - pairs >= 4) attend_few<4>(a, pairs, block), pairs += 4;
    if (end - pairs >= 2) attend_few<2>(a, pairs, block), pairs += 2;
    if (end - pairs >= 1) attend_few<1>(a, pairs, block);
}

// Keys and values of a block and one head where they are in the pool; those of columns without a key are
// zeros.
template <class Number>
struct InPlace {
    const Number *keys[KEY_BLOCK], *values[KEY_BLOCK];
    long begin, count;  // a multiple of 2 * VL
};

template <class Number, int WIDTH>
void weigh_in_place(const InPlace<Number>& block, const float* weights, float* out, long at) {
    Vec acc[WIDTH];
    for (int c = 0; c < WIDTH; ++c) acc[c] = load(out + at + c * VL);
    for (long t = 0; t < block.count; ++t) {
        Vec w = broadcast(weights[t]);
        for (int c = 0; c < WIDTH; ++c)
            acc[c] = multiply_add(load_wide(block.values[t] + at + c * VL), w, acc[c]);
    }
    for (int c = 0; c < WIDTH; ++c) store(out + at + c * VL, acc[c]);
}

// Scores of one query and a block's keys, of DIM dimensions; any number if 0. A number that the compiler
// knows lets it keep the query in registers.
template <int DIM, class Number>
void score_in_place(const Attend& a, const Pair& pair, const InPlace<Number>& block, float* scores) {
    const long dim = DIM ? DIM : a.dim;
    for (long t = 0; t < block.count; t += 4) {
        const Number* const* keys = block.keys + t;
        Vec acc[4] = {};
        for (long d = 0; d < dim; d += VL) {
            Vec q = load(pair.q + d);
            for (int i = 0; i < 4; ++i) acc[i] = multiply_add(q, load_wide(keys[i] + d), acc[i]);
        }
        sum4(acc[0], acc[1], acc[2], acc[3], scores + t);
    }
    for (long t = 0; t < block.count; t += VL) store(scores + t, load(scores + t) * a.scale);
}

// Attention of one query to a block, whose dimensions fill vectors. Packing keys costs more than it saves
// where each head has one query.
template <class Number>
void attend_in_place(const Attend& a, Pair& pair, const InPlace<Number>& block) {
    float scores[KEY_BLOCK];
    auto score = a.dim == 64    ? score_in_place<64, Number>
                 : a.dim == 128 ? score_in_place<128, Number>
                                : score_in_place<0, Number>;
    score(a, pair, block, scores);
    soften(a, pair, block.begin, block.count, scores);
    long at = 0;
    for (; at + 8 * VL <= a.v_dim; at += 8 * VL) weigh_in_place<Number, 8>(block, scores, pair.out, at);
    for (; at < a.v_dim; at += VL) weigh_in_place<Number, 1>(block, scores, pair.out, at);
}

// Blocks of equally many queries that share their first `shared` keys, a multiple of KEY_BLOCK.
struct Group {
    const Queries* blocks;
    long count, shared;
};

// Attention of a group for some KV heads and all query heads that use them. Each part of the keys is read
// for all heads before the next part, because the heads of a key are adjacent in memory.
class Attention {
  public:
    Attention(const Attend& a, Group group, Range kv_heads)
        : a_(a), group_(group), heads_(kv_heads), fan_(a.heads / a.kv_heads) {
        const Queries& some = *group.blocks;
        first_ = a.window > 0 ? std::max(0L, some.position + 1 - a.window) : 0;
        per_block_ = fan_ * some.count;
        in_place_ = per_block_ == 1 && a.dim % VL == 0 && a.v_dim % VL == 0 && !a.latent;
        thread_local std::vector<float> room;
        room.resize((a.dim + a.v_dim) * KEY_BLOCK + std::max(a.dim, a.v_dim));
        keys_ = room.data(), values_ = keys_ + a.dim * KEY_BLOCK, nothing_ = values_ + a.v_dim * KEY_BLOCK;
        // Attention with other dimensions may have had keys there. Their weights are zero, but zero times
        // what is not finite is not.
        std::fill_n(nothing_, std::max(a.dim, a.v_dim), 0.0f);
        for (long h = heads_.begin; h < heads_.end; ++h)
            for (long b = 0; b < group.count; ++b)
                for (long i = 0; i < per_block_; ++i) add(group.blocks[b], h, i);
    }

    void run() {
        pass(first_, group_.shared, 0, group_.count);
        for (long b = 0; b < group_.count; ++b)
            pass(std::max(first_, group_.shared), group_.blocks[b].end, b, b + 1);
        for (Pair& pair : pairs_) {
            float factor = 1 / sum(pair.total);
            for (long at = 0; at < a_.v_dim; ++at) pair.out[at] *= factor;
        }
    }

  private:
    void add(const Queries& block, long kv_head, long index) {
        long token = block.token + index / fan_, head = kv_head * fan_ + index % fan_;
        long position = block.position + index / fan_, to = seen(a_, token, position);
        long from = a_.window > 0 ? std::max(first_, position + 1 - a_.window) : first_;
        float* out = a_.out + (token * a_.heads + head) * a_.v_dim;
        std::fill_n(out, a_.v_dim, 0.0f);
        const float* q = a_.q + token * a_.q_stride + head * a_.dim;
        if (a_.sinks)  // a key without a value
            pairs_.push_back({q, out, from, to, position, head, a_.sinks[head], Vec{1}});
        else
            pairs_.push_back({q, out, from, to, position, head, -INFINITY, Vec{}});
    }

    // Passes some blocks of queries over the keys from begin to end, in order.
    void pass(long begin, long end, long first_block, long last_block) {
        for (long next; begin < end; begin = next) {
            next = std::min(end, (begin / KEY_BLOCK + 1) * KEY_BLOCK);
            for (long h = heads_.begin; h < heads_.end; ++h) {
                Pair* pairs = &pairs_[(h - heads_.begin) * group_.count * per_block_];
                Pair *from = pairs + first_block * per_block_, *to = pairs + last_block * per_block_;
                long row = group_.blocks[first_block].row;
                if (a_.halves)
                    attend<Bfloat>(from, to, row, h, begin, next);
                else
                    attend<float>(from, to, row, h, begin, next);
            }
        }
    }

    // Passes some queries over a block of the row's keys.
    template <class Number>
    void attend(Pair* from, Pair* to, long row, long kv_head, long begin, long end) {
        InPlace<Number> block = find<Number>(row, kv_head, begin, end);
        if (in_place_)
            for (; from < to; ++from) attend_in_place(a_, *from, block);
        else
            attend_block(a_, from, to, pack(block));
    }

    template <class Number>
    InPlace<Number> find(long row, long kv_head, long begin, long end) {
        InPlace<Number> block;
        block.begin = begin / KEY_BLOCK * KEY_BLOCK;
        block.count = (end - block.begin + 2 * VL - 1) / (2 * VL) * (2 * VL);
        std::fill_n(block.keys, block.count, reinterpret_cast<const Number*>(nothing_));
        std::fill_n(block.values, block.count, reinterpret_cast<const Number*>(nothing_));
        const int32_t* page = a_.pages + row * a_.table_stride + begin / a_.page_size;
        long k_dim = a_.k_dim();
        for (long at = begin, offset = at % a_.page_size; at < end; ++page, offset = 0) {
            long slot = *page * a_.page_size + offset;
            auto key = static_cast<const Number*>(a_.k) + (slot * a_.kv_heads + kv_head) * k_dim;
            auto value = static_cast<const Number*>(a_.v) + (slot * a_.kv_heads + kv_head) * a_.v_dim;
            for (; offset < a_.page_size && at < end; ++offset, ++at) {
                block.keys[at - block.begin] = key, block.values[at - block.begin] = value;
                key += a_.kv_heads * k_dim, value += a_.kv_heads * a_.v_dim;
            }
        }
        return block;
    }

    template <class Number>
    Packed pack(const InPlace<Number>& block) {
        for (long t = 0; t < block.count; ++t) widen(block.values[t], values_ + t * a_.v_dim, a_.v_dim);
        float* keys = keys_;
        if (a_.latent) {
            pack_columns(block.values, block.count, a_.v_dim, keys);
            keys += a_.v_dim * KEY_BLOCK;
        }
        pack_columns(block.keys, block.count, a_.k_dim(), keys);
        return {keys_, values_, block.begin, block.count};
    }

    // Rows of `dim` numbers as the columns of [dim, KEY_BLOCK].
    template <class Number>
    static void pack_columns(const Number* const* rows, long count, long dim, float* out) {
        constexpr long COLUMNS = sizeof(Vec) / sizeof(Number);
        for (long t = 0; t < count; t += VL) {
            long d = 0;
            for (; d + COLUMNS <= dim; d += COLUMNS)
                transpose(rows + t, d, out + d * KEY_BLOCK + t, KEY_BLOCK);
            for (; d < dim; ++d)
                for (int i = 0; i < VL; ++i) out[d * KEY_BLOCK + t + i] = widened(rows[t + i][d]);
        }
    }

    const Attend& a_;
    Group group_;
    Range heads_;
    long fan_, first_, per_block_;
    bool in_place_;  // by the model and the kind of row, not by the rows beside it
    std::vector<Pair> pairs_;  // by KV head, then by block
    float *keys_, *values_, *nothing_;  // keys and values of the current block; zeros
};

constexpr long QUERY_BLOCK = 64;
constexpr long GROUP_ROWS = 8;  // packing shared keys pays from so many decodes

// The number of keys that two rows have in the same slots.
inline long in_common(const Attend& a, long row, long other) {
    const int32_t *one = a.pages + row * a.table_stride, *two = a.pages + other * a.table_stride;
    long least = std::min(a.lengths[row], a.lengths[other]);
    long pages = std::mismatch(one, one + least / a.page_size, two).first - one;
    return pages * a.page_size / KEY_BLOCK * KEY_BLOCK;
}

// Calls `each` with each group of queries and its cost, the number of keys that it reads. Consecutive
// decodes that share a prefix form one group of at most `most` rows.
template <class Each>
void for_each_group(const Attend& a, long most, Each each) {
    std::vector<Queries> blocks;
    for (long r = 0, token = 0; r < a.rows;) {
        if (long extend = a.extends[r]; extend > 1) {
            long parts = (extend + QUERY_BLOCK - 1) / QUERY_BLOCK;
            for (long part = 0; part < parts; ++part) {
                long at = extend * part / parts, end = extend * (part + 1) / parts;
                long position = a.lengths[r] - extend + at, last = end - at - 1;
                long keys = seen(a, token + at + last, position + last);
                Queries block{r, token + at, position, end - at, keys};
                each(Group{&block, 1, 0}, block.end * block.count);
            }
            token += extend, ++r;
            continue;
        }
        long first = r, shared = 0, cost = 0;
        blocks.clear();
        while (true) {
            blocks.push_back({r, token, a.lengths[r] - 1L, 1, a.lengths[r]});
            cost += a.lengths[r];
            ++token, ++r;
            if (r == a.rows || a.extends[r] > 1 || a.window > 0 || r - first == most) break;
            long common = in_common(a, first, r);
            if (common == 0 || 2 * common < shared) break;
            shared = shared ? std::min(shared, common) : common;
        }
        each(Group{blocks.data(), static_cast<long>(blocks.size()), shared}, cost);
    }
}

// How many keys all queries of one head read.
inline long attend_cost(const Attend& a) {
    long total = 0;
    for (long r = 0; r < a.rows; ++r) total += long(a.lengths[r]) * a.extends[r];
    return total;
}

// Each thread walks through all groups and takes those that begin in its share of the cost.
inline void attend(const Attend& a, Team team) {
    long rows = std::max(GROUP_ROWS, a.rows / team.size);
    long heads = std::clamp(a.rows * a.kv_heads / team.size, 1L, a.kv_heads);
    long total = 0, before = 0;
    for_each_group(a, rows, [&](Group, long cost) { total += cost * a.kv_heads; });
    for_each_group(a, rows, [&](Group group, long cost) {
        for (long h = 0; h < a.kv_heads; h += heads) {
            Range some{h, std::min(h + heads, a.kv_heads)};
            if (before * team.size / total == team.me) Attention(a, group, some).run();
            before += cost * (some.end - some.begin);
        }
    });
}
