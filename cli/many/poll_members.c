/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/poll_members.c - asks as query_members.h says: all connections to members of this
 * machine are polled, with the answers of relays (ask_relays.c), and each gets its turn.
 *
 * One thread.  It knows nothing of what is asked; answers go to a sink as they come.
 */
#include "cli/many/asking.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "cli/many/child.h"
#include "cli/target/auth_token.h"
#include "cli/target/no_core.h"
#include "cli/target/query_client.h"
#include "cli/target/target.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "sdk/client/door.h"

#define TICK_NS (100 * NS_PER_MS) /* between looks at Ctrl-C, time limits and full queues */
#define ENDS_NS (300 * NS_PER_MS) /* between looks at one that says nothing */
#define LOOKED_NS NS_PER_S        /* of all time, to find out why connections ended */
#define CHILD_READS 8             /* of CHILD_BYTES in a turn */
#define CHILD_BYTES ((size_t)64 << 10)
#define CHILD_STDERR ((size_t)64 << 10) /* of its standard error */
#define FILES_LEFT 64                   /* descriptors that are not for connections */
#define FILES_EACH 4                    /* of a member: a child has two, and one is kept */

struct polling;

/* A member that is asked now. */
struct one {
    struct polling *p;
    struct reply reply;
    struct probing_client *client; /* of a living one; NULL: its queue was full, or it is dead */
    struct child child;            /* of files, and where waits_first() */
    struct buf stderr_text;        /* of the child */
    uint64_t began_ns, deadline_ns, looked_ns;
    uint64_t lost_ns;   /* asking.lost_ns, as far as it is in deadline_ns */
    uint64_t paused_ns; /* since then; 0: it is read */
    bool died;          /* while it was asked: its files are read now */
    bool kept;          /* its client is of a question before */
    bool ends;          /* target_ends(), when it was looked at last */
    char token[TOKEN_BYTES];
};

struct polling {
    struct asking a;
    struct relays *relays;
    struct one **open;
    struct pollfd *polls; /* two for each of `open`, then those of the relays */
    uint32_t n_open, at_once, next;
    uint64_t looked_ns, ticked_ns;
    uint64_t counted_ns, cpu_ns; /* asking.lost_ns is counted up to then */
};

static const struct members_sink *sink_of(const struct one *o)
{
    return o->p->a.sink;
}

/* ---- one member ---- */

static int on_event(void *arg, const struct probing_client_event *e)
{
    struct one *o = arg;

    if (e->kind == PROBING_CLIENT_DATA)
        return reply_take(&o->reply, e->text, e->size);
    if (e->kind != PROBING_CLIENT_DONE)
        return 0;
    if (e->status < 0)
        return err_set(e->status, "%s", e->text[0] != '\0' ? e->text : strerror(-e->status));
    return e->status > 0 ? err_set(-EIO, "the query failed") : 0;
}

static struct members_range range_of(const struct one *o)
{
    const struct members_range *all = o->p->a.ask->ranges;

    return all != NULL ? all[o->reply.m - o->p->a.all->list] : (struct members_range){.from = 0};
}

static const char *statement_of(const struct one *o)
{
    const char *const *all = o->p->a.ask->statements;

    return all != NULL ? all[o->reply.m - o->p->a.all->list] : o->p->a.ask->statement;
}

static struct answer_ask query_of(const struct one *o)
{
    const struct members_range range = range_of(o);

    return (struct answer_ask){.statement = statement_of(o),
                               .format = "arrow",
                               .limit = o->p->a.ask->limit,
                               .from_row = range.from,
                               .to_row = range.to};
}

static int send_statement(struct one *o)
{
    const struct answer_ask ask = query_of(o);
    struct answer_words words = {.n = 0};
    int n = answer_words(&ask, /* width= */ false, &words);

    /* No limit of its own, which would not know when we do not read: it ends with us. */
    int64_t id = probing_client_start_run(o->client, n, words.list, /* timeout_ns= */ 0);
    return id < 0 ? (int)id : 0;
}

/* In the child: the answer goes to the pipe. */
static int write_bytes(void *arg, const char *data, size_t size)
{
    (void)arg;
    return fwrite(data, 1, size, stdout) == size && fflush(stdout) == 0 ? 0 : -EPIPE;
}

static int answer_in_child(void *arg)
{
    const struct one *o = arg;
    struct answer_ask ask = query_of(o);

    ask.timeout_ns = o->p->a.timeout_ns; /* the engine gives up in time, too */
    terminal_exact();
    return answer_bytes(&o->reply.m->target, &ask, write_bytes, NULL);
}

static void keep_connection(struct one *o)
{
    struct members *all = o->p->a.all;

    if (o->p->a.ask->keep && o->client != NULL && o->reply.m->result.state == MEMBER_ANSWERED &&
        all->n_kept < o->p->at_once && members_keep(all, o->reply.m, o->client))
        o->client = NULL;
}

static int begin_connection(struct one *o)
{
    o->client = members_take_kept(o->p->a.all, o->reply.m);
    o->kept = o->client != NULL;
    if (o->kept)
        return send_statement(o);
    int rc = target_begin(&o->reply.m->target, o->token, &o->client);

    return rc == -EAGAIN ? 0 : rc < 0 ? rc : send_statement(o);
}

static bool is_number(const char *host)
{
    unsigned char room[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, host, room) == 1 || inet_pton(AF_INET6, host, room) == 1;
}

/* Must somebody be waited for before it can be asked?  Whose token a port of this machine wants
 * takes a look at all processes, and until one of them has accepted us; a name takes a look at
 * name servers.  Not while others wait. */
static bool waits_first(const struct target *t)
{
    const char *token = getenv("PROBING_TOKEN");
    bool local = strncmp(t->host, "127.", 4) == 0 || strcmp(t->host, "::1") == 0;

    return t->host[0] != '\0' &&
           (!is_number(t->host) || (local && (token == NULL || token[0] == '\0')));
}

static int begin_member(struct one *o)
{
    int rc = reply_begin(&o->reply, &o->p->a, o->reply.m);

    if (rc < 0)
        return rc;
    if (target_is_files(&o->reply.m->target) || waits_first(&o->reply.m->target))
        return child_start(&o->child, answer_in_child, o);
    if (o->reply.m->target.kind == TARGET_BARE)
        return target_no_core(o->reply.m->target.pid, /* plugin= */ "");
    return begin_connection(o);
}

static int child_reason(struct one *o)
{
    char line[MEMBER_WHY_BYTES];

    child_last_words(&o->stderr_text, line, sizeof(line));
    return err_set(-EIO, "%s%s%s", o->died ? "the process has died, and its files were read: " : "",
                   line[0] != '\0' ? line : "it gave no answer",
                   o->reply.m->target.stopped
                       ? " (the process is stopped: only what it has stored can be read)"
                       : "");
}

static int finish_child(struct one *o)
{
    if (!child_ended(&o->child))
        return 0; /* its outputs are closed: it ends now */
    return o->child.status == 0 ? 1 : child_reason(o);
}

/* As client_turn(). */
static int child_turn(struct one *o)
{
    struct buf bytes;
    int rc = 1, said = 0;

    buf_init(&bytes, CHILD_BYTES);
    for (int i = 0; rc == 1 && i < CHILD_READS; i++) {
        rc = child_read(&o->child, 0, &bytes, CHILD_BYTES);
        int bad = rc == 1 ? reply_take(&o->reply, bytes.data, bytes.size) : 0;
        buf_reset(&bytes);
        rc = bad < 0 ? bad : rc;
    }
    buf_done(&bytes);
    if (o->stderr_text.size < CHILD_STDERR / 2)
        said = child_read(&o->child, 1, &o->stderr_text, CHILD_STDERR / 4);
    if (rc < 0 && rc != -EPIPE)
        return rc;
    return rc == -EPIPE && (said == -EPIPE || said == 0) ? finish_child(o) : 0;
}

static int take_turn(struct one *o)
{
    int rc = o->child.pid != 0   ? child_turn(o)
             : o->client != NULL ? client_turn(o->client, on_event, o)
                                 : begin_connection(o);

    if (rc != 1)
        return rc;
    rc = arrow_reader_end(o->reply.reader);
    return rc < 0 ? rc : 1;
}

/* ---- the end of one ---- */

/* A connection that was kept may have been closed since: another one tells more. */
static int connect_anew(struct one *o)
{
    probing_client_free(o->client);
    o->client = NULL;
    o->kept = false;
    return begin_connection(o);
}

/* A connection has ended in the middle: is the process dead?  Then its files may answer. */
static int find_end_reason(struct one *o)
{
    struct polling *p = o->p;
    struct target *t = &o->reply.m->target, now;
    uint64_t began = clock_monotonic();
    char why[ERR_TEXT_BYTES];
    int rc = -ECONNRESET;

    if (o->client == NULL || p->looked_ns > LOOKED_NS)
        return err_set(rc, "the connection was closed before the answer was whole");
    client_turns_end(o->client);
    (void)snprintf(why, sizeof(why), "%s", err_why(rc));
    if (!o->reply.columns && t->pid != 0 && probing_client_end(o->client) == PROBING_CLIENT_DIED &&
        target_resolve(t->text, &now) == 0 && target_is_files(&now)) {
        *t = now;
        probing_client_free(o->client);
        o->client = NULL;
        reply_done(&o->reply);
        o->died = true;
        rc = begin_member(o);
    }
    p->looked_ns += clock_monotonic() - began;
    return rc == -ECONNRESET ? err_set(rc, "%s", why) : rc;
}

/* Their protocol may have changed without a new version. */
static void compare_builds(const struct probing_client *c, struct member_result *r)
{
    const char *theirs = probing_client_build(c);

    if (strcmp(theirs, probing_build) != 0)
        (void)snprintf(r->note, sizeof(r->note), "its core is %s%s, this command %s",
                       theirs[0] != '\0' ? "probing " : "of another build", theirs, probing_build);
}

static void keep_result(struct one *o, int rc)
{
    struct member_result *r = &o->reply.m->result;

    r->elapsed_ns = clock_monotonic() - o->began_ns;
    r->state = MEMBER_ANSWERED;
    if (rc < 0)
        member_failed(o->reply.m, MEMBER_FAILED, rc);
    else if (o->child.pid != 0)
        child_last_words(&o->stderr_text, r->note, sizeof(r->note));
    else
        compare_builds(o->client, r);
}

static void free_one(struct one *o)
{
    probing_client_free(o->client); /* which cancels what it runs */
    child_end(&o->child);
    buf_done(&o->stderr_text);
    reply_done(&o->reply);
    free(o);
}

/* Place i of the open ones is free from now on. */
static int close_one(struct polling *p, uint32_t i, int rc)
{
    struct one *o = p->open[i];

    keep_result(o, rc);
    keep_connection(o);
    p->open[i] = p->open[--p->n_open];
    rc = reply_end(&o->reply);
    free_one(o);
    return rc;
}

/* Judge what a turn gave.  0: it goes on, or was ended in order. */
static int judge_turn(struct polling *p, uint32_t i, int rc)
{
    struct one *o = p->open[i];

    if (rc == -ECONNRESET && o->kept && !o->reply.columns)
        rc = connect_anew(o);
    if (rc == -ECONNRESET)
        rc = find_end_reason(o);
    return rc == 0 ? 0 : close_one(p, i, rc);
}

static int too_late(struct one *o)
{
    char limit[TEXT_AMOUNT_BYTES];
    const struct target *t = &o->reply.m->target;
    struct target_halt halt = {.is = ""};
    const char *stands = t->pid != 0 && target_halted(t->pid, &halt) ? "; the process is " : "";

    text_ns((int64_t)o->p->a.timeout_ns, limit);
    (void)err_set(-ETIMEDOUT, "%s within %s%s%s",
                  o->reply.columns ? "its answer was not whole" : "no answer", limit, stands,
                  halt.is);
    return target_explain_silence(t, -ETIMEDOUT);
}

/* One that is ending has its socket open for as long as its memory takes. */
static int look_whether_it_ends(struct one *o, uint64_t now)
{
    const struct target *t = &o->reply.m->target;

    if (t->kind != TARGET_LIVE || t->host[0] != '\0' || o->child.pid != 0 ||
        now < o->began_ns + ENDS_NS || now < o->looked_ns + ENDS_NS)
        return 0;
    const char *ends = target_ends(t->pid);
    bool twice = ends != NULL && o->ends; /* it may have been about to say more */
    o->looked_ns = now;
    o->ends = ends != NULL;
    return twice ? err_set(-ESRCH, "%s", ends) : 0;
}

/* ---- all of them ---- */

static int open_one(struct polling *p, struct member *m)
{
    struct one *o = calloc(1, sizeof(*o));

    m->result = (struct member_result){.state = MEMBER_ASKED};
    if (o == NULL)
        return err_set(-ENOMEM, "no memory for a connection");
    *o = (struct one){.p = p, .child = {.fds = {-1, -1}}, .began_ns = clock_monotonic()};
    o->reply = (struct reply){.a = &p->a, .m = m};
    o->deadline_ns = o->began_ns + p->a.timeout_ns;
    o->lost_ns = p->a.lost_ns;
    buf_init(&o->stderr_text, CHILD_STDERR);
    p->open[p->n_open++] = o;
    int rc = begin_member(o);
    return rc < 0 ? judge_turn(p, p->n_open - 1, rc) : 0;
}

/* It was known before that it cannot be asked. */
static int skip_one(struct polling *p, struct member *m)
{
    m->result.state = MEMBER_NOT_ASKED;
    m->result.error = m->error;
    p->a.done++;
    return p->a.sink->done != NULL ? p->a.sink->done(p->a.sink->arg, m) : 0;
}

static int open_more(struct polling *p)
{
    int rc = 0;

    while (rc == 0 && p->next < p->a.all->n && p->n_open < p->at_once) {
        uint32_t i = p->next++;
        struct member *m = &p->a.all->list[i];
        if ((p->a.ask->only != NULL && !p->a.ask->only[i]) || relays_stand_before(m))
            continue;
        rc = m->error < 0 ? skip_one(p, m) : open_one(p, m);
    }
    return rc;
}

/* Count what was lost since the last call, or since poll() returned: all time without a CPU. */
static void count_lost(struct polling *p)
{
    struct timespec cpu = {.tv_sec = 0};
    uint64_t now = clock_monotonic();

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    uint64_t cpu_ns = (uint64_t)cpu.tv_sec * NS_PER_S + (uint64_t)cpu.tv_nsec;
    uint64_t passed = now - p->counted_ns, used = cpu_ns - p->cpu_ns;
    p->a.lost_ns += p->counted_ns != 0 && passed > used ? passed - used : 0;
    p->counted_ns = now;
    p->cpu_ns = cpu_ns;
}

/* Add the lost time to a member's deadline; to that of one that is paused all time is added. */
static void extend_deadline(struct one *o)
{
    o->deadline_ns += o->paused_ns == 0 ? o->p->a.lost_ns - o->lost_ns : 0;
    o->lost_ns = o->p->a.lost_ns;
}

/* One who is not read stands still. */
static bool is_wanted(struct one *o, uint64_t now)
{
    const struct members_sink *s = sink_of(o);
    bool wanted = s->wanted == NULL || s->wanted(s->arg, o->reply.m);

    extend_deadline(o);
    if (wanted && o->paused_ns != 0)
        o->deadline_ns += now - o->paused_ns;
    o->paused_ns = wanted ? 0 : o->paused_ns != 0 ? o->paused_ns : now;
    return wanted;
}

/* Fill its two polls; it lowers *until to when it must be served. */
static void prepare_one(struct one *o, uint64_t now, struct pollfd ret[2], uint64_t *until)
{
    bool wanted = is_wanted(o, now);

    ret[0] = (struct pollfd){.fd = -1};
    ret[1] = (struct pollfd){.fd = -1};
    if (o->child.pid != 0) {
        bool room = o->stderr_text.size < CHILD_STDERR / 2;
        ret[0] = (struct pollfd){.fd = wanted ? o->child.fds[0] : -1, .events = POLLIN};
        ret[1] = (struct pollfd){.fd = room ? o->child.fds[1] : -1, .events = POLLIN};
    } else if (o->client != NULL && wanted) {
        ret[0].fd = client_turn_fd(o->client);
        ret[0].events = (short)client_turn_events(o->client);
    }
    if (ret[0].fd == -1 && ret[1].fd == -1 && wanted) /* a full queue, or a child that ends */
        *until = now + 5 * NS_PER_MS < *until ? now + 5 * NS_PER_MS : *until;
    *until = wanted && o->deadline_ns < *until ? o->deadline_ns : *until;
}

/* Its turn, where it has something; and its end, where it is too late. */
static int serve_one(struct polling *p, uint32_t i, const struct pollfd polls[2])
{
    struct one *o = p->open[i];
    bool ready =
        polls[0].revents != 0 || polls[1].revents != 0 || (polls[0].fd == -1 && polls[1].fd == -1);

    if (o->paused_ns != 0)
        return 0;
    int rc = ready ? take_turn(o) : 0;
    if (rc == 0 && clock_monotonic() > o->deadline_ns) {
        count_lost(p);
        extend_deadline(o);
        rc = clock_monotonic() > o->deadline_ns ? too_late(o) : 0;
    }
    if (rc == 0 && !ready)
        rc = look_whether_it_ends(o, clock_monotonic());
    return rc == 0 ? 0 : judge_turn(p, i, rc);
}

static int tell_progress(struct polling *p)
{
    uint64_t now = clock_monotonic();

    if (p->a.sink->tick == NULL || now - p->ticked_ns < TICK_NS)
        return 0;
    p->ticked_ns = now;
    return p->a.sink->tick(p->a.sink->arg, p->a.done + relays_ended(p->relays), p->a.asked);
}

static int go_round(struct polling *p)
{
    uint64_t now = clock_monotonic(), until = now + TICK_NS;
    const uint32_t own = 2 * p->n_open;
    int rc = 0;

    count_lost(p);
    for (uint32_t i = 0; i < p->n_open; i++)
        prepare_one(p->open[i], now, &p->polls[2 * i], &until);
    nfds_t n = own + relays_polls(p->relays, now, p->polls + own, &until);
    int ms = until > now ? (int)((until - now + NS_PER_MS - 1) / NS_PER_MS) : 0;
    if (poll(p->polls, n, ms) == -1 && errno != EINTR)
        return err_set(-errno, "poll: %s", strerror(errno));
    uint64_t longest = p->counted_ns + (uint64_t)ms * NS_PER_MS;
    p->counted_ns = clock_monotonic();
    p->a.lost_ns += p->counted_ns > longest ? p->counted_ns - longest : 0; /* it was over then */
    for (uint32_t i = own / 2; i-- > 0 && rc == 0 && !cli_interrupted;)
        rc = serve_one(p, i, &p->polls[2 * i]); /* the last one takes the place of one that ends */
    return rc == 0 && !cli_interrupted ? relays_turn(p->relays, p->polls + own) : rc;
}

uint32_t members_at_once(uint32_t wanted)
{
    struct rlimit files = {.rlim_cur = 1024};
    uint64_t n = wanted;

    (void)getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < files.rlim_max && files.rlim_cur < FILES_EACH * n + FILES_LEFT) {
        files.rlim_cur = files.rlim_max < FILES_EACH * n + FILES_LEFT ? files.rlim_max
                                                                      : FILES_EACH * n + FILES_LEFT;
        (void)setrlimit(RLIMIT_NOFILE, &files);
        (void)getrlimit(RLIMIT_NOFILE, &files);
    }
    uint64_t room = files.rlim_cur > FILES_LEFT ? (files.rlim_cur - FILES_LEFT) / FILES_EACH : 1;
    return (uint32_t)(room < n ? room > 0 ? room : 1 : n);
}

/* why: what ends asking, when it is not Ctrl-C. */
static void end_all(struct polling *p, const char *why)
{
    char text[ERR_TEXT_BYTES + 64];

    (void)snprintf(text, sizeof(text), "it had not answered when %s",
                   cli_interrupted ? "it was interrupted" : why);
    while (p->n_open > 0) {
        struct one *o = p->open[--p->n_open];
        keep_result(o, err_set(-ECANCELED, "%s", text));
        free_one(o);
    }
    relays_end(p->relays, text);
}

static uint32_t count_asked(const struct members *m, const struct members_ask *ask)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n; i++)
        n += ask->only == NULL || ask->only[i];
    return n;
}

static int begin_all(struct polling *p)
{
    const struct members_ask *ask = p->a.ask;
    int rc = relays_begin(&p->a, &p->relays);

    p->at_once = members_at_once(ask->at_once > 0 ? ask->at_once : ASK_AT_ONCE);
    p->open = calloc(p->at_once, sizeof(struct one *));
    p->polls = calloc(2 * (size_t)p->at_once + (rc == 0 ? relays_poll_room(p->relays) : 0),
                      sizeof(*p->polls));
    return rc == 0 && (p->open == NULL || p->polls == NULL)
               ? err_set(-ENOMEM, "no memory for %u connections", p->at_once)
               : rc;
}

int members_query(struct members *m, const struct members_ask *ask, const struct members_sink *sink)
{
    struct polling p = {.a = {.all = m,
                              .ask = ask,
                              .sink = sink,
                              .timeout_ns = ask->timeout_ns > 0 ? ask->timeout_ns : ASK_TIMEOUT_NS,
                              .asked = count_asked(m, ask)}};
    char why[ERR_TEXT_BYTES];

    for (uint32_t i = 0; i < m->n; i++)
        if (ask->only == NULL || ask->only[i])
            m->list[i].result.state = MEMBER_NOT_ASKED;
    int rc = begin_all(&p);
    while (rc == 0 && !cli_interrupted) {
        rc = open_more(&p);
        if (rc == 0 && p.n_open == 0 && p.next >= m->n && relays_are_done(p.relays))
            break;
        if (rc == 0)
            rc = go_round(&p);
        if (rc == 0)
            rc = tell_progress(&p);
    }
    (void)snprintf(why, sizeof(why), "%s", rc < 0 ? err_why(rc) : "");
    end_all(&p, why);
    free(p.open);
    free(p.polls);
    return rc < 0            ? err_set(rc, "%s", why)
           : cli_interrupted ? err_set(-ECANCELED, "interrupted")
                             : 0;
}
