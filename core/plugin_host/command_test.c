/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/command_test.c - commands on workers: found, refused, too late, too many,
 * cancelled.
 */
#include "core/plugin_host/host_test.h"

#include <errno.h>

enum { HOST_TEST_MANY = 300 };

/* ---- asking ---- */

static void finished(struct probing_reply *r, int status, const char *error)
{
    struct client *c = (struct client *)r;
    c->status = status;
    (void)snprintf(c->why, sizeof(c->why), "%s", error);
    event_raise(&c->done);
}

static int ask(struct client *c, bool read_only, uint64_t timeout_ns, int argc,
               const char *const *argv)
{
    struct host_request r = {.argc = argc,
                             .argv = argv,
                             .read_only = read_only,
                             .timeout_ns = timeout_ns,
                             .reply = &c->reply,
                             .done = finished};
    return host_submit(host, &r);
}

/* ---- commands ---- */

static int run_echo(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    int rc = host_replyf(out, "%s", (const char *)self);
    for (int i = 0; i < argc && rc == 0; i++)
        rc = host_replyf(out, "|%s", argv[i]);
    return rc;
}

/* Waits until it is told to end, as an eval does that waits for the GIL. */
static int run_wait(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self;
    (void)argc;
    (void)argv;
    struct event never;
    (void)event_init(&never);
    while (!atomic_load_explicit(&out->cancelled, memory_order_acquire))
        (void)event_wait(&never, NS_PER_MS);
    event_done(&never);
    return -ECANCELED;
}

static void add_commands(void)
{
    static const struct probing_command commands[] = {
        {.size = sizeof(commands[0]),
         .name = "echo",
         .usage = "WORD...",
         .doc = "says it",
         .run = run_echo},
        {.size = sizeof(commands[0]),
         .name = "echo loud",
         .doc = "says it",
         .run = run_echo,
         .flags = PROBING_WRITES},
        {.size = sizeof(commands[0]), .name = "echo =", .doc = "sets it", .run = run_echo},
        {.size = sizeof(commands[0]), .name = "wait", .doc = "waits", .run = run_wait}};
    static char one[] = "1", two[] = "2", three[] = "3";
    void *const selves[] = {one, two, three, one};
    for (int i = 0; i < 4; i++)
        CHECK_INT(host_command_add(host, "test", &commands[i], selves[i]), 0);
}

TEST(finds_a_command_by_one_word_or_two)
{
    static const struct {
        const char *words[3];
        int n;
        const char *answer;
    } rows[] = {{{"echo", "quiet", "x"}, 3, "1|echo|quiet|x"},
                {{"echo", "loud", "x"}, 3, "2|echo|x"},
                {{"echo", "a.b=c"}, 2, "3|echo|a.b=c"},
                {{"version"}, 1, "0.1.0\n"}};
    setup(true);
    add_commands();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct client c;
        client_init(&c);
        CHECK_INT(ask(&c, false, 0, rows[i].n, rows[i].words), 0);
        CHECK(event_wait(&c.done, 5 * NS_PER_S));
        CHECK_INT(c.status, 0);
        CHECK_STR(buf_text(&c.text), rows[i].answer);
        buf_reset(&c.text);
        CHECK_INT(host_run(host, rows[i].n, rows[i].words, &c.reply), 0);
        CHECK_STR(buf_text(&c.text), rows[i].answer);
        client_done(&c);
    }
    teardown();
}

TEST(refuses_with_the_nearest_name_and_for_readers)
{
    struct client c;
    setup(true);
    add_commands();
    client_init(&c);
    CHECK_INT(ask(&c, false, 0, WORDS("vresion")), -ENOENT);
    CHECK(strstr(err_text(), "did you mean 'version'?") != NULL);
    CHECK_INT(ask(&c, true, 0, WORDS("echo", "loud")), -EACCES);
    CHECK_INT(ask(&c, true, 0, WORDS("echo", "quiet")), 0);
    CHECK(event_wait(&c.done, 5 * NS_PER_S));
    CHECK_INT(ask(&c, true, 0, WORDS("")), -EINVAL);
    client_done(&c);
    teardown();
}

TEST(refuses_too_many_bytes_by_their_limit)
{
    struct client c;
    size_t n = (size_t)4 << 20;
    char *words = malloc(n + 1);
    setup(true);
    add_commands();
    client_init(&c);
    if (CHECK(words != NULL)) {
        memset(words, 'x', n);
        words[n] = '\0';
        int rc = ask(&c, false, 0, WORDS("echo", words));
        CHECK_INT(rc, -E2BIG);
        CHECK_STR(err_why(rc), "a command takes at most 256 arguments of 4194304 bytes in total");
    }
    free(words);
    client_done(&c);
    teardown();
}

/* A plugin that is loaded again writes its commands anew; the thread sanitizer judges. */
static void *add_again(void *arg)
{
    _Atomic bool *ends = arg;
    while (!atomic_load_explicit(ends, memory_order_acquire))
        add_commands();
    return NULL;
}

TEST(asks_while_commands_change)
{
    _Atomic bool ends = false;
    pthread_t thread;
    setup(true);
    add_commands();
    if (CHECK_INT(pthread_create(&thread, NULL, add_again, &ends), 0)) {
        for (int i = 0; i < 200; i++) {
            struct client c;
            client_init(&c);
            CHECK_INT(ask(&c, true, 0, WORDS("echo", "loud")), -EACCES);
            CHECK_INT(ask(&c, false, 0, WORDS("echo", "quiet")), 0);
            CHECK(event_wait(&c.done, 5 * NS_PER_S));
            client_done(&c);
        }
        atomic_store_explicit(&ends, true, memory_order_release);
        (void)pthread_join(thread, NULL);
    }
    teardown();
}

TEST(ends_what_takes_too_long)
{
    struct client c;
    setup(true);
    add_commands();
    client_init(&c);
    CHECK_INT(ask(&c, false, 20 * NS_PER_MS, WORDS("wait")), 0);
    CHECK(event_wait(&c.done, 5 * NS_PER_S));
    CHECK_INT(c.status, -ETIMEDOUT);
    CHECK(strstr(c.why, "did not end in time") != NULL);
    client_done(&c);
    teardown();
}

TEST(answers_while_others_wait_and_frees_with_all_waiting)
{
    enum { WAITERS = 7 };
    struct client waiting[WAITERS], c;
    setup(true);
    add_commands();
    for (int i = 0; i < WAITERS; i++) {
        client_init(&waiting[i]);
        CHECK_INT(ask(&waiting[i], false, 0, WORDS("wait")), 0);
    }
    client_init(&c);
    CHECK_INT(ask(&c, false, 0, WORDS("version")), 0);
    CHECK(event_wait(&c.done, 5 * NS_PER_S));
    CHECK_INT(host_quiet(host, NS_PER_MS), -ETIMEDOUT);
    teardown();
    for (int i = 0; i < WAITERS; i++) {
        CHECK_INT(waiting[i].status, -ECANCELED);
        client_done(&waiting[i]);
    }
    client_done(&c);
}

TEST(refuses_more_than_may_wait)
{
    static struct client many[HOST_TEST_MANY];
    int accepted = 0, r = 0;
    setup(true);
    add_commands();
    for (int i = 0; i < HOST_TEST_MANY; i++) {
        client_init(&many[i]);
        if (r == 0)
            r = ask(&many[i], false, 0, WORDS("wait"));
        accepted += r == 0;
    }
    CHECK_INT(r, -EAGAIN);
    CHECK(accepted >= 256 && accepted <= 256 + 8);
    teardown();
    for (int i = 0; i < HOST_TEST_MANY; i++) {
        CHECK_INT(many[i].status, i < accepted ? -ECANCELED : 999);
        client_done(&many[i]);
    }
}

int main(void)
{
    RUN(finds_a_command_by_one_word_or_two);
    RUN(refuses_with_the_nearest_name_and_for_readers);
    RUN(refuses_too_many_bytes_by_their_limit);
    RUN(asks_while_commands_change);
    RUN(ends_what_takes_too_long);
    RUN(answers_while_others_wait_and_frees_with_all_waiting);
    RUN(refuses_more_than_may_wait);
    return test_end();
}
