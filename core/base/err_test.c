/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/err_test.c - which part of a reason is the hint, on its way up and to other threads.
 */
#include "core/base/err.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/test.h"

static const char *hint(void)
{
    size_t at = err_hint(err_text());
    return at > 0 ? err_text() + at : "";
}

TEST(hint_is_of_the_format_not_of_the_users_text)
{
    (void)err_set(-EINVAL, "'%s' is not a bigint", "; x");
    CHECK_STR(hint(), "");
    (void)err_set(-ENOENT, "no table '%s'; did you mean '%s'?", "a; b", "a;b");
    CHECK_STR(hint(), "did you mean 'a;b'?");
    (void)err_set(-ENOENT, "line %d: %s", 7, err_text());
    CHECK_STR(err_text(), "line 7: no table 'a; b'; did you mean 'a;b'?");
    CHECK_STR(hint(), "did you mean 'a;b'?");
    (void)err_set(-ENOENT, "%s; every plugin runs on", err_text());
    CHECK_STR(hint(), "every plugin runs on");
    err_clear();
    CHECK_STR(hint(), "");
}

TEST(hint_of_a_sentence_made_elsewhere)
{
    static const struct {
        const char *text, *hint;
    } said[] = {
        {"no driver; install it", "install it"},
        {"the thread's name is '; x'; choose another", "choose another"},
        {"unknown function \"a; b\"", ""},
        {"an end; ", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        (void)err_set(-EINVAL, "%s", "nothing");
        (void)err_set(-EINVAL, "%s", said[i].text);
        CHECK_STR(hint(), said[i].hint);
    }
    char long_text[2 * ERR_TEXT_BYTES];
    memset(long_text, 'x', sizeof(long_text));
    long_text[sizeof(long_text) - 1] = '\0';
    (void)err_set(-EINVAL, "%s; make it shorter", long_text);
    CHECK_STR(hint(), "");
}

static void *fail_there(void *arg)
{
    err_keep(arg, err_set(-EIO, "'%s' is gone; load it again", "a; b"));
    return NULL;
}

TEST(hint_comes_along_from_another_thread)
{
    struct err_kept kept;
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, fail_there, &kept), 0);
    (void)pthread_join(thread, NULL);
    (void)err_set(-EINVAL, "older");
    CHECK_INT(err_restore(&kept), -EIO);
    CHECK_STR(hint(), "load it again");
    err_keep(&kept, 3);
    CHECK_INT(err_restore(&kept), 3);
    CHECK_STR(err_text(), "'a; b' is gone; load it again");
}

int main(void)
{
    RUN(hint_is_of_the_format_not_of_the_users_text);
    RUN(hint_of_a_sentence_made_elsewhere);
    RUN(hint_comes_along_from_another_thread);
    return test_end();
}
