/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/make_root_test.c - a root of our own, whoever was there before.
 *
 * Threads: the test's.  The place of all users is a folder that is made here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/datadir/datadir.h"
#include "tests/test.h"

static char place[64], ours[96], root[256], note[512];

static int make(void)
{
    return datadir_root_make(place, root, sizeof(root), note, sizeof(note));
}

static bool is_private(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 07777) == 0700 &&
           st.st_uid == geteuid();
}

TEST(takes_the_name_that_everybody_knows)
{
    CHECK_INT(make(), 0);
    CHECK_STR(root, ours);
    CHECK_STR(note, "");
    CHECK(is_private(root));
    CHECK_INT(make(), 0); /* it is there already */
    CHECK_STR(root, ours);
    CHECK_INT(rmdir(ours), 0);
}

/* A thing at our name stays, and the note says so; our next process finds the same root. */
static void squat(const char *what)
{
    char first[256];
    struct stat before, after;
    CHECK_INT(lstat(ours, &before), 0);
    CHECK_INT(make(), 0);
    CHECK(strncmp(root, ours, strlen(ours)) == 0 && root[strlen(ours)] == '.');
    CHECK(is_private(root));
    CHECK(strstr(note, ours) && strstr(note, what));
    (void)snprintf(first, sizeof(first), "%s", root);
    CHECK_INT(make(), 0);
    CHECK_STR(root, first);
    CHECK_INT(lstat(ours, &after), 0);
    CHECK(after.st_ino == before.st_ino && after.st_mode == before.st_mode);
    CHECK_INT(rmdir(root), 0);
    CHECK_INT(remove(ours), 0);
}

TEST(goes_past_whatever_stands_there)
{
    CHECK_INT(symlink(place, ours), 0);
    squat("link");
    CHECK_INT(file_write(AT_FDCWD, ours, "x", 1, 0600), 0);
    squat("file");
    CHECK_INT(mkfifo(ours, 0600), 0);
    squat("FIFO");
    CHECK(mkdir(ours, 0700) == 0 && chmod(ours, 0777) == 0);
    squat("chmod 700");
}

/* Others may guess that there is such a name, and make many. */
TEST(believes_no_root_by_its_name_alone)
{
    char liar[128];
    CHECK_INT(symlink(place, ours), 0);
    for (int i = 0; i < 5; i++) {
        (void)snprintf(liar, sizeof(liar), "%s.%08x", ours, (unsigned)i);
        CHECK_INT(symlink(place, liar), 0);
    }
    CHECK_INT(make(), 0);
    CHECK(is_private(root));
    CHECK_INT(rmdir(root), 0);
    for (int i = 0; i < 5; i++) {
        (void)snprintf(liar, sizeof(liar), "%s.%08x", ours, (unsigned)i);
        CHECK_INT(unlink(liar), 0);
    }
    CHECK_INT(unlink(ours), 0);
}

TEST(uses_no_place_where_names_can_be_taken_away)
{
    CHECK_INT(chmod(place, 0777), 0);
    CHECK_INT(make(), -EPERM);
    CHECK(strstr(err_text(), "chmod +t") != NULL);
    CHECK_INT(chmod(place, 01777), 0);
    (void)snprintf(root, sizeof(root), "%s/none", place);
    CHECK_INT(datadir_root_make(root, root, sizeof(root), note, sizeof(note)), -ENOENT);
}

static int count(void *arg, const struct datadir *d)
{
    int *n = arg;
    *n += strcmp(d->leaf, "12-34") == 0;
    return 0;
}

/* Every root is looked into: here the one that was named. */
TEST(a_named_root_is_searched)
{
    char path[128];
    int n = 0;
    struct datadir_search s = {.named = place, .found = count, .arg = &n};
    (void)snprintf(path, sizeof(path), "%s/12-34", place);
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK_INT(datadir_search(&s), 0);
    CHECK_INT(n, 1);
    CHECK_INT(rmdir(path), 0);
}

int main(void)
{
    (void)snprintf(place, sizeof(place), "/tmp/make_test.XXXXXX");
    if (!mkdtemp(place) || chmod(place, 01777) == -1)
        return test_skip("no directory in /tmp");
    (void)snprintf(ours, sizeof(ours), "%s/probing-%u", place, (unsigned)geteuid());
    RUN(takes_the_name_that_everybody_knows);
    RUN(goes_past_whatever_stands_there);
    RUN(believes_no_root_by_its_name_alone);
    RUN(uses_no_place_where_names_can_be_taken_away);
    RUN(a_named_root_is_searched);
    (void)file_remove_dir(place);
    return test_end();
}
