/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/rendezvous_state.c - the nodes in the state that torchrun's agents keep in the store.
 *
 * One thread.
 *
 * It is `_RendezvousState` of torch/distributed/elastic/rendezvous/dynamic_rendezvous.py, pickled:
 * `participants` is a dict of _NodeDesc(addr, pid, local_id) to the node's rank.  A pickle is a
 * program, and whoever reaches the store may have written this one.  It is not run: a reader walks
 * over its steps, keeps texts and numbers as they stand, and refuses steps that such a state does
 * not need.  What it finds is a list of texts; that a hostile one lists wrong machines is all that
 * it can do.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cluster/torch_store.h"
#include "core/base/err.h"
#include "sdk/lib/array.h"

#define MEMO_MAX (1u << 20)
/* MARK, empty dict, list, tuple and set, TUPLE to TUPLE3, NEWOBJ, NEWTRUE, NEWFALSE, ADDITEMS,
 * STACK_GLOBAL, SETITEM, SETITEMS, BUILD, NONE, REDUCE, APPEND, APPENDS. */
#define PLAIN_STEPS                                \
    "(}])\x8ft\x85\x86\x87\x81\x88\x89\x90\x93sub" \
    "NRae"

enum word_kind { WORD_OTHER, WORD_TEXT, WORD_NUMBER };

struct word {
    enum word_kind kind;
    const char *text;
    uint32_t size;
    int64_t number;
};

struct reader {
    const unsigned char *at, *end;
    struct word last;  /* what the last step put on the stack */
    struct word *memo; /* what was kept, by number; malloc'd */
    uint32_t n_memo, room;
    int error; /* 0, or -errno with err_set() */
};

static int reader_fail(struct reader *r, const char *why)
{
    if (r->error == 0)
        r->error = err_set(-EBADMSG, "the state of torchrun's rendezvous cannot be read: %s", why);
    return r->error;
}

/* `n` bytes of the pickle, little endian. */
static uint64_t take_number(struct reader *r, unsigned n)
{
    uint64_t v = 0;

    if ((size_t)(r->end - r->at) < n) {
        (void)reader_fail(r, "it ends in the middle");
        return 0;
    }
    for (unsigned i = n; i-- > 0;)
        v = v << 8 | r->at[i];
    r->at += n;
    return v;
}

static void take_text(struct reader *r, uint64_t size)
{
    if (r->error == 0 && (uint64_t)(r->end - r->at) < size)
        (void)reader_fail(r, "it ends in the middle");
    if (r->error != 0)
        return;
    r->last = (struct word){.kind = WORD_TEXT, .text = (const char *)r->at, .size = (uint32_t)size};
    r->at += size;
}

static void memo_add(struct reader *r)
{
    struct word *more = array_grow(r->memo, r->n_memo, &r->room, sizeof(*more), MEMO_MAX);
    if (more == NULL) {
        (void)reader_fail(r, "it is too long");
        return;
    }
    r->memo = more;
    r->memo[r->n_memo++] = r->last;
}

static void memo_get(struct reader *r, uint64_t i)
{
    if (r->error == 0 && i >= r->n_memo)
        (void)reader_fail(r, "it uses what it has not kept");
    if (r->error == 0)
        r->last = r->memo[i];
}

static void put_number(struct reader *r, int64_t v)
{
    r->last = (struct word){.kind = WORD_NUMBER, .number = v};
}

/* The next step; false: that was the last one.  r->last.kind is WORD_OTHER when it is no word. */
static bool next_step(struct reader *r)
{
    unsigned op = (unsigned)take_number(r, 1);

    if (r->error != 0 || op == '.')
        return false;
    if (op == 0x94) { /* MEMOIZE keeps what came last, which stays where it is */
        memo_add(r);
        return r->error == 0;
    }
    r->last = (struct word){.kind = WORD_OTHER};
    switch (op) {
    case 0x80: /* PROTO */
        (void)take_number(r, 1);
        break;
    case 0x95: /* FRAME */
        (void)take_number(r, 8);
        break;
    case 0x8c: /* SHORT_BINUNICODE */
        take_text(r, take_number(r, 1));
        break;
    case 'X': /* BINUNICODE */
        take_text(r, take_number(r, 4));
        break;
    case 'K': /* BININT1 */
        put_number(r, (int64_t)take_number(r, 1));
        break;
    case 'M': /* BININT2 */
        put_number(r, (int64_t)take_number(r, 2));
        break;
    case 'J': /* BININT */
        put_number(r, (int32_t)take_number(r, 4));
        break;
    case 'h': /* BINGET */
        memo_get(r, take_number(r, 1));
        break;
    case 'j': /* LONG_BINGET */
        memo_get(r, take_number(r, 4));
        break;
    case 'C': /* SHORT_BINBYTES: of a deadline */
        take_text(r, take_number(r, 1));
        r->last.kind = WORD_OTHER;
        break;
    case 'G': /* BINFLOAT */
        (void)take_number(r, 8);
        break;
    default: /* the rest have no argument: of those only what makes objects, dicts and tuples */
        if (op == 0 || strchr(PLAIN_STEPS, (char)op) == NULL)
            (void)reader_fail(r, "it has a step that no such state has");
    }
    return r->error == 0;
}

static bool is_text(const struct word *w, const char *text)
{
    return w->kind == WORD_TEXT && w->size == strlen(text) && memcmp(w->text, text, w->size) == 0;
}

/* A name of a machine: nothing that a shell, a terminal or an option could take otherwise. */
static bool take_host(const struct word *w, struct torch_node *node)
{
    if (w->kind != WORD_TEXT || w->size == 0 || w->size >= sizeof(node->host) || w->text[0] == '-')
        return false;
    for (uint32_t i = 0; i < w->size; i++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:%",
                   w->text[i]) == NULL ||
            w->text[i] == '\0')
            return false;
    memcpy(node->host, w->text, w->size);
    node->host[w->size] = '\0';
    return true;
}

/* The words in their order: "participants", and for each node "addr" HOST ("fqdn" in torch 1.13)
 * "pid" N "local_id" N, then its rank.  "wait_list", "redundancy_list": nodes that have none. */
static int walk_pickle(struct reader *r, int (*fn)(void *arg, const struct torch_node *node),
                       void *arg)
{
    struct word before = {.kind = WORD_OTHER};
    struct torch_node node = {.rank = -1};
    bool ranked = false, any = false, have = false;
    int rc = 0;
    uint32_t kept = 0;

    while (rc >= 0 && next_step(r)) {
        const struct word *w = &r->last;
        bool memoized = r->n_memo > kept; /* the same word again */
        kept = r->n_memo;
        if (memoized || w->kind == WORD_OTHER)
            continue;
        if (is_text(w, "participants") || is_text(w, "wait_list") ||
            is_text(w, "redundancy_list") || is_text(w, "last_heartbeats")) {
            ranked = is_text(w, "participants");
            any = any || ranked;
            if (have) /* of those that wait, the last has nothing behind it */
                rc = fn(arg, &node);
            have = false;
            if (is_text(w, "last_heartbeats"))
                break;
        } else if (is_text(&before, "addr") || is_text(&before, "fqdn")) {
            if (have && rc >= 0)
                rc = fn(arg, &node);
            have = take_host(w, &node);
            node.pid = node.rank = -1;
            if (!have)
                return reader_fail(r, "a node's address is no name of a machine");
        } else if (is_text(&before, "pid") && w->kind == WORD_NUMBER) {
            node.pid = w->number;
        } else if (have && ranked && w->kind == WORD_NUMBER && !is_text(&before, "local_id")) {
            node.rank = w->number;
        }
        before = *w;
    }
    if (rc >= 0 && r->error == 0 && have)
        rc = fn(arg, &node);
    if (rc >= 0 && r->error == 0 && !any)
        rc = reader_fail(r, "it names no participants");
    return rc < 0 ? rc : r->error;
}

/* In place of what base64 needs: -1 for what is none of its letters. */
static int letter_value(char c)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c != '\0' ? strchr(letters, c) : NULL;

    return at != NULL ? (int)(at - letters) : -1;
}

static int decode_base64(const char *text, size_t size, struct buf *ret)
{
    uint32_t bits = 0, n = 0;

    while (size > 0 && text[size - 1] == '=')
        size--;
    for (size_t i = 0; i < size; i++) {
        int v = letter_value(text[i]);
        if (v < 0)
            return err_set(-EBADMSG,
                           "the state of torchrun's rendezvous cannot be read: it is not base64");
        bits = (bits << 6 | (uint32_t)v) & 0xffffff;
        n += 6;
        if (n >= 8)
            (void)buf_addc(ret, (char)(bits >> (n -= 8)));
    }
    return ret->failed ? err_set(ret->failed, "no room for the state of torchrun's rendezvous") : 0;
}

int torch_rendezvous_read(const char *text, size_t size,
                          int (*fn)(void *arg, const struct torch_node *node), void *arg)
{
    struct reader r = {.memo = NULL};
    struct buf pickle;

    buf_init(&pickle, TORCH_VALUE_BYTES);
    int rc = decode_base64(text, size, &pickle);
    if (rc == 0) {
        r.at = (const unsigned char *)pickle.data;
        r.end = r.at + pickle.size;
        rc = pickle.size > 0 ? walk_pickle(&r, fn, arg) : reader_fail(&r, "it is empty");
    }
    free(r.memo);
    buf_done(&pickle);
    return rc < 0 ? rc : 0;
}

int torch_rendezvous_nodes(const char *host, uint16_t port, const char *run_id, uint64_t timeout_ns,
                           int (*fn)(void *arg, const struct torch_node *node), void *arg)
{
    struct buf state;
    char key[512];

    if ((size_t)snprintf(key, sizeof(key), "torch.rendezvous.%s", run_id) >= sizeof(key))
        return err_set(-EINVAL, "the run id '%.80s...' is too long", run_id);
    buf_init(&state, TORCH_VALUE_BYTES);
    int rc = torch_store_get(host, port, key, timeout_ns, &state);
    if (rc == 0)
        rc = torch_rendezvous_read(buf_text(&state), state.size, fn, arg);
    buf_done(&state);
    return rc;
}
