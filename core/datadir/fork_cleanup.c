/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/fork_cleanup.c - what a forked child would inherit of the store: noted in the
 * parent, let go there.
 *
 * Threads: noting is the core's main thread's; letting go happens in the child, by system calls
 * only.  It knows files by where they lie, so nothing in ring or store has to tell.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/datadir/own_dir.h"

#define MAPS_MAX_BYTES ((size_t)64 << 20) /* /proc/self/maps of a very large process */

static bool is_below(const char *path, const char *directory)
{
    size_t n = strlen(directory);
    return n > 0 && strncmp(path, directory, n) == 0 && path[n] == '/';
}

static bool is_ours(const struct place *p, const char *path)
{
    return is_below(path, p->directory) || is_below(path, p->fast);
}

static void note_fds(struct inherited *in, const struct place *p)
{
    DIR *all = opendir("/proc/self/fd");
    if (!all)
        return; /* no /proc: the child keeps them until exec */
    uint32_t n = 0;
    for (struct dirent *e; (e = readdir(all)) && n < INHERITED_FDS;) {
        char path[PLACE_BYTES + 64];
        struct stat st;
        uint64_t fd;
        ssize_t length = readlinkat(dirfd(all), e->d_name, path, sizeof(path) - 1);
        if (length <= 0 || parse_u64(e->d_name, &fd) < 0)
            continue;
        path[length] = '\0';
        if (!is_ours(p, path) || fstat((int)fd, &st) == -1)
            continue;
        /* LMDB 0.9 opens data.mdb without O_CLOEXEC: it would stay open in whatever is exec'ed. */
        (void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
        in->fds[n++] =
            (struct inherited_fd){.fd = (int)fd, .device = st.st_dev, .inode = st.st_ino};
    }
    (void)closedir(all);
    atomic_store_explicit(&in->n_fds, n, memory_order_release);
}

/* "from-to rw-s offset device inode path": a hexadecimal number. */
static const char *read_hex(const char *at, uintptr_t *ret)
{
    static const char digits[] = "0123456789abcdef";
    const char *digit;
    for (*ret = 0; *at && (digit = strchr(digits, *at)); at++)
        *ret = *ret << 4 | (uintptr_t)(digit - digits);
    return at;
}

/* What may be written through: LMDB's data is mapped read-only, and its map may move. */
static void note_maps(struct inherited *in, const struct place *p)
{
    struct buf b;
    uint32_t n = 0;

    buf_init(&b, MAPS_MAX_BYTES);
    if (file_read(AT_FDCWD, "/proc/self/maps", &b) == 0 && buf_addc(&b, '\0') == 0) {
        for (char *line = b.data; line && *line && n < INHERITED_MAPS;) {
            char *end = strchr(line, '\n');
            if (end)
                *end = '\0';
            uintptr_t from, to;
            const char *at = read_hex(line, &from);
            at = *at == '-' ? read_hex(at + 1, &to) : "";
            const char *path = strchr(line, '/');
            if (strncmp(at, " rw-s ", 6) == 0 && path && is_ours(p, path))
                in->maps[n++] = (struct inherited_map){.at = from, .size = to - from};
            line = end ? end + 1 : NULL;
        }
    }
    buf_done(&b);
    atomic_store_explicit(&in->n_maps, n, memory_order_release);
}

void inherited_note(struct inherited *in, const struct place *p)
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
