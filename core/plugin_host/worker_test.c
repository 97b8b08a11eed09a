/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/worker_test.c - clients that ask for much, and those that ask for little beside
 * them.
 *
 * Threads: the test's, which is every client, and the host's own.  Nothing is timed: what must wait
 * is held until it is told to end, and what must not has to end meanwhile.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/guest/thread.h"
#include "core/plugin_host/plugin_host.h"
#include "tests/test.h"

enum { PLACES = 8, THREADS = 24, OF_ONE = 4, WAITING = 256, LONG_S = 60 };

static struct tables *tables;
static struct host *host;
static _Atomic int begun, noted;

struct request {
    struct probing_reply reply; /* first: the host gives its address back */
    struct event done;
    int status, order; /* order: of all `note` commands */
    char why[ERR_TEXT_BYTES];
};

static int take(struct probing_reply *r, const void *data, size_t size)
{
    (void)r, (void)data, (void)size;
    return 0;
}

static void finished(struct probing_reply *r, int status, const char *error)
{
    struct request *q = (struct request *)r;
    q->status = status;
    (void)snprintf(q->why, sizeof(q->why), "%s", error);
    event_raise(&q->done);
}

static int ask(struct request *q, struct host_client *client, const char *word, const char *more)
{
    const char *argv[] = {word, more};
    struct host_request r = {.argc = more ? 2 : 1,
                             .argv = argv,
                             .client = client,
                             .stream = strcmp(word, "tick") == 0,
                             .reply = &q->reply,
                             .done = finished};
    *q = (struct request){.reply = {.write = take}, .status = 999, .order = -1};
    (void)event_init(&q->done);
    return host_submit(host, &r);
}

static bool ends(struct request *q)
{
    return event_wait(&q->done, LONG_S * NS_PER_S);
}

static void cancel(struct request *q)
{
    atomic_store_explicit(&q->reply.cancelled, HOST_GONE, memory_order_release);
}

static void pause_ms(uint64_t ms)
{
    struct event never;
    (void)event_init(&never);
    (void)event_wait(&never, ms * NS_PER_MS);
    event_done(&never);
}

static void wait_begun(int n)
{
    for (int i = 0; i < LONG_S * 1000 && atomic_load(&begun) < n; i++)
        pause_ms(1);
    CHECK_INT(atomic_load(&begun), n);
}

/* ---- commands: one that lasts, one whose client does not read, one that is short ---- */

static int run_hold(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv;
    (void)atomic_fetch_add(&begun, 1);
    while (!atomic_load_explicit(&out->cancelled, memory_order_acquire))
        pause_ms(1);
    return -ECANCELED;
}

static int run_unread(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    uint64_t since = clock_now();
    (void)self, (void)argc, (void)argv;
    (void)atomic_fetch_add(&begun, 1);
    while (!atomic_load_explicit(&out->cancelled, memory_order_acquire)) {
        if (host_waits_for_client(host, out, since))
            atomic_store(&out->cancelled, HOST_CROWDED);
        pause_ms(5);
    }
    (void)host_waits_for_client(host, out, 0);
    return -ECANCELED;
}

static int run_note(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv;
    ((struct request *)out)->order = atomic_fetch_add(&noted, 1);
    return 0;
}

static void setup(void)
{
    static const struct probing_command commands[] = {
        {.size = sizeof(commands[0]), .name = "hold", .doc = "lasts", .run = run_hold},
        {.size = sizeof(commands[0]), .name = "tick", .doc = "lasts", .run = run_hold},
        {.size = sizeof(commands[0]), .name = "unread", .doc = "is not read", .run = run_unread},
        {.size = sizeof(commands[0]), .name = "note", .doc = "is short", .run = run_note},
        {.size = sizeof(commands[0]),
         .name = "lasts",
         .doc = "is urgent and lasts",
         .flags = HOST_URGENT | HOST_LASTS,
         .run = run_hold}};
    struct host_options o = {.version = "1"};
    atomic_store(&begun, 0);
    atomic_store(&noted, 0);
    CHECK_INT(tables_new(&tables), 0);
    o.tables = tables;
    CHECK_INT(host_new(&o, &host), 0);
    CHECK_INT(host_start(host), 0);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        CHECK_INT(host_command_add(host, "test", &commands[i], NULL), 0);
}

static void teardown(void)
{
    host_free(host);
    tables_free(tables);
}

TEST(what_is_urgent_waits_for_nobody)
{
    static struct request holds[2 * PLACES], one;
    static struct host_client clients[2 * PLACES], other;
    setup();
    for (int i = 0; i < 2 * PLACES; i++)
        CHECK_INT(ask(&holds[i], &clients[i], "hold", NULL), 0);
    wait_begun(PLACES); /* the others wait */
    for (int i = 0; i < 3; i++) {
        CHECK_INT(ask(&one, i ? &other : &clients[0], "version", NULL), 0);
        CHECK(ends(&one));
        CHECK_INT(one.status, 0);
    }
    CHECK_INT(atomic_load(&begun), PLACES);
    teardown();
}

/* As the stop of a plugin does; two of them at once, and none before a short one. */
TEST(what_is_urgent_and_lasts_has_threads_of_its_own)
{
    static struct request holds[PLACES], lasts[3], one;
    static struct host_client clients[PLACES], other;
    memset(clients, 0, sizeof(clients));
    memset(&other, 0, sizeof(other));
    setup();
    for (int i = 0; i < PLACES; i++)
        CHECK_INT(ask(&holds[i], &clients[i], "hold", NULL), 0);
    wait_begun(PLACES);
    for (int i = 0; i < 3; i++)
        CHECK_INT(ask(&lasts[i], &other, "lasts", NULL), 0);
    wait_begun(PLACES + 2);
    CHECK_INT(ask(&one, &other, "version", NULL), 0);
    CHECK(ends(&one));
    CHECK_INT(one.status, 0);
    CHECK_INT(atomic_load(&begun), PLACES + 2);
    cancel(&lasts[0]);
    CHECK(ends(&lasts[0]));
    wait_begun(PLACES + 3);
    teardown();
}

TEST(what_has_no_turn_in_its_time_is_answered)
{
    static struct request holds[PLACES], one;
    static struct host_client clients[PLACES];
    static const char *const word[] = {"note"};
    memset(clients, 0, sizeof(clients));
    setup();
    for (int i = 0; i < PLACES; i++)
        CHECK_INT(ask(&holds[i], &clients[i], "hold", NULL), 0);
    wait_begun(PLACES);
    one = (struct request){.reply = {.write = take}, .status = 999, .order = -1};
    CHECK_INT(event_init(&one.done), 0);
    struct host_request r = {
        .argc = 1, .argv = word, .timeout_ns = NS_PER_MS, .reply = &one.reply, .done = finished};
    CHECK_INT(host_submit(host, &r), 0);
    CHECK(ends(&one));
    CHECK_INT(one.status, -ETIMEDOUT);
    CHECK(strstr(one.why, "did not begin within its time") != NULL);
    CHECK_INT(one.order, -1);
    teardown();
}

TEST(one_client_leaves_places_for_others)
{
    static struct request holds[60], ticks[60], one;
    static struct host_client greedy, streams, other;
    memset(&greedy, 0, sizeof(greedy));
    memset(&streams, 0, sizeof(streams));
    setup();
    for (int i = 0; i < 60; i++) {
        CHECK_INT(ask(&holds[i], &greedy, "hold", NULL), 0);
        CHECK_INT(ask(&ticks[i], &streams, "tick", NULL), 0);
    }
    wait_begun(OF_ONE + 1);
    CHECK_INT(ask(&one, &other, "note", NULL), 0);
    CHECK(ends(&one));
    CHECK_INT(one.status, 0);
    CHECK_INT(atomic_load(&begun), OF_ONE + 1);
    cancel(&ticks[0]); /* its next tick, and no other command */
    CHECK(ends(&ticks[0]));
    wait_begun(OF_ONE + 2);
    teardown();
    for (int i = 0; i < 60; i++)
        CHECK(holds[i].status == -ECANCELED && ticks[i].status == -ECANCELED);
}

TEST(clients_have_their_turns)
{
    static struct request holds[PLACES], many[20], one;
    static struct host_client clients[PLACES], greedy, other;
    memset(clients, 0, sizeof(clients));
    memset(&greedy, 0, sizeof(greedy));
    memset(&other, 0, sizeof(other));
    setup();
    for (int i = 0; i < PLACES; i++)
        CHECK_INT(ask(&holds[i], &clients[i], "hold", NULL), 0);
    wait_begun(PLACES);
    for (int i = 0; i < 20; i++)
        CHECK_INT(ask(&many[i], &greedy, "note", NULL), 0);
    CHECK_INT(ask(&one, &other, "note", NULL), 0);
    cancel(&holds[0]); /* one worker, for all of them */
    CHECK(ends(&one));
    for (int i = 0; i < 20; i++)
        CHECK(ends(&many[i]));
    CHECK_INT(one.order, 1); /* behind the first of the twenty, not the last */
    teardown();
}

TEST(a_full_queue_takes_from_who_has_most)
{
    static struct request holds[PLACES], many[WAITING + 1], one;
    static struct host_client clients[PLACES], greedy, other;
    memset(clients, 0, sizeof(clients));
    memset(&greedy, 0, sizeof(greedy));
    memset(&other, 0, sizeof(other));
    setup();
    for (int i = 0; i < PLACES; i++)
        CHECK_INT(ask(&holds[i], &clients[i], "hold", NULL), 0);
    wait_begun(PLACES);
    for (int i = 0; i < WAITING; i++)
        CHECK_INT(ask(&many[i], &greedy, "note", NULL), 0);
    CHECK_INT(ask(&many[WAITING], &greedy, "note", NULL), -EAGAIN);
    CHECK_INT(ask(&one, &other, "note", NULL), 0);
    CHECK(ends(&many[WAITING - 1]));
    CHECK_INT(many[WAITING - 1].status, -EAGAIN);
    CHECK(strstr(many[WAITING - 1].why, "most of them from this client") != NULL);
    cancel(&holds[0]);
    CHECK(ends(&one));
    CHECK_INT(one.status, 0);
    for (int i = 0; i < WAITING - 1; i++)
        CHECK(ends(&many[i]) && many[i].status == 0);
    teardown();
    CHECK(greedy.waiting == 0 && greedy.waiting_bytes == 0 && greedy.running == 0);
}

TEST(words_that_wait_have_a_limit)
{
    enum { BYTES = 4 << 20, N = 15 };
    static struct request holds[PLACES], many[N], more[N];
    static struct host_client clients[PLACES], greedy, other;
    char *word = malloc(BYTES);
    memset(clients, 0, sizeof(clients));
    memset(&greedy, 0, sizeof(greedy));
    memset(&other, 0, sizeof(other));
    memset(word, 'w', BYTES);
    word[BYTES - 100] = '\0';
    setup();
    for (int i = 0; i < PLACES; i++)
        CHECK_INT(ask(&holds[i], &clients[i], "hold", NULL), 0);
    wait_begun(PLACES);
    for (int i = 0; i < N; i++)
        CHECK_INT(ask(&many[i], &greedy, "note", word), 0);
    CHECK_INT(ask(&more[0], &other, "note", word), 0);
    CHECK_INT(ask(&more[1], &other, "note", word), 0); /* 17 of them are too many */
    CHECK(ends(&many[N - 1]));
    CHECK_INT(many[N - 1].status, -EAGAIN);
    int r = 0;
    for (int i = 2; i < N && r == 0; i++)
        r = ask(&more[i], &other, "note", word);
    CHECK_INT(r, -EAGAIN); /* each has half of it */
    CHECK(greedy.waiting_bytes + other.waiting_bytes <= (size_t)64 << 20);
    teardown();
    free(word);
}

TEST(clients_that_do_not_read_hold_no_place)
{
    static struct request unread[THREADS], one;
    static struct host_client clients[THREADS], other;
    setup();
    for (int i = 0; i < THREADS; i++) {
        CHECK_INT(ask(&unread[i], &clients[i], "unread", NULL), 0);
        wait_begun(i + 1); /* so the first has waited longest */
    }
    CHECK_INT(ask(&one, &other, "note", NULL), 0);
    CHECK(ends(&one));
    CHECK_INT(one.status, 0);
    CHECK(ends(&unread[0]));
    CHECK_INT(unread[0].status, -EAGAIN);
    CHECK(strstr(unread[0].why, "did not read") != NULL);
    for (int i = 1; i < THREADS; i++)
        CHECK_INT(unread[i].status, 999);
    teardown();
}

int main(void)
{
    RUN(what_is_urgent_waits_for_nobody);
    RUN(what_is_urgent_and_lasts_has_threads_of_its_own);
    RUN(what_has_no_turn_in_its_time_is_answered);
    RUN(one_client_leaves_places_for_others);
    RUN(clients_have_their_turns);
    RUN(a_full_queue_takes_from_who_has_most);
    RUN(words_that_wait_have_a_limit);
    RUN(clients_that_do_not_read_hold_no_place);
    return test_end();
}
