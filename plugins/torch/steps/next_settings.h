/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/next_settings.h - what the user has set; it holds from the next step on.
 *
 * Threads: as each comment says.
 */
#ifndef TORCH_STEPS_NEXT_SETTINGS_H
#define TORCH_STEPS_NEXT_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#define LIST_BYTES 2048 /* of exprs and layers */

/* The user's settings; settings.c. */
struct settings {
    uint32_t every;    /* steps: one in so many is recorded; 0: by `rate` */
    double rate;       /* share of the steps */
    uint32_t baseline; /* one step in so many is left without rows; 0: none */
    bool backward;     /* rows for modules' backward */
    bool memory;       /* of the GPU, at each call of a module */
    bool device_times; /* how long calls take on the GPU */
    bool nan;          /* look for the first module that makes a NaN or an infinity */
    bool exprs_chosen; /* the user has named `exprs` */
    char exprs[LIST_BYTES], layers[LIST_BYTES];
    uint32_t layers_version; /* names are looked at again when it changes */
};

void settings_hand(const struct settings *s); /* [control] */
/* Copy what was handed in; false: nothing has since the last time.  With the GIL. */
bool settings_take(struct settings *ret);
void settings_take_over(struct settings *ret); /* as they will be in the next step          [any] */

#endif
