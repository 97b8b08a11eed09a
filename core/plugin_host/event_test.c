/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/event_test.c - events: order, prefixes, copies, the limit, and leaving while
 * they come.
 *
 * Threads: publishers of the test's, handlers on the host's control thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/guest/thread.h"
#include "core/plugin_host/plugin_host.h"
#include "tests/test.h"

static struct tables *tables;
static struct host *host;

struct heard {
    struct event at_last;
    uint32_t next[4]; /* expected number of each publisher */
    uint32_t count, last, wrong;
};

struct news {
    uint32_t size, who, number;
};

static void setup(void)
{
    CHECK_INT(tables_new(&tables), 0);
    struct host_options o = {.version = "0.1.0", .tables = tables};
    CHECK_INT(host_new(&o, &host), 0);
    CHECK_INT(host_start(host), 0);
}

static void teardown(void)
{
    host_free(host);
    tables_free(tables);
}

static void hear(void *arg, const char *topic, const void *payload, uint32_t size)
{
    struct heard *h = arg;
    struct news n;
    memcpy(&n, payload, sizeof(n));
    h->wrong +=
        size != sizeof(n) || strcmp(topic, "test.news/1") != 0 || h->next[n.who]++ != n.number;
    if (++h->count == h->last)
        event_raise(&h->at_last);
}

static void *publisher(void *arg)
{
    struct event never;
    (void)event_init(&never);
    for (uint32_t i = 0; i < 500; i++) {
        struct news n = {.size = sizeof(n), .who = *(uint32_t *)arg, .number = i};
        while (host_publish(host, "test.news/1", &n, sizeof(n)) == -ENOBUFS)
            (void)event_wait(&never, NS_PER_MS);
    }
    event_done(&never);
    return NULL;
}

TEST(hands_out_in_the_order_of_each_publisher)
{
    struct heard one = {.last = 2000}, all = {.last = 2000};
    uint32_t who[4] = {0, 1, 2, 3};
    pthread_t threads[4];
    setup();
    (void)event_init(&one.at_last);
    (void)event_init(&all.at_last);
    int a = host_subscribe(host, "test.news/1", hear, &one);
    int b = host_subscribe(host, "test.*", hear, &all);
    int c = host_subscribe(host, "test.news", hear, &all); /* another topic: a whole name only */
    CHECK(a > 0 && b > 0 && c > 0);
    for (int i = 0; i < 4; i++)
        CHECK_INT(thread_start(&threads[i], "test/news", 0, publisher, &who[i]), 0);
    for (int i = 0; i < 4; i++)
        (void)pthread_join(threads[i], NULL);
    CHECK(event_wait(&one.at_last, 5 * NS_PER_S));
    CHECK(event_wait(&all.at_last, 5 * NS_PER_S));
    host_unsubscribe(host, a);
    host_unsubscribe(host, b);
    CHECK_INT(one.count, 2000);
    CHECK_INT(all.count, 2000);
    CHECK_INT(one.wrong + all.wrong, 0);
    event_done(&one.at_last);
    event_done(&all.at_last);
    teardown();
}

struct gate {
    struct event entered, open;
    int calls;
};

static void stand(void *arg, const char *topic, const void *payload, uint32_t size)
{
    struct gate *g = arg;
    (void)topic;
    (void)payload;
    (void)size;
    if (g->calls++ == 0) {
        event_raise(&g->entered);
        (void)event_wait(&g->open, 5 * NS_PER_S);
    }
}

TEST(refuses_when_a_thousand_wait)
{
    struct gate g = {.calls = 0};
    int r = 0, n = 0;
    setup();
    (void)event_init(&g.entered);
    (void)event_init(&g.open);
    int id = host_subscribe(host, "t", stand, &g);
    CHECK_INT(host_publish(host, "t", NULL, 0), 0);
    CHECK(event_wait(&g.entered, 5 * NS_PER_S));
    while ((r = host_publish(host, "t", NULL, 0)) == 0 && n < 5000)
        n++;
    CHECK_INT(r, -ENOBUFS);
    CHECK_INT(n, 1024);
    event_raise(&g.open);
    host_unsubscribe(host, id);
    teardown();
    event_done(&g.entered);
    event_done(&g.open);
}

static void *leave(void *arg)
{
    host_unsubscribe(host, *(int *)arg);
    return arg;
}

TEST(runs_no_more_once_left)
{
    struct gate g = {.calls = 0};
    pthread_t thread;
    setup();
    (void)event_init(&g.entered);
    (void)event_init(&g.open);
    int id = host_subscribe(host, "t", stand, &g);
    for (int i = 0; i < 10; i++)
        CHECK_INT(host_publish(host, "t", "x", 1), 0);
    CHECK(event_wait(&g.entered, 5 * NS_PER_S));
    CHECK_INT(thread_start(&thread, "test/leave", 0, leave, &id), 0);
    event_raise(&g.open);
    (void)pthread_join(thread, NULL);
    int calls = g.calls; /* no handler runs now, so this is no race */
    CHECK_INT(host_publish(host, "t", "x", 1), 0);
    teardown();
    CHECK_INT(g.calls, calls);
    event_done(&g.entered);
    event_done(&g.open);
}

TEST(refuses_topics_without_a_name)
{
    setup();
    CHECK_INT(host_publish(host, "", "x", 1), -EINVAL);
    CHECK_INT(host_subscribe(host, "", hear, NULL), -EINVAL);
    CHECK_INT(host_publish(host, "t", "x", UINT32_MAX), -E2BIG);
    teardown();
}

int main(void)
{
    RUN(hands_out_in_the_order_of_each_publisher);
    RUN(refuses_when_a_thousand_wait);
    RUN(runs_no_more_once_left);
    RUN(refuses_topics_without_a_name);
    return test_end();
}
