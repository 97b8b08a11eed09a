/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/estimate.c - distances between samples and their weights.
 */
#include "estimate.h"

#include <string.h>

#include "lib/hash.h"

#define LN2 0.69314718055994530942
#define SQRT2 1.41421356237309504880

/* splitmix64 (Steele, Lea, Flood 2014): any state is a good one. */
uint64_t estimate_random(uint64_t *state)
{
    uint64_t x = *state += HASH_GOLDEN;
    if (x == 0)
        x = *state = HASH_GOLDEN;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* -ln(x / 2^53) of 1 to 2^53: the power of two by its exponent, and of the rest, m in 0.7 to 1.4,
 * ln m = 2 atanh((m - 1) / (m + 1)), five terms of it, 1e-10 from the truth. */
static double minus_ln(uint64_t x)
{
    double m = (double)x;
    uint64_t bits;
    memcpy(&bits, &m, sizeof(bits));
    int32_t power = (int32_t)(bits >> 52) - 1023;
    bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1023) << 52;
    memcpy(&m, &bits, sizeof(m));
    if (m > SQRT2) {
        m /= 2;
        power++;
    }
    double s = (m - 1) / (m + 1), s2 = s * s;
    double ln = 2 * s * (1 + s2 * (1.0 / 3 + s2 * (1.0 / 5 + s2 * (1.0 / 7 + s2 / 9))));
    return (53 - power) * LN2 - ln;
}

uint64_t estimate_distance(uint64_t random, uint64_t mean)
{
    double d = (double)mean * minus_ln((random >> 11) + 1); /* 53 bits: at most 36.7 times mean */
    return (uint64_t)d;
}

/* exp(-x) of 0 to 40: by halves until the series of six terms is exact enough. */
static double exp_minus(double x)
{
    int halves = 0;
    for (; x > 0.01; halves++)
        x /= 2;
    double e = 1 - x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6)))));
    for (; halves > 0; halves--)
        e *= e;
    return e;
}

double estimate_weight(uint64_t size, uint64_t mean)
{
    double x = (double)(size ? size : 1) / (double)(mean ? mean : 1);
    if (x > 40) /* nothing is left to a double */
        return 1;
    if (x < 0.01) /* 1 - exp(-x) would lose digits */
        return 1 / x + 0.5 + x / 12;
    return 1 / (1 - exp_minus(x));
}

double estimate_variance(double weight)
{
    return weight * (weight - 1);
}

double estimate_root(double x)
{
    if (!(x > 0) || x > 1e300)
        return 0;
    uint64_t bits;
    double root;
    memcpy(&bits, &x, sizeof(bits));
    bits = (bits >> 1) + (UINT64_C(1023) << 51); /* half the exponent: 6 % from it */
    memcpy(&root, &bits, sizeof(root));
    for (int i = 0; i < 4; i++) /* Newton: each doubles the digits */
        root = (root + x / root) / 2;
    return root;
}
