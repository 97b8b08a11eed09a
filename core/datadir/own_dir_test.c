/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/own_dir_test.c - a directory for each life, and memory files brought home to it.
 *
 * Threads: the test's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/info_file.h"
#include "core/catalog/catalog.h"
#include "core/datadir/own_dir.h"
#include "tests/test.h"

static char folder[64];

TEST(makes_a_place_of_its_own_each_time)
{
    struct own_dir one, two;
    struct buf b;
    struct stat st;
    char again[DATADIR_PATH_BYTES + 8];

    CHECK_INT(own_dir_make(folder, NULL, &one), 0);
    CHECK_INT(own_dir_make(folder, NULL, &two), 0);
    (void)snprintf(again, sizeof(again), "%s.2", one.directory);
    CHECK_STR(two.directory, again);
    CHECK(stat(one.directory, &st) == 0 && (st.st_mode & 07777) == 0700);
    CHECK_INT(own_dir_info(&one, "9.9", 5), 0);
    (void)snprintf(again, sizeof(again), "%s/info", one.directory);
    buf_init(&b, 1 << 20);
    CHECK_INT(file_read(-100, again, &b), 0); /* AT_FDCWD */
    CHECK(strstr(buf_text(&b), "version: 9.9\n") && strstr(buf_text(&b), "start_time: "));
    CHECK(one.instance_id[0] && strcmp(one.instance_id, two.instance_id) != 0);
    CHECK(strstr(buf_text(&b), one.instance_id) != NULL);
    buf_done(&b);
    CHECK_INT(own_dir_make("relative", NULL, &two), -EINVAL);
    (void)file_remove_dir(one.directory);
    (void)file_remove_dir(two.directory);
    (void)file_remove_dir(one.fast);
    (void)file_remove_dir(two.fast);
}

TEST(brings_files_home_from_memory)
{
    struct own_dir p;
    struct stat st;
    char fast[DATADIR_PATH_BYTES + 16], home[DATADIR_PATH_BYTES], text[8] = "";

    CHECK_INT(own_dir_make(folder, NULL, &p), 0);
    if (p.fast[0]) { /* no roomy tmpfs here: then there is nothing to bring */
        static const char *const names[] = {"rings", "strings"};
        CHECK_INT(own_dir_link(&p), 0);
        for (int i = 0; i < 2; i++) {
            (void)snprintf(fast, sizeof(fast), "%s/%s", p.fast, names[i]);
            int fd = open(fast, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
            CHECK_INT(pwrite(fd, "end", 3, 100 << 20), 3);
            (void)close(fd);
        }
        own_dir_settle(&p);
        CHECK(access(p.fast, F_OK) == -1);
        CHECK_INT(own_dir_path(&p, "rings", home), 0);
        CHECK(lstat(home, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == (100 << 20) + 3);
        CHECK(st.st_blocks * 512 < 1 << 20); /* the hole is still one */
        int fd = open(home, O_RDONLY | O_CLOEXEC);
        CHECK_INT(pread(fd, text, 3, 100 << 20), 3);
        CHECK_STR(text, "end");
        (void)close(fd);
    }
    (void)file_remove_dir(p.directory);
}

/* Losses of earlier lives stand in lines, and a line that is not whole counts for nothing. */
TEST(rows_lost_in_earlier_lives_are_counted_again)
{
    static const char *const lines[] = {"lost: t.rows 1 2 3 4 5 6 7 8 9\n",
                                        "lost: t.rows 10 -1 3 4 5 6 7 8 9\n",
                                        "lost: t.rows 10 2 3\n4 5 6 7 8 9\n",
                                        "lost: \nt.rows 10 2 3 4 5 6 7 8 9\n",
                                        "lost: t.rows 10 2 3 4 5 6 7 8 18446744073709551616\n",
                                        "lost: t.nobody 10 2 3 4 5 6 7 8 9\n",
                                        "lost:\n"};
    static const struct probing_column columns[] = {{.name = "n", .type = PROBING_I64}};
    const struct probing_table_desc d = {.size = sizeof(d),
                                         .column_size = sizeof(columns[0]),
                                         .name = "rows",
                                         .doc = "",
                                         .columns = columns,
                                         .n_columns = 1};
    struct own_dir p;
    struct tables *tables = NULL;
    struct table *t = NULL;
    struct buf info;

    buf_init(&info, INFO_MAX_BYTES);
    CHECK_INT(own_dir_make(folder, NULL, &p), 0);
    CHECK_INT(tables_new(&tables), 0);
    CHECK_INT(tables_add(tables, "t", &d, NULL, &t), 0);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        (void)buf_adds(&info, lines[i]);
    CHECK_INT(own_dir_info_text(&p, &info), 0);
    p.resumed = true;
    resume_losses(&p, tables);
    for (int i = 0; t && i < TABLE_LOSS_REASONS; i++)
        CHECK_INT(atomic_load_explicit(&t->lost[i], memory_order_relaxed), i + 1);
    buf_done(&info);
    tables_free(tables);
    (void)file_remove_dir(p.directory);
    (void)file_remove_dir(p.fast);
}

int main(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/place_test.XXXXXX");
    if (!mkdtemp(folder))
        return test_skip("no directory in /tmp");
    RUN(makes_a_place_of_its_own_each_time);
    RUN(brings_files_home_from_memory);
    RUN(rows_lost_in_earlier_lives_are_counted_again);
    (void)file_remove_dir(folder);
    return test_end();
}
