/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/thread_test.c - threads that the program does not notice, and events in use.
 */
#include "core/guest/thread.h"

#include <signal.h>
#include <string.h>

#include "core/base/clock.h"
#include "tests/test.h"

struct meeting {
    struct event here, go_on;
    bool blocked;
    char name[16];
};

static void *visit(void *arg)
{
    struct meeting *m = arg;
    sigset_t mask;
    (void)pthread_sigmask(SIG_BLOCK, NULL, &mask);
    m->blocked = sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGPROF) == 1;
    (void)pthread_getname_np(pthread_self(), m->name, sizeof(m->name));
    event_raise(&m->here);
    (void)event_wait(&m->go_on, 5 * NS_PER_S);
    return m;
}

TEST(our_threads_have_names_and_no_signals)
{
    struct meeting m = {.blocked = false};
    pthread_t thread;
    void *result;
    sigset_t before = {0}, after = {0};
    (void)pthread_sigmask(SIG_BLOCK, NULL, &before);
    CHECK_INT(event_init(&m.here), 0);
    CHECK_INT(event_init(&m.go_on), 0);
    CHECK(!event_wait(&m.here, NS_PER_MS));
    if (CHECK_INT(thread_start(&thread, "probing/a-long-name", 0, visit, &m), 0)) {
        CHECK(event_wait(&m.here, 5 * NS_PER_S));
        CHECK(!event_wait(&m.here, NS_PER_MS)); /* the flag was lowered */
        event_raise(&m.go_on);
        CHECK_INT(pthread_join(thread, &result), 0);
        CHECK(result == &m && m.blocked);
        CHECK_STR(m.name, "probing/a-long-");
    }
    (void)pthread_sigmask(SIG_BLOCK, NULL, &after);
    CHECK_INT(memcmp(&before, &after, sizeof(before)), 0);
    event_done(&m.here);
    event_done(&m.go_on);
}

TEST(who_waits_can_be_woken_without_a_raise)
{
    struct event e;
    CHECK_INT(event_init(&e), 0);
    event_wake(&e);
    CHECK(!event_wait(&e, UINT64_MAX)); /* the wake came before the wait, and is not lost */
    CHECK(!event_wait(&e, NS_PER_MS));
    event_raise(&e);
    event_wake(&e);
    CHECK(event_wait(&e, UINT64_MAX));
    CHECK(!event_wait(&e, NS_PER_MS)); /* both were taken */
    event_done(&e);
}

int main(void)
{
    RUN(our_threads_have_names_and_no_signals);
    RUN(who_waits_can_be_woken_without_a_raise);
    return test_end();
}
