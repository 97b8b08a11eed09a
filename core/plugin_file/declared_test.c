/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_file/declared_test.c - declarations out of memory, as text and back, and out of files
 * and lines in which bytes were changed.
 */
#include "core/plugin_file/declared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sdk/lib/buf.h"
#include "tests/fail_alloc.h"
#include "tests/test.h"

#define MUTATIONS 3000
#ifndef FILES
#define FILES 400
#endif

static const struct probing_view views[] = {
    {"first", "select 1 as one", "a \"view\"", NULL},
    {"mine.second", "select 2\nas two", "", "select 'never'"}};
static const struct probing_alias aliases[] = {{"old.pace", "pace"}};
static const struct probing_flame flames[] = {{.name = "mode",
                                               .doc = "d",
                                               .sql = "select {when}",
                                               .rest = "r",
                                               .unit = PROBING_BYTES,
                                               .stacks = "s",
                                               .setting = "mode=a",
                                               .missing = "select 3",
                                               .flags = PROBING_FLAME_DEFAULT}};
static const struct probing_track tracks[] = {
    {.name = "line", .doc = "d", .sql = "select 1", .newest = "select 2"}};
static const struct probing_panel panels[] = {
    {.name = "panel", .doc = "d", .sql = "select 1", .kind = PROBING_LINES, .rows = 3}};
static const struct probing_resource resources[] = {
    {.name = "data", .takes = 1 << 20, .each_thread = 4096}};
static const struct probing_declarations all = {.size = sizeof(all),
                                                .n_views = 2,
                                                .view_size = sizeof(views[0]),
                                                .n_aliases = 1,
                                                .alias_size = sizeof(aliases[0]),
                                                .n_flames = 1,
                                                .flame_size = sizeof(flames[0]),
                                                .n_tracks = 1,
                                                .track_size = sizeof(tracks[0]),
                                                .tracks = tracks,
                                                .n_panels = 1,
                                                .panel_size = sizeof(panels[0]),
                                                .panels = panels,
                                                .n_resources = 1,
                                                .resource_size = sizeof(resources[0]),
                                                .resources = resources,
                                                .views = views,
                                                .aliases = aliases,
                                                .flames = flames};

static size_t read_own(void *arg, uint64_t address, void *ret, size_t n, bool pointers)
{
    const char *at = (const char *)(uintptr_t)address;
    (void)arg;
    n = pointers || n == 0 ? n : strnlen(at, n - 1) + 1;
    memcpy(ret, at, n);
    return n;
}

static struct declared *take(void)
{
    const struct declared_source from = {.read = read_own};
    struct declared *d = NULL;
    CHECK_INT(declared_read(&from, (uint64_t)(uintptr_t)&all, "mine", &d), 0);
    return d;
}

/* A plugin of 1.1 to 1.3 was built with smaller structs, and has anything behind them. */
TEST(older_and_smaller_ones_are_taken)
{
    static const size_t sizes[] = {offsetof(struct probing_declarations, n_tables),
                                   offsetof(struct probing_declarations, n_tracks),
                                   offsetof(struct probing_declarations, n_resources)};
    static const size_t flame_sizes[] = {offsetof(struct probing_flame, stacks),
                                         offsetof(struct probing_flame, stacks),
                                         offsetof(struct probing_flame, missing)};
    const struct declared_source from = {.read = read_own};
    for (size_t i = 0; i < 3; i++) {
        struct probing_declarations old = all;
        char flame[2 * sizeof(struct probing_flame)];
        struct declared *d = NULL;
        memset(flame, 0x5a, sizeof(flame));
        memcpy(flame, flames, flame_sizes[i]);
        memset((char *)&old + sizes[i], 0x5a, sizeof(old) - sizes[i]);
        old.size = (uint32_t)sizes[i];
        old.flame_size = (uint32_t)flame_sizes[i];
        old.flames = (const struct probing_flame *)(const void *)flame;
        CHECK_INT(declared_read(&from, (uint64_t)(uintptr_t)&old, "mine", &d), 0);
        if (!CHECK(d))
            continue;
        CHECK(d->all.n_flames == 1 && d->all.n_views == 2);
        CHECK(d->all.n_tracks == (i == 2) && d->all.n_panels == (i == 2) &&
              !d->all.flames[0].stacks == (i < 2));
        CHECK(d->all.n_resources == 0 && !d->all.flames[0].missing);
        declared_free(d);
    }
}

static int keep_one(void *arg, struct declared *d)
{
    struct declared **to = arg;
    declared_free(*to);
    *to = d;
    return 0;
}

TEST(text_and_back_is_the_same)
{
    struct declared *d = take(), *again = NULL;
    struct buf b;
    buf_init(&b, DECLARED_LINES_BYTES);
    if (CHECK(d) && CHECK_INT(declared_write(d, &b), 0))
        CHECK_INT(declared_parse_all(b.data, b.size, keep_one, &again), 0);
    CHECK(d && again && declared_same(d, again));
    if (again)
        CHECK_STR(again->all.views[1].sql, "select 2\nas two");
    struct room_part part = {.takes = {[ROOM_THREADS] = 3}};
    declared_takes(again, &part);
    CHECK(part.takes[ROOM_DATA] == 1 << 20 && part.each_thread[ROOM_DATA] == 4096 &&
          part.takes[ROOM_THREADS] == 0);
    buf_reset(&b);
    CHECK_INT(declared_sql("{when} and {when}", "ts > 1", &b), 0);
    CHECK_STR(buf_text(&b), "ts > 1 and ts > 1");
    buf_done(&b);
    declared_free(d);
    declared_free(again);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Whatever a line is changed to, it is refused or taken, and no byte beyond it is read. */
TEST(changed_lines_are_refused_or_taken)
{
    struct declared *d = take();
    uint32_t state = 1;
    struct buf b;
    buf_init(&b, DECLARED_LINES_BYTES);
    (void)declared_write(d, &b);
    for (int i = 0; i < MUTATIONS; i++) {
        size_t n = b.size - next_random(&state) % (b.size / 4);
        char *line = malloc(n); /* no NUL behind it: a sanitizer sees who goes on */
        struct declared *got = NULL;
        if (!CHECK(line))
            break;
        memcpy(line, b.data, n);
        for (uint32_t k = next_random(&state) % 4; k > 0; k--)
            line[next_random(&state) % n] = (char)next_random(&state);
        (void)declared_parse_all(line, n, keep_one, &got);
        declared_free(got);
        free(line);
    }
    buf_done(&b);
    declared_free(d);
}

static char *read_plugin(size_t *ret_size)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
    path[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(path, '/');
    memcpy(slash ? slash : path, "/../plugins/torch.so", sizeof("/../plugins/torch.so"));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd != -1 ? lseek(fd, 0, SEEK_END) : 0;
    char *bytes = size > 0 ? malloc((size_t)size) : NULL;
    *ret_size = bytes ? (size_t)pread(fd, bytes, (size_t)size, 0) : 0;
    if (fd != -1)
        (void)close(fd);
    return bytes;
}

/* Anywhere, in the headers and relocations that stand in front, or around the declarations. */
static off_t somewhere(uint32_t *state, size_t text, size_t size)
{
    size_t from[] = {0, 0, text > 8192 ? text - 8192 : 0}, n[] = {size, 65536, 16384};
    uint32_t which = next_random(state) % 3;
    return (off_t)((from[which] + next_random(state) % n[which]) % size);
}

/* A real plugin in which some bytes of what declares and relocates were changed. */
TEST(changed_files_are_refused_or_taken)
{
    size_t size;
    char *whole = read_plugin(&size);
    uint32_t state = 7, taken = 0, refused = 0;
    int fd = memfd_create("changed", MFD_CLOEXEC);
    const char *name = whole ? memmem(whole, size, "training_logs", 13) : NULL;
    size_t text = name ? (size_t)(name - whole) : 0;
    if (!CHECK(whole) || !CHECK(fd != -1) || !CHECK(pwrite(fd, whole, size, 0) == (ssize_t)size))
        return;
    for (int i = 0; i < FILES; i++) {
        off_t at[4];
        uint32_t n = i == 0 ? 0 : 1 + next_random(&state) % 4;
        for (uint32_t k = 0; k < n; k++) {
            char c = (char)next_random(&state);
            at[k] = somewhere(&state, text, size);
            (void)!pwrite(fd, &c, 1, at[k]);
        }
        struct declared *d = NULL;
        int rc = declared_of_file(fd, &d);
        CHECK(rc < 0 ? d == NULL : rc == 0);
        CHECK(i > 0 || (d && strcmp(d->plugin, "torch") == 0 && d->all.n_views > 3));
        taken += d != NULL;
        refused += rc < 0;
        declared_free(d);
        for (uint32_t k = 0; k < n; k++)
            (void)!pwrite(fd, whole + at[k], 1, at[k]);
    }
    CHECK(taken > 0 && refused > 0);
    (void)close(fd);
    free(whole);
}

TEST(lives_without_memory)
{
    const struct declared_source from = {.read = read_own};
    for (unsigned n = 1; fail_alloc_step(n); n++) {
        struct declared *d = NULL;
        int r = declared_read(&from, (uint64_t)(uintptr_t)&all, "mine", &d);
        CHECK(r == 0 ? d != NULL : d == NULL);
        declared_free(d);
    }
}

int main(void)
{
    RUN(text_and_back_is_the_same);
    RUN(older_and_smaller_ones_are_taken);
    RUN(lives_without_memory);
    RUN(changed_lines_are_refused_or_taken);
    RUN(changed_files_are_refused_or_taken);
    return test_end();
}
