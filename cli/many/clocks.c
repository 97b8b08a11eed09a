/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/clocks.c - how far the times of members are from our clock.
 *
 * Two things make that up: how far its machine's clock is from ours, which its relay's frames
 * tell (cli/link/host_clock.c), and how far the process is from its machine's clock.  A core counts
 * CLOCK_MONOTONIC and has read the wall clock once, when it began: what it added then stands in its
 * file `info`.  Where the wall clock has been set since (a step by NTP, by hand), what it would add
 * now is another number, and the difference is the process's own.  CLOCK_MONOTONIC goes on as long
 * as the machine runs, so that also tells it of the dead.
 *
 * One thread.  Nobody is believed: a number that is no clock's counts as not known.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/link/link.h"
#include "cli/many/members.h"
#include "cli/target/target.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/info_file.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"

#define LOOKS 8
#define US ((int64_t)NS_PER_US)
/* Two readings of one machine's clocks differ by what comes between them, a clock that was set by
 * more than this. */
#define NOISE_NS (10 * US)

/* ---- of this machine ---- */

static int64_t ns_of(clockid_t clock)
{
    struct timespec t = {0};

    (void)clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * (int64_t)NS_PER_S + t.tv_nsec;
}

/* Give what a core that begins now would add to CLOCK_MONOTONIC: the tightest of some looks. */
static int64_t utc_offset_now(void)
{
    int64_t best = 0, least = INT64_MAX;

    for (int i = 0; i < LOOKS; i++) {
        int64_t before = ns_of(CLOCK_MONOTONIC), utc = ns_of(CLOCK_REALTIME);
        int64_t width = ns_of(CLOCK_MONOTONIC) - before;
        if (width < least) {
            least = width;
            best = utc - (before + width / 2);
        }
    }
    return best;
}

/* Its CLOCK_MONOTONIC is ours: of this boot, and of the same time namespace. */
static bool same_clock(const struct buf *info)
{
    char boot[80] = "", space[80] = "", said[80] = "";

    if (file_peek("/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) < 0 ||
        !info_get(info, "boot_id", said, sizeof(said)))
        return false;
    boot[strcspn(boot, "\n")] = '\0';
    ssize_t n = readlink("/proc/self/ns/time", space, sizeof(space) - 1);
    space[n > 0 ? n : 0] = '\0';
    return strcmp(boot, said) == 0 &&
           (!info_get(info, "time_namespace", said, sizeof(said)) || strcmp(space, said) == 0);
}

int member_clock_step(const struct target *t, int64_t *ret_ns)
{
    struct datadir d = DATADIR_NONE;
    struct buf info = {0};
    char said[32];
    int64_t then;

    if (t->directory[0] == '\0' || t->there != NULL || t->host[0] != '\0' ||
        datadir_open(t->directory, DATADIR_ANY, &d) < 0)
        return err_set(-ENODATA, "it has no data directory here");
    bool known = datadir_info(&d, &info) == 0 && same_clock(&info) &&
                 info_get(&info, "utc_offset", said, sizeof(said)) && parse_i64(said, &then) == 0 &&
                 !__builtin_sub_overflow(then, utc_offset_now(), ret_ns);
    if (known)
        *ret_ns = *ret_ns / US * US; /* the rest is noise, and equal clocks are to look so */
    buf_done(&info);
    datadir_close(&d);
    return known ? 0 : err_set(-ENODATA, "its clock is not this machine's");
}

/* ---- of all ---- */

static const struct member_clock unknown = {.error_ns = MEMBER_UNKNOWN};

static uint64_t size_of(int64_t ns)
{
    return ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
}

/* offset, error: its machine's clock minus ours.  What is no more than its own error is not taken
 * off, as nothing says that the clocks differ; then it adds to the error. */
static struct member_clock add_offsets(int64_t offset, int64_t error, int64_t step)
{
    struct member_clock c = {.error_ns = error};

    if (size_of(step) >= (uint64_t)NOISE_NS) {
        c.error_ns += NOISE_NS;
        if (__builtin_add_overflow(offset, step, &offset))
            return unknown;
    }
    if (size_of(offset) > (uint64_t)MEMBER_CLOCK_MOST)
        return unknown;
    if (size_of(offset) > (uint64_t)c.error_ns)
        c.offset_ns = offset;
    else
        c.error_ns += (int64_t)size_of(offset);
    return c;
}

/* The clocks of hosts, each asked for once. */
struct host_clocks {
    struct {
        uint32_t host;
        int64_t offset_ns, error_ns;
    } * list;
    uint32_t n;
};

static void find_host(struct host_clocks *h, uint32_t host, int64_t *ret_offset, int64_t *ret_error)
{
    struct link_host said;
    uint32_t i = 0;

    while (i < h->n && h->list[i].host != host)
        i++;
    if (i == h->n) {
        bool known = link_host_of(host, &said) == 0 && said.reached && said.error_ns >= 0 &&
                     said.error_ns < MEMBER_CLOCK_MOST;
        h->list[h->n].host = host;
        h->list[h->n].offset_ns = known ? said.offset_ns : 0;
        h->list[h->n++].error_ns = known ? said.error_ns : LINK_UNKNOWN;
    }
    *ret_offset = h->list[i].offset_ns;
    *ret_error = h->list[i].error_ns;
}

static struct member_clock clock_of(const struct member *m, struct host_clocks *hosts)
{
    const struct link_member *there = m->target.there;
    int64_t offset = 0, error = 0, step = 0;
    bool known = m->error == 0;

    if (known && there != NULL) {
        find_host(hosts, there->host, &offset, &error);
        step = there->clock_step_ns;
        known = there->has_clock && error >= 0;
    } else if (known && m->target.host[0] != '\0') {
        offset = m->asked.offset_ns;
        error = m->asked.error_ns;
        known = error >= 0;
    } else if (known) {
        known = member_clock_step(&m->target, &step) == 0;
    }
    return known ? add_offsets(offset, error, step) : unknown;
}

void members_clocks(const struct members *m, struct member_clock *ret)
{
    struct host_clocks hosts = {.list = calloc(m->n + 1, sizeof(*hosts.list))};

    for (uint32_t i = 0; i < m->n; i++)
        ret[i] = hosts.list != NULL ? clock_of(&m->list[i], &hosts) : unknown;
    free(hosts.list);
}
