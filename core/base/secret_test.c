/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/secret_test.c - what is shown of a value, by the sound of its name and its own form.
 */
#include "core/base/secret.h"

#include <string.h>

#include "tests/test.h"

static const char *shown(const char *name, const char *value)
{
    static char text[256];
    struct buf b;
    buf_init(&b, 255);
    CHECK_INT(secret_show(name, strlen(name), value, &b), 0);
    (void)snprintf(text, sizeof(text), "%s", buf_text(&b));
    buf_done(&b);
    return text;
}

TEST(a_name_that_sounds_like_a_secret_hides_its_value)
{
    static const char *const secret[] = {"HF_TOKEN",   "AWS_SECRET_ACCESS_KEY", "probing.token",
                                         "PGPASSWORD", "my-Credentials",        "x.auth"};
    for (size_t i = 0; i < sizeof(secret) / sizeof(secret[0]); i++)
        CHECK_STR(shown(secret[i], "s3cret"), "***");
    CHECK_STR(shown("HF_TOKEN", ""), "");
    CHECK_STR(shown("PATH", "/bin:/usr/bin"), "/bin:/usr/bin");
    CHECK_STR(shown("PWD", "/home/me"), "/home/me");
    CHECK(!secret_name("tokens", 3)); /* "tok" is all of it */
}

TEST(a_url_keeps_its_password_to_itself)
{
    CHECK_STR(shown("DB", "postgres://me:word@host:5432/db"), "postgres://me:***@host:5432/db");
    CHECK_STR(shown("DB", "redis://:w@rd@host"), "redis://:***@host");
    CHECK_STR(shown("PROXY", "http://a:1@x,http://b:2@y"), "http://a:***@x,http://b:***@y");
    CHECK_STR(shown("TWO", "http://a:1@x http://b:2@y"), "http://a:***@x http://b:***@y");
    CHECK_STR(shown("ADDR", "http://127.0.0.1:9922/?a@b"), "http://127.0.0.1:9922/?a@b");
    CHECK_STR(shown("MAIL", "me@host"), "me@host");
}

int main(void)
{
    RUN(a_name_that_sounds_like_a_secret_hides_its_value);
    RUN(a_url_keeps_its_password_to_itself);
    return test_end();
}
