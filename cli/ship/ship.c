/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/ship.c - the command: again and again, who is there, what they have, where it goes.
 *
 * One thread.  A destination that takes nothing is waited for, longer each time; meanwhile nothing
 * is read, so nothing is held but the place.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/commands/commands.h"
#include "cli/link/link.h"
#include "cli/ship/run.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/limits.h"
#include "cli/terminal/secret_file.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/hash.h"

#define EVERY_NS (10 * NS_PER_S)
#define WAIT_FIRST_NS NS_PER_S /* after a failure, and twice as long each time, up to */
#define WAIT_MOST_NS (60 * NS_PER_S)
#define ONCE_TRIES 5 /* with --once */
#define SECRET_BYTES 600
#define THERE_NS \
    (15 * NS_PER_S)    /* for machines to say who is there: others wait, the next turn asks */
#define TURNS_MAX 1000 /* ranges of a table between two looks at who is there */

struct ship_words {
    const char *to, *tables, *state, *secret_file;
    struct http_options http;
    uint64_t every_ns, max_series;
    bool once;
};

static int take_number(const char *option, const char *value, uint64_t *ret)
{
    if (parse_u64(value, ret) < 0 || *ret == 0 || *ret > UINT32_MAX)
        return err_set(-EINVAL, "%s is a number from 1 to %u, not '%s'", option, UINT32_MAX, value);
    return 0;
}

static int parse_option(void *arg, const char *option, const char *value)
{
    struct ship_words *w = arg;

    if (option == NULL)
        return err_set(-EINVAL, "unexpected argument '%s'", value);
    if (strcmp(option, "--to") == 0)
        w->to = value;
    else if (strcmp(option, "--tables") == 0)
        w->tables = value;
    else if (strcmp(option, "--state") == 0)
        w->state = value;
    else if (strcmp(option, "--secret") == 0)
        w->secret_file = value;
    else if (strcmp(option, "--cacert") == 0)
        w->http.ca = value;
    else if (strcmp(option, "--cert") == 0)
        w->http.certificate = value;
    else if (strcmp(option, "--key") == 0)
        w->http.key = value;
    else if (strcmp(option, "--once") == 0)
        w->once = true;
    else if (strcmp(option, "--max-series") == 0)
        return take_number(option, value, &w->max_series);
    else { /* --interval */
        int rc = parse_ns(value, &w->every_ns);
        return rc < 0                        ? rc
               : w->every_ns < NS_PER_S / 10 ? err_set(-EINVAL, "--interval is 100ms or more")
                                             : 0;
    }
    return 0;
}

/* Take the secret of the file, or the environment's. */
static int read_secret(const char *file, char room[SECRET_BYTES], const char **ret)
{
    const char *text = getenv("PROBING_SHIP_SECRET");

    *ret = file != NULL ? room : text != NULL && text[0] != '\0' ? text : NULL;
    return file != NULL ? secret_read("--secret", file, room, SECRET_BYTES) : 0;
}

/* libcurl reads it: a certificate's file has the key, too, where no other has. */
static int check_key(const struct http_options *o)
{
    return o->key != NULL           ? secret_check("--key", o->key)
           : o->certificate != NULL ? secret_check("--cert (with the key)", o->certificate)
                                    : 0;
}

/* ---- waiting ---- */

static void wait_ns(uint64_t ns)
{
    uint64_t until = clock_monotonic() + ns, now;

    while (!cli_interrupted && (now = clock_monotonic()) < until) {
        uint64_t left = until - now < NS_PER_S / 5 ? until - now : NS_PER_S / 5;
        const struct timespec t = {.tv_nsec = (long)left};
        (void)nanosleep(&t, NULL);
    }
}

struct backoff {
    uint64_t wait_ns;
    uint32_t tries;
    bool taken;                /* something has been, in this run */
    char said[ERR_TEXT_BYTES]; /* the reason that was told last */
};

/* The destination took nothing: 0 to try again, after a while. */
static int back_off(struct ship_run *r, struct backoff *b, int rc)
{
    char shown[TEXT_AMOUNT_BYTES], why[ERR_TEXT_BYTES];

    (void)snprintf(why, sizeof(why), "%s", err_why(rc));
    if (cli_interrupted)
        return 0;
    if (rc != -EAGAIN && !(rc == -EPROTO && b->taken))
        return err_set(rc, "%s", why);
    if (r->once && b->tries + 1 >= ONCE_TRIES)
        return err_set(-EIO, "%s; given up after %d tries, and the place is kept", why, ONCE_TRIES);
    b->wait_ns = b->wait_ns == 0                 ? WAIT_FIRST_NS
                 : 2 * b->wait_ns < WAIT_MOST_NS ? 2 * b->wait_ns
                                                 : WAIT_MOST_NS;
    uint64_t ns = r->to.wait_ns > b->wait_ns ? r->to.wait_ns : b->wait_ns;
    text_ns((int64_t)ns, shown);
    bool told = b->tries++ > 0 && strcmp(why, b->said) == 0;
    (void)snprintf(b->said, sizeof(b->said), "%s", why);
    if (!told || ns > WAIT_MOST_NS) /* the latter only where it asks for that */
        terminal_say("%s; nothing is lost meanwhile but what retention takes, and it is tried "
                     "again in %s",
                     why, shown);
    wait_ns(ns);
    return 0;
}

static void takes_again(struct backoff *b)
{
    if (b->tries > 0)
        terminal_say("it takes rows again, after %u %s", b->tries, b->tries == 1 ? "try" : "tries");
    *b = (struct backoff){.taken = true};
}

/* ---- turns ---- */

static void say_losses(struct ship_run *r)
{
    const struct ship_totals *now = &r->state.totals;

    if (now->lost > r->told.lost)
        terminal_say("%llu rows were gone before they could be read: retention took them (see "
                     "`probing gc`, probing.retention, table.NAME.keep)",
                     (unsigned long long)(now->lost - r->told.lost));
    if (now->samples_refused > r->told.samples_refused)
        terminal_say(
            "%llu samples or spans were left out: refused there, without a time, or several "
            "in one millisecond%s%s",
            (unsigned long long)(now->samples_refused - r->told.samples_refused),
            r->to.why_refused[0] != '\0' ? "; " : "", r->to.why_refused);
    r->to.why_refused[0] = '\0';
    if (now->samples_over > r->told.samples_over)
        terminal_say("%llu samples were left out, of more than %llu different series in an hour: "
                     "name tables whose texts are few (--tables), or raise --max-series",
                     (unsigned long long)(now->samples_over - r->told.samples_over),
                     (unsigned long long)r->to.limit.most);
    r->told = *now;
}

/* All that is new by now. */
static int send_news(struct ship_run *r, struct backoff *b)
{
    uint32_t news = 0;
    uint64_t moved = 1;
    int rc = sources_list(r, &news);

    if (r->once)
        sources_fix(r);
    for (int i = 0; rc == 0 && news > 0 && moved > 0 && i < TURNS_MAX && !cli_interrupted; i++) {
        rc = rows_send(r, &moved);
        if (rc == -EAGAIN || rc == -EPROTO) {
            rc = back_off(r, b, rc);
            moved = 1;
        } else if (rc == 0) {
            takes_again(b);
        }
        if (rc == 0 && !cli_interrupted)
            rc = sources_list(r, &news);
    }
    r->unsent = news;
    return rc;
}

static int send_figures(struct ship_run *r, struct backoff *b)
{
    int rc;

    if (!r->to.kind->metrics)
        return 0;
    while ((rc = metrics_send(r)) == -EAGAIN || rc == -EPROTO)
        if ((rc = back_off(r, b, rc)) < 0 || cli_interrupted)
            return rc;
    if (rc == 0)
        takes_again(b);
    return rc;
}

/* With --once: is there somebody who was not heard? */
static bool all_answered(const struct ship_run *r)
{
    bool all = true;

    for (uint32_t i = 0; i < r->members.n; i++)
        all = all && r->source[i] != NULL && r->members.list[i].error == 0 && !r->source[i]->said;
    return all;
}

static int ship_rounds(struct ship_run *r, uint64_t every_ns)
{
    struct backoff b = {.tries = 0};
    const uint64_t refused = r->state.totals.refused;
    int rc = 0;

    while (rc == 0 && !cli_interrupted) {
        uint64_t began = clock_monotonic();
        rc = sources_find(r);
        if (rc == 0)
            rc = send_figures(r, &b);
        if (rc == 0 && !cli_interrupted)
            rc = send_news(r, &b);
        if (rc == 0)
            say_losses(r);
        if (rc == 0)
            rc = ship_state_save(&r->state);
        if (r->once)
            break;
        if (rc == -EAGAIN) /* a full disk: what is to be sent next waits for it, and says so */
            rc = 0;
        uint64_t took = clock_monotonic() - began;
        if (rc == 0 && took < every_ns)
            wait_ns(every_ns - took);
    }
    char why[ERR_TEXT_BYTES];
    (void)snprintf(why, sizeof(why), "%s", rc < 0 ? err_why(rc) : "");
    int saved = ship_state_save(&r->state);
    if (rc < 0)
        (void)err_set(rc, "%s", why);
    if (cli_interrupted && (rc == 0 || rc == -ECANCELED)) /* that is how one that goes on ends */
        rc = r->once ? err_set(-ECANCELED, "interrupted") : 0;
    rc = rc < 0 ? rc : saved;
    bool all = all_answered(r) && r->unsent == 0 && r->state.totals.refused == refused && !r->ahead;
    return rc < 0 ? rc : r->once && !all ? EXIT_FAILED : EXIT_DONE;
}

static void say_totals(const struct ship_run *r, const struct ship_totals *before)
{
    const struct ship_totals *t = &r->state.totals;

    terminal_say("sent %llu rows and %llu samples; lost %llu, left out %llu",
                 (unsigned long long)(t->rows - before->rows),
                 (unsigned long long)(t->samples - before->samples),
                 (unsigned long long)(t->lost - before->lost),
                 (unsigned long long)(t->samples_refused - before->samples_refused +
                                      t->samples_over - before->samples_over));
}

/* Open the claims on a network destination, shared with other state files in the same folder. */
static int claim_beside_state(struct ship_run *r)
{
    char name[64];

    (void)snprintf(name, sizeof(name), "ship-%016llx.lock",
                   (unsigned long long)hash_text(HASH_FNV, r->to.shown));
    return ship_claims_open(r->state.dir, name, &r->to.claims);
}

int command_ship(struct target *t, int argc, char **argv)
{
    struct ship_words w = {.every_ns = EVERY_NS};
    struct ship_run r = {.targets = t->text, .state = {.dir = -1, .lock = -1}};
    char room[SECRET_BYTES + 1];
    int rc = cli_parse(argc, argv, parse_option, &w);

    if (!w.once)
        link_set_timeout(THERE_NS);
    if (rc == 0 && w.to == NULL)
        rc =
            cli_misuse(err_set(-EINVAL, "ship needs a destination: --to "
                                        "parquet:FOLDER, clickhouse+http://HOST:8123 ... (`probing "
                                        "help ship`)"));
    if (rc == 0)
        rc = cli_check_files();
    if (rc == 0)
        rc = read_secret(w.secret_file, room, &w.http.secret);
    if (rc == 0)
        rc = check_key(&w.http);
    if (rc == 0 && (rc = ship_destination_open(w.to, &w.http, w.max_series, &r.to)) == -EINVAL)
        rc = cli_misuse(rc);
    if (rc == 0)
        rc = ship_state_open(w.state, r.to.shown, &r.state);
    if (rc == 0 && r.to.kind->once && r.to.claims.made == 0)
        rc = claim_beside_state(&r);
    r.tables = w.tables;
    r.once = w.once;
    struct ship_totals before = r.told = r.state.totals;
    if (rc == 0) {
        rc = ship_rounds(&r, w.every_ns);
        char why[ERR_TEXT_BYTES];
        (void)snprintf(why, sizeof(why), "%s", rc < 0 ? err_why(rc) : "");
        say_totals(&r, &before);
        if (rc < 0)
            (void)err_set(rc, "%s", why);
    }
    sources_done(&r);
    ship_state_close(&r.state);
    ship_destination_close(&r.to);
    explicit_bzero(room, sizeof(room));
    return rc;
}
