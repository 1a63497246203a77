// Vectors of floats, as wide as the machine's, with the few functions that the kernels need on them.

#pragma once

#include <cstdint>
#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

#if defined(PANDO_AVX512) && defined(__AVX512DQ__)
#define PANDO_AVX512
constexpr int VL = 16;
#elif defined(__AVX2__)
constexpr int VL = 8;
#else
constexpr int VL = 4;
#endif

constexpr long LINE = 16;  // floats in a line of the caches: threads had better not share one

typedef float Vec __attribute__((vector_size(VL * 4)));
typedef float UnalignedVec __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int32_t IntVec __attribute__((vector_size(VL * 4)));

inline Vec load(const float* p) { return *reinterpret_cast<const UnalignedVec*>(p); }
inline Vec load_first(const float* p, long count) {  // and zeros
    Vec v = {};
    for (long i = 0; i < count; ++i) v[i] = p[i];
    return v;
}
inline void store(float* p, Vec v) { *reinterpret_cast<UnalignedVec*>(p) = v; }
inline Vec broadcast(float x) { return Vec{} + x; }

// a * b + c, rounded once. Left to the compiler, tiles of one sum would be rounded twice.
inline Vec multiply_add(Vec a, Vec b, Vec c) {
#if defined(PANDO_AVX512)
    return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
    return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

inline float sum(Vec v) {
    float total = 0;
    for (int i = 0; i < VL; ++i) total += v[i];
    return total;
}

// The sums of four vectors' lanes.
#if defined(__AVX2__) && defined(__FMA__)
inline __m256 fold(Vec v) {
#if defined(PANDO_AVX512)
    return _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
#else
    return (__m256)v;
#endif
}
inline void sum4(Vec a, Vec b, Vec c, Vec d, float* out) {
    __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(fold(a), fold(b)), _mm256_hadd_ps(fold(c), fold(d)));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
}
#else
inline void sum4(Vec a, Vec b, Vec c, Vec d, float* out) {
    out[0] = sum(a), out[1] = sum(b), out[2] = sum(c), out[3] = sum(d);
}
#endif

// exp for x <= 88: 2^n * e^r with |r| <= ln 2 / 2, e^r by its Taylor series to r^6 (error 1.2e-7).
inline Vec exp_vec(Vec x) {
    x = x < broadcast(-87.0f) ? broadcast(-87.0f) : x;
    x = x > broadcast(88.0f) ? broadcast(88.0f) : x;
    Vec turns = x * 1.44269504f;
    Vec half = turns < broadcast(0) ? broadcast(-0.5f) : broadcast(0.5f);
    IntVec n = __builtin_convertvector(turns + half, IntVec);
    Vec nf = __builtin_convertvector(n, Vec);
    Vec r = x - nf * 0.693359375f + nf * 2.12194440e-4f;  // ln 2 in two parts
    Vec p = broadcast(1.0f / 720);
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    IntVec bits = (n + 127) << 23;
    return p * (Vec)bits;
}
