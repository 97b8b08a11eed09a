/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/many/stand_in/other_clock.c - another machine's wall clock, preloaded into a process of
 * this one: OTHER_CLOCK_NS further than ours.  Any thread.
 */
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL
#define SHOWN __attribute__((visibility("default")))

SHOWN int clock_gettime(clockid_t clock, struct timespec *t)
{
    static long long ahead;
    static int known;
    const char *text = known ? NULL : getenv("OTHER_CLOCK_NS");
    int rc = (int)syscall(SYS_clock_gettime, clock, t);
    if (text)
        ahead = atoll(text);
    known = 1;
    if (rc != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return rc;
    long long ns = (long long)t->tv_sec * NS_PER_S + t->tv_nsec + ahead;
    t->tv_sec = (time_t)(ns / NS_PER_S);
    t->tv_nsec = (long)(ns % NS_PER_S);
    return 0;
}

SHOWN int gettimeofday(struct timeval *t, void *zone)
{
    struct timespec now;
    (void)zone;
    int rc = clock_gettime(CLOCK_REALTIME, &now);
    *t = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return rc;
}

SHOWN time_t time(time_t *ret)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}
