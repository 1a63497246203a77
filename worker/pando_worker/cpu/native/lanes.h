// Sixteen lanes of integers and floats, one for each output of a tile of quantized weights, and their
// product of bytes: with AVX-512 VNNI, with AVX2, and without either.

#pragma once

#include <cstdint>
#include <cstring>
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#endif

#include "half.h"

constexpr int LANES = 16;

#if defined(__AVX512VNNI__) && defined(__AVX512F__) && defined(__AVX512BW__)

struct Bytes { __m512i v; };  // four in each lane
struct Ints { __m512i v; };
struct Floats { __m512 v; };

inline Bytes load_bytes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline Bytes low_nibbles(Bytes b) { return {_mm512_and_si512(b.v, _mm512_set1_epi8(15))}; }
inline Bytes high_nibbles(Bytes b) {
    return {_mm512_and_si512(_mm512_srli_epi16(b.v, 4), _mm512_set1_epi8(15))};
}
// In each lane: a + the sum of w's four unsigned bytes times the four signed bytes at x.
inline Ints dot4(Ints a, Bytes w, const int8_t* x) {
    int32_t four;
    std::memcpy(&four, x, 4);
    return {_mm512_dpbusd_epi32(a.v, w.v, _mm512_set1_epi32(four))};
}
inline Floats to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline Floats load_floats(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Floats load_floats(const Half* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Floats same(float x) { return {_mm512_set1_ps(x)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline void store(float* p, Floats a) { _mm512_storeu_ps(p, a.v); }

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

struct Bytes { __m256i v[2]; };
struct Ints { __m256i v[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()}; };
struct Floats { __m256 v[2]; };

inline Bytes load_bytes(const uint8_t* p) {
    auto at = reinterpret_cast<const __m256i*>(p);
    return {{_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)}};
}
inline __m256i low_nibbles(__m256i b) { return _mm256_and_si256(b, _mm256_set1_epi8(15)); }
inline __m256i high_nibbles(__m256i b) {
    return _mm256_and_si256(_mm256_srli_epi16(b, 4), _mm256_set1_epi8(15));
}
inline Bytes low_nibbles(Bytes b) { return {{low_nibbles(b.v[0]), low_nibbles(b.v[1])}}; }
inline Bytes high_nibbles(Bytes b) { return {{high_nibbles(b.v[0]), high_nibbles(b.v[1])}}; }
// AVX2 adds pairs of products in 16 bits, where two products of bytes up to 255 overflow. So each half of
// a byte is multiplied separately.
inline Ints dot4(Ints a, Bytes w, const int8_t* x) {
    int32_t four;
    std::memcpy(&four, x, 4);
    const __m256i xs = _mm256_set1_epi32(four), ones = _mm256_set1_epi16(1);
    for (int i = 0; i < 2; ++i) {
        __m256i low = _mm256_maddubs_epi16(low_nibbles(w.v[i]), xs);
        __m256i high = _mm256_maddubs_epi16(high_nibbles(w.v[i]), xs);
        __m256i sixteen = _mm256_set1_epi16(16);
        a.v[i] = _mm256_add_epi32(a.v[i], _mm256_madd_epi16(low, ones));
        a.v[i] = _mm256_add_epi32(a.v[i], _mm256_madd_epi16(high, sixteen));
    }
    return a;
}
inline Floats to_floats(Ints a) { return {{_mm256_cvtepi32_ps(a.v[0]), _mm256_cvtepi32_ps(a.v[1])}}; }
inline Floats load_floats(const float* p) { return {{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}}; }
inline Floats load_floats(const Half* p) {
    auto at = reinterpret_cast<const __m128i*>(p);
    return {{_mm256_cvtph_ps(_mm_loadu_si128(at)), _mm256_cvtph_ps(_mm_loadu_si128(at + 1))}};
}
inline Floats same(float x) { return {{_mm256_set1_ps(x), _mm256_set1_ps(x)}}; }
inline Floats operator*(Floats a, Floats b) {
    return {{_mm256_mul_ps(a.v[0], b.v[0]), _mm256_mul_ps(a.v[1], b.v[1])}};
}
inline Floats multiply_add(Floats a, Floats b, Floats c) {
    return {{_mm256_fmadd_ps(a.v[0], b.v[0], c.v[0]), _mm256_fmadd_ps(a.v[1], b.v[1], c.v[1])}};
}
inline void store(float* p, Floats a) { _mm256_storeu_ps(p, a.v[0]), _mm256_storeu_ps(p + 8, a.v[1]); }

#else

struct Bytes { uint8_t v[4 * LANES]; };
struct Ints { int32_t v[LANES] = {}; };
struct Floats { float v[LANES]; };

template <class Each>
inline Floats floats(Each each) {
    Floats out;
    for (int i = 0; i < LANES; ++i) out.v[i] = each(i);
    return out;
}
inline Bytes load_bytes(const uint8_t* p) {
    Bytes out;
    std::memcpy(out.v, p, sizeof out.v);
    return out;
}
inline Bytes low_nibbles(Bytes b) {
    for (uint8_t& byte : b.v) byte &= 15;
    return b;
}
inline Bytes high_nibbles(Bytes b) {
    for (uint8_t& byte : b.v) byte >>= 4;
    return b;
}
inline Ints dot4(Ints a, const Bytes& w, const int8_t* x) {
    for (int i = 0; i < LANES; ++i)
        a.v[i] += w.v[4 * i] * x[0] + w.v[4 * i + 1] * x[1] + w.v[4 * i + 2] * x[2] + w.v[4 * i + 3] * x[3];
    return a;
}
inline Floats to_floats(Ints a) {
    return floats([&](int i) { return float(a.v[i]); });
}
inline Floats load_floats(const float* p) {
    return floats([&](int i) { return p[i]; });
}
inline Floats load_floats(const Half* p) {
    return floats([&](int i) { return widened(p[i]); });
}
inline Floats same(float x) {
    return floats([&](int) { return x; });
}
inline Floats operator*(const Floats& a, const Floats& b) {
    return floats([&](int i) { return a.v[i] * b.v[i]; });
}
inline Floats multiply_add(const Floats& a, const Floats& b, const Floats& c) {
    return floats([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
inline void store(float* p, const Floats& a) { std::memcpy(p, a.v, sizeof a.v); }

#endif
