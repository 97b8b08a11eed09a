/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/sample_period.h - how long a CPU timer runs until the next sample.
 *
 * Any thread and signal handler; nothing kept.
 */
#ifndef PROFILE_SAMPLE_PERIOD_H
#define PROFILE_SAMPLE_PERIOD_H

#include <stdint.h>

/* The kernel's tick, at which it looks at CPU timers; 1 where it does not say.       [any] */
uint64_t period_tick_ns(void);

/* The time to set a timer to.  It is looked at once a tick, and shall ring after `period_ns` on
 * average, or after a tick if that is longer.  chance: another one each time.   [signal] */
uint64_t period_draw(uint64_t chance, uint64_t period_ns, uint64_t tick_ns);

#endif
