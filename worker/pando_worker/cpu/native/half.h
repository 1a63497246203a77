// float16, as checkpoints have it. Weights may stay so: widening gives the number itself.

#pragma once

#include <cstdint>
#include <cstring>

#include "bfloat.h"
#include "vectors.h"

struct Half {
    uint16_t bits;
};

inline float widened(Half h) {
    uint32_t sign = uint32_t(h.bits & 0x8000) << 16, rest = h.bits & 0x7fff, bits;
    if (rest >= 0x7c00)
        bits = 0x7f800000 | (rest & 0x3ff) << 13;  // infinity or NaN
    else if (rest >= 0x400)
        bits = (rest << 13) + (112u << 23);
    else {
        float small = rest * 0x1p-24f;
        std::memcpy(&bits, &small, 4);
    }
    bits |= sign;
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}
inline void widen(const Half* from, float* to, long count) {
    for (long i = 0; i < count; ++i) to[i] = widened(from[i]);
}

#if defined(PANDO_AVX512)
inline Vec load_wide(const Half* p) {
    return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
#elif defined(__AVX2__) && defined(__F16C__)
inline Vec load_wide(const Half* p) {
    return (Vec)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
#else
inline Vec load_wide(const Half* p) {
    HalfVec bits;
    std::memcpy(&bits, p, sizeof bits);
    WordVec wide = __builtin_convertvector(bits, WordVec), rest = wide & 0x7fff;
    Vec y = (Vec)(rest << 13) * 0x1p112f;  // also of numbers below 2^-14, which have no leading one
    WordVec odd = (WordVec)(rest >= 0x7c00) & (0x7f800000 | rest << 13);  // infinity or NaN
    return (Vec)((WordVec)(rest >= 0x7c00 ? (Vec)odd : y) | (wide & 0x8000) << 16);
}
#endif

template <class Number>
inline Vec load_wide_first(const Number* p, long count) {  // the rest is zero
    Vec v = {};
    for (long i = 0; i < count; ++i) v[i] = widened(p[i]);
    return v;
}
