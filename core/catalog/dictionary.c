/* SPDX-License-Identifier: Apache-2.0
 *
 * core/catalog/dictionary.c - one file of distinct texts, and a private hash index over it.
 *
 * Any thread: a mutex orders those who add, readers of texts take no lock.  Never [signal].
 * It does not forget: a process that makes up names without end fills it, and is told so.
 */
#include "core/catalog/dictionary.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/guest/headroom.h"
#include "core/guest/mmap_guard.h"
#include "sdk/lib/hash.h"
#include "sdk/lib/sparse_map.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define MAGIC UINT64_C(0x3167727473627270) /* "prbstrg1" */
#define VERSION 3
#define FILE_BYTES (UINT64_C(256) << 20)
#define FILE_BYTES_LEAST (UINT64_C(1) << 20)
#define ROOM_PART 64 /* of the address space, where that is limited */
#define PLACES_AT 4096
#define LONGEST 65536 /* bytes of one text */
#define TEXT_HEAD 8
#define LOOK_AHEAD 64            /* ids: how far behind the last whole one another is looked for */
#define RESERVE_STEP (128 << 10) /* bytes: what a few thousand names need */

struct strings_head {
    uint64_t magic;
    uint32_t version, reserved;
    uint64_t file_bytes;
    _Atomic uint64_t used;    /* end of the last text, from the start of the file */
    _Atomic uint64_t last_id; /* release order: its text is whole */
};

struct interns {
    uint8_t *map;
    size_t size;
    int fd; /* -1: read-only */
    dev_t dev;
    ino_t ino; /* what fd must still be */
    bool writable;
    struct strings_head *head;
    uint64_t most_ids;
    uint64_t last, damaged; /* read-only: ids that can be, those whose text is incomplete */
    pthread_mutex_t mutex;
    uint32_t *index;          /* ids by hash, 0: free.  lock: mutex */
    uint32_t index_size;      /* power of two.  lock: mutex */
    uint64_t places_reserved; /* file offset up to which pages are there.  lock: mutex */
    uint64_t texts_reserved;  /* lock: mutex */
};

static uint64_t texts_at(uint64_t file_bytes)
{
    return file_bytes / 8;
}

/* FNV-1a over 8 bytes at a time, folded: names are short, and an index needs no more. */
static uint64_t hash_name(const uint8_t *p, size_t n)
{
    uint64_t h = HASH_FNV ^ n;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = hash_spread(h ^ word);
        h ^= h >> 29;
    }
    h = hash_bytes(h, p, n);
    return h ^ h >> 32;
}

static uint32_t *place_of(struct interns *s, uint64_t id)
{
    return (uint32_t *)(void *)(s->map + PLACES_AT) + (id - 1);
}

uint64_t intern_last(struct interns *s)
{
    if (!s || !s->writable)
        return s ? s->last : 0;
    uint64_t last = atomic_load_explicit(&s->head->last_id, memory_order_acquire);
    return last < s->most_ids ? last : s->most_ids;
}

/* The text at the id's place, if all lengths are within bounds: in a dead process's file nothing is
 * trusted. */
static const uint8_t *find_text(struct interns *s, uint64_t id, uint32_t *ret_size)
{
    uint64_t at = (uint64_t)*place_of(s, id) * 8;
    uint32_t size;
    if (at < texts_at(s->head->file_bytes) || at > s->size - TEXT_HEAD - 1)
        return NULL;
    memcpy(&size, s->map + at, 4);
    if (size > LONGEST || size > s->size - at - TEXT_HEAD - 1 ||
        s->map[at + TEXT_HEAD + size] != '\0')
        return NULL;
    *ret_size = size;
    return s->map + at + TEXT_HEAD;
}

/* The check covers the text and its id: a damaged place must not give another text. */
static uint32_t check_of(const void *text, size_t size, uint64_t id)
{
    return (uint32_t)hash_name(text, size) ^ (uint32_t)(hash_spread(id) >> 32);
}

/* Is it the text that was written? */
static bool is_whole(const uint8_t *text, uint32_t size, uint64_t id)
{
    uint32_t check;
    memcpy(&check, text - 4, 4);
    return check == check_of(text, size, id);
}

const char *intern_text(struct interns *s, uint64_t id, uint32_t *ret_size)
{
    uint32_t size;
    if (id == 0 || id > intern_last(s))
        return NULL;
    const uint8_t *text = find_text(s, id, &size);
    if (!text || (!s->writable && !is_whole(text, size, id)))
        return NULL;
    if (ret_size)
        *ret_size = size;
    return (const char *)text;
}

uint64_t interns_lost(struct interns *s)
{
    struct stat st;
    bool cut = s->fd != -1 && fstat(s->fd, &st) == 0 && st.st_dev == s->dev &&
               st.st_ino == s->ino && (size_t)st.st_size < s->size;
    return mapped_lost(s->map) + cut;
}

uint64_t interns_damaged(struct interns *s)
{
    return s->damaged;
}

/* Ids of a dead process's file.  One more than the head says may be there: it was killed. */
static void look_at_all(struct interns *s)
{
    uint64_t said = atomic_load_explicit(&s->head->last_id, memory_order_relaxed);
    uint32_t size;
    for (uint64_t id = 1; id <= s->most_ids; id++) {
        const uint8_t *text = find_text(s, id, &size);
        if (text && is_whole(text, size, id)) {
            s->damaged += id - 1 - s->last;
            s->last = id;
        } else if (id > said && id - s->last > LOOK_AHEAD) {
            break;
        }
    }
    if (said <= s->most_ids && s->last < said) {
        s->damaged += said - s->last;
        s->last = said;
    } else if (said > s->most_ids) {
        s->damaged++;
    }
}

/* By the descriptor, if the host has not closed it and got its number for a file of its own. */
static int reserve_by_fd(const struct interns *s, uint64_t at, uint64_t n)
{
    struct stat st;
    if (fstat(s->fd, &st) == -1 || st.st_dev != s->dev || st.st_ino != s->ino)
        return -EBADF;
    return -posix_fallocate(s->fd, (off_t)at, (off_t)n);
}

/* Have pages up to `end`; *reserved says how far they go, `most` how far they may. */
static int reserve_pages(struct interns *s, uint64_t *reserved, uint64_t end, uint64_t most)
{
    if (end <= *reserved)
        return 0;
    uint64_t to = (end + RESERVE_STEP - 1) / RESERVE_STEP * RESERVE_STEP;
    to = to < most ? to : most;
    if (end > to)
        return err_set(-ENOSPC, "the table of names is full (%llu MiB)",
                       (unsigned long long)(s->size >> 20));
    uint64_t from = *reserved & ~UINT64_C(4095);
    int rc = madvise(s->map + from, to - from, MADV_POPULATE_WRITE) == 0 ? 0 : -errno;
    if (rc == -EINVAL || rc == -ENOSYS)
        rc = reserve_by_fd(s, from, to - from);
    if (rc)
        return err_set(-ENOSPC, "no room on the device for more names");
    *reserved = to;
    return 0;
}

/* The slot of `text` in the index, or the one that it would get. */
static uint32_t index_place(struct interns *s, const void *p, size_t n)
{
    uint32_t mask = s->index_size - 1;
    for (uint32_t i = (uint32_t)hash_name(p, n) & mask;; i = (i + 1) & mask) {
        uint32_t size = 0;
        const char *text = s->index[i] ? intern_text(s, s->index[i], &size) : NULL;
        if (s->index[i] == 0 || (text && size == n && memcmp(text, p, n) == 0))
            return i;
    }
}

/* Room in the index for one id more. */
static int grow_index(struct interns *s, uint64_t ids)
{
    if (s->index_size && ids < s->index_size / 2)
        return 0;
    uint64_t size = s->index_size ? s->index_size : 1024;
    while (ids >= size / 2)
        size *= 2;
    uint32_t *index = size <= UINT32_C(1) << 30 ? calloc(size, sizeof(*index)) : NULL;
    if (!index)
        return err_set(-ENOMEM, "no memory for the index of %llu names", (unsigned long long)ids);
    free(s->index);
    s->index = index;
    s->index_size = (uint32_t)size;
    for (uint64_t id = 1; id <= intern_last(s); id++) {
        uint32_t n;
        const char *text = intern_text(s, id, &n);
        if (text) {
            uint32_t i = index_place(s, text, n);
            s->index[i] = s->index[i] ? s->index[i] : (uint32_t)id;
        }
    }
    return 0;
}

static int add_text(struct interns *s, const void *p, size_t n, uint64_t *ret_id)
{
    uint64_t id = intern_last(s) + 1;
    uint64_t at = atomic_load_explicit(&s->head->used, memory_order_relaxed);
    uint64_t end = at + ((TEXT_HEAD + n + 1 + 7) & ~(uint64_t)7);
    if (mapped_lost(s->map) || at < texts_at(s->size) || at % 8)
        return err_set(-EIO, "the string dictionary was truncated or cannot be read: no new "
                             "strings can be stored until probing is ejected and injected again");
    if (id > s->most_ids || end > s->size)
        return err_set(-ENOSPC, "the table of names is full (%llu MiB)",
                       (unsigned long long)(s->size >> 20));
    int rc = grow_index(s, id);
    if (rc == 0)
        rc = reserve_pages(s, &s->places_reserved, PLACES_AT + id * 4, texts_at(s->size));
    if (rc == 0)
        rc = reserve_pages(s, &s->texts_reserved, end, s->size);
    if (rc)
        return rc;
    uint32_t size = (uint32_t)n, check = check_of(p, n, id);
    memset(s->map + end - 8, 0, 8);
    memcpy(s->map + at, &size, 4);
    memcpy(s->map + at + 4, &check, 4);
    if (n)
        memcpy(s->map + at + TEXT_HEAD, p, n);
    s->map[at + TEXT_HEAD + n] = '\0';
    *place_of(s, id) = (uint32_t)(at / 8);
    atomic_store_explicit(&s->head->used, end, memory_order_release);
    atomic_store_explicit(&s->head->last_id, id, memory_order_release);
    s->index[index_place(s, p, n)] = (uint32_t)id;
    *ret_id = id;
    return 0;
}

int intern(struct interns *s, const void *p, size_t n, uint64_t *ret_id)
{
    if (n > LONGEST)
        return err_set(-E2BIG, "a name of %zu bytes is too long (at most %d)", n, LONGEST);
    if (!s->writable)
        return err_set(-EROFS,
                       "the string dictionary of a process that has ended cannot be extended");
    int rc = 0;
    (void)pthread_mutex_lock(&s->mutex);
    uint32_t id = s->index_size ? s->index[index_place(s, p, n)] : 0;
    if (id)
        *ret_id = id;
    else
        rc = add_text(s, p, n, ret_id);
    (void)pthread_mutex_unlock(&s->mutex);
    return rc;
}

static void drop_dictionary(struct interns *s)
{
    mapped_forget(s->map);
    if (s->map)
        (void)munmap(s->map, s->size);
    if (s->fd != -1)
        (void)close(s->fd);
    free(s->index);
    (void)pthread_mutex_destroy(&s->mutex);
    free(s);
}

static int map_file(struct interns *s, const char *path, int protection)
{
    void *map = sparse_map_file(s->fd, s->size, protection);
    if (!map)
        return err_set(-errno, "%s cannot be mapped: %s", path, strerror(errno));
    s->map = map;
    s->head = map;
    (void)mapped_watch(map, s->size, /* head= */ NULL);
    return 0;
}

static int check_head(struct interns *s, const char *path)
{
    struct strings_head *h = s->head;
    if (h->magic == MAGIC && h->version != VERSION)
        return err_set(-EPROTO,
                       "%s has the format %u, and this version of probing reads %d: use the "
                       "version that wrote it",
                       path, h->version, VERSION);
    if (h->magic != MAGIC || h->file_bytes < FILE_BYTES_LEAST || h->file_bytes > FILE_BYTES)
        return err_set(-EINVAL, "%s is not a file of names, or its head is damaged", path);
    s->most_ids = (texts_at(h->file_bytes) - PLACES_AT) / 4;
    if (s->size < texts_at(h->file_bytes) + 8)
        return err_set(-EINVAL, "%s is truncated", path);
    return 0;
}

/* An empty file becomes a file of names. */
static int begin_file(struct interns *s, const char *path)
{
    struct rlimit limit;
    s->size = (size_t)room_share(path, FILE_BYTES, FILE_BYTES_LEAST, ROOM_PART) & ~(size_t)65535;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < s->size)
        s->size = (size_t)(limit.rlim_cur & ~(rlim_t)65535);
    if (s->size < FILE_BYTES_LEAST)
        return err_set(-EFBIG,
                       "%s: the limit on file size leaves no room: prlimit --pid %d "
                       "--fsize=unlimited",
                       path, (int)getpid());
    if (ftruncate(s->fd, (off_t)s->size) == -1)
        return err_set(-errno, "%s cannot be made %zu bytes long: %s", path, s->size,
                       strerror(errno));
    int rc = map_file(s, path, PROT_READ | PROT_WRITE);
    if (rc == 0)
        rc = reserve_pages(s, &s->places_reserved, PLACES_AT, texts_at(s->size));
    if (rc)
        return rc;
    *s->head = (struct strings_head){.version = VERSION, .file_bytes = s->size};
    atomic_store_explicit(&s->head->used, texts_at(s->size), memory_order_relaxed);
    __atomic_store_n(&s->head->magic, MAGIC, __ATOMIC_RELEASE);
    return 0;
}

static int start_dictionary(struct interns **ret)
{
    struct interns *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(-ENOMEM, "no memory for the table of names");
    s->fd = -1;
    int rc = pthread_mutex_init(&s->mutex, NULL);
    if (rc) {
        free(s);
        return err_set(-rc, "no mutex: %s", strerror(rc));
    }
    *ret = s;
    return 0;
}

static int open_for_writing(struct interns *s, const char *path)
{
    struct stat st;
    s->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->fd == -1 || fstat(s->fd, &st) == -1)
        return err_set(-errno, "%s cannot be made: %s", path, strerror(errno));
    s->dev = st.st_dev;
    s->ino = st.st_ino;
    int rc = 0;
    if (st.st_size == 0) {
        rc = begin_file(s, path);
    } else {
        s->size = (size_t)st.st_size;
        rc = s->size < PLACES_AT ? err_set(-EINVAL, "%s is truncated", path)
                                 : map_file(s, path, PROT_READ | PROT_WRITE);
    }
    if (rc == 0)
        rc = check_head(s, path);
    if (rc == 0 && s->size != s->head->file_bytes)
        rc = err_set(-EINVAL, "%s has been cut short", path);
    if (rc)
        return rc;
    s->writable = true;
    s->texts_reserved = atomic_load_explicit(&s->head->used, memory_order_relaxed);
    if (s->texts_reserved > s->size)
        return err_set(-EINVAL, "%s is damaged", path);
    return grow_index(s, intern_last(s));
}

int interns_create(const char *path, struct interns **ret)
{
    struct interns *s;
    int rc = start_dictionary(&s);
    if (rc)
        return rc;
    rc = open_for_writing(s, path);
    if (rc) {
        drop_dictionary(s);
        return rc;
    }
    *ret = s;
    return 0;
}

int interns_open(int fd, const char *path, struct interns **ret)
{
    struct stat st;
    struct interns *s;
    if (fd < 0)
        return fd;
    int rc = start_dictionary(&s);
    if (rc) {
        (void)close(fd);
        return rc;
    }
    s->fd = fd;
    if (fstat(s->fd, &st) == -1) {
        rc = err_set(-errno, "%s: %s", path, strerror(errno));
    } else if (st.st_size < PLACES_AT || !S_ISREG(st.st_mode)) {
        rc = err_set(-EINVAL, "%s is truncated", path);
    } else {
        s->size = (size_t)st.st_size;
        rc = map_file(s, path, PROT_READ);
    }
    if (rc == 0)
        rc = check_head(s, path);
    if (rc) {
        drop_dictionary(s);
        return rc;
    }
    (void)close(s->fd);
    s->fd = -1;
    look_at_all(s);
    *ret = s;
    return 0;
}

void interns_free(struct interns *s)
{
    if (s)
        drop_dictionary(s);
}
