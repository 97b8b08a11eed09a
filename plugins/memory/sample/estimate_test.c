/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/estimate_test.c - distances are exponential, weights exact, sums unbiased.
 *
 * Every seed is fixed, so every run is the same.
 */
#include "sample/estimate.h"

#include "tests/test.h"

#define LN2 0.69314718055994530942

static bool near(double a, double b, double relative)
{
    double d = a > b ? a - b : b - a;
    return d <= relative * (b < 0 ? -b : b);
}

TEST(distances_are_exponential)
{
    const uint64_t mean = 524288;
    uint64_t state = 1, below_mean = 0, below_tenth = 0, above_five = 0;
    const int n = 1000000;
    double sum = 0;
    for (int i = 0; i < n; i++) {
        uint64_t d = estimate_distance(estimate_random(&state), mean);
        sum += (double)d;
        below_mean += d < mean;
        below_tenth += d < mean / 10;
        above_five += d > 5 * mean;
    }
    CHECK(near(sum / n, (double)mean, 0.004)); /* four standard errors, 1 / sqrt(n) each */
    CHECK(near((double)below_mean / n, 0.632121, 0.004));
    CHECK(near((double)below_tenth / n, 0.0951626, 0.013));
    CHECK(near((double)above_five / n, 0.00673795, 0.05));
}

TEST(a_distance_is_the_logarithm_of_its_number)
{
    const uint64_t mean = UINT64_C(1) << 40;
    /* -ln(2^k / 2^53) is (53 - k) ln 2 */
    for (int k = 0; k < 53; k++) {
        uint64_t random = ((UINT64_C(1) << k) - 1) << 11;
        CHECK(near((double)estimate_distance(random, mean), (double)mean * (53 - k) * LN2, 1e-9));
    }
    CHECK_INT(estimate_distance(UINT64_MAX, mean), 0);
    CHECK(near((double)estimate_distance(UINT64_C(3) << 61, mean),
               (double)mean * 0.98082925301172623686, 1e-9)); /* ln(8 / 3) */
}

TEST(weights_are_one_over_the_probability)
{
    /* 1 / (1 - exp(-x)), by a calculator of more digits */
    static const struct {
        uint64_t size, mean;
        double weight;
    } known[] = {{1, 1, 1.5819767068693264244},         {1, 2, 2.5414940825367984},
                 {1, 100, 100.50083333194443},          {1, 99, 99.50084174941034},
                 {16, 524288, 32768.50000254313},       {524288, 524288, 1.5819767068693264244},
                 {5242880, 524288, 1.0000454019910097}, {UINT64_C(1) << 26, 524288, 1},
                 {16, UINT64_C(1) << 40, 68719476736.5}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (!CHECK(near(estimate_weight(known[i].size, known[i].mean), known[i].weight, 1e-9)))
            printf("# %.15g, not %.15g\n", estimate_weight(known[i].size, known[i].mean),
                   known[i].weight);
    CHECK(estimate_weight(0, 0) > 1); /* nobody asks, and nothing breaks */
}

TEST(roots)
{
    CHECK(near(estimate_root(2), 1.41421356237309504880, 1e-12));
    CHECK(near(estimate_root(1e20), 1e10, 1e-12));
    CHECK(near(estimate_root(1e-9), 3.1622776601683794e-5, 1e-12));
    CHECK(estimate_root(0) == 0 && estimate_root(-1) == 0);
}

/* Allocations of these sizes, sampled `rounds` times: the estimates' mean is the truth, their
 * spread what the variance says. */
static void sums_are_unbiased(const uint64_t *sizes, int n_sizes, int each, uint64_t mean)
{
    uint64_t state = 42;
    const int rounds = 400;
    double truth = 0, sum = 0, squares = 0, variances = 0;
    for (int k = 0; k < n_sizes; k++)
        truth += (double)sizes[k] * each;
    for (int round = 0; round < rounds; round++) {
        uint64_t left = estimate_distance(estimate_random(&state), mean);
        double estimate = 0;
        for (int i = 0; i < each * n_sizes; i++) {
            uint64_t size = sizes[i % n_sizes];
            if (left >= size) {
                left -= size;
                continue;
            }
            double weight = estimate_weight(size, mean);
            estimate += (double)size * weight;
            variances += estimate_variance(weight) * (double)size * (double)size;
            left = estimate_distance(estimate_random(&state), mean);
        }
        sum += estimate;
        squares += (estimate - truth) * (estimate - truth);
    }
    double error = estimate_root(squares / rounds), told = estimate_root(variances / rounds);
    if (!CHECK(near(sum / rounds, truth, 4 * error / 20 / truth))) /* 20: root of rounds */
        printf("# estimate %g, truth %g, error %g\n", sum / rounds, truth, error);
    if (!CHECK(near(told, error, 0.15)))
        printf("# said to be %g off, was %g\n", told, error);
}

TEST(estimates_are_unbiased_whatever_the_sizes)
{
    static const uint64_t small[] = {16, 24, 32, 64, 200}, one[] = {64},
                          mixed[] = {16, 100000, 64, 3000000, 500, 20000000},
                          large[] = {400000, 600000, 1000000};
    sums_are_unbiased(small, 5, 5000, 16384);
    sums_are_unbiased(one, 1, 20000, 16384);
    sums_are_unbiased(mixed, 6, 200, 524288);
    sums_are_unbiased(large, 3, 500, 524288);
}

int main(void)
{
    RUN(distances_are_exponential);
    RUN(a_distance_is_the_logarithm_of_its_number);
    RUN(weights_are_one_over_the_probability);
    RUN(roots);
    RUN(estimates_are_unbiased_whatever_the_sizes);
    return test_end();
}
