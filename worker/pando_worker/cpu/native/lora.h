// What adapters add to linear layers: y += scale * (x . A^T) . B^T for each token's own A and B of low
// rank. The tokens are sorted by adapter, and neighbours with the same one are a run: its A and B are
// read once for all of them.
//
// Adapters lie in pages, as floats or as bfloat16. For each section (a linear layer of the checkpoint) an
// adapter has A, [rank, inputs], and B transposed, [rank, width]. No row goes on in another page.

#pragma once

#include <algorithm>
#include <cstdint>

#include "half.h"
#include "linear.h"
#include "team.h"
#include "vectors.h"

// Of a vector: half of them hold the sums of a tile.
#if defined(__AVX512VL__) || defined(__aarch64__)
constexpr int REGISTERS = 32;
#else
constexpr int REGISTERS = 16;
#endif

// As written by cpu/ops.py: all numbers are 64 bits wide.
struct LoraSection {
    int64_t first, width;  // columns of y
};
struct LoraSite {
    const void* pages;          // [pages, page_numbers]
    int64_t page_numbers;
    const int32_t* slot_pages;  // [slots, most_pages]
    int64_t most_pages;
    const int32_t* ranks;       // [slots, stride], this layer's sections from `offset` on
    const float* scales;        // the same
    const int64_t* starts;      // [slots, stride, 2], of A and B, counted from the adapter's first page
    int64_t stride, offset;
    int64_t most_rank, inputs, halves;
    int64_t experts;            // that have `count` sections each; a token's slot is slot * experts + expert
    int64_t count;
    LoraSection sections[];     // [count]

    long at(long slot, long section) const {
        return slot / experts * stride + offset + slot % experts * count + section;
    }
    const int32_t* pages_of(long slot) const { return slot_pages + slot / experts * most_pages; }
    long rank(long slot, long section) const { return ranks[at(slot, section)]; }
    float scale(long slot, long section) const { return scales[at(slot, section)]; }
};

// The rows of a matrix of an adapter.
template <class T>
struct LoraRows {
    const T* pages;
    const int32_t* numbers;  // of the adapter's pages, from the matrix's first on
    long page_numbers, place, columns, first;

    // which: 0 for A, 1 for B
    LoraRows(const LoraSite& site, long slot, long section, int which)
        : pages(static_cast<const T*>(site.pages)), page_numbers(site.page_numbers) {
        long start = site.starts[site.at(slot, section) * 2 + which];
        numbers = site.pages_of(slot) + start / page_numbers;
        place = start % page_numbers;
        columns = which ? site.sections[section].width : site.inputs;
        first = (page_numbers - place) / columns;  // rows in the first page
    }
    const T* operator[](long r) const {
        if (r < first) return pages + *numbers * page_numbers + place + r * columns;
        long in_page = page_numbers / columns, page = (r - first) / in_page;
        return pages + numbers[1 + page] * page_numbers + (r - first) % in_page * columns;
    }
};

// A step's tokens with adapters.
struct LoraTokens {
    const int32_t *tokens, *slots;
    const int32_t* count;

    // Calls each(slot, begin, end) for groups of at most `most` tokens with the same slot.
    template <class Each>
    void runs(long most, Each each) const {
        for (long i = 0, end; i < *count; i = end) {
            for (end = i + 1; end < *count && end < i + most && slots[end] == slots[i];) ++end;
            each(slots[i], i, end);
        }
    }
};

inline double lora_cost(const LoraSite& site, const LoraTokens& step, bool shrink) {
    double cost = 0;
    for (long i = 0; i < *step.count; ++i)
        for (long s = 0; s < site.count; ++s)
            cost += double(site.rank(step.slots[i], s)) * (shrink ? site.inputs : site.sections[s].width);
    return cost;
}

template <class T>
inline void fetch_some(const T* p, long count) {
    for (long at = 0; at < count; at += 64 / sizeof(T)) __builtin_prefetch(p + at);
}

// out[i][j] = dot(x_i, a_j), like `tile`, for matrices of any type. The rows a_j stand one after the other;
// what stands behind them is fetched into the cache if it is wanted next, since the rows are too short for
// the hardware's prefetcher.
template <int NR, int MR, class T>
inline void dots(const T* const* a, const float* const* x, long k, bool fetch, float out[MR][NR]) {
    Vec acc[MR][NR] = {};
    long at = 0;
    for (; at + VL <= k; at += VL) {
        Vec xs[MR];
        for (int i = 0; i < MR; ++i) xs[i] = load(x[i] + at);
        if (fetch) fetch_some(a[0] + NR * (k + at), NR * VL);
        for (int j = 0; j < NR; ++j) {
            Vec as = load_wide(a[j] + at);
            for (int i = 0; i < MR; ++i) acc[i][j] = multiply_add(xs[i], as, acc[i][j]);
        }
    }
    if (at < k)
        for (int j = 0; j < NR; ++j) {
            Vec as = load_wide_first(a[j] + at, k - at);
            for (int i = 0; i < MR; ++i)
                acc[i][j] = multiply_add(load_first(x[i] + at, k - at), as, acc[i][j]);
        }
    for (int i = 0; i < MR; ++i) {
        if constexpr (NR == 4)
            sum4(acc[i][0], acc[i][1], acc[i][2], acc[i][3], out[i]);
        else
            for (int j = 0; j < NR; ++j) out[i][j] = sum(acc[i][j]);
    }
}

struct Shrink {
    const LoraSite& site;
    LoraTokens step;
    const float* x;
    long x_stride;
    float* h;  // [tokens of the step, sections, most rank], times the scale
};

template <int NR, int MR, class T>
inline void shrink_tile(const Shrink& p, const LoraRows<T>& rows, long slot, long section, long i, long rank,
                        bool fetch) {
    const LoraSite& site = p.site;
    const T* a[NR];
    const float* x[MR];
    for (int r = 0; r < NR; ++r) a[r] = rows[rank + r];
    for (int r = 0; r < MR; ++r) x[r] = p.x + p.step.tokens[i + r] * p.x_stride;
    float out[MR][NR], scale = site.scale(slot, section);
    dots<NR, MR>(a, x, site.inputs, fetch, out);
    for (int r = 0; r < MR; ++r)
        for (int c = 0; c < NR; ++c)
            p.h[((i + r) * site.count + section) * site.most_rank + rank + c] = scale * out[r][c];
}

template <int NR, class T>
inline void shrink_rows(const Shrink& p, long slot, long section, long i, long end, long rank) {
    constexpr int MR = REGISTERS / 8;
    LoraRows<T> a(p.site, slot, section, 0);
    bool fetch = true;  // by the first tile alone
    for (; i + MR <= end; i += MR, fetch = false)
        shrink_tile<NR, MR, T>(p, a, slot, section, i, rank, fetch);
    for (; i + 2 <= end; i += 2, fetch = false) shrink_tile<NR, 2, T>(p, a, slot, section, i, rank, fetch);
    for (; i < end; ++i, fetch = false) shrink_tile<NR, 1, T>(p, a, slot, section, i, rank, fetch);
}

constexpr long FOUR = 4;        // ranks of a part of the work
constexpr long RUN_TOKENS = 48;  // so that their inputs stay in the L2 cache

// Computes one thread's share of h. The work is divided into groups of tokens times four ranks.
template <class T>
inline void shrink(const Shrink& p, Team team) {
    const LoraSite& site = p.site;
    long parts = 0, part = 0;
    auto fours = [&](long slot, long s) { return (site.rank(slot, s) + FOUR - 1) / FOUR; };
    p.step.runs(RUN_TOKENS, [&](long slot, long, long) {
        for (long s = 0; s < site.count; ++s) parts += fours(slot, s);
    });
    Range mine = team.share(parts, 1);
    p.step.runs(RUN_TOKENS, [&](long slot, long begin, long end) {
        for (long s = 0; s < site.count; ++s) {
            long rank = site.rank(slot, s);
            for (long four = 0; four < fours(slot, s); ++four, ++part) {
                if (part < mine.begin || part >= mine.end) continue;
                long first = four * FOUR;
                if (first + FOUR <= rank)
                    shrink_rows<FOUR, T>(p, slot, s, begin, end, first);
                else
                    for (; first < rank; ++first) shrink_rows<1, T>(p, slot, s, begin, end, first);
            }
        }
    });
}

struct Expand {
    const LoraSite& site;
    LoraTokens step;
    const float* h;
    float* y;
    long y_stride;
};

// Adds to NV vectors of columns of MR tokens, from column `at` of the section on.
template <int NV, int MR, class T>
inline void expand_tile(const Expand& p, const LoraRows<T>& b, long section, long rank, long i, long at) {
    const LoraSite& site = p.site;
    const LoraSection& part = site.sections[section];
    const float* h = p.h + (i * site.count + section) * site.most_rank;
    long h_stride = site.count * site.most_rank;
    float* y[MR];
    Vec acc[MR][NV];
    for (int r = 0; r < MR; ++r) {
        y[r] = p.y + p.step.tokens[i + r] * p.y_stride + part.first + at;
        for (int v = 0; v < NV; ++v) acc[r][v] = load(y[r] + v * VL);
    }
    for (long j = 0; j < rank; ++j) {
        const T* row = b[j] + at;
        Vec bs[NV];
        fetch_some(row + 2 * NV * VL, NV * VL);
        for (int v = 0; v < NV; ++v) bs[v] = load_wide(row + v * VL);
        for (int r = 0; r < MR; ++r)
            for (int v = 0; v < NV; ++v)
                acc[r][v] = multiply_add(broadcast(h[r * h_stride + j]), bs[v], acc[r][v]);
    }
    for (int r = 0; r < MR; ++r)
        for (int v = 0; v < NV; ++v) store(y[r] + v * VL, acc[r][v]);
}

template <int NV, class T>
inline void expand_rows(const Expand& p, const LoraRows<T>& b, long section, long rank, long i, long end,
                        long at) {
    for (; i + 4 <= end; i += 4) expand_tile<NV, 4, T>(p, b, section, rank, i, at);
    for (; i < end; ++i) expand_tile<NV, 1, T>(p, b, section, rank, i, at);
}

// One column, where less than a vector is left.
template <class T>
inline void expand_column(const Expand& p, const LoraRows<T>& b, long section, long rank, long i, long end,
                          long at) {
    const LoraSite& site = p.site;
    for (; i < end; ++i) {
        const float* h = p.h + (i * site.count + section) * site.most_rank;
        float& y = p.y[p.step.tokens[i] * p.y_stride + site.sections[section].first + at];
        for (long j = 0; j < rank; ++j) y += h[j] * widened(b[j][at]);
    }
}

// Adds to some columns of y.
template <class T>
inline void expand(const Expand& p, Range columns) {
    constexpr int NV = REGISTERS / 8;
    p.step.runs(RUN_TOKENS, [&](long slot, long i, long end) {
        for (long s = 0; s < p.site.count; ++s) {
            const LoraSection& part = p.site.sections[s];
            long rank = p.site.rank(slot, s);
            long at = std::max<long>(columns.begin - part.first, 0);
            long stop = std::min<long>(columns.end - part.first, part.width);
            if (!rank) continue;
            LoraRows<T> b(p.site, slot, s, 1);
            for (; at + NV * VL <= stop; at += NV * VL) expand_rows<NV, T>(p, b, s, rank, i, end, at);
            for (; at + VL <= stop; at += VL) expand_rows<1, T>(p, b, s, rank, i, end, at);
            for (; at < stop; ++at) expand_column<T>(p, b, s, rank, i, end, at);
        }
    });
}
