/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/fork_cleanup.c - what a forked child would inherit of the store: noted in the
 * parent, let go there.
 *
 * Threads: noting is the core's main thread's; letting go happens in the child, by system calls
 * only.  It knows files by where they lie, so nothing in ring or store has to tell.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/datadir/own_dir.h"
#include "sdk/lib/proc/maps.h"
#include "sdk/lib/proc/proc_file.h"

static bool is_below(const char *path, const char *directory)
{
    size_t n = strlen(directory);
    return n > 0 && strncmp(path, directory, n) == 0 && path[n] == '/';
}

static bool is_ours(const struct own_dir *p, const char *path)
{
    return is_below(path, p->directory) || is_below(path, p->fast);
}

static void note_fds(struct inherited *in, const struct own_dir *p)
{
    struct proc_numbers all; /* no /proc: the child keeps them until exec */
    struct proc_number one;
    uint32_t n = 0;
    (void)proc_numbers_open(&all, "/proc/self/fd");
    while (n < INHERITED_FDS && proc_numbers_next(&all, &one)) {
        char path[DATADIR_PATH_BYTES + 64], name[24];
        struct stat st;
        int fd = (int)one.value;
        (void)snprintf(name, sizeof(name), "%d", fd);
        ssize_t length = readlinkat(all.fd, name, path, sizeof(path) - 1);
        if (length <= 0)
            continue;
        path[length] = '\0';
        if (!is_ours(p, path) || fstat(fd, &st) == -1)
            continue;
        /* LMDB 0.9 opens data.mdb without O_CLOEXEC: it would stay open in whatever is exec'ed. */
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
        in->fds[n++] = (struct inherited_fd){.fd = fd, .device = st.st_dev, .inode = st.st_ino};
    }
    proc_numbers_close(&all);
    atomic_store_explicit(&in->n_fds, n, memory_order_release);
}

/* What may be written through: LMDB's data is mapped read-only, and its map may move. */
static void note_maps(struct inherited *in, const struct own_dir *p)
{
    char room[PROC_MAPS_ROOM];
    struct proc_lines l;
    struct proc_mapping m;
    uint32_t n = 0;

    (void)proc_maps_open(&l, 0, room, sizeof(room));
    while (n < INHERITED_MAPS && proc_maps_next(&l, &m))
        if (m.readable && m.writable && m.shared && !m.executable && is_ours(p, m.path))
            in->maps[n++] = (struct inherited_map){.at = m.start, .size = m.end - m.start};
    proc_lines_close(&l);
    atomic_store_explicit(&in->n_maps, n, memory_order_release);
}

void inherited_note(struct inherited *in, const struct own_dir *p)
{
    note_fds(in, p);
    note_maps(in, p);
}

void inherited_forget(struct inherited *in)
{
    atomic_store_explicit(&in->n_fds, 0, memory_order_release);
    atomic_store_explicit(&in->n_maps, 0, memory_order_release);
}

/* Memory of the child's own goes where the parent's files were: whatever code of ours a hook may
 * still run reads zeros and writes to nobody, and the files are not held by their map. */
void inherited_drop(struct inherited *in)
{
    uint32_t n = atomic_load_explicit(&in->n_fds, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++) {
        struct stat st;
        if (fstat(in->fds[i].fd, &st) == 0 && st.st_dev == in->fds[i].device &&
            st.st_ino == in->fds[i].inode)
            (void)close(in->fds[i].fd);
    }
    n = atomic_load_explicit(&in->n_maps, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++) {
        const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
        void *at = (void *)in->maps[i].at;
        if (mmap(at, in->maps[i].size, PROT_READ | PROT_WRITE, how, -1, 0) == MAP_FAILED)
            (void)mmap(at, in->maps[i].size, PROT_READ, how, -1, 0); /* overcommit is forbidden */
    }
}
