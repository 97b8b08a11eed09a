/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/log.c - the last thousand lines that the core and its plugins had to say.
 *
 * Threads: any.  Nothing is ever written to the process's stdout or stderr: whoever wants to know
 * asks probing.log.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/plugin_host/internal.h"

#define LINE_MAX_BYTES 4096

void host_logs(struct host *h, int level, const char *source, const char *text)
{
    struct log *l = &h->log;

    if (host_is_off(h) || level > atomic_load_explicit(&l->level, memory_order_relaxed))
        return;
    char *copy = strndup(text ? text : "", LINE_MAX_BYTES);
    if (!copy)
        return; /* no memory to say that there is no memory */
    (void)pthread_mutex_lock(&l->mutex);
    struct log_line *line = &l->lines[l->count++ % HOST_LOG_LINES];
    char *old = line->text;
    line->ts = clock_now();
    line->level = level;
    (void)snprintf(line->source, sizeof(line->source), "%s", source);
    line->text = copy;
    (void)pthread_mutex_unlock(&l->mutex);
    free(old);
}

void host_log(struct host *h, int level, const char *format, ...)
{
    char line[LINE_MAX_BYTES];
    va_list args;

    if (host_is_off(h) || level > atomic_load_explicit(&h->log.level, memory_order_relaxed))
        return;
    va_start(args, format);
    (void)vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    host_logs(h, level, "probing", line);
}

void host_log_level(struct host *h, int level)
{
    atomic_store_explicit(&h->log.level, level, memory_order_relaxed);
}

/* Oldest first.  Lines that are overwritten meanwhile are skipped. */
int log_each(struct host *h, int (*fn)(void *arg, const struct log_line *line), void *arg)
{
    struct log *l = &h->log;
    int rc = 0;

    (void)pthread_mutex_lock(&l->mutex);
    uint64_t end = l->count, at = end > HOST_LOG_LINES ? end - HOST_LOG_LINES : 0;
    (void)pthread_mutex_unlock(&l->mutex);
    for (; at < end && rc == 0; at++) {
        (void)pthread_mutex_lock(&l->mutex);
        bool there = l->count - at <= HOST_LOG_LINES;
        struct log_line line = l->lines[at % HOST_LOG_LINES];
        line.text = there && line.text ? strdup(line.text) : NULL;
        (void)pthread_mutex_unlock(&l->mutex);
        if (line.text)
            rc = fn(arg, &line);
        free(line.text);
    }
    return rc;
}

void log_free(struct host *h)
{
    for (int i = 0; i < HOST_LOG_LINES; i++)
        free(h->log.lines[i].text);
    (void)pthread_mutex_destroy(&h->log.mutex);
}
