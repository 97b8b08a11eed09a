/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/cupti_session_test.c - a session that is switched on and off, and made to step
 * aside, while four threads launch; and one that is left behind where a call hangs.
 *
 * The driver and CUPTI are the stand-ins of tests/cuda/libraries: run it under tsan.
 */
#include "cupti/cupti_session.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "cupti/cupti_inside.h"
#include "probing_sdk.h"
#include "tests/test.h"

#define WAIT_NS (60 * PROBING_NS_PER_S)
#define ROUNDS 20

static struct {
    void *cupti, *player;
    void (*burst)(const char *name, uint32_t a_second, double seconds);
    void (*hang_in)(const char *function);
    int (*hanging)(void);
    int (*kineto_start)(void);
    void (*kineto_stop)(void);
} standin;

static struct {
    _Atomic uint64_t records, begun, ended;
    uint64_t one_thread; /* no lock: a session tells on one thread at a time */
} told;

static uint64_t now(void)
{
    return probing_clock_ns(CLOCK_MONOTONIC);
}

static void say(const struct probing_host *h, int level, const char *text)
{
    (void)h;
    (void)level;
    (void)text;
}

static int fail(const struct probing_host *h, int code, const char *text)
{
    (void)h;
    (void)text;
    return code;
}

static const struct probing_host host = {
    .size = sizeof(host), .log = say, .fail = fail, .now = now};

static void begun(void *arg, uint64_t since_ns)
{
    (void)arg;
    told.one_thread += since_ns > 0;
    told.begun++;
}

static void records(void *arg, const struct record *all, uint32_t n)
{
    (void)arg;
    (void)all;
    told.one_thread += n;
    told.records += n;
}

static void looked(void *arg, uint64_t lost)
{
    (void)arg;
    told.one_thread += lost;
}

static void ended(void *arg)
{
    (void)arg;
    told.one_thread++;
    told.ended++;
}

static const char *other(void *arg)
{
    (void)arg;
    return NULL;
}

static void spare(void *arg, struct window_seen *ret)
{
    (void)arg;
    ret->idle = ret->late = 1;
}

static const struct session_sink sink = {.begun = begun,
                                         .records = records,
                                         .looked = looked,
                                         .ended = ended,
                                         .other = other,
                                         .spare = spare};

static void *open_library(const char *name)
{
    char path[PATH_MAX + 64] = "";
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    char *slash = n > 0 ? strrchr(path, '/') : NULL;
    if (!slash)
        return NULL;
    (void)snprintf(slash, 64, "/cuda/libraries/%s", name);
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static void find(void *library, const char *name, void *ret)
{
    void *found = library ? dlsym(library, name) : NULL;
    memcpy(ret, &found, sizeof(found));
}

static bool open_standins(void)
{
    int (*init)(unsigned) = NULL;
    void *driver = open_library("libcuda.so.1");
    (void)setenv("STANDIN_CUPTI", "13.0.85", 1);
    standin.cupti = open_library("libcupti.so");
    standin.player = open_library("libkineto_lazy.so");
    find(driver, "cuInit", &init);
    find(standin.cupti, "standin_burst", &standin.burst);
    find(standin.cupti, "standin_hang_in", &standin.hang_in);
    find(standin.cupti, "standin_hanging", &standin.hanging);
    find(standin.player, "kineto_start", &standin.kineto_start);
    find(standin.player, "kineto_stop", &standin.kineto_stop);
    return init && init(0) == 0 && standin.burst && standin.hang_in && standin.hanging &&
           standin.kineto_start && standin.kineto_stop;
}

static bool wait_state(struct session *s, enum session_state state)
{
    struct session_about about;
    for (uint64_t begin_ns = now(); now() - begin_ns < WAIT_NS;) {
        session_about(s, &about);
        if (about.state == state)
            return true;
        (void)usleep(1000);
    }
    return CHECK_STR(about.reason, "in the state that was waited for");
}

static void *launch(void *arg)
{
    standin.burst("kernel", 5000, 3);
    return arg;
}

TEST(it_goes_on_and_off_while_others_launch_and_ask)
{
    static const struct window_rule rules[] = {
        {.share = 0}, {.window_ns = 50000000, .period_ns = 100000000}, {.share = 0.02}};
    struct session *s = NULL;
    struct session_about about;
    pthread_t threads[4];
    if (!CHECK_INT(session_new(&host, &sink, &s), 0) || !CHECK_INT(session_start(s, true), 0))
        return;
    for (int i = 0; i < 4; i++)
        (void)pthread_create(&threads[i], NULL, launch, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK_INT(session_switch(s, i % 3 != 0), 0);
        session_window(s, &rules[i % 3]);
        session_about(s, &about);
        if (i % 5 == 4 && CHECK_INT(session_switch(s, true), 0)) {
            CHECK_INT(standin.kineto_start(), 0);
            session_about(s, &about);
            CHECK(about.state != SESSION_TRACING);
            standin.kineto_stop();
        }
    }
    session_window(s, &rules[0]);
    CHECK_INT(session_switch(s, true), 0);
    (void)wait_state(s, SESSION_TRACING);
    for (int i = 0; i < 4; i++)
        (void)pthread_join(threads[i], NULL);
    CHECK(session_stop(s));
    session_about(s, &about);
    CHECK_INT(about.state, SESSION_OFF);
    CHECK_INT(about.torn + about.unknown, 0);
    CHECK(told.begun > 0 && told.begun == told.ended);
    CHECK_INT(about.records, told.records);
    session_free(s);
}

TEST(one_that_hangs_is_left_and_the_next_goes_on_when_it_has_returned)
{
    struct session *s = NULL, *next = NULL;
    const char *function = NULL;
    if (!CHECK_INT(session_new(&host, &sink, &s), 0) || !CHECK_INT(session_start(s, true), 0) ||
        !wait_state(s, SESSION_TRACING))
        return;
    standin.hang_in("cuptiActivityFlushAll");
    uint64_t before = told.ended;
    CHECK(!session_stop(s)); /* and s is not ours any more */
    CHECK_INT(standin.hanging(), 1);
    CHECK(cupti_inside_ns(&function) > 0);
    CHECK_STR(function, "cuptiActivityFlushAll");
    if (!CHECK_INT(session_new(&host, &sink, &next), 0) || !CHECK_INT(session_start(next, true), 0))
        return;
    (void)wait_state(next, SESSION_WAITING);
    standin.hang_in(NULL);
    (void)wait_state(next, SESSION_TRACING);
    CHECK_INT(told.ended, before); /* nobody was there who could be told */
    CHECK(session_stop(next));
    session_free(next);
}

int main(void)
{
    if (!open_standins())
        return test_skip("the stand-ins for CUDA's driver and CUPTI are not built");
    RUN(it_goes_on_and_off_while_others_launch_and_ask);
    RUN(one_that_hangs_is_left_and_the_next_goes_on_when_it_has_returned);
    return test_end();
}
