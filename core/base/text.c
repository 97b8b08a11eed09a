/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/text.c - numbers with units out of text, the words for what is none, and "did you
 * mean".
 *
 * Any thread.
 */
#include "core/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"

#define NAME_MAX_LETTERS 64

int parse_u64(const char *text, uint64_t *ret)
{
    int rc = number_u64(text, strlen(text), ret);
    if (rc == -ERANGE)
        return err_set(rc, "'%.40s' is too large (at most %llu)", text,
                       (unsigned long long)UINT64_MAX);
    return rc ? err_set(rc, "'%.40s' is not a whole number", text) : 0;
}

int parse_i64(const char *text, int64_t *ret)
{
    int rc = number_i64(text, strlen(text), ret);
    if (rc == -ERANGE)
        return err_set(rc, "'%.40s' does not fit in 64 bits", text);
    return rc ? err_set(rc, "'%.40s' is not a whole number", text) : 0;
}

int parse_f64(const char *text, size_t n, double *ret)
{
    int rc = number_f64(text, n, ret), shown = (int)(n < 40 ? n : 40);
    if (rc == -ENOMEM)
        return err_set(rc, "no memory to read '%.*s'", shown, text);
    if (rc == -ERANGE)
        return err_set(rc, "'%.*s' is too large for a double", shown, text);
    return rc ? err_set(rc, "'%.*s' is not a number", shown, text) : 0;
}

static bool is_one_of(const char *text, const char *const words[4])
{
    for (size_t i = 0; i < 4; i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    return false;
}

static const char *const yes_words[] = {"on", "true", "yes", "1"};
static const char *const no_words[] = {"off", "false", "no", "0"};

int parse_bool(const char *text, bool *ret)
{
    bool yes = is_one_of(text, yes_words);
    if (!yes && !is_one_of(text, no_words))
        return err_set(-EINVAL, "'%.40s' is neither on nor off", text);
    *ret = yes;
    return 0;
}

bool text_is_off(const char *text)
{
    return text[0] == '\0' || is_one_of(text, no_words);
}

struct unit {
    const char *name;
    uint64_t factor;
};

/* A number, whole or with a fraction, and one of the units. */
static int with_unit(const char *text, const struct unit *units, const char *what,
                     const char *example, uint64_t *ret)
{
    size_t n = strspn(text, "0123456789");
    size_t whole = n;
    uint64_t value = 0;
    double fraction = 0;
    if (text[n] == '.') {
        n += 1 + strspn(text + n + 1, "0123456789");
        if (whole == 0 || n == whole + 1 || parse_f64(text + whole, n - whole, &fraction) < 0)
            return err_set(-EINVAL, "'%.40s' is not %s (try %s)", text, what, example);
    }
    int rc = number_u64(text, whole, &value);
    if (rc == -EINVAL)
        return err_set(rc, "'%.40s' is not %s (try %s)", text, what, example);
    for (const struct unit *u = units; u->name; u++) {
        if (strcasecmp(text + n, u->name) != 0)
            continue;
        if (rc || __builtin_mul_overflow(value, u->factor, &value) ||
            __builtin_add_overflow(value, (uint64_t)(fraction * (double)u->factor), &value))
            return err_set(-ERANGE, "'%.40s' is too large for %s", text, what);
        *ret = value;
        return 0;
    }
    return err_set(-EINVAL, "'%.40s' has the unknown unit '%.20s' (try %s)", text, text + n,
                   example);
}

int parse_ns(const char *text, uint64_t *ret)
{
    static const struct unit units[] = {{"", UINT64_C(1000000000)},
                                        {"ns", 1},
                                        {"us", 1000},
                                        {"ms", 1000000},
                                        {"s", UINT64_C(1000000000)},
                                        {"m", UINT64_C(60000000000)},
                                        {"min", UINT64_C(60000000000)},
                                        {"h", UINT64_C(3600000000000)},
                                        {"d", UINT64_C(86400000000000)},
                                        {NULL, 0}};
    return with_unit(text, units, "a duration", "\"250ms\", \"10s\" or \"2h\"", ret);
}

int parse_bytes(const char *text, uint64_t *ret)
{
    static const struct unit units[] = {{"", 1},
                                        {"b", 1},
                                        {"k", 1 << 10},
                                        {"kb", 1 << 10},
                                        {"kib", 1 << 10},
                                        {"m", 1 << 20},
                                        {"mb", 1 << 20},
                                        {"mib", 1 << 20},
                                        {"g", 1 << 30},
                                        {"gb", 1 << 30},
                                        {"gib", 1 << 30},
                                        {"t", UINT64_C(1) << 40},
                                        {"tb", UINT64_C(1) << 40},
                                        {"tib", UINT64_C(1) << 40},
                                        {NULL, 0}};
    return with_unit(text, units, "a size", "\"64K\", \"10MB\" or \"1GB\"", ret);
}

/* Units from the smallest, each a multiple of the one before. */
static void in_units(int64_t number, const struct unit *units, char ret[TEXT_AMOUNT_BYTES])
{
    size_t best = 0;
    for (size_t i = 0; units[i].name && number != 0; i++)
        if (number % (int64_t)units[i].factor == 0)
            best = i;
    (void)snprintf(ret, TEXT_AMOUNT_BYTES, "%lld%s",
                   (long long)(number / (int64_t)units[best].factor),
                   number != 0 ? units[best].name : "");
}

void text_ns(int64_t ns, char ret[TEXT_AMOUNT_BYTES])
{
    static const struct unit units[] = {{"ns", 1},
                                        {"us", 1000},
                                        {"ms", 1000000},
                                        {"s", UINT64_C(1000000000)},
                                        {"m", UINT64_C(60000000000)},
                                        {"h", UINT64_C(3600000000000)},
                                        {"d", UINT64_C(86400000000000)},
                                        {NULL, 0}};
    in_units(ns, units, ret);
}

void text_bytes(int64_t bytes, char ret[TEXT_AMOUNT_BYTES])
{
    static const struct unit units[] = {{"", 1},         {"KB", 1 << 10},           {"MB", 1 << 20},
                                        {"GB", 1 << 30}, {"TB", UINT64_C(1) << 40}, {NULL, 0}};
    in_units(bytes, units, ret);
}

/* How many letters must be changed, added, removed or swapped with their neighbour. */
static size_t edit_distance(const char *a, size_t n, const char *b, size_t m)
{
    uint8_t rows[3][NAME_MAX_LETTERS + 1];
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = (uint8_t)j;
    for (size_t i = 1; i <= n; i++) {
        uint8_t *now = rows[i % 3], *before = rows[(i + 2) % 3], *first = rows[(i + 1) % 3];
        now[0] = (uint8_t)i;
        for (size_t j = 1; j <= m; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            uint8_t best = (uint8_t)(before[j - 1] + (x != y));
            if (before[j] + 1 < best)
                best = (uint8_t)(before[j] + 1);
            if (now[j - 1] + 1 < best)
                best = (uint8_t)(now[j - 1] + 1);
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]) && first[j - 2] + 1 < best)
                best = (uint8_t)(first[j - 2] + 1);
            now[j] = best;
        }
    }
    return rows[n % 3][m];
}

const char *text_nearest(const char *word, const char *const *names, size_t n)
{
    size_t letters = strnlen(word, NAME_MAX_LETTERS + 1);
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;
    if (letters == 0 || letters > NAME_MAX_LETTERS)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t m = names[i] ? strnlen(names[i], NAME_MAX_LETTERS + 1) : 0;
        if (m == 0 || m > NAME_MAX_LETTERS)
            continue;
        size_t d = edit_distance(word, letters, names[i], m);
        size_t longer = letters > m ? letters : m;
        if (d < best_distance && d * 3 <= longer) {
            best_distance = d;
            best = names[i];
        }
    }
    return best;
}

bool text_is_name(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return n >= 1 && n <= 63 && text[n] == '\0' && text[0] >= 'a' && text[0] <= 'z';
}

bool text_is_listed(const char *list, const char *name, size_t n)
{
    for (const char *at = list + strspn(list, ", "); *at; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ", ");
        if (length == n && strncmp(at, name, n) == 0)
            return true;
        at += length;
    }
    return false;
}
