/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/window/window_setting.h - cuda.window as a person writes it.
 *
 * Threads: any.
 */
#ifndef CUDA_WINDOW_WINDOW_SETTING_H
#define CUDA_WINDOW_WINDOW_SETTING_H

#include <probing/plugin.h>

#include "window/trace_window.h"

#define WINDOW_DEFAULT "2%"

/* 0, or -EINVAL, said. */
int window_setting(const struct probing_host *host, const char *value, struct window_rule *ret);

#endif
