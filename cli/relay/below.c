/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/below.c - see below.h.
 *
 * The relay's thread, and children.
 */
#include "cli/relay/below.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/relay/merge_run.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"

#define CREDIT_AT (STREAM_WINDOW / 2)
#define GRACE_MAX_NS (60 * NS_PER_S)
#define TIMEOUT_MAX_NS (24 * 3600 * NS_PER_S)
#define PROGRESS_NS (100 * NS_PER_MS) /* between words on how far it has come */
#define OWN 0 /* the source that is this host's; those behind it are relays' */

struct below {
    uint32_t host, stream, granted;
    bool over;
    size_t at;      /* behind what has said how far it has come, */
    uint32_t ended; /* and how far that is */
};

struct merge {
    char *bytes; /* of the question */
    struct merged_question q;
    uint32_t me;
    struct tree *tree;
    struct merge_source *sources; /* [n] */
    struct below *below;          /* [n], not of OWN */
    uint32_t n;
    size_t kept, most; /* bytes of all sources */
    struct child own;
    struct buf said;
    uint64_t deadline_ns, told_ns;
    uint32_t told; /* how many have come to an end */
};

/* Its streams have numbers of the relay's own. */
static uint32_t next_stream(void)
{
    static uint32_t last; /* the relay's thread */

    last = (last + 1) % MERGE_STREAMS;
    return MERGE_STREAMS + last;
}

static bool waits_for_own(const struct merge *m)
{
    return m->own.pid != 0;
}

/* ---- who is to be asked what ---- */

static struct merge_source *source_of(struct merge *m, uint32_t host)
{
    uint32_t first = tree_first(m->tree, host), i = OWN;

    if (host != m->me)
        for (i = 1; i < m->n && (m->below[i].over || m->below[i].host != first); i++)
            ;
    if (i < m->n)
        return &m->sources[i];
    struct merge_source *sources = realloc(m->sources, (m->n + 1) * sizeof(*sources));
    m->sources = sources != NULL ? sources : m->sources;
    struct below *below = realloc(m->below, (m->n + 1) * sizeof(*below));
    m->below = below != NULL ? below : m->below;
    if (sources == NULL || below == NULL)
        return NULL;
    m->below[m->n] = (struct below){.host = first, .granted = STREAM_WINDOW};
    m->sources[m->n] = (struct merge_source){.n = 0};
    buf_init(&m->sources[m->n].bytes, m->most);
    return &m->sources[m->n++];
}

static int no_memory(void)
{
    return err_set(-ENOMEM, "no memory for a question to relays");
}

static int share_out(struct merge *m)
{
    struct merged_place one = {.end = 0};

    if (source_of(m, m->me) == NULL)
        return no_memory();
    for (uint32_t which = 0; merged_question_member(&m->q, &one); which++) {
        struct merge_source *s = source_of(m, one.host);
        uint32_t *map = s != NULL ? realloc(s->map, (s->n + 1) * sizeof(*map)) : NULL;
        if (map == NULL)
            return no_memory();
        s->map = map;
        s->map[s->n++] = which;
    }
    return 0;
}

static void fail(struct merge *m, uint32_t i, int error, const char *why)
{
    m->below[i].over = true;
    m->sources[i].error = error;
    (void)snprintf(m->sources[i].why, sizeof(m->sources[i].why), "%s", why);
    m->kept -= m->sources[i].bytes.size;
    buf_done(&m->sources[i].bytes);
}

/* The members of one source, to the relay that is before them. */
static void ask_below(struct merge *m, uint32_t i)
{
    struct below *b = &m->below[i];
    struct merged_question q = m->q;
    struct merged_place one = {.end = 0}, before;
    struct buf text;
    uint32_t k = 0;

    q.grace_ns = m->q.grace_ns / 3 * 2;
    buf_init(&text, FRAME_QUESTION_MAX);
    merged_ask(&q, &text);
    for (uint32_t which = 0; merged_question_member(&m->q, &one); which++)
        if (k < m->sources[i].n && m->sources[i].map[k] == which) {
            merged_ask_member(&one, k > 0 ? &before : NULL, &text);
            before = one;
            k++;
        }
    b->stream = next_stream();
    int rc = text.failed < 0 ? text.failed
                             : tree_send(m->tree, &(struct frame){.kind = FRAME_MERGE,
                                                                  .host = b->host,
                                                                  .stream = b->stream,
                                                                  .data = text.data,
                                                                  .size = (uint32_t)text.size});
    buf_done(&text);
    if (rc < 0)
        fail(m, i, -EHOSTUNREACH, "the relay before it is lost");
}

/* ---- its own ---- */

static int write_out(void *arg, const char *data, size_t size)
{
    (void)arg;
    return fwrite(data, 1, size, stdout) == size && fflush(stdout) == 0 ? 0 : -EPIPE;
}

static int run_own(void *arg)
{
    const struct merge *m = arg;

    terminal_exact();
    return merge_run_own(&m->q, m->me, write_out, NULL);
}

static int run_combine(void *arg)
{
    const struct merge *m = arg;
    uint32_t from = m->sources[OWN].n == 0 ? OWN + 1 : OWN;

    terminal_exact();
    return merge_run_combine(&m->q, m->sources + from, m->n - from, write_out, NULL);
}

/* Its output is read as far as it goes now. */
static void hear_own(struct merge *m)
{
    struct merge_source *s = &m->sources[OWN];
    char why[400];
    int rc = 1, said = 1;

    while (rc == 1) {
        size_t before = s->bytes.size;
        rc = child_read(&m->own, 0, &s->bytes, (size_t)64 << 10);
        m->kept += s->bytes.size - before;
    }
    while (said == 1)
        said = child_read(&m->own, 1, &m->said, 4096);
    if (rc == 0 || !child_ended(&m->own))
        return;
    child_last_words(&m->said, why, sizeof(why));
    bool whole = rc == -EPIPE && m->own.status == 0;
    child_end(&m->own);
    if (!whole)
        fail(m, OWN, -EIO, why[0] != '\0' ? why : "its relay could not ask it");
}

/* ---- its life ---- */

int merge_new(const struct frame *f, uint32_t me, struct tree *below, struct merge **ret)
{
    struct merge *m = calloc(1, sizeof(*m));

    if (m == NULL)
        return no_memory();
    m->me = me;
    m->tree = below;
    m->own = (struct child){.fds = {-1, -1}};
    buf_init(&m->said, (size_t)64 << 10);
    m->bytes = malloc(f->size);
    int rc = m->bytes == NULL ? no_memory() : 0;
    if (rc == 0) {
        memcpy(m->bytes, f->data, f->size);
        rc = merged_question_read(m->bytes, f->size, &m->q);
    }
    m->most = 2 * (size_t)(m->q.max_bytes >> 1) + ((size_t)1 << 20);
    if (rc == 0 && (m->q.timeout_ns > TIMEOUT_MAX_NS || m->q.grace_ns > GRACE_MAX_NS))
        rc = err_set(-EBADMSG, "that is no time limit");
    if (rc == 0)
        rc = share_out(m);
    if (rc == 0)
        m->deadline_ns = clock_monotonic() + m->q.timeout_ns + m->q.grace_ns / 3 * 2;
    for (uint32_t i = 1; rc == 0 && i < m->n; i++)
        ask_below(m, i);
    if (rc == 0 && !merge_is_own(m) && m->sources[OWN].n > 0)
        rc = child_start(&m->own, run_own, m);
    if (rc < 0)
        merge_free(m);
    else
        *ret = m;
    return rc;
}

bool merge_is_own(const struct merge *m)
{
    return m->n == 1;
}

int merge_answer(struct merge *m, struct child *ret)
{
    return child_start(ret, merge_is_own(m) ? run_own : run_combine, m);
}

static void give_up(struct merge *m, uint32_t i)
{
    (void)tree_send(m->tree, &(struct frame){.kind = FRAME_CLOSE,
                                             .host = m->below[i].host,
                                             .stream = m->below[i].stream});
}

void merge_free(struct merge *m)
{
    if (m == NULL)
        return;
    for (uint32_t i = 0; i < m->n; i++) {
        if (i != OWN && !m->below[i].over)
            give_up(m, i);
        buf_done(&m->sources[i].bytes);
        free(m->sources[i].map);
    }
    child_end(&m->own);
    buf_done(&m->said);
    free(m->sources);
    free(m->below);
    free(m->bytes);
    free(m);
}

/* ---- what comes ---- */

static void take_data(struct merge *m, uint32_t i, const struct frame *f)
{
    struct below *b = &m->below[i];

    if (f->size > b->granted) {
        fail(m, i, -EBADMSG, "the relay before it sends more than it may");
        give_up(m, i);
        return;
    }
    b->granted -= f->size;
    m->kept += f->channel == 0 ? f->size : 0;
    if (f->channel == 1)
        (void)snprintf(m->sources[i].why, sizeof(m->sources[i].why), "%.*s", (int)f->size, f->data);
    else if (m->kept > m->most || buf_add(&m->sources[i].bytes, f->data, f->size) < 0) {
        fail(m, i, -EFBIG, "the answers of those behind its relay are too large");
        give_up(m, i);
        return;
    }
    char more[4];
    if (STREAM_WINDOW - b->granted < CREDIT_AT)
        return;
    store_le32(more, STREAM_WINDOW - b->granted);
    b->granted = STREAM_WINDOW;
    (void)tree_send(m->tree, &(struct frame){.kind = FRAME_CREDIT,
                                             .host = b->host,
                                             .stream = b->stream,
                                             .data = more,
                                             .size = sizeof(more)});
}

static void take_close(struct merge *m, uint32_t i, const struct frame *f)
{
    const char *said = m->sources[i].why;
    char why[400] = "the relay before it could not ask it";

    if (f->size > 9 && f->data[f->size - 1] == '\0')
        (void)snprintf(why, sizeof(why), "%s", f->data + 8);
    else if (said[0] != '\0') /* on its standard error */
        (void)snprintf(why, sizeof(why), "%.*s", (int)strcspn(said, "\n"), said);
    int status = f->size >= 4 ? (int)load_le32(f->data) : -EIO;
    m->below[i].over = true;
    if (status != 0)
        fail(m, i, status < 0 && status > -4096 ? status : -EIO, why);
}

bool merge_take(struct merge *m, const struct frame *f)
{
    for (uint32_t i = 1; i < m->n; i++) {
        struct below *b = &m->below[i];
        if (b->over || b->host != f->host)
            continue;
        if (f->kind == FRAME_LOST) {
            char why[300];
            (void)snprintf(why, sizeof(why), "%.*s", (int)(f->size - 4), f->data + 4);
            fail(m, i, -EHOSTUNREACH, why);
            return false; /* who asks is told, too */
        }
        if (f->stream != b->stream)
            continue;
        if (f->kind == FRAME_DATA)
            take_data(m, i, f);
        else if (f->kind == FRAME_CLOSE)
            take_close(m, i, f);
        return true;
    }
    return false;
}

void merge_polls(const struct merge *m, struct pollfd *ret)
{
    for (int i = 0; i < MERGE_POLLS; i++)
        ret[i] = (struct pollfd){.fd = m->own.fds[i], .events = POLLIN};
}

bool merge_ends(const struct merge *m)
{
    return waits_for_own(m) && m->own.fds[0] == -1;
}

bool merge_turn(struct merge *m)
{
    bool late = clock_monotonic() > m->deadline_ns, all = true;

    if (waits_for_own(m))
        hear_own(m);
    if (waits_for_own(m) && late) {
        child_end(&m->own);
        fail(m, OWN, -ETIMEDOUT, "its relay had no answer of it in time");
    }
    for (uint32_t i = 1; i < m->n; i++) {
        if (!m->below[i].over && late) {
            give_up(m, i);
            fail(m, i, -ETIMEDOUT, "the relay before it gave no answer in time");
        }
        all = all && m->below[i].over;
    }
    return all && !waits_for_own(m);
}

void merge_progress(struct merge *m, struct buf *ret)
{
    uint64_t now = clock_monotonic();
    uint32_t ended = 0;

    if (now - m->told_ns < PROGRESS_NS)
        return;
    for (uint32_t i = 0; i < m->n; i++) {
        const struct merge_source *s = &m->sources[i];
        struct below *b = &m->below[i];
        bool over = i == OWN ? !waits_for_own(m) : b->over;
        if (!over)
            b->ended = merged_progress(s->bytes.data, s->bytes.size, &b->at, b->ended);
        ended += over || b->ended > s->n ? s->n : b->ended;
    }
    if (ended != m->told)
        merged_write_progress(ret, ended);
    m->told = ended;
    m->told_ns = now;
}
