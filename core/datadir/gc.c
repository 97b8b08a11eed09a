/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/gc.c - what dead processes left is taken away when it is too old or too much; what
 * they left in memory is brought to its directory on disk.
 *
 * Threads: the core's main thread, once after each start, for a bounded time.
 * It removes only directories that a core has made (name, owner, files), whose process is dead,
 * and that have been quiet for a minute.  A process that lives in another pid namespace is known
 * by the locks it holds: on `held`, and on `home` in memory.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/info_file.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"
#include "core/datadir/own_dir.h"

#define QUIET_S 60                    /* younger than this may belong to a core that starts */
#define SWEEP_NS ((uint64_t)NS_PER_S) /* the most time that one sweep takes */
#define DEAD_MAX 4096                 /* directories looked at in one sweep */
#define LEAF_BYTES 64
#define OWN_ROOTS_MAX 16 /* in each place */
#define PATH_BYTES (DATADIR_PATH_BYTES + LEAF_BYTES + 16)

struct dead {
    char leaf[LEAF_BYTES];
    time_t touched;
    uint64_t bytes;
    bool here; /* died on this machine since it was booted */
};

struct names {
    uint32_t n;
    char leaf[DEAD_MAX][LEAF_BYTES];
};

struct sweep {
    struct names *names;
    const struct sweep_limits *limits;
    char boot_id[64];
    time_t now;
    uint64_t until;
    uint32_t removed;
};

static bool time_is_left(const struct sweep *s)
{
    return clock_now() < s->until && s->limits->go_on(s->limits->arg);
}

/* Too long for a path of ours: "", which is no file. */
static void join_path(char ret[PATH_BYTES], const char *directory, const char *name)
{
    int n = snprintf(ret, PATH_BYTES, "%s/%s", directory, name);
    if (n < 0 || n >= PATH_BYTES)
        ret[0] = '\0';
}

/* ---- whose is it ---- */

/* "<pid>-<start time>" or "<pid>-<start time>.<n>", as own_dir_make() writes it. */
static bool read_leaf(const char *leaf, uint64_t *ret_pid, uint64_t *ret_start)
{
    char copy[LEAF_BYTES];
    uint64_t again;
    if (strlen(leaf) >= sizeof(copy))
        return false;
    (void)snprintf(copy, sizeof(copy), "%s", leaf);
    char *dash = strchr(copy, '-'), *dot = strchr(copy, '.');
    if (!dash || (dot && dot < dash))
        return false;
    *dash = '\0';
    if (dot)
        *dot = '\0';
    return parse_u64(copy, ret_pid) == 0 && parse_u64(dash + 1, ret_start) == 0 &&
           (!dot || parse_u64(dot + 1, &again) == 0);
}

/* A directory of a core whose process is dead, and quiet; then it is open. */
static bool is_dead(struct sweep *s, const char *root, const char *leaf, const char *lock,
                    struct datadir *ret)
{
    char path[PATH_BYTES];
    uint64_t pid, start, now_start;

    *ret = (struct datadir)DATADIR_NONE;
    if (!read_leaf(leaf, &pid, &start) || pid == 0 || pid > INT32_MAX || pid == (uint64_t)getpid())
        return false;
    join_path(path, root, leaf);
    if (datadir_open(path, DATADIR_OWN, ret) == 0 && s->now - ret->changed.tv_sec >= QUIET_S) {
        int r = proc_start_time((pid_t)pid, &now_start);
        if ((r == 0 ? now_start != start : r == -ESRCH) && !datadir_locked(ret, lock))
            return true;
    }
    datadir_close(ret);
    return false;
}

static bool is_old(const struct sweep *s, time_t touched)
{
    uint64_t age = s->now > touched ? (uint64_t)(s->now - touched) : 0;
    return s->limits->keep_ns && age > s->limits->keep_ns / NS_PER_S;
}

/* All names at once, so that no directory is open between two steps: a fork there would hand it
 * to the child. */
static void read_names(struct sweep *s, const char *root)
{
    uint64_t pid, start;
    s->names->n = 0;
    DIR *all = time_is_left(s) ? opendir(root) : NULL;
    if (!all)
        return;
    for (struct dirent *e; s->names->n < DEAD_MAX && (e = readdir(all));)
        if (read_leaf(e->d_name, &pid, &start)) /* so it fits */
            memcpy(s->names->leaf[s->names->n++], e->d_name, strlen(e->d_name) + 1);
    (void)closedir(all);
}

/* ---- the memory file system ---- */

static void namespace_of(char ret[64])
{
    ssize_t n = readlink("/proc/self/ns/mnt", ret, 63);
    ret[n > 0 ? n : 0] = '\0';
}

/* `home` says where the data directory is, and in whose view of the file system. */
int home_write(const struct own_dir *p)
{
    char path[PATH_BYTES], space[64], text[DATADIR_PATH_BYTES + 80];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (!p->fast[0])
        return -1;
    namespace_of(space);
    int n = snprintf(text, sizeof(text), "%s\n%s\n", p->directory, space);
    join_path(path, p->fast, "home");
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd == -1)
        return -1;
    if (write(fd, text, (size_t)n) == n && fcntl(fd, F_SETLK, &lock) == 0)
        return fd;
    (void)unlink(path);
    (void)close(fd);
    return -1;
}

/* Memory is not held for those who have no more use for it than a disk's. */
static void sweep_fast(struct sweep *s, const struct datadir *fast)
{
    struct datadir home;
    int gone = datadir_home(fast, DATADIR_OWN, &home);
    bool unseen = gone == -EXDEV || gone == -EBADMSG; /* then only its age tells */
    if (gone == 0 && strcmp(home.leaf, fast->leaf) == 0)
        own_dir_bring(fast, &home);
    else if ((gone == 1 || (unseen && is_old(s, fast->changed.tv_sec))) &&
             datadir_remove(fast) == 0)
        s->removed++;
    datadir_close(&home);
}

static void sweep_memory(struct sweep *s, const char *root)
{
    read_names(s, root);
    for (uint32_t i = 0; i < s->names->n && time_is_left(s); i++) {
        struct datadir fast;
        if (is_dead(s, root, s->names->leaf[i], "home", &fast) && !datadir_has(&fast, "info", NULL))
            sweep_fast(s, &fast);
        datadir_close(&fast);
    }
}

/* ---- data directories ---- */

static uint64_t file_bytes(const struct datadir *d, const char *name, time_t *touched)
{
    struct stat st;
    int fd = datadir_file(d, name, &st);
    if (fd < 0)
        return 0;
    (void)close(fd);
    if (st.st_mtime > *touched)
        *touched = st.st_mtime;
    return (uint64_t)st.st_blocks * 512;
}

/* No info: not ours.  A damaged one says nothing. */
static bool measure_dead(const struct sweep *s, const struct datadir *from, struct dead *d)
{
    static const char *const names[] = {"data.mdb", "lock.mdb", "rings", "strings", "tables"};
    char boot[64];
    struct buf b;

    int r = datadir_info(from, &b);
    bool ours = r == 0 || r == -EBADMSG;
    d->here = r == 0 && info_get(&b, "boot_id", boot, sizeof(boot)) && !strcmp(boot, s->boot_id);
    buf_done(&b);
    d->bytes = 0;
    d->touched = from->changed.tv_sec;
    for (size_t i = 0; ours && i < sizeof(names) / sizeof(names[0]); i++)
        d->bytes += file_bytes(from, names[i], &d->touched);
    return ours;
}

/* Looked at once more: it was closed meanwhile. */
static void remove_dead(struct sweep *s, const char *root, const struct dead *dead)
{
    struct datadir d;
    if (is_dead(s, root, dead->leaf, "held", &d) && datadir_remove(&d) == 0)
        s->removed++;
    datadir_close(&d);
}

static int newest_first(const void *a, const void *b)
{
    const struct dead *x = a, *y = b;
    return (x->touched < y->touched) - (x->touched > y->touched);
}

static uint32_t find_dead(struct sweep *s, const char *root, struct dead *ret)
{
    uint32_t n = 0;
    read_names(s, root);
    for (uint32_t i = 0; i < s->names->n && time_is_left(s); i++) {
        struct dead *d = &ret[n];
        struct datadir from;
        memcpy(d->leaf, s->names->leaf[i], sizeof(d->leaf));
        if (is_dead(s, root, d->leaf, "held", &from))
            n += measure_dead(s, &from, d) ? 1 : 0;
        datadir_close(&from);
    }
    return n;
}

static void sweep_data(struct sweep *s, const char *root)
{
    struct dead *dead = calloc(DEAD_MAX, sizeof(*dead));
    uint64_t sum = 0;
    uint32_t n = dead ? find_dead(s, root, dead) : 0;

    if (n > 0)
        qsort(dead, n, sizeof(*dead), newest_first);
    for (uint32_t i = 0; i < n && time_is_left(s); i++) {
        sum += dead[i].here ? dead[i].bytes : 0;
        /* Only the age is certain for a directory of another machine or boot. */
        bool too_much = dead[i].here && s->limits->max_bytes && sum > s->limits->max_bytes;
        if (s->now - dead[i].touched >= QUIET_S && (too_much || is_old(s, dead[i].touched)))
            remove_dead(s, root, &dead[i]);
    }
    free(dead);
}

static void read_boot_id(struct sweep *s)
{
    struct buf b;
    buf_init(&b, 256);
    if (file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &b) == 0)
        (void)snprintf(s->boot_id, sizeof(s->boot_id), "%.*s", (int)strcspn(buf_text(&b), "\n"),
                       buf_text(&b));
    buf_done(&b);
}

/* The root that we are in; where that is one of the default ones, all of these; and whatever root,
 * the memory files of ours. */
static void sweep_roots(struct sweep *s, const char *own)
{
    static const char *const places[] = DATADIR_PLACES;
    char names[OWN_ROOTS_MAX][DATADIR_LEAF], root[DATADIR_PATH_BYTES];
    bool of_all = false;

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        size_t n = strlen(places[i]);
        of_all = of_all || (strncmp(own, places[i], n) == 0 &&
                            strncmp(own + n, "/probing-", sizeof("/probing-") - 1) == 0 &&
                            !strchr(own + n + 1, '/'));
    }
    if (s->boot_id[0] && !of_all)
        sweep_data(s, own);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        uint32_t n = datadir_own_roots(places[i], names, OWN_ROOTS_MAX);
        for (uint32_t k = 0; k < n; k++) {
            (void)snprintf(root, sizeof(root), "%s/%.255s", places[i], names[k]);
            if (s->boot_id[0] && of_all)
                sweep_data(s, root);
            if (strcmp(places[i], DATADIR_SHM) == 0)
                sweep_memory(s, root);
        }
    }
}

uint32_t sweep_run(const struct own_dir *own, const struct sweep_limits *limits)
{
    struct sweep s = {.limits = limits, .now = time(NULL), .until = clock_now() + SWEEP_NS};
    char root[DATADIR_PATH_BYTES];

    (void)snprintf(root, sizeof(root), "%s", own->directory);
    char *slash = strrchr(root, '/');
    if (!slash || slash == root)
        return 0;
    *slash = '\0';
    s.names = malloc(sizeof(*s.names));
    if (!s.names)
        return 0;
    read_boot_id(&s);
    sweep_roots(&s, root);
    free(s.names);
    return s.removed;
}
