/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/fallback_report.c - what the thread that crashed can write by itself when ours does
 * not answer: registers, stacks as they lie in memory, and the memory map, for a reader to unwind
 * afterwards. In the handler.  System calls only; what it needs lies in static memory, the stack
 * may be small.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/crash/internal.h"
#include "core/stack/stack.h"
#include "sdk/lib/proc/memory.h"
#include "sdk/lib/proc/task.h"

#define OWN_BYTES (256u << 10)  /* of the stack of the thread that crashed */
#define OTHER_BYTES (32u << 10) /* of each other that waits in a system call */
#define RED_ZONE 128u           /* below the stack pointer, x86-64 */
#define TASKS_MAX 256u
#define RAW_NS NS_PER_S

/* The handler's: only who crashed first comes here, once at a time. */
static struct {
    struct lines lines;
    unsigned char piece[4096];
    char text[4096];
    pid_t tids[TASKS_MAX];
    uint64_t deadline;
} raw;

static bool is_zero(const unsigned char *bytes, size_t n) /* [signal] */
{
    while (n > 0 && bytes[n - 1] == 0)
        n--;
    return n == 0;
}

/* "memory ADDRESS BYTES": whole pages, which is how a reader wants them.             [signal] */
static void write_memory(uint64_t from, uint64_t size)
{
    uint64_t end = from + size;
    for (uint64_t at = from - from % sizeof(raw.piece); at < end && crash_now() < raw.deadline;
         at += sizeof(raw.piece)) {
        if (proc_own_memory(at, raw.piece, sizeof(raw.piece)) != sizeof(raw.piece))
            return;
        if (is_zero(raw.piece, sizeof(raw.piece)))
            continue;
        lines_text(&raw.lines, "memory");
        lines_hex(&raw.lines, at);
        lines_text(&raw.lines, " ");
        lines_bytes(&raw.lines, raw.piece, sizeof(raw.piece));
        lines_text(&raw.lines, "\n");
    }
}

static void write_thread_line(pid_t tid, const char *state) /* [signal] */
{
    char comm[16];
    task_comm(tid, comm);
    lines_text(&raw.lines, "thread");
    lines_number(&raw.lines, tid);
    lines_text(&raw.lines, " ");
    lines_text(&raw.lines, state);
    lines_text(&raw.lines, " ");
    lines_clean(&raw.lines, comm);
    lines_text(&raw.lines, "\n");
}

static void write_other(pid_t tid) /* [signal] */
{
    struct proc_syscall call;
    write_thread_line(tid, "running");
    if (proc_syscall_of(0, tid, &call) <= PROC_RUNS || call.sp == 0 || call.ip == 0) {
        lines_text(&raw.lines, "unseen\n");
        return;
    }
    lines_text(&raw.lines, "at");
    lines_hex(&raw.lines, call.ip);
    lines_hex(&raw.lines, call.sp);
    lines_text(&raw.lines, "\n");
    write_memory(call.sp - RED_ZONE, OTHER_BYTES);
}

static bool has_crashed(pid_t tid) /* [signal] */
{
    bool found = false;
    for (int i = 0; i < CRASH_FAULTS; i++)
        found =
            found || atomic_load_explicit(&crash_state.faults[i].tid, memory_order_acquire) == tid;
    return found;
}

static void write_threads(void) /* [signal] */
{
    bool more;
    for (int i = 0; i < CRASH_FAULTS; i++) {
        const struct crash_fault *f = &crash_state.faults[i];
        struct stack_registers r = {.known = 0};
        int32_t tid = atomic_load_explicit(&f->tid, memory_order_acquire);
        if (tid == 0)
            continue;
        stack_registers_of(f->context, &r);
        write_thread_line(tid, "crashed");
        lines_text(&raw.lines, "at");
        for (int k = 0; k <= STACK_REG_IP; k++)
            lines_hex(&raw.lines, r.value[k]);
        lines_text(&raw.lines, "\n");
        (void)write_call(&raw.lines, f);
        write_memory(r.value[STACK_REG_SP] - RED_ZONE, OWN_BYTES);
    }
    uint32_t n = task_list(raw.tids, TASKS_MAX, &more);
    for (uint32_t i = 0; i < n && crash_now() < raw.deadline; i++) {
        char comm[16];
        task_comm(raw.tids[i], comm);
        if (!has_crashed(raw.tids[i]) && !task_is_ours(comm))
            write_other(raw.tids[i]);
    }
}

/* Last, because it is long: "map " and a line of proc(5) maps.                        [signal] */
static void write_maps(void)
{
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    bool begins = true;
    ssize_t n;
    while (fd != -1 && (n = read(fd, raw.text, sizeof(raw.text) - 1)) > 0) {
        raw.text[n] = '\0';
        for (char *at = raw.text; *at;) {
            char *end = at;
            while (*end && *end != '\n')
                end++;
            bool whole = *end == '\n';
            *end = '\0';
            lines_text(&raw.lines, begins ? "map " : "");
            lines_clean(&raw.lines, at);
            lines_text(&raw.lines, whole ? "\n" : "");
            begins = whole;
            at = end + whole;
        }
    }
    if (fd != -1)
        (void)close(fd);
}

void raw_report(const char *why)
{
    uint64_t begin = crash_now();
    raw.deadline = begin + RAW_NS;
    crash_open(&raw.lines);
    write_head(&raw.lines);
    write_threads();
    write_maps();
    write_end(&raw.lines, crash_now() - begin, why);
    if (raw.lines.fd != -1)
        (void)close(raw.lines.fd);
}
