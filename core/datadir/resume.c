/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/resume.c - a process that is left and entered again goes on in the directory of its
 * earlier life: its rows can be asked as one, and a thousand entries leave one directory.
 *
 * Threads: the core's main thread.
 * Only what was left in good order is gone on with.  Such a directory says so in its `info`:
 *
 *     left: yes
 *     lost: SCHEMA.TABLE N N N N N N     rows lost so far, by enum table_loss; those with any
 *
 * Counts of lost rows live in the rings file, which each life makes anew: hence these lines.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/info_file.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"
#include "core/datadir/own_dir.h"

/* The file `info` as a text, when it is whole; caller buf_done()s. */
static int read_info(const char *directory, struct buf *ret)
{
    struct datadir d;
    *ret = (struct buf){0};
    int rc = datadir_open(directory, DATADIR_OWN, &d);
    if (rc == 0)
        rc = datadir_info(&d, ret);
    datadir_close(&d);
    return rc;
}

static bool has_value(const struct buf *text, const char *key, const char *value)
{
    char said[128];
    return info_get(text, key, said, sizeof(said)) && strcmp(said, value) == 0;
}

static bool same_boot(const struct buf *text)
{
    char own[128];
    bool known = file_peek("/proc/sys/kernel/random/boot_id", own, sizeof(own)) == 0;
    own[strcspn(own, "\n")] = '\0';
    return known && has_value(text, "boot_id", own);
}

static bool has_file(const struct datadir *d, const char *name)
{
    struct stat st;
    return datadir_has(d, name, &st) && S_ISREG(st.st_mode) && st.st_uid == d->owner;
}

bool resume_can(const char *directory, const char *version)
{
    struct buf text = {0};
    struct datadir d;

    bool can = datadir_open(directory, DATADIR_OWN, &d) == 0 && datadir_info(&d, &text) == 0 &&
               has_value(&text, "left", "yes") && has_value(&text, "version", version) &&
               same_boot(&text) && has_file(&d, "strings") && has_file(&d, "rings") &&
               has_file(&d, "data.mdb");
    buf_done(&text);
    datadir_close(&d);
    return can;
}

/* The names go from the directory to memory, and a link to them takes their place. */
static bool names_to(const struct datadir *home, const struct datadir *fast, const char *target)
{
    if (own_dir_copy(home, fast, "strings") != 0)
        return false;
    (void)unlinkat(home->fd, "strings.part", 0);
    if (symlinkat(target, home->fd, "strings.part") == 0 &&
        renameat(home->fd, "strings.part", home->fd, "strings") == 0)
        return true;
    (void)unlinkat(home->fd, "strings.part", 0);
    (void)unlinkat(fast->fd, "strings", 0);
    return false;
}

/* The names go back to the memory file system; where that cannot be, all stays on the disk. */
void resume_names(struct own_dir *p)
{
    char target[DATADIR_PATH_BYTES + 16];
    struct datadir home = DATADIR_NONE, fast = DATADIR_NONE;

    if (!p->fast[0])
        return;
    (void)snprintf(target, sizeof(target), "%s/strings", p->fast);
    bool done = datadir_open(p->directory, DATADIR_OWN, &home) == 0 &&
                datadir_open(p->fast, DATADIR_OWN, &fast) == 0 && names_to(&home, &fast, target);
    datadir_close(&home);
    datadir_close(&fast);
    if (done)
        return;
    (void)rmdir(p->fast);
    p->fast[0] = '\0';
}

void resume_instance_id(struct own_dir *p)
{
    struct buf text = {0};
    if (read_info(p->directory, &text) != 0 ||
        !info_get(&text, "instance_id", p->instance_id, sizeof(p->instance_id)))
        p->instance_id[0] = '\0';
    buf_done(&text);
}

/* Rows of this life go on behind those of the one before, whatever became of the wall clock. */
void resume_clock(const struct own_dir *p)
{
    char said[32];
    int64_t offset = 0;
    struct buf text = {0};
    if (p->resumed && read_info(p->directory, &text) == 0 &&
        info_get(&text, "utc_offset", said, sizeof(said)) && parse_i64(said, &offset) == 0 &&
        offset > 0)
        clock_utc_offset_keep(offset);
    buf_done(&text);
}

/* ---- rows lost in earlier lives ---- */

/* How long the next word of a line is, which begins at *ret_word; *at goes behind it. */
static size_t next_word(const char **at, const char **ret_word)
{
    *ret_word = *at + strspn(*at, " ");
    *at = *ret_word + strcspn(*ret_word, " \n");
    return (size_t)(*at - *ret_word);
}

/* at: behind "lost:".  A line that is not as write_losses() makes it counts for nothing. */
static void add_losses(struct tables *tables, const char *at)
{
    char name[256], *dot;
    const char *word;
    uint64_t n[TABLE_LOSS_REASONS];
    size_t size = next_word(&at, &word);

    (void)snprintf(name, sizeof(name), "%.*s", (int)(size < sizeof(name) ? size : 0), word);
    if (!(dot = strchr(name, '.')))
        return;
    for (int i = 0; i < TABLE_LOSS_REASONS; i++) {
        size = next_word(&at, &word);
        if (number_u64(word, size, &n[i]) < 0)
            return;
    }
    *dot = '\0';
    struct table *t = tables_find(tables, name, dot + 1), *refused = tables_refused(tables);
    if (!t && strcmp(name, refused->schema) == 0 && strcmp(dot + 1, refused->name) == 0)
        t = refused;
    for (int i = 0; t && i < TABLE_LOSS_REASONS; i++)
        (void)atomic_fetch_add_explicit(&t->lost[i], n[i], memory_order_relaxed);
}

void resume_losses(const struct own_dir *p, struct tables *tables)
{
    struct buf text = {0};
    if (p->resumed && read_info(p->directory, &text) == 0) {
        for (const char *at = text.data; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL)
            if (strncmp(at, "lost: ", 6) == 0)
                add_losses(tables, at + 6);
    }
    buf_done(&text);
}

static void write_losses(struct tables *tables, struct buf *b)
{
    struct table **list = calloc(TABLES_MAX + 1, sizeof(*list));
    uint32_t n = list ? tables_list(tables, list, TABLES_MAX) : 0;

    if (list)
        list[n++] = tables_refused(tables);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t lost[TABLE_LOSS_REASONS], sum = 0;
        for (int k = 0; k < TABLE_LOSS_REASONS; k++)
            sum += lost[k] = atomic_load_explicit(&list[i]->lost[k], memory_order_relaxed);
        if (sum == 0)
            continue;
        (void)buf_addf(b, "lost: %s.%s", list[i]->schema, list[i]->name);
        for (int k = 0; k < TABLE_LOSS_REASONS; k++)
            (void)buf_addf(b, " %llu", (unsigned long long)lost[k]);
        (void)buf_addc(b, '\n');
    }
    free(list);
}

void resume_note(const struct own_dir *p, struct tables *tables, struct buf *ret)
{
    struct buf text = {0};
    if (p->directory[0] && read_info(p->directory, &text) == 0) {
        (void)buf_add(ret, text.data, text.size);
        (void)buf_adds(ret, "left: yes\n");
        write_losses(tables, ret);
    }
    buf_done(&text);
}
