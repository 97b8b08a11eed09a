/* SPDX-License-Identifier: Apache-2.0
 *
 * core/ring/reader.c - rows out of a ring: of this process for the drain, or of a dead one's file.
 *
 * One reader of a ring at a time.  No byte is trusted: each row is looked at against its check, and
 * where one is not whole the next whole one is looked for.  So whatever wrote into the file that
 * had no business there, a row that is shown is one that was appended.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/guest/mmap_guard.h"
#include "core/ring/internal.h"

#define LIKELY_ROW 4096 /* bytes: larger ones are looked for only while there is budget */
#define AHEAD 1024      /* bytes: the lines lie in another core's cache; bench/store_bench.c */
#define SEARCH_BUDGET (UINT32_C(64) << 20) /* bytes looked at in vain, a ring */

/* ---- opening a file that was left ---- */

uint64_t rings_head_check(const struct file_head *h)
{
    const uint64_t words[] = {(uint64_t)h->version << 32 | h->header_bytes,
                              (uint64_t)(uint32_t)h->pid << 32 | h->slots, h->start_time,
                              (uint64_t)h->utc_offset, h->anchor_ns};
    return check_words(CHECK_KEY_SUM, words, sizeof(words) / sizeof(words[0]));
}

static bool is_head(const uint8_t *p, struct file_head *ret)
{
    memcpy(ret, p, sizeof(*ret));
    return ret->magic == RINGS_MAGIC && ret->version == RINGS_VERSION &&
           ret->header_bytes == DATA_AT && ret->slots > 0 && ret->slots <= SLOTS &&
           ret->check == rings_head_check(ret);
}

/* The head, from its copy where it is damaged. */
static int read_head(struct rings *r, const char *path)
{
    struct file_head first;
    r->head = (struct file_head *)(void *)r->map;
    if (is_head(r->map, &r->fixed))
        return 0;
    memcpy(&first, r->map, sizeof(first));
    if (is_head(r->map + HEAD_COPY_AT, &r->fixed)) {
        r->head_damaged = true;
        return 0;
    }
    if (first.magic == RINGS_MAGIC && first.version != RINGS_VERSION)
        return err_set(-EPROTO,
                       "%s has the format %u, and this version of probing reads %d: use the "
                       "version that wrote it",
                       path, first.version, RINGS_VERSION);
    return err_set(-EINVAL, "%s is not a rings file, or its head is damaged", path);
}

/* Map a file that may be cut short at its whole length: what is missing reads as zeros, which are
 * no rows. */
static int map_old(struct rings *r, const char *path)
{
    struct stat st;
    if (fstat(r->fd, &st) == -1)
        return err_set(-errno, "%s: %s", path, strerror(errno));
    if (st.st_size < DATA_AT || !S_ISREG(st.st_mode))
        return err_set(-EINVAL, "%s is too short to be a rings file", path);
    r->size = DATA_AT + (size_t)SLOTS * RING_BYTES;
    r->there = (size_t)st.st_size < r->size ? (size_t)st.st_size : r->size;
    void *map = mmap(NULL, r->size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map != MAP_FAILED) {
        r->map = map;
        map = mmap(map, r->there, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, r->fd, 0);
    }
    if (map == MAP_FAILED)
        return err_set(-errno, "%s cannot be mapped: %s", path, strerror(errno));
    (void)mapped_watch(r->map, r->size, /* head= */ NULL);
    int rc = read_head(r, path);
    r->slots = r->fixed.slots;
    return rc;
}

int rings_open(int fd, const char *path, struct rings **ret)
{
    struct rings *r = fd < 0 ? NULL : calloc(1, sizeof(*r));
    if (fd < 0)
        return fd;
    if (!r) {
        (void)close(fd);
        return err_set(-ENOMEM, "no memory for the rings");
    }
    r->fd = fd;
    int rc = map_old(r, path);
    if (rc) {
        rings_drop(r);
        return rc;
    }
    (void)close(r->fd);
    r->fd = -1;
    *ret = r;
    return 0;
}

/* ---- what the file says ---- */

uint32_t rings_count(struct rings *r)
{
    return r->live ? atomic_load_explicit(&r->gate->given, memory_order_acquire) : r->slots;
}

static bool read_owner(const struct slot_owner *o, uint64_t *ret_generation, int32_t *ret_tid)
{
    *ret_generation = atomic_load_explicit(&o->generation, memory_order_acquire);
    *ret_tid = atomic_load_explicit(&o->tid, memory_order_relaxed);
    return *ret_generation != 0 && atomic_load_explicit(&o->check, memory_order_relaxed) ==
                                       owner_check(*ret_generation, *ret_tid);
}

/* Generation and thread of a slot, from their copy where they are damaged; generation 0: nobody
 * has it.  -EBADMSG: they cannot be told. */
static int owner_of(struct rings *r, uint32_t slot, uint64_t *ret_generation, int32_t *ret_tid)
{
    const struct slot_head *h = slot_head(r, slot);
    bool used = atomic_load_explicit(&h->head, memory_order_relaxed) != 0;
    if (read_owner(&h->owner, ret_generation, ret_tid))
        return 0;
    bool named = *ret_generation != 0;
    /* A copy alone, and no row: the thread was just taking the slot. */
    if ((used || named) && read_owner(&h->owner_again, ret_generation, ret_tid))
        return 0;
    *ret_generation = 0;
    return used || named ? -EBADMSG : 0;
}

uint64_t ring_generation(struct rings *r, uint32_t slot)
{
    uint64_t generation;
    int32_t tid;
    if (r->live)
        return atomic_load_explicit(&slot_head(r, slot)->owner.generation, memory_order_acquire);
    (void)owner_of(r, slot, &generation, &tid);
    return generation;
}

uint64_t ring_tail(struct rings *r, uint32_t slot)
{
    return atomic_load_explicit(&slot_head(r, slot)->tail, memory_order_relaxed);
}

uint64_t ring_head(struct rings *r, uint32_t slot)
{
    return atomic_load_explicit(&slot_head(r, slot)->head, memory_order_acquire);
}

_Atomic uint64_t *rings_counters(struct rings *r, uint32_t table_id)
{
    return (_Atomic uint64_t *)(void *)(r->map + COUNTERS_AT) +
           (size_t)table_id * COUNTERS_PER_TABLE;
}

int64_t rings_utc_offset(struct rings *r)
{
    return r->fixed.utc_offset;
}

uint64_t rings_identity(struct rings *r)
{
    return r->fixed.anchor_ns ^ r->fixed.start_time << 20 ^ (uint64_t)(uint32_t)r->fixed.pid << 40;
}

bool rings_head_damaged(struct rings *r)
{
    return r->head_damaged;
}

uint64_t rings_drains(struct rings *r)
{
    return atomic_load_explicit(&r->head->drains, memory_order_acquire);
}

/* ---- rows ---- */

/* Bytes of a slot that the file has. */
static uint32_t slot_there(const struct rings *r, uint32_t slot)
{
    uint64_t begin = DATA_AT + (uint64_t)slot * RING_BYTES;
    uint64_t n = r->there > begin ? r->there - begin : 0;
    return n < RING_BYTES ? (uint32_t)n : RING_BYTES;
}

int ring_read(struct rings *r, uint32_t slot, uint64_t position, struct ring_reader *ret)
{
    uint64_t head = ring_head(r, slot), generation;
    int32_t tid;
    if (owner_of(r, slot, &generation, &tid) != 0)
        return err_set(-EBADMSG, "ring %u is damaged: it does not say whose rows it has", slot);
    bool wrong = head % 8 || position > head || head - position > RING_BYTES;
    if (position % 8 || (wrong && r->live))
        return err_set(-EBADMSG, "ring %u: positions %llu to %llu are impossible", slot,
                       (unsigned long long)position, (unsigned long long)head);
    *ret = (struct ring_reader){.data = slot_data(r, slot),
                                .head_now = &slot_head(r, slot)->head,
                                .position = position,
                                .head = wrong ? position + RING_BYTES : head,
                                .there = slot_there(r, slot),
                                .tid = tid,
                                .key = check_key(rings_identity(r), slot, generation, tid),
                                .budget = SEARCH_BUDGET,
                                .dead = !r->live,
                                .no_head = wrong};
    return 0;
}

struct record {
    uint32_t size, table_id, n_cells, tail_room, padding;
    uint64_t ts;
};

/* The record at a position, filler or row: false when there is no whole one. */
static inline bool look_at(const struct ring_reader *reader, uint64_t position, uint64_t end,
                           struct record *ret)
{
    uint32_t at = (uint32_t)position & (RING_BYTES - 1);
    uint64_t word, h;
    memcpy(&word, reader->data + at, 8);
    uint32_t size = (uint32_t)(word & 0x7fff) << 3;
    if (size < 8 || size > end - position || at + size > reader->there)
        return false;
    ret->size = size;
    ret->table_id = (uint32_t)(word >> 15) & 0x7ff;
    ret->n_cells = (uint32_t)(word >> 26) & 0x7f;
    ret->tail_room = size - RECORD_HEAD - 8 * ret->n_cells; /* looked at below */
    ret->padding = (uint32_t)(word >> 33) & 7;
    if (ret->table_id == 0) {
        h = check_begin(reader->key, position, word & WORD_MASK, 0);
        return word == word_with_check(word & WORD_MASK, h);
    }
    if (size < RECORD_HEAD + 8 * ret->n_cells)
        return false;
    if (ret->tail_room && ret->padding == 0)
        ret->padding = 8;
    if (ret->padding > ret->tail_room)
        return false;
    const uint64_t *words = (const uint64_t *)(const void *)(reader->data + at);
    ret->ts = words[1];
    h = check_begin(reader->key, position, word & WORD_MASK, ret->ts);
    h = check_words(h, words + 2, size / 8 - 2);
    return word == word_with_check(word & WORD_MASK, h);
}

/* No whole record at the position: go to the next one that is whole.  Chance would make one of
 * 2^28 places look so, and the one behind it another. */
static void skip_damage(struct ring_reader *reader)
{
    uint64_t from = reader->position;
    struct record record;
    do {
        reader->position += 8;
        uint64_t left = reader->head - reader->position, word = 0;
        if (left == 0)
            break;
        uint32_t at = (uint32_t)reader->position & (RING_BYTES - 1);
        if (at + 8 > reader->there) { /* the file ends here, and begins again */
            reader->position += left < RING_BYTES - at ? left : RING_BYTES - at;
            reader->position -= reader->position < reader->head ? 8 : 0;
            continue;
        }
        memcpy(&word, reader->data + at, 8);
        uint32_t size = (uint32_t)(word & 0x7fff) << 3;
        if (size > LIKELY_ROW && size > reader->budget)
            continue;
        if (size > LIKELY_ROW)
            reader->budget -= size;
        if (!look_at(reader, reader->position, reader->head, &record))
            continue;
        uint64_t behind = reader->position + record.size;
        struct record next;
        if (behind == reader->head || look_at(reader, behind, reader->head, &next))
            break;
    } while (reader->position < reader->head);
    bool midway = reader->midway, end = reader->no_head && reader->position == reader->head;
    reader->midway = false;
    if (midway || end)
        return;
    reader->damaged += reader->position - from;
    reader->gaps++;
}

/* At the head of a dead process's ring: one row more may be there, whose append had not returned.
 * If there are two, it is the head that is damaged, and they were appended. */
static bool reaches_further(struct ring_reader *reader)
{
    uint64_t at = reader->head, end = reader->head + RING_BYTES;
    struct record record;
    uint32_t rows = 0;
    if (!reader->dead || reader->no_head)
        return false;
    while (at < end && look_at(reader, at, end, &record)) {
        rows += record.table_id != 0;
        at += record.size;
    }
    if (rows < 2 || atomic_load_explicit(reader->head_now, memory_order_acquire) != reader->head)
        return false; /* or it lives, and has appended meanwhile */
    reader->head = at;
    reader->no_head = true;
    return true;
}

int ring_next(struct ring_reader *reader, struct ring_row *ret)
{
    struct record record = {0};
    while (reader->position < reader->head || reaches_further(reader)) {
        if (!look_at(reader, reader->position, reader->head, &record)) {
            skip_damage(reader);
            continue;
        }
        const uint8_t *bytes = reader->data + ((uint32_t)reader->position & (RING_BYTES - 1));
        reader->position += record.size;
        reader->midway = false;
        if (record.table_id == 0)
            continue;
        ret->table_id = record.table_id;
        ret->tid = reader->tid;
        ret->ts = record.ts;
        ret->n_cells = record.n_cells;
        ret->cells = (const union probing_cell *)(const void *)(bytes + RECORD_HEAD);
        ret->tail = record.tail_room ? bytes + RECORD_HEAD + 8 * record.n_cells : NULL;
        ret->tail_n = record.tail_room - record.padding;
        return 1;
    }
    return 0;
}

uint32_t ring_take(struct ring_reader *reader, uint32_t table_id, uint32_t n_cells,
                   union probing_cell *const *columns, uint32_t at, uint32_t max)
{
    const uint32_t size = RECORD_HEAD + 8 * n_cells;
    const uint64_t want = record_word(size, table_id, n_cells, 0);
    uint32_t n = 0;
    for (; n < max && reader->head - reader->position >= size; n++) {
        uint32_t place = (uint32_t)reader->position & (RING_BYTES - 1);
        if (place + size > reader->there)
            break;
        const uint64_t *words = (const uint64_t *)(const void *)(reader->data + place);
        __builtin_prefetch(reader->data + ((place + AHEAD) & (RING_BYTES - 1)));
        if ((words[0] & WORD_MASK) != want)
            break;
        uint64_t h = check_begin(reader->key, reader->position, want, words[1]);
        if (words[0] != word_with_check(want, check_words(h, words + 2, n_cells)))
            break;
        columns[0][at + n].u = words[1];
        for (uint32_t i = 0; i < n_cells; i++)
            columns[2 + i][at + n].u = words[2 + i];
        reader->position += size;
    }
    return n;
}

uint64_t ring_row(struct rings *r, uint32_t slot, uint64_t position, struct ring_row *ret)
{
    struct ring_reader reader;
    if (ring_read(r, slot, position, &reader) != 0 || ring_next(&reader, ret) != 1)
        return 0;
    return reader.position;
}

void ring_release(struct rings *r, uint32_t slot, uint64_t position)
{
    atomic_store_explicit(&slot_head(r, slot)->tail, position, memory_order_release);
}
