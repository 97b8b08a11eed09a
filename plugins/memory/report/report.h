/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/report.h - what `probing memory` finds out about a process, and how it is
 * shown.
 *
 * One thread, of the command: nothing in this folder ever runs in a target.
 */
#ifndef MEMORY_REPORT_REPORT_H
#define MEMORY_REPORT_REPORT_H

#include <probing/report.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report_sdk.h"

#define MB 1048576.0
#define REPORT_NAME_BYTES 160
#define REPORT_NOTE_BYTES 256

static inline bool is_number(double v)
{
    return v == v;
}

/* A row of numbers; NAN: NULL, or there is no row. */
struct numbers {
    double value[4];
};
struct numbers numbers_unknown(void);
int take_numbers(void *arg, const struct probing_report_cell *cells, uint32_t n);

/* ---- report_usage.c: what the memory is made of ---- */

enum part {
    PART_RSS,
    PART_PSS,
    PART_PEAK,
    PART_ANON,
    PART_FILE,
    PART_SHMEM,
    PART_SWAP,
    PART_HEAP_USED,
    PART_HEAP_HELD,
    PART_OWN,
    PART_LIMIT,
    PART_LIMIT_USED,
    PART_MACHINE,
    PART_AVAILABLE,
    PARTS
};

struct usage_report {
    double part[PARTS]; /* bytes; NAN: not known */
    char note[PARTS][REPORT_NOTE_BYTES];
    /* over the time that was asked for */
    double grown, own_grown, seconds;
    /* Since when there are rows, and until when: seconds since 1970. */
    double first_sec, last_sec;
    /* As the last row of memory.usage has them. */
    double oom_kills, pressure;
    char cgroup[1024], limit_of[32], boot_id[48];
    bool without_plugin; /* the core's numbers only */
};

struct memory_args {
    const struct probing_report_api *api;
    uint64_t window_ns; /* --last, --since */
    bool json, leaks, peak, heap, trim, gc;
    const char *mark, *diff[2];
    uint32_t n_diff;
};

/* -ENODATA after fail(): there is no such plugin. */
int usage_read(const struct memory_args *w, struct usage_report *ret);
void usage_show(const struct memory_args *w, const struct usage_report *r);
void usage_show_json(const struct usage_report *r, struct report_json *j);

/* A line with a bar, as long as its share of `whole`. */
void report_bar(const struct memory_args *w, const char *words, double bytes, double whole);

/* ---- report_torch.c: whose torch's tensors are ---- */

void torch_show(const struct memory_args *w);
void torch_show_json(const struct memory_args *w, struct report_json *j);

/* ---- why_ended.c: why it has ended ---- */

/* One sentence or more, of a target that is dead. */
void death_show(const struct memory_args *w, const struct usage_report *r);
void death_show_json(const struct memory_args *w, const struct usage_report *r,
                     struct report_json *j);

/* ---- report_stacks.c: where it was allocated ---- */

void stacks_show(const struct memory_args *w, const struct usage_report *r);
void stacks_show_json(const struct memory_args *w, struct report_json *j);
/* A line of a place with its bytes and their error; less than twice that is no figure. */
void report_place(const struct memory_args *w, const char *text, double bytes, double error_bytes);
int peak_show(const struct memory_args *w);
int diff_show(const struct memory_args *w);

/* ---- report_leaks.c: what grows and is not freed ---- */

int leaks_show(const struct memory_args *w);

/* ---- memory_report.c ---- */

/* A moment in SQL, so much before the target's last sign of life. */
#define SINCE_BYTES 300
void report_since(const struct memory_args *w, uint64_t before_ns, char *ret, size_t size);
/* The first bytes of what a command in the target answers, as a text. */
struct memory_answer {
    char text[600];
    size_t n;
};
int report_call(const struct memory_args *w, int n, const char *const *words,
                struct memory_answer *ret);
/* "12.3 MB", "123 MB", "1234 MB"; "?" for NAN */
void report_mb(double bytes, char ret[32]);

#endif
