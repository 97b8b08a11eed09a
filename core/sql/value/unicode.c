/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/unicode.c - UTF-8 to letters and back, and upper and lower case, and what a
 * letter is, without a locale.
 *
 * Any thread.
 */
#include "core/sql/value/unicode.h"

#include <stdbool.h>
#include <stddef.h>

#include "core/sql/value/case_ranges.h"
#include "core/sql/value/letter_ranges.h"

uint32_t unicode_put(uint32_t letter, char out[UNICODE_BYTES])
{
    static const uint8_t heads[] = {0, 0xc0, 0xe0, 0xf0};
    uint32_t more = letter < 0x80 ? 0 : letter < 0x800 ? 1 : letter < 0x10000 ? 2 : 3;
    if (letter >= NO_LETTER) {
        out[0] = (char)(letter - NO_LETTER);
        return 1;
    }
    out[0] = (char)(heads[more] | letter >> (6 * more));
    for (uint32_t i = 1; i <= more; i++)
        out[i] = (char)(0x80 | (letter >> (6 * (more - i)) & 0x3f));
    return more + 1;
}

static uint32_t change_letter(uint32_t letter, const struct case_range *ranges, size_t n)
{
    size_t low = 0, high = n; /* the last range that begins at or before the letter is below high */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].first <= letter)
            low = middle + 1;
        else
            high = middle;
    }
    const struct case_range *r = low ? &ranges[low - 1] : NULL;
    bool in = r && letter <= r->last && (letter - r->first) % r->step == 0;
    return in ? (uint32_t)((int64_t)letter + r->delta) : letter;
}

uint32_t unicode_lower(uint32_t letter)
{
    if (letter < 0x80)
        return letter >= 'A' && letter <= 'Z' ? letter + 32 : letter;
    return change_letter(letter, to_lower, sizeof(to_lower) / sizeof(*to_lower));
}

uint32_t unicode_upper(uint32_t letter)
{
    if (letter < 0x80)
        return letter >= 'a' && letter <= 'z' ? letter - 32 : letter;
    return change_letter(letter, to_upper, sizeof(to_upper) / sizeof(*to_upper));
}

bool unicode_is_letter(uint32_t letter)
{
    size_t low = 0, high = sizeof(letter_ranges) / sizeof(*letter_ranges);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (letter_ranges[middle][0] <= letter)
            low = middle + 1;
        else
            high = middle;
    }
    return low && letter <= letter_ranges[low - 1][1];
}
