/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/empty_reason.c - why a table of this plugin has no rows, for whoever asked for
 * them.
 *
 * Workers, beside the tick: what is read of its state is _Atomic.
 */
#include "empty_reason.h"

#include <unistd.h>

#include "computed.h"
#include "lib/proc/lines.h"

static int copy_reason(char *text, uint32_t size, const char *why)
{
    (void)snprintf(text, size, "%s", why);
    return 0;
}

static int describe_unreadable(char *text, uint32_t size, const char *path, int error)
{
    (void)snprintf(text, size, "%s cannot be read: %s", path, strerror(-error));
    return 0;
}

static int why_kmsg(char *text, uint32_t size)
{
    uint64_t restricted = 0;
    int fd = kmsg_open();
    if (fd >= 0) {
        (void)close(fd);
        return copy_reason(text, size, "the kernel's log is empty, or may not be read here");
    }
    (void)proc_number_in("/proc/sys/kernel/dmesg_restrict", "", &restricted);
    (void)snprintf(text, size, "/dev/kmsg cannot be opened: %s%s", strerror(-fd),
                   restricted && (fd == -EPERM || fd == -EACCES)
                       ? " (kernel.dmesg_restrict=1: the process needs CAP_SYSLOG)"
                       : "");
    return 0;
}

static int why_pressure(int error, char *text, uint32_t size)
{
    if (error == -EOPNOTSUPP)
        return copy_reason(text, size,
                           "pressure stall information is off: boot the kernel with psi=1");
    if (error == -ENOENT)
        return copy_reason(text, size,
                           "the kernel has no pressure stall information (Linux 4.20, "
                           "CONFIG_PSI)");
    return error ? describe_unreadable(text, size, "/proc/pressure", error) : -ENOENT;
}

int system_why_empty(const struct system_state *s, const char *table, char *text, uint32_t size)
{
    int io = atomic_load_explicit(&s->io->error, memory_order_relaxed);
    int peers = atomic_load_explicit(&s->peers->error, memory_order_relaxed);
    int net = atomic_load_explicit(&s->net->error, memory_order_relaxed);
    if (strcmp(table, "process.kmsg") == 0)
        return why_kmsg(text, size);
    if (strcmp(table, "rdma.counters") == 0)
        return copy_reason(text, size,
                           access(s->rdma->root, F_OK) == 0
                               ? "no InfiniBand or RoCE device has a port in "
                                 "/sys/class/infiniband"
                               : "no InfiniBand or RoCE device here (/sys/class/infiniband "
                                 "is not there)");
    if (strcmp(table, "system.numa") == 0)
        return copy_reason(text, size,
                           "the kernel shows no memory nodes in /sys/devices/system/node");
    if (strcmp(table, "system.pressure") == 0 &&
        why_pressure(atomic_load_explicit(&s->pressure->error, memory_order_relaxed), text, size) ==
            0)
        return 0;
    if (strcmp(table, "cgroup.utilization") == 0 && s->ticked &&
        !atomic_load_explicit(&s->cgroup->known, memory_order_relaxed))
        return copy_reason(text, size,
                           "the process's cgroup is not to be seen in any mount (/proc/self/"
                           "cgroup, /proc/self/mountinfo)");
    if (strcmp(table, "io.utilization") == 0 && io)
        return describe_unreadable(text, size, "/proc/self/io", io);
    if (strcmp(table, "net.utilization") == 0 && net)
        return describe_unreadable(text, size, "/proc/self/net/dev", net);
    if (strcmp(table, "net.connections") == 0)
        return copy_reason(text, size, "the process has no TCP socket");
    if (strcmp(table, "net.peers") == 0 && peers)
        return describe_unreadable(text, size, "/proc/self/fd", peers);
    if (strcmp(table, "net.peers") == 0 && s->ticked)
        return copy_reason(
            text, size,
            "no TCP connection of the process has been seen (net.connections has those of "
            "now)");
    return s->ticked ? -ENOENT
                     : copy_reason(text, size, "the first look is still to come: system.interval");
}
