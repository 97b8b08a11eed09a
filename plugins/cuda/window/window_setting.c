/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/window/window_setting.c - 'always', '2%' and '2s/20s'.
 *
 * Threads: any; no state.
 */
#include "window/window_setting.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "probing_sdk.h"

#define WINDOW_LEAST_NS (PROBING_NS_PER_S / 20) /* shorter ones are mostly edges */
#define PERIOD_MOST_NS (3600 * PROBING_NS_PER_S)

/* "500ms", up to `end`: ns; 0: it is none. */
static uint64_t span_of(const char *text, const char *end)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"ms", 1000000}, {"s", PROBING_NS_PER_S}, {"m", 60 * PROBING_NS_PER_S}};
    size_t n = strspn(text, "0123456789");
    char digits[8] = "";
    uint64_t number = 0;
    if (n == 0 || n >= sizeof(digits))
        return 0;
    memcpy(digits, text, n);
    (void)probing_parse_u64(digits, UINT32_MAX, &number);
    for (size_t i = 0; i < PROBING_LENGTH(units); i++)
        if (strlen(units[i].name) == (size_t)(end - text) - n &&
            memcmp(text + n, units[i].name, (size_t)(end - text) - n) == 0)
            return number * units[i].ns;
    return 0;
}

/* "2s/20s": for 2 s of every 20 s. */
static bool read_period(const char *value, struct window_rule *ret)
{
    const char *slash = strchr(value, '/');
    if (!slash)
        return false;
    ret->window_ns = span_of(value, slash);
    ret->period_ns = span_of(slash + 1, slash + strlen(slash));
    return ret->window_ns >= WINDOW_LEAST_NS && ret->period_ns <= PERIOD_MOST_NS &&
           ret->period_ns >= ret->window_ns + WINDOW_LEAST_NS;
}

/* "2%", "0.5%". */
static bool read_share(const char *value, struct window_rule *ret)
{
    size_t whole = strspn(value, "0123456789"), n = whole, digits = 0;
    if (value[n] == '.')
        digits = strspn(value + n + 1, "0123456789");
    n += digits ? digits + 1 : 0;
    if (whole == 0 || whole > 2 || digits > 6 || strcmp(value + n, "%") != 0)
        return false;
    double number = 0, unit = 1;
    for (size_t i = 0; i < n; i++) {
        unit *= i > whole ? 10 : 1;
        number = value[i] == '.' ? number : 10 * number + (value[i] - '0');
    }
    ret->share = number / unit / 100;
    return ret->share >= WINDOW_SHARE_LEAST && ret->share <= WINDOW_SHARE_MOST;
}

int window_setting(const struct probing_host *host, const char *value, struct window_rule *ret)
{
    *ret = (struct window_rule){.share = 0};
    if (strcmp(value, "always") == 0 || read_share(value, ret))
        return 0;
    *ret = (struct window_rule){.share = 0};
    return read_period(value, ret)
               ? 0
               : probing_failf(
                     host, -EINVAL,
                     "cuda.window is the share of the program's time that tracing may cost, as "
                     "'2%%' (0.1%% to 50%%); or 'always'; or how long of which time is traced, as "
                     "'2s/20s': from 50ms on, up to 60m, and with 50ms between; not '%s'",
                     value);
}
