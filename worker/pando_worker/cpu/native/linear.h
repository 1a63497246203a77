// Linear layers over few rows. The library behind torch repacks the weights on each call, which costs
// more than the product of few rows. These loops read both operands in place: a tile of NR weight rows
// and MR input rows is NR x MR dot products along their common, contiguous dimension. Weights of 16 bits are
// widened as they are read, which takes half as long where memory is what limits, and gives the same sums.

#pragma once

#include <algorithm>

#include "half.h"
#include "team.h"
#include "vectors.h"

// out[i][j] = dot(x_i, w_j) for MR rows of x and NR rows of w, each of k numbers. The sums are the same to
// the last bit for any MR, and for any NR that is a multiple of four.
template <int NR, int MR, class Number>
inline void tile(const Number* const* w, const float* const* x, long k, float out[MR][NR]) {
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
    for (; at + VL <= k; at += VL) step([&](auto p) { return load_wide(p + at); });
    if (at < k)  // the same order of additions for every size of tile, so results do not depend on it
        step([&](auto p) { return load_wide_first(p + at, k - at); });
    for (int i = 0; i < MR; ++i) {
        int j = 0;
        for (; j + 4 <= NR; j += 4)
            sum4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3], &out[i][j]);
        for (; j < NR; ++j) out[i][j] = sum(acc[i][j]);
    }
}

template <class Number>
struct Linear {
    const float* x;
    const Number* w;
    const float* bias;
    float* y;
    long m, n, k, x_stride;
};

template <int NR, int MR, class Number>
inline void linear_tile(const Linear<Number>& a, long i, long j, long from, long len) {
    const Number* w[NR];
    const float* x[MR];
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

// Prefetches weights of the next tile while this one is computed: of each row the share that belongs to
// `count` of all inputs. The hardware's prefetcher stops at the end of a memory page, which holds little
// more than a tile.
template <class Number>
inline void fetch_next(const Linear<Number>& a, long i, long count, long j, long rows, long from,
                       long len) {
    constexpr long STEP = LINE * sizeof(float) / sizeof(Number);  // numbers in a cache line
    for (long r = j + rows; r < j + 2 * rows; ++r)
        for (long at = len * i / a.m / STEP * STEP; at < len * (i + count) / a.m; at += STEP)
            __builtin_prefetch(a.w + r * a.k + from + at);
}

template <int NR, class Number>
inline void linear_rows(const Linear<Number>& a, long j, long from, long len) {
    constexpr int MR = VL == 16 ? 6 : 3;  // NR x MR sums, MR inputs and one weight in registers
    long i = 0;
    for (; i + MR <= a.m; i += MR) {
        fetch_next(a, i, MR, j, NR, from, len);
        linear_tile<NR, MR>(a, i, j, from, len);
    }
    for (; i + 2 <= a.m; i += 2) linear_tile<NR, 2>(a, i, j, from, len);
    for (; i < a.m; ++i) linear_tile<NR, 1>(a, i, j, from, len);
}

constexpr long K_BLOCK = 2048;  // so the weights of a tile stay in the L1 cache for all rows

// Computes the given columns of y.
template <class Number>
inline void linear_columns(const Linear<Number>& a, Range columns) {
    for (long from = 0; from < a.k; from += K_BLOCK) {
        long len = std::min(K_BLOCK, a.k - from);
        long j = columns.begin;
        if (a.m == 1)  // eight sums at once hide the latency of each
            for (; j + 8 <= columns.end; j += 8) linear_tile<8, 1>(a, 0, j, from, len);
        for (; j + 4 <= columns.end; j += 4) linear_rows<4>(a, j, from, len);
        for (; j < columns.end; ++j) linear_rows<1>(a, j, from, len);
    }
}
