/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/report_writer.c - the first and last lines of a report, the same from either writer.
 * Signal handlers and the thread of the reports; the format is drawn in core/crash/report_reader.c.
 */
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/crash/internal.h"
#include "core/stack/stack.h"
#include "sdk/lib/proc/memory.h"

#define WORD_BYTES 128 /* of a text in a call_mark */

#if defined(__x86_64__)
#define MACHINE "x86_64"
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#endif

void write_fault(struct lines *l, const char *word, int32_t tid, const siginfo_t *info)
{
    lines_text(l, word);
    lines_number(l, tid);
    lines_number(l, info->si_signo);
    lines_number(l, info->si_code);
    if (info->si_code <= 0) { /* somebody sent it */
        lines_text(l, " from");
        lines_number(l, info->si_pid);
        lines_number(l, info->si_uid);
    } else if (info->si_signo == SIGSYS) {
        lines_text(l, " call");
        lines_number(l, info->si_syscall);
    } else if (info->si_code != SI_KERNEL) {
        lines_text(l, " at");
        lines_hex(l, (uint64_t)(uintptr_t)info->si_addr);
    }
    lines_text(l, "\n");
}

static void write_registers(struct lines *l, const void *context) /* [signal] */
{
    struct stack_registers r = {.known = 0};
    stack_registers_of(context, &r);
    lines_text(l, "registers " MACHINE);
    for (int i = 0; i <= STACK_REG_IP; i++)
        lines_hex(l, r.value[i]);
    lines_text(l, "\n");
}

void write_head(struct lines *l)
{
    struct timespec now = {.tv_sec = 0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    uint32_t number = atomic_fetch_add_explicit(&crash_state.reports, 1, memory_order_relaxed) + 1;
    lines_text(l, "crash");
    lines_number(l, number);
    lines_text(l, "\ntime");
    lines_number(l, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec);
    lines_text(l, "\nprocess");
    lines_number(l, syscall(SYS_getpid));
    lines_text(l, "\n");
    for (int i = 0; i < CRASH_FAULTS; i++) {
        const struct crash_fault *f = &crash_state.faults[i];
        int32_t tid = atomic_load_explicit(&f->tid, memory_order_acquire);
        if (tid == 0)
            continue;
        write_fault(l, i == 0 ? "fault" : "also", tid, &f->info);
        if (i == 0)
            write_registers(l, f->context);
    }
    lines_flush(l);
}

void write_inside(struct lines *l, const char *plugin, const char *function, const char *name)
{
    lines_text(l, "inside ");
    lines_clean(l, plugin);
    lines_text(l, " ");
    lines_clean(l, function);
    lines_text(l, name[0] ? " " : "");
    lines_clean(l, name);
    lines_text(l, "\n");
}

/* Not by its pointer: a thread that crashed may have written over its own stack.     [signal] */
static void copy_call_text(const char *from, char ret[WORD_BYTES])
{
    struct proc_memory own = PROC_MEMORY_OF(0);
    size_t n = from ? proc_memory_read(&own, (uint64_t)(uintptr_t)from, ret, WORD_BYTES - 1) : 0;
    ret[n] = '\0';
}

bool write_call(struct lines *l, const struct crash_fault *f)
{
    struct proc_memory own = PROC_MEMORY_OF(0);
    struct call_mark m;
    char plugin[WORD_BYTES], function[WORD_BYTES], name[WORD_BYTES];
    if (!f->call ||
        proc_memory_read(&own, (uint64_t)(uintptr_t)f->call, &m, sizeof(m)) != sizeof(m))
        return false;
    copy_call_text(m.plugin, plugin);
    copy_call_text(m.function, function);
    copy_call_text(m.name, name);
    if (plugin[0] && function[0])
        write_inside(l, plugin, function, name);
    return plugin[0] && function[0];
}

void write_end(struct lines *l, uint64_t took_ns, const char *note)
{
    lines_text(l, "end");
    lines_number(l, (int64_t)took_ns);
    lines_text(l, " ");
    lines_clean(l, note);
    lines_text(l, "\n");
    lines_flush(l);
}
