/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables/number_text_test.c - it is what printf writes, for every kind of number.
 *
 * Threads: one.
 */
#include "variables/number_text.h"

#include <math.h>
#include <stdint.h>

#include "tests/test.h"

#define TRIES 300000

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void check_same(double number)
{
    char ours[NUMBER_TEXT_BYTES], printfs[64];
    number_text(number, ours);
    (void)snprintf(printfs, sizeof(printfs), "%.9g", number);
    CHECK_STR(ours, printfs);
}

TEST(chosen_numbers)
{
    static const double numbers[] = {0,
                                     -0.0,
                                     1,
                                     -1,
                                     0.1,
                                     1e-3,
                                     1e-4,
                                     1e-5,
                                     3e-5,
                                     9.99999e-5,
                                     1e-10,
                                     9.9e-11,
                                     1e-300,
                                     5e-324,
                                     1e8,
                                     999999999,
                                     999999999.4,
                                     999999999.5,
                                     999999999.9,
                                     1e9,
                                     1.5e9,
                                     1e300,
                                     0.5,
                                     2.5,
                                     123456789.5,
                                     123456788.5,
                                     1234567.125,
                                     0.30000000000000004,
                                     100,
                                     120,
                                     0.00012,
                                     0.000123456789123,
                                     99999.99995,
                                     9.9999999995,
                                     0.09999999999,
                                     INFINITY,
                                     -INFINITY,
                                     2.302585092994046};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        check_same(numbers[i]);
    char text[NUMBER_TEXT_BYTES];
    number_text((double)NAN, text);
    CHECK_STR(text, "nan");
    number_text(-(double)NAN, text);
    CHECK_STR(text, "nan");
}

TEST(random_numbers)
{
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < TRIES; i++) {
        uint64_t bits = next(&state);
        double number;
        memcpy(&number, &bits, sizeof(number));
        if (number == number)
            check_same(number); /* of any size */
        check_same((double)(float)ldexp((double)(bits >> 40), (int)(bits % 64) - 60)); /* losses */
        check_same((double)(bits >> 20) / 2e6); /* halves, thousandths */
        check_same((double)(bits % 2000000001) / 2 - 5e8);
        check_same((double)(bits % 100000) * pow(10, (double)(bits >> 60) - 12));
    }
}

int main(void)
{
    RUN(chosen_numbers);
    RUN(random_numbers);
    return test_end();
}
