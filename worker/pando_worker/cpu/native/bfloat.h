// Floats of 16 bits with the exponent of 32 (bfloat16): how keys and values may be kept.

#pragma once

#include <cstdint>
#include <cstring>

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

// To the nearest, of two to the even one, as torch does it.
inline void narrow(const float* from, Bfloat* to, long count) {
    for (long i = 0; i < count; ++i) {
        uint32_t bits;
        std::memcpy(&bits, from + i, 4);
        bool none = (bits & 0x7fffffff) > 0x7f800000;
        to[i].bits = none ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
}
inline void narrow(const float* from, float* to, long count) { std::memcpy(to, from, count * sizeof *to); }
