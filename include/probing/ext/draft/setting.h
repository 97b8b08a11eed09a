/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/setting.h - "probing.setting/1", by the core: settings that change others.
 *
 * Draft: may change until two plugins use it; the id stays.
 */
#ifndef PROBING_EXT_SETTING_H
#define PROBING_EXT_SETTING_H

#include <stdint.h>

#include <probing/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_SETTING_1 "probing.setting/1"

struct probing_setting_1 {
    uint32_t size, reserved;
    /* Inside of configure(): another setting of this plugin has got a value by the one that is
     * being set.  From then on `config` says so; configure() is not called for it.  value: as a
     * user writes it.  -ENOENT: no such setting; -EINVAL, -ERANGE: not of its type or range;
     * -EWOULDBLOCK: not inside of configure().
     *                                                                              [control] */
    int (*holds)(const struct probing_host *h, const char *name, const char *value);
};

#ifdef __cplusplus
}
#endif
#endif
