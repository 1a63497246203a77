// Vectors of floats of the machine's width, and the few functions on them that the kernels need.

#pragma once

#include <cstdint>
#include <utility>
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

constexpr long LINE = 16;  // floats in a cache line; threads should not write to the same one

typedef float Vec __attribute__((vector_size(VL * 4)));
typedef float UnalignedVec __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int32_t IntVec __attribute__((vector_size(VL * 4)));

inline Vec load(const float* p) { return *reinterpret_cast<const UnalignedVec*>(p); }
inline Vec load_first(const float* p, long count) {  // the rest is zero
    Vec v = {};
    for (long i = 0; i < count; ++i) v[i] = p[i];
    return v;
}
inline void store(float* p, Vec v) { *reinterpret_cast<UnalignedVec*>(p) = v; }
inline Vec broadcast(float x) { return x - Vec{}; }  // not x + 0, which turns -0 into 0

// a * b + c, rounded once. The compiler would otherwise round twice in tiles with a single sum.
inline Vec multiply_add(Vec a, Vec b, Vec c) {
#if defined(PANDO_AVX512)
    return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
    return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

// The vector of each(0), each(1), ...
template <class Each, int... LANE>
constexpr IntVec lanes(Each each, std::integer_sequence<int, LANE...>) {
    return IntVec{each(LANE)...};
}
template <class Each>
constexpr IntVec lanes(Each each) {
    return lanes(each, std::make_integer_sequence<int, VL>());
}

// Combines all lanes by an operation, halving the vector each time.
template <int HALF = VL / 2, class Operation>
inline float across(Vec v, Operation operation) {
    if constexpr (HALF == 0)
        return v[0];
    else
        return across<HALF / 2>(
            operation(v, __builtin_shuffle(v, lanes([](int i) { return (i + HALF) % VL; }))), operation);
}
inline float sum(Vec v) {
    return across(v, [](Vec a, Vec b) { return a + b; });
}
inline Vec larger(Vec a, Vec b) { return a > b ? a : b; }
inline float largest(Vec v) { return across(v, larger); }

// The four sums of the lanes of four vectors.
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

// One step of a transposition: swaps the two off-diagonal S x S blocks of each 2S x 2S block.
template <int S>
inline void swap_blocks(Vec* rows) {
    constexpr IntVec upper = lanes([](int i) { return i & S ? VL + i - S : i; });
    constexpr IntVec lower = lanes([](int i) { return i & S ? VL + i : i + S; });
    for (int i = 0; i < VL; ++i)
        if (!(i & S)) {
            Vec a = rows[i], b = rows[i + S];
            rows[i] = __builtin_shuffle(a, b, upper), rows[i + S] = __builtin_shuffle(a, b, lower);
        }
}

// Transposes the rows.
inline void transpose(Vec (&rows)[VL]) {
    swap_blocks<1>(rows);
    swap_blocks<2>(rows);
    if constexpr (VL > 4) swap_blocks<4>(rows);
    if constexpr (VL > 8) swap_blocks<8>(rows);
}

// out[c][r] = from[r][at + c] for VL rows and columns; rows of out are `stride` floats apart.
inline void transpose(const float* const* from, long at, float* out, long stride) {
    Vec rows[VL];
    for (int i = 0; i < VL; ++i) rows[i] = load(from[i] + at);
    transpose(rows);
    for (int i = 0; i < VL; ++i) store(out + i * stride, rows[i]);
}

// exp for x <= 88, and 0 below -87: 2^n * e^r with |r| <= ln 2 / 2, e^r by its Taylor series to r^6 (error
// 1.2e-7).
inline Vec exp_vec(Vec x) {
    constexpr float ROUND = 1.5f * (1 << 23);  // adding it drops the fraction
    x = x > broadcast(88.0f) ? broadcast(88.0f) : x;
    Vec shifted = multiply_add(x, broadcast(1.44269504f), broadcast(ROUND));
    Vec n = shifted - ROUND;
    Vec r = multiply_add(n, broadcast(-0.693359375f), x);  // ln 2 in two parts
    r = multiply_add(n, broadcast(2.12194440e-4f), r);
    Vec p = broadcast(1.0f / 720);
    p = multiply_add(p, r, broadcast(1.0f / 120));
    p = multiply_add(p, r, broadcast(1.0f / 24));
    p = multiply_add(p, r, broadcast(1.0f / 6));
    p = multiply_add(p, r, broadcast(0.5f));
    p = multiply_add(p, r, broadcast(1.0f));
    p = multiply_add(p, r, broadcast(1.0f));
    Vec y = (Vec)((IntVec)p + ((IntVec)shifted << 23));
    return x < broadcast(-87.0f) ? Vec{} : y;
}
