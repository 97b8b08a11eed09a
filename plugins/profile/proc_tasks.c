/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/proc_tasks.c - which threads the process has, by /proc.
 *
 * The profiler's thread only.
 */
#include "proc_tasks.h"

#include <string.h>
#include <sys/stat.h>

#include "lib/proc/task.h"

#define SAME_NS UINT64_C(500000000) /* between scans while the number of threads stays */

/* The number that the kernel gave to the newest thread or process of our pid namespace; 0: not
 * known. */
static uint64_t newest_task(void)
{
    char text[80];
    uint64_t number = 0;
    (void)proc_read_path("/proc/loadavg", text, sizeof(text));
    const char *last = strrchr(text, ' ');
    for (last = last ? last + 1 : ""; *last >= '0' && *last <= '9'; last++)
        number = number * 10 + (uint64_t)(*last - '0');
    return number;
}

enum tasks_are tasks_are(struct tasks *t, uint64_t now)
{
    struct stat folder;
    bool counted = stat("/proc/self/task", &folder) == 0;
    bool as_many = counted && t->looked_ns && folder.st_nlink == t->links;
    if (as_many && now - t->looked_ns < SAME_NS)
        return TASKS_SAME;
    uint64_t newest = newest_task(), before = t->newest;
    *t = (struct tasks){now, counted ? folder.st_nlink : 0, newest};
    if (!as_many)
        return TASKS_DIFFER;
    return newest && newest == before ? TASKS_SAME : TASKS_AS_MANY;
}

bool tasks_each(void (*fn)(void *arg, int32_t tid, uint64_t inode), void *arg)
{
    struct proc_numbers all;
    struct proc_number one;
    if (proc_threads_open(&all, 0) < 0)
        return false;
    while (proc_numbers_next(&all, &one))
        fn(arg, (int32_t)one.value, one.inode);
    proc_numbers_close(&all);
    return all.error == 0;
}

bool tasks_is_ours(int32_t tid)
{
    char comm[PROC_COMM_BYTES];
    return proc_comm_of(0, tid, comm, sizeof(comm)) == 0 && strncmp(comm, "probing/", 8) == 0;
}
