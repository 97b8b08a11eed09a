/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/redact_test.c - what is shown of a value, by the sound of its name and its own form.
 */
#include "core/base/redact.h"

#include <stdint.h>
#include <stdlib.h>
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
    static const char *const secret[] = {"HF_TOKEN",       "AWS_SECRET_ACCESS_KEY",
                                         "probing.token",  "PGPASSWORD",
                                         "my-Credentials", "x.auth",
                                         "MYSQL_PWD",      "SMTP_PASS",
                                         "ftp.pass"};
    for (size_t i = 0; i < sizeof(secret) / sizeof(secret[0]); i++)
        CHECK_STR(shown(secret[i], "s3cret"), "***");
    CHECK_STR(shown("HF_TOKEN", ""), "");
    CHECK_STR(shown("PATH", "/bin:/usr/bin"), "/bin:/usr/bin");
    CHECK_STR(shown("PWD", "/home/me"), "/home/me");
    CHECK_STR(shown("BYPASS", "1"), "1");
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

static const char *text(const char *given)
{
    static char room[1024];
    struct buf b;
    buf_init(&b, sizeof(room) - 1);
    CHECK(secret_text(given, strlen(given), &b) >= 0);
    (void)snprintf(room, sizeof(room), "%s", buf_text(&b));
    buf_done(&b);
    return room;
}

TEST(what_is_assigned_to_a_secrets_name)
{
    static const char *const pairs[][2] = {
        {"password='hunter2', n=3", "password='***', n=3"},
        {"    db_password = 'hunter2'\n    n = 3", "    db_password = '***'\n    n = 3"},
        {"{'password': 'a\\'b', 'n': 3}", "{'password': '***', 'n': 3}"},
        {"{\"password\":\"'a'\",\"n\":3}", "{\"password\":\"***\",\"n\":3}"},
        {"{\"pin_secret\": 1234, \"n\": 3}", "{\"pin_secret\": \"***\", \"n\": 3}"},
        {"\"{\\\"api_key\\\": \\\"x\\\"}\"", "\"{\\\"api_key\\\": \\\"***\\\"}\""},
        {"\"{\\\"api_key\\\": 12}\"", "\"{\\\"api_key\\\": \\\"***\\\"}\""},
        {"['run', '--token', 'abc', '-n']", "['run', '--token', '***', '-n']"},
        {"run --token abc --password=x -n", "run --token *** --password=*** -n"},
        {"?api_key=abc&x=1", "?api_key=***&x=1"},
        {"Authorization: Bearer abc\r\nHost: x", "Authorization: ***\r\nHost: x"},
        {"auth=Bearer abc9 next", "auth=*** next"},
        {"d['password'] = x", "d['password'] = '***'"},
        {"secrets=['a', 'b'], n=2", "secrets=***, n=2"},
        {"token=Token(value='a b', n=1) end", "token=*** end"},
        {"password: str = 'x', n: int", "password: ***, n: int"},
        {"password=b'\\x00'", "password=b'***'"},
        {"x\\npassword='a'", "x\\npassword='***'"},
        {"if password == 'a':", "if password == '***':"},
        {"[('token', 'abc')]", "[('token', '***')]"},
        {"{\"name\": \"password\", \"value\": \"x\"}",
         "{\"name\": \"password\", \"value\": \"***\"}"},
        {"password='''a\nb'''", "password='''***'''"},
        {"password='cut", "password='***"},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        CHECK_STR(text(pairs[i][0]), pairs[i][1]);
        CHECK_STR(text(pairs[i][1]), pairs[i][1]); /* and again */
    }
}

TEST(what_looks_like_a_secret)
{
    CHECK_STR(text("x AKIAIOSFODNN7EXAMPLE y"), "x *** y");
    CHECK_STR(text("['ghp_0123456789abcdefghijABCDEFGHIJ012345']"), "['***']");
    CHECK_STR(text("say sk-proj-0123456789abcdefghij"), "say ***");
    CHECK_STR(text("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF_123-x!"), "***!");
    CHECK_STR(text("a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b"),
              "a *** b");
    CHECK_STR(text("-----BEGIN PRIVATE KEY-----\\nMII"), "***");
    CHECK_STR(text("see http://u:p@h/x"), "see http://u:***@h/x");
}

TEST(what_is_none_stays)
{
    static const char *const plain[] = {
        "",
        "key",
        "tokens=512, n_tokens=3",
        "password=None",
        "password=''",
        "token=<Tokenizer>",
        "  3 login   /srv/auth.py:15",
        "/srv/secrets.py:7 in get_token",
        "auth::login(int)",
        "select token, key from t",
        "the key: what it is called by",
        "{\"key\": 5, \"x\": \"y\"}",
        "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
        "sk-learn-like-names-are-long",
        "{\"func\":\"get_token\",\"file\":\"x.py\"}",
        "author, key",
        "AKIA",
    };
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        CHECK_STR(text(plain[i]), plain[i]);
}

/* Whatever comes, it ends and reads nothing behind the text (asan). */
TEST(any_text)
{
    static const char *const pieces[] = {"password", "token", "=", ":",  "'",   "\"", "\\", ",",
                                         "{",        "]",     " ", "\n", "--",  "a",  "1",  "://",
                                         "@",        "(",     "b", "[",  "eyJ", ".",  "<",  ">"};
    uint32_t state = 1;
    for (int round = 0; round < 20000; round++) {
        char *given = malloc(512);
        size_t n = 0;
        for (int k = 0; k < 12; k++) {
            state = state * 1664525u + 1013904223u;
            const char *piece = pieces[(state >> 16) % (sizeof(pieces) / sizeof(pieces[0]))];
            memcpy(given + n, piece, strlen(piece));
            n += strlen(piece);
        }
        given = realloc(given, n); /* no byte behind it is ours */
        struct buf b;
        buf_init(&b, 1024);
        CHECK(secret_text(given, n, &b) >= 0);
        buf_done(&b);
        free(given);
    }
}

/* Names that a program chooses must not hold up the thread that looks through them: some MB of
 * each take part of a second; where the work grows with the square, hours. */
TEST(no_text_takes_long)
{
    static const char *const pieces[] = {"sk-",
                                         "A-",
                                         "key: ",
                                         "auth:<",
                                         "eyJ.",
                                         "token=a(",
                                         "'token', \"",
                                         "\\n",
                                         "password='<",
                                         "-----BEGIN ",
                                         "-----BEGIN PRIVATE KEY-----\n",
                                         "://a:",
                                         "token=1,"};
#ifdef __SANITIZE_THREAD__ /* some forty times slower: still too much for a square */
    enum { BYTES = 256 << 10 };
#else
    enum { BYTES = 2 << 20 };
#endif
    char *given = malloc(BYTES);
    for (size_t k = 0; k < sizeof(pieces) / sizeof(pieces[0]); k++) {
        struct buf b;
        size_t n = strlen(pieces[k]);
        for (size_t i = 0; i < BYTES; i++)
            given[i] = pieces[k][i % n];
        buf_init(&b, 8 * (size_t)BYTES);
        CHECK(secret_text(given, BYTES, &b) >= 0);
        (void)secret_whole(given, BYTES);
        buf_done(&b);
    }
    free(given);
}

int main(void)
{
    RUN(a_name_that_sounds_like_a_secret_hides_its_value);
    RUN(a_url_keeps_its_password_to_itself);
    RUN(what_is_assigned_to_a_secrets_name);
    RUN(what_looks_like_a_secret);
    RUN(what_is_none_stays);
    RUN(any_text);
    RUN(no_text_takes_long);
    return test_end();
}
