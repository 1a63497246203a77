// Rows of logits: the best token, the sum that makes probabilities of them, and tokens that may not follow.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "vectors.h"

// The largest of n values and its first index; NaN if any value is NaN.
inline void best_of(const float* x, long n, float* best, int64_t* where) {
    Vec most = broadcast(-INFINITY);
    IntVec odd = {};
    float value = -INFINITY;
    bool is_odd = false;
    long at = 0;
    for (; at + VL <= n; at += VL) {
        Vec v = load(x + at);
        most = v > most ? v : most;
        odd |= v != v;
    }
    for (int i = 0; i < VL; ++i) value = std::max(value, most[i]), is_odd |= odd[i] != 0;
    for (; at < n; ++at) value = std::max(value, x[at]), is_odd |= x[at] != x[at];
    *best = is_odd ? NAN : value;
    *where = is_odd ? 0 : std::find(x, x + n, value) - x;
}

// log(sum(exp(x))) of n values; the largest value itself if it is not finite.
inline float total_of(const float* x, long n) {
    constexpr long PART = 64 * VL;  // summed in float32; their sums in float64
    float most;
    int64_t where;
    best_of(x, n, &most, &where);
    if (!std::isfinite(most)) return most;
    double total = 0;
    long at = 0;
    while (at + VL <= n) {
        Vec part = {};
        for (long end = std::min(at + PART, n); at + VL <= end; at += VL) part += exp_vec(load(x + at) - most);
        total += sum(part);
    }
    for (; at < n; ++at) total += std::exp(x[at] - most);
    return most + static_cast<float>(std::log(total));
}

// Adds -inf to the values whose bits are not set: value i has bit i % 32 of word i / 32.
inline void forbid(float* x, const int32_t* words, long n) {
    for (long at = 0; at < n; at += 32) {
        uint32_t bits = words[at / 32];
        if (bits == ~0u) continue;
        long count = std::min(32L, n - at);
        for (long i = 0; i < count; ++i) x[at + i] += bits >> i & 1 ? 0.0f : -INFINITY;
    }
}
