/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/pending_clients.c - see pending_clients.h.
 *
 * One thread.  What a caller says is read only as far as it must be to tell whether it is the
 * token; the session that it gets reads it, too.
 */
#include "cli/relay/pending_clients.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "cli/link/frame.h"
#include "cli/link/token.h"
#include "core/base/clock.h"
#include "sdk/lib/hash.h"

#define HEARD_BYTES (FRAME_MAGIC_BYTES + FRAME_HEAD + 8192) /* a greeting is no longer */
#define IPV4_BYTES 3                                        /* of an address: its network */
#define IPV6_BYTES 7

/* All but the first bytes are none. */
static void cut_address(void *address, size_t size, size_t kept)
{
    memset((char *)address + kept, 0, size - kept);
}

void caller_name(const struct sockaddr_storage *at, socklen_t size, struct caller *ret)
{
    struct sockaddr_storage net = *at;
    struct sockaddr_in *four = (struct sockaddr_in *)&net;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&net;

    if (at->ss_family == AF_INET)
        cut_address(&four->sin_addr, 4, IPV4_BYTES);
    else if (at->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
        cut_address(&six->sin6_addr, 16, 12 + IPV4_BYTES);
    else if (at->ss_family == AF_INET6)
        cut_address(&six->sin6_addr, 16, IPV6_BYTES);
    if (getnameinfo((const struct sockaddr *)at, size, ret->address, CALLER_ADDRESS_BYTES, NULL, 0,
                    NI_NUMERICHOST) != 0)
        ret->address[0] = '\0';
    ret->network = at->ss_family == AF_INET
                       ? hash_bytes(HASH_FNV, &four->sin_addr, sizeof(four->sin_addr))
                       : hash_bytes(HASH_FNV, &six->sin6_addr, sizeof(six->sin6_addr));
}

/* by: 1 or -1 more of this network. */
static uint32_t count(struct callers *c, uint64_t network, uint32_t by)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->n; i++)
        if (c->list[i].network == network) {
            c->list[i].same += by;
            n++;
        }
    return n;
}

void callers_forget(struct callers *c, uint32_t i)
{
    (void)count(c, c->list[i].network, UINT32_MAX);
    (void)close(c->list[i].fd);
    buf_done(&c->list[i].heard);
    c->list[i] = c->list[--c->n];
}

bool callers_put_one_out(struct callers *c)
{
    const struct caller *worst = c->list;

    if (c->n == 0)
        return false;
    for (const struct caller *one = c->list; one < c->list + c->n; one++)
        if (one->same > worst->same || (one->same == worst->same && one->number < worst->number))
            worst = one;
    callers_forget(c, (uint32_t)(worst - c->list));
    return true;
}

void callers_add(struct callers *c, const struct caller *who)
{
    if (c->n == CALLERS_MAX)
        (void)callers_put_one_out(c);
    uint32_t others = count(c, who->network, 1);
    struct caller *one = &c->list[c->n++];
    *one = *who;
    one->same = others + 1;
    one->number = c->last++;
    one->since_ns = clock_monotonic();
    buf_init(&one->heard, HEARD_BYTES);
}

/* ---- what it says ---- */

static enum caller_says judge_greeting(struct caller *who, const char *token)
{
    const struct buf *heard = &who->heard;
    size_t magic = heard->size < FRAME_MAGIC_BYTES ? heard->size : FRAME_MAGIC_BYTES;
    struct frame_hello h;
    struct frame f;

    if (memcmp(heard->data, FRAME_MAGIC, magic) != 0)
        return CALLER_STRANGE; /* no shell greets here */
    int64_t n = frame_read(heard->data + magic, heard->size - magic, &f);
    if (n == 0)
        return heard->size < HEARD_BYTES ? CALLER_WAITS : CALLER_STRANGE;
    if (n < 0 || f.kind != FRAME_HELLO || frame_hello_read(&f, &h) < 0)
        return CALLER_STRANGE;
    who->host = f.host;
    return token_is(token, h.text) ? CALLER_TOKEN : CALLER_OTHER;
}

enum caller_says caller_listen(struct caller *who, const char *token)
{
    size_t left = HEARD_BYTES - who->heard.size;
    char *room = buf_room(&who->heard, left);
    ssize_t n = room != NULL ? read(who->fd, room, left) : 0;

    if (n == -1 && (errno == EAGAIN || errno == EINTR))
        return CALLER_WAITS;
    if (n <= 0)
        return CALLER_ENDED;
    who->heard.size += (size_t)n;
    return judge_greeting(who, token);
}
