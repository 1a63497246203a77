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

    long end() const { return position + count; }  // keys that the last one sees
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

// Adds values weighted by P queries' probabilities to what they have.
template <int P, int WIDTH>
void weigh_at(const float* const* values, const float* probs, long stride, long count,
              float* const* out, long at) {
    Vec acc[P][WIDTH];
    for (int i = 0; i < P; ++i)
        for (int c = 0; c < WIDTH; ++c) acc[i][c] = load(out[i] + at + c * VL);
    for (long t = 0; t < count; ++t) {
        Vec p[P];
        for (int i = 0; i < P; ++i) p[i] = broadcast(probs[i * stride + t]);
        for (int c = 0; c < WIDTH; ++c) {
            Vec v = load(values[t] + at + c * VL);
            for (int i = 0; i < P; ++i) acc[i][c] = multiply_add(v, p[i], acc[i][c]);
        }
    }
    for (int i = 0; i < P; ++i)
        for (int c = 0; c < WIDTH; ++c) store(out[i] + at + c * VL, acc[i][c]);
}

template <int P>
void weigh(const Attend& a, const float* const* values, const float* probs, long stride, long count,
           float* const* out) {
    long at = 0;
    for (; at + 4 * VL <= a.v_dim; at += 4 * VL) weigh_at<P, 4>(values, probs, stride, count, out, at);
    for (; at + VL <= a.v_dim; at += VL) weigh_at<P, 1>(values, probs, stride, count, out, at);
    for (; at < a.v_dim; ++at)
        for (int i = 0; i < P; ++i)
            for (long t = 0; t < count; ++t) out[i][at] += values[t][at] * probs[i * stride + t];
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

// Calls `each` with the size and the beginning of each few of `count` things.
template <class Each>
void by_threes(long begin, long end, Each each) {
    for (; begin + 3 <= end; begin += 3) each(std::integral_constant<int, 3>(), begin);
    if (begin + 2 <= end) each(std::integral_constant<int, 2>(), begin), begin += 2;
    if (begin < end) each(std::integral_constant<int, 1>(), begin);
}

constexpr long KEY_BLOCK = 128;       // keys that stay in the first caches while queries pass
constexpr long MOST_SCORES = 1 << 16;  // that are kept at once, so as to stay there, too

// Blocks of as many queries each, that share their first keys: `shared`, a multiple of four.
struct Group {
    const Queries* blocks;
    long count, shared;
};

// Attention of a group with some KV heads and all query heads of these. A part of the keys is read for
// all heads before the next one: they lie side by side, and in pages of memory of their own.
class Attention {
  public:
    Attention(const Attend& a, Group group, Range kv_heads)
        : a_(a), group_(group), heads_(kv_heads), fan_(a.heads / a.kv_heads) {
        const Queries& some = *group.blocks;
        first_ = a.window > 0 ? std::max(0L, some.position + 1 - a.window) : 0;
        long most = 0;
        for (long b = 0; b < group.count; ++b) most = std::max(most, group.blocks[b].end());
        stride_ = most - first_ + 2 * VL;
        per_block_ = fan_ * some.count;
        for (long h = heads_.begin; h < heads_.end; ++h)
            for (long b = 0; b < group.count; ++b)
                for (long i = 0; i < per_block_; ++i) add(group.blocks[b], h, i);
    }

    void run() {
        thread_local std::vector<float> scores;
        if (scores.size() < pairs_.size() * stride_) scores.resize(pairs_.size() * stride_);
        scores_ = scores.data();
        for_each_part([&](auto few, long pair, long at, long count) {
            score<decltype(few)::value>(a_, &queries_[pair], keys_, count,
                                        scores_ + pair * stride_ + at - first_, stride_);
        });
        for (size_t i = 0; i < pairs_.size(); ++i) {
            Pair& p = pairs_[i];
            p.factor = soften(a_, scores_ + i * stride_, p.from - first_, p.to - first_, p.end - first_,
                              p.head);
        }
        for_each_part([&](auto few, long pair, long at, long count) {
            weigh<decltype(few)::value>(a_, values_, scores_ + pair * stride_ + at - first_, stride_,
                                        count, &out_[pair]);
        });
        for (size_t i = 0; i < pairs_.size(); ++i)
            for (long at = 0; at < a_.v_dim; ++at) out_[i][at] *= pairs_[i].factor;
    }

  private:
    struct Pair {  // a query and one of its heads
        long head, from, to, end;  // it sees the keys from..to of those up to its block's end
        float factor;
    };

    void add(const Queries& block, long kv_head, long index) {
        long token = block.token + index / fan_, head = kv_head * fan_ + index % fan_;
        long to = block.position + index / fan_ + 1;
        long from = a_.window > 0 ? std::max(first_, to - a_.window) : first_;
        pairs_.push_back({head, from, to, block.end(), 0});
        queries_.push_back(a_.q + token * a_.q_stride + head * a_.dim);
        out_.push_back(a_.out + (token * a_.heads + head) * a_.v_dim);
        std::fill_n(out_.back(), a_.v_dim, 0.0f);
    }

    // Calls `each` with a few pairs and the `count` keys from `at` on, until each pair has had all
    // its keys in their order.
    template <class Each>
    void for_each_part(Each each) {
        auto keys_for = [&](long begin, long end, long first_block, long last_block) {
            for (long at = begin; at < end; at += KEY_BLOCK) {
                long count = std::min(KEY_BLOCK, end - at);
                for (long h = heads_.begin; h < heads_.end; ++h) {
                    look_up(group_.blocks[first_block].row, h, at, count);
                    long before = (h - heads_.begin) * group_.count;
                    by_threes((before + first_block) * per_block_, (before + last_block) * per_block_,
                              [&](auto few, long pair) { each(few, pair, at, count); });
                }
            }
        };
        keys_for(first_, group_.shared, 0, group_.count);
        for (long b = 0; b < group_.count; ++b)
            keys_for(std::max(first_, group_.shared), group_.blocks[b].end(), b, b + 1);
    }

    void look_up(long row, long kv_head, long at, long count) {
        const int32_t* page = a_.pages + row * a_.table_stride + at / a_.page_size;
        for (long i = 0, offset = at % a_.page_size; i < count; ++page, offset = 0) {
            long slot = *page * a_.page_size + offset;
            const float* key = a_.k + (slot * a_.kv_heads + kv_head) * a_.dim;
            const float* value = a_.v + (slot * a_.kv_heads + kv_head) * a_.v_dim;
            for (; offset < a_.page_size && i < count; ++offset, ++i) {
                keys_[i] = key, values_[i] = value;
                key += a_.kv_heads * a_.dim, value += a_.kv_heads * a_.v_dim;
            }
        }
    }

    const Attend& a_;
    Group group_;
    Range heads_;
    long fan_, first_, stride_, per_block_;
    std::vector<Pair> pairs_;  // by KV head, then by block
    std::vector<const float*> queries_;
    std::vector<float*> out_;
    float* scores_;  // [pairs, stride]
    const float *keys_[KEY_BLOCK], *values_[KEY_BLOCK];
};

constexpr long QUERY_BLOCK = 16;
constexpr long MIN_SHARED = 64;  // keys

// Keys that two rows see in the same slots.
inline long in_common(const Attend& a, long row, long other) {
    const int32_t *one = a.pages + row * a.table_stride, *two = a.pages + other * a.table_stride;
    long least = std::min(a.lengths[row], a.lengths[other]);
    long pages = std::mismatch(one, one + least / a.page_size, two).first - one;
    return pages * a.page_size / 4 * 4;
}

// Calls `each` with groups of queries and what they cost: the keys they read. Decodes that follow one
// another and share a prefix are together, at most so many.
template <class Each>
void for_each_group(const Attend& a, long most, Each each) {
    std::vector<Queries> blocks;
    for (long r = 0, token = 0; r < a.rows;) {
        if (long extend = a.extends[r]; extend > 1) {
            long most_scores = MOST_SCORES * a.kv_heads / (a.heads * a.lengths[r]);
            long step = std::clamp(most_scores, 1L, QUERY_BLOCK);
            for (long at = 0; at < extend; at += step) {
                Queries block{r, token + at, a.lengths[r] - extend + at, std::min(step, extend - at)};
                each(Group{&block, 1, 0}, a.lengths[r] * block.count);
            }
            token += extend, ++r;
            continue;
        }
        long first = r, shared = 0, cost = 0;
        blocks.clear();
        while (true) {
            blocks.push_back({r, token, a.lengths[r] - 1L, 1});
            cost += a.lengths[r];
            ++token, ++r;
            if (r == a.rows || a.extends[r] > 1 || a.window > 0 || r - first == most) break;
            long common = in_common(a, first, r);
            if (common < MIN_SHARED || 2 * common < shared) break;
            shared = shared ? std::min(shared, common) : common;
        }
        each(Group{blocks.data(), static_cast<long>(blocks.size()), shared}, cost);
    }
}

// Keys read by all queries of one head.
inline long attend_cost(const Attend& a) {
    long total = 0;
    for (long r = 0; r < a.rows; ++r) total += long(a.lengths[r]) * a.extends[r];
    return total;
}

// Every thread walks through all groups and takes those that begin in its part of the cost.
inline void attend(const Attend& a, Team team) {
    long total = attend_cost(a) * a.kv_heads, before = 0;
    long rows = std::max(1L, a.rows / team.size);
    long heads = std::clamp(a.rows * a.kv_heads / team.size, 1L, a.kv_heads);
    for_each_group(a, rows, [&](Group group, long cost) {
        for (long h = 0; h < a.kv_heads; h += heads) {
            Range some{h, std::min(h + heads, a.kv_heads)};
            if (before * team.size / total == team.me) Attention(a, group, some).run();
            before += cost * (some.end - some.begin);
        }
    });
}
