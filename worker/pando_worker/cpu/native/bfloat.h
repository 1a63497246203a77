// bfloat16: floats of 16 bits with the exponent of float32. The KV pool may hold keys and values so.

#pragma once

#include <cstdint>
#include <cstring>

#include "vectors.h"

struct Bfloat {
    uint16_t bits;
};

inline void widen(const Bfloat* from, float* to, long count) {
    for (long i = 0; i < count; ++i) {
        uint32_t bits = uint32_t(from[i].bits) << 16;
        std::memcpy(to + i, &bits, 4);
    }
}
inline void widen(const float* from, float* to, long count) { std::memcpy(to, from, count * sizeof *to); }

inline float widened(Bfloat x) {
    float y;
    widen(&x, &y, 1);
    return y;
}
inline float widened(float x) { return x; }

typedef uint16_t HalfVec __attribute__((vector_size(VL * 2)));
typedef uint32_t WordVec __attribute__((vector_size(VL * 4)));

inline Vec load_wide(const float* p) { return load(p); }
inline Vec load_wide(const Bfloat* p) {
    HalfVec bits;
    std::memcpy(&bits, p, sizeof bits);
    return (Vec)(__builtin_convertvector(bits, WordVec) << 16);
}

// Like `transpose` of floats, for 2 * VL columns. It transposes pairs of numbers and then widens them:
// half as many steps, and no copy as floats.
inline void transpose(const Bfloat* const* from, long at, float* out, long stride) {
    Vec rows[VL];
    for (int i = 0; i < VL; ++i) std::memcpy(rows + i, from[i] + at, sizeof(Vec));
    transpose(rows);
    for (int i = 0; i < VL; ++i) {
        IntVec pairs = (IntVec)rows[i];  // the first of a pair is in the low bits
        store(out + 2 * i * stride, (Vec)(pairs << 16));
        store(out + (2 * i + 1) * stride, (Vec)(pairs & ~0xffff));
    }
}

// Rounds to nearest, ties to even, like torch.
inline void narrow(const float* from, Bfloat* to, long count) {
    for (long i = 0; i < count; ++i) {
        uint32_t bits;
        std::memcpy(&bits, from + i, 4);
        bool none = (bits & 0x7fffffff) > 0x7f800000;
        to[i].bits = none ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
}
inline void narrow(const float* from, float* to, long count) { std::memcpy(to, from, count * sizeof *to); }
