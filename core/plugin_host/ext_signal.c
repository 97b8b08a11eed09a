/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/ext_signal.c - "probing.signal/1" for plugins, over core/base/owned_signals.h.
 *
 * Any thread.  The core's own signal stands above those of plugins: see
 * core/stack/capture_signal.c.
 */
#include <errno.h>
#include <probing/ext/draft/signal.h>

#include "core/base/owned_signals.h"
#include "core/plugin_host/plugin_host.h"

static int ext_take(int32_t number, probing_signal_fn *fn)
{
    if (number == 0)
        return signals_take_below(SIGRTMAX - 1, fn);
    if (number < 0 || number > SIGRTMAX)
        return -EINVAL;
    int rc = signals_take(number, fn);
    return rc < 0 ? rc : number;
}

static bool ext_is_ours(int32_t number)
{
    return signals_is_ours(number);
}

static int ext_give(int32_t number)
{
    return signals_give(number);
}

int host_signal_add(struct host *h)
{
    static const struct probing_signal_1 part = {
        .size = sizeof(part), .take = ext_take, .is_ours = ext_is_ours, .give = ext_give};
    return host_extension_add(h, PROBING_SIGNAL_1, &part);
}
