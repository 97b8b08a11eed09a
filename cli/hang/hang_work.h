/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/hang_work.h - what a process has done so far, by what the kernel counts: between two
 * looks it tells one that computes from one that waits.
 *
 * One thread; reads /proc only, of any process that may be looked at.
 */
#ifndef CLI_HANG_HANG_WORK_H
#define CLI_HANG_HANG_WORK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* All since the process began; HANG_UNKNOWN where the kernel does not say it. */
struct hang_work {
    int64_t at_ns;   /* when this was read: clock_monotonic() */
    int64_t woken;   /* times that the thread gave up the processor, and was woken again */
    int64_t busy_ns; /* processor time of all of its threads and of its children (data loaders), and
                      * the time that the thread has waited for a processor */
    int64_t bytes;   /* that it has read and written */
    int64_t ran_ns;  /* that the thread has run, to the nanosecond */
    int64_t still_ns; /* since the thread ran last; or more, where somebody has looked */
};

/* pid 0: one whose numbers are not to be had.  tid: its thread; 0: the main one. */
void hang_work_read(pid_t pid, pid_t tid, struct hang_work *ret);
/* As a line without its end, and back; what is no such line is of unknown numbers. */
void hang_work_write(const struct hang_work *w, char *ret, size_t size);
void hang_work_parse(const char *line, size_t size, struct hang_work *ret);

#endif
