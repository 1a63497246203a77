// Linear layers on quantized weights: unsigned integers in groups along the inputs, with a scale and a
// minimum for each group. Each row of inputs is quantized to bytes too, so that a group is a sum of
// products of bytes. Those sums are exact; only the scaling rounds.
//
// Weights are stored in tiles of LANES outputs. A tile stores its inputs in runs of RUN: four inputs of
// the first output, four of the second, and so on. If a byte holds two numbers, the low one belongs to
// the run's first half, as in GGUF's blocks.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "lanes.h"
#include "team.h"

constexpr int RUN = 32;

struct GroupedWeight {
    const uint8_t* values;  // [tiles, runs, LANES * RUN * bits / 8]
    const void* scales;     // [tiles, groups, LANES], Half or float
    const void* minimums;   // the same; if null, the minimum is -scale * zero
    long outputs, inputs;
    int bits, group;  // 4 or 8; 16 or 32
    int halves;       // whether scales and minimums are Half

    long runs() const { return (inputs + RUN - 1) / RUN; }
    long groups() const { return runs() * RUN / group; }
    long tiles() const { return (outputs + LANES - 1) / LANES; }
    float zero() const { return bits == 4 ? 8 : 128; }
};

// Rows of inputs as bytes; an input is scale * byte.
struct QuantizedRows {
    const int8_t* values;  // [rows, runs * RUN], padded with zeros
    const float* scales;   // [rows, runs]
    const float* sums;     // [rows, groups], the sum of each group's values
};

// Quantizes `count` floats to bytes, pads the run with zeros, and returns the scale.
inline float quantize_some(const float* x, long count, int8_t* out) {
    int32_t most = 0;  // compared as bits without the sign, which have the order of the numbers
    for (long i = 0; i < count; ++i) {
        int32_t bits;
        std::memcpy(&bits, x + i, 4);
        most = std::max(most, bits & 0x7fffffff);
    }
    float largest;
    std::memcpy(&largest, &most, 4);
    float factor = largest > 0 ? 127 / largest : 0.0f;
    constexpr float ROUND = 1.5f * (1 << 23);  // adding it moves the rounded number into the lowest bits
    for (long i = 0; i < count; ++i) {
        float shifted = x[i] * factor + ROUND;
        int32_t bits;
        std::memcpy(&bits, &shifted, 4);
        out[i] = static_cast<int8_t>(bits);
    }
    std::fill(out + count, out + RUN, int8_t(0));
    return largest / 127;
}

inline void quantize_row(const float* x, long inputs, int group, int8_t* values, float* scales,
                         float* sums) {
    for (long at = 0; at < inputs; at += RUN) {
        float scale = quantize_some(x + at, std::min<long>(RUN, inputs - at), values + at);
        scales[at / RUN] = scale;
        for (long first = at; first < at + RUN; first += group) {
            int32_t total = 0;
            for (long i = first; i < first + group; ++i) total += values[i];
            sums[first / group] = scale * total;
        }
    }
}

// One run of a tile: its weights as bytes, four inputs at a time.
template <int BITS>
inline void unpack(const uint8_t* p, Bytes (&w)[RUN / 4]) {
    for (int i = 0; i < RUN / 4; ++i)
        if constexpr (BITS == 8)
            w[i] = load_bytes(p + i * 4 * LANES);
        else if (i < RUN / 8) {
            Bytes both = load_bytes(p + i * 4 * LANES);
            w[i] = low_nibbles(both), w[i + RUN / 8] = high_nibbles(both);
        }
}

inline Floats at_group(const GroupedWeight& a, const void* numbers, long index) {
    return a.halves ? load_floats(static_cast<const Half*>(numbers) + index * LANES)
                    : load_floats(static_cast<const float*>(numbers) + index * LANES);
}

// Multiplies ROWS rows of x by one tile. A row's sums are the same to the last bit for any ROWS.
// The loops over rows are unrolled to keep all sums in registers. Weights are prefetched, because the
// hardware's prefetcher stops at the end of a memory page.
template <int BITS, int GROUP, int ROWS>
inline void grouped_tile(const GroupedWeight& a, const QuantizedRows& x, long row, long tile,
                         Floats (&out)[ROWS]) {
    constexpr int PARTS = RUN / GROUP, COUNT = GROUP / 4;  // groups in a run, and fours in a group
    constexpr long RUN_BYTES = LANES * RUN * BITS / 8, AHEAD = 2048;
    long runs = a.runs(), groups = a.groups();
    const uint8_t* values = a.values + tile * runs * RUN_BYTES;
    const int8_t* xs = x.values + row * runs * RUN;
    const float *scales = x.scales + row * runs, *sums = x.sums + row * groups;
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) out[r] = same(0);
    for (long run = 0; run < runs; ++run) {
        Bytes w[RUN / 4];
        unpack<BITS>(values + run * RUN_BYTES, w);
#pragma GCC unroll 8
        for (long at = 0; at < RUN_BYTES; at += 64)
            __builtin_prefetch(values + run * RUN_BYTES + AHEAD + at);
#pragma GCC unroll 2
        for (int part = 0; part < PARTS; ++part) {
            long group = run * PARTS + part, index = tile * groups + group;
            Floats scale = at_group(a, a.scales, index);
            Floats minimum = a.minimums ? at_group(a, a.minimums, index) : scale * same(-a.zero());
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; ++r) {
                Ints sum = {};
#pragma GCC unroll 8
                for (int i = part * COUNT; i < (part + 1) * COUNT; ++i)
                    sum = dot4(sum, w[i], xs + (r * runs + run) * RUN + 4 * i);
                Floats factor = scale * same(scales[r * runs + run]);
                out[r] = multiply_add(to_floats(sum), factor, out[r]);
                out[r] = multiply_add(minimum, same(sums[r * groups + group]), out[r]);
            }
        }
    }
}

struct GroupedProduct {
    GroupedWeight weight;
    QuantizedRows x;
    const float* bias;
    float* y;
    long rows, y_stride;
};

template <int BITS, int GROUP, int ROWS>
inline void grouped_rows(const GroupedProduct& a, long row, long tile) {
    Floats out[ROWS];
    grouped_tile<BITS, GROUP, ROWS>(a.weight, a.x, row, tile, out);
    long first = tile * LANES, count = std::min<long>(LANES, a.weight.outputs - first);
    float* y = a.y + row * a.y_stride + first;
    if (count == LANES && !a.bias) {
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) store(y + r * a.y_stride, out[r]);
        return;
    }
    float lanes[ROWS][LANES];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) store(lanes[r], out[r]);
    for (int r = 0; r < ROWS; ++r)
        for (long i = 0; i < count; ++i)
            y[r * a.y_stride + i] = lanes[r][i] + (a.bias ? a.bias[first + i] : 0.0f);
}

// Computes the outputs of some tiles, for as many rows at a time as stay in the L2 cache meanwhile.
template <int BITS, int GROUP>
inline void grouped_tiles(const GroupedProduct& a, Range tiles) {
    constexpr long BLOCK = 128;
    for (long first = 0; first < a.rows; first += BLOCK) {
        long end = std::min(a.rows, first + BLOCK);
        for (long tile = tiles.begin; tile < tiles.end; ++tile) {
            long row = first;
            for (; row + 8 <= end; row += 8) grouped_rows<BITS, GROUP, 8>(a, row, tile);
            if (row + 4 <= end) grouped_rows<BITS, GROUP, 4>(a, row, tile), row += 4;
            for (; row < end; ++row) grouped_rows<BITS, GROUP, 1>(a, row, tile);
        }
    }
}

template <int BITS>
inline void by_group(const GroupedProduct& a, Range tiles) {
    a.weight.group == 16 ? grouped_tiles<BITS, 16>(a, tiles) : grouped_tiles<BITS, 32>(a, tiles);
}

inline void grouped_product(const GroupedProduct& a, Range tiles) {
    a.weight.bits == 4 ? by_group<4>(a, tiles) : by_group<8>(a, tiles);
}

inline float number_at(const GroupedWeight& a, const void* numbers, long index) {
    float lanes[LANES];
    store(lanes, at_group(a, numbers, index / LANES));
    return lanes[index % LANES];
}

// Decodes the weights of one output, [inputs].
inline void grouped_row(const GroupedWeight& a, long output, float* out) {
    long tile = output / LANES, lane = output % LANES, runs = a.runs(), groups = a.groups();
    long run_bytes = LANES * RUN * a.bits / 8;
    float scale = 0, minimum = 0;
    for (long k = 0; k < a.inputs; ++k) {
        if (k % a.group == 0) {
            long index = (tile * groups + k / a.group) * LANES + lane;
            scale = number_at(a, a.scales, index);
            minimum = a.minimums ? number_at(a, a.minimums, index) : -scale * a.zero();
        }
        const uint8_t* run = a.values + (tile * runs + k / RUN) * run_bytes;
        long at = k % RUN, half = RUN / 2;
        if (a.bits == 4) at %= half;
        uint8_t value = run[at / 4 * 4 * LANES + lane * 4 + at % 4];
        if (a.bits == 4) value = k % RUN < half ? value & 15 : value >> 4;
        out[k] = scale * value + minimum;
    }
}
