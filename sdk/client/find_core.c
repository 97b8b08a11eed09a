/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/client/find_core.c - a process's core by its pid: its store is mapped, and lies in its data
 * directory, beside the socket.
 *
 * One thread a client.  So it needs no environment, and finds what runs in another container.  The
 * process may map what it likes: each folder on the way is opened by itself, in that process's root
 * and without following links, and who listens must be that very process (local_connect.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sdk/client/internal.h"
#include "sdk/lib/proc/maps.h"
#include "sdk/lib/proc/task.h"

static const char STORE[] = "/data.mdb";

/* The directory of the store that `inside-...` names; "": there is none.  0 or -errno. */
static int find_mapped(pid_t pid, uint64_t inside, char *ret, size_t size)
{
    char room[PROC_MAPS_ROOM], own[32];
    struct proc_lines maps;
    struct proc_mapping m;

    (void)snprintf(own, sizeof(own), "/%llu-", (unsigned long long)inside);
    ret[0] = '\0';
    int rc = proc_maps_open(&maps, pid, room, sizeof(room));
    while (rc == 0 && !ret[0] && proc_maps_next(&maps, &m)) {
        size_t n = strlen(m.path), tail = sizeof(STORE) - 1;
        if (m.cut || n <= tail || n >= size || strcmp(m.path + n - tail, STORE) != 0)
            continue;
        m.path[n - tail] = '\0';
        const char *slash = strrchr(m.path, '/');
        if (slash && strncmp(slash, own, strlen(own)) == 0)
            (void)snprintf(ret, size, "%s", m.path);
    }
    if (rc == 0) {
        rc = maps.error;
        proc_lines_close(&maps);
    }
    return rc;
}

/* The folders of a path in a process's root, one after another.  A descriptor, or -errno. */
static int open_inside(pid_t pid, const char *path)
{
    char name[256];
    (void)snprintf(name, sizeof(name), "/proc/%d/root", (int)pid);
    int at = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (path += strspn(path, "/"); at != -1 && *path; path += strspn(path, "/")) {
        size_t n = strcspn(path, "/");
        (void)snprintf(name, sizeof(name), "%.*s", (int)n, path);
        bool out = n >= sizeof(name) || strcmp(name, "..") == 0;
        int inner = out ? -1 : openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int failed = out ? EXDEV : errno;
        (void)close(at);
        if (inner == -1)
            errno = failed;
        at = inner;
        path += n;
    }
    return at == -1 ? -errno : at;
}

/* Paths in maps are as our root sees them; in the process's own root they begin there. */
static const char *below_root(pid_t pid, const char *path)
{
    char link[40], root[4096];
    (void)snprintf(link, sizeof(link), "/proc/%d/root", (int)pid);
    ssize_t n = readlink(link, root, sizeof(root) - 1);
    root[n > 0 ? n : 0] = '\0';
    size_t size = strlen(root);
    return size > 1 && strncmp(path, root, size) == 0 && path[size] == '/' ? path + size : path;
}

int probing_client_connect_pid(struct probing_client *c, pid_t pid)
{
    char mapped[2048], path[4096];
    struct proc_stat before;
    struct proc_status s;

    if (pid <= 0)
        return client_fail(c, -EINVAL, "%d is no pid", (int)pid);
    if (proc_stat_of(pid, 0, &before) < 0)
        return client_fail(c, -ESRCH, "there is no process %d", (int)pid);
    int rc = proc_status_of(pid, 0, &s);
    uint64_t inside = rc == 0 && s.inner_id != PROC_UNKNOWN ? s.inner_id : (uint64_t)pid;
    rc = find_mapped(pid, inside, mapped, sizeof(mapped));
    if (rc < 0)
        return client_fail(c, rc, "process %d cannot be read: %s; only its user and root may",
                           (int)pid, strerror(-rc));
    if (!mapped[0])
        return client_fail(c, -ENXIO,
                           "process %d has no probing in it; probing -t %d inject brings it",
                           (int)pid, (int)pid);
    const char *inner = below_root(pid, mapped);
    (void)snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, inner);
    struct client_endpoint d = {.path = path, .pid = pid, .start_time = before.start_ticks};
    d.directory = open_inside(pid, inner);
    if (d.directory < 0)
        return client_fail(c, d.directory, "%s: %s", path, strerror(-d.directory));
    rc = client_connect_endpoint(c, &d);
    (void)close(d.directory);
    return rc;
}
