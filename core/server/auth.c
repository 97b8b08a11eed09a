/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/auth.c - who may come in, and how often: tokens, the peer's uid, Host and Origin.
 *
 * Checks of Host, Origin and one token are pure; what takes a peer or the server is the loop's.
 * Names are refused on purpose: a page from elsewhere can point a name of its own at this machine
 * (DNS rebinding), but it cannot do so with a number.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/server/internal.h"

#define REFUSALS_A_SECOND 2 /* lines in the log; the others are not worth its thousand lines */

static int random_bytes(unsigned char *out, size_t size)
{
    if (syscall(SYS_getrandom, out, size, 0) == (ssize_t)size)
        return 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC); /* before Linux 3.17, or filtered */
    if (fd == -1)
        return err_set(-errno, "cannot get random numbers for a token: /dev/urandom: %s",
                       strerror(errno));
    ssize_t got = read(fd, out, size);
    (void)close(fd);
    return got == (ssize_t)size ? 0 : err_set(-EIO, "no random numbers: /dev/urandom is short");
}

int server_token_make(char *ret, size_t size)
{
    static const char letters[] = "0123456789abcdef";
    unsigned char bytes[16]; /* 128 bits */
    int rc = size > 2 * sizeof(bytes) ? random_bytes(bytes, sizeof(bytes)) : -EINVAL;
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        ret[2 * i] = letters[bytes[i] >> 4];
        ret[2 * i + 1] = letters[bytes[i] & 15];
    }
    ret[2 * sizeof(bytes)] = 0;
    return 0;
}

bool server_token_same(const char *token, const char *given, size_t n)
{
    size_t length = strlen(token);
    unsigned char differ = length == 0 || length != n;
    for (size_t i = 0; i < n; i++) /* as long as what was given: tells nothing about the token */
        differ |= (unsigned char)(given[i] ^ token[length ? i % length : 0]);
    return differ == 0;
}

enum access server_token_access(struct server *s, const char *given, size_t n)
{
    bool full = server_token_same(s->tokens[ACCESS_FULL], given, n); /* always both */
    bool read = server_token_same(s->tokens[ACCESS_READ], given, n);
    return full ? ACCESS_FULL : read ? ACCESS_READ : ACCESS_NONE;
}

bool server_rate_take(struct rate *r, uint64_t now_ns, uint64_t per_s)
{
    uint64_t from = r->full_ns > now_ns ? r->full_ns : now_ns;
    if (from - now_ns > 2 * NS_PER_S - NS_PER_S / per_s)
        return false;
    r->full_ns = from + NS_PER_S / per_s;
    return true;
}

void server_log_refusal(struct connection *p, const char *why)
{
    server_add(p->server->refused, 1);
    if (server_rate_take(&p->server->refusals, clock_now(), REFUSALS_A_SECOND))
        host_log(p->server->host, PROBING_WARN, "%s was turned away: %.*s", p->who,
                 (int)strcspn(why, ";"), why);
}

/* The program may have put on or off the rights of another user since it connected. */
enum identity_refusal server_connection_refusal(struct connection *p)
{
    enum identity_refusal refusal = p->local ? identity_own_answer(&p->peer) : IDENTITY_MAY_ASK;
    if (refusal)
        server_log_refusal(p, identity_why(refusal));
    return refusal;
}

bool server_connection_identify(struct connection *p)
{
    if (identity_peer_of(p->fd, &p->peer) < 0)
        return false;
    (void)snprintf(p->who, sizeof(p->who), "pid %d of uid %u", (int)p->peer.pid, p->peer.uid);
    p->refused = server_connection_refusal(p);
    return p->refused != IDENTITY_OTHER_USER;
}

const char *server_connection_why(const struct connection *p, int *ret_code)
{
    *ret_code = p->refused ? -EACCES : -EAGAIN;
    return p->refused ? identity_why(p->refused) : SERVER_FULL;
}

int server_connection_may_ask(struct connection *p)
{
    uint64_t now = clock_now();
    enum identity_refusal refusal = server_connection_refusal(p);
    if (refusal)
        return err_set(-EACCES, "%s", identity_why(refusal));
    return p->local || (server_rate_take(&p->rate, now, SERVER_CONNECTION_RATE) &&
                        server_rate_take(&p->server->rate, now, SERVER_TCP_RATE))
               ? 0
               : err_set(-EAGAIN, "too many requests: at most %d a second; wait a second",
                         SERVER_CONNECTION_RATE);
}

static bool is_port(const char *text, size_t n)
{
    uint32_t port = 0;
    for (size_t i = 0; i < n && n <= 5; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        port = port * 10 + (uint32_t)(text[i] - '0');
    }
    return n >= 1 && n <= 5 && port >= 1 && port <= 65535;
}

/* HOST or HOST:PORT, as RFC 3986 writes what has no user in it: a name or number of letters,
 * digits, '.', '-' and '_', or a number of IPv6 in brackets (no zone).  Nothing else passes: what
 * another parser reads as something else ("localhost:x@evil.example", "[::1]evil.example") is
 * refused whole, not cut where it suits us.  Gives the length of HOST, 0: refused. */
static size_t host_length(const char *text, size_t n)
{
    static const char in_name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  ".-_";
    static const char in_v6[] = "0123456789abcdefABCDEF:.";
    bool v6 = n > 0 && text[0] == '[';
    size_t length = v6 ? 1 : 0;
    while (length < n && text[length] && strchr(v6 ? in_v6 : in_name, text[length]))
        length++;
    if (v6 && (length < 3 || length == n || text[length++] != ']'))
        return 0;
    if (length == n || (text[length] == ':' && is_port(text + length + 1, n - length - 1)))
        return length;
    return 0;
}

static bool same_name(const char *a, size_t n, const char *b)
{
    return b && *b && strlen(b) == n && strncasecmp(a, b, n) == 0;
}

bool server_host_allowed(const char *host, size_t n, const char *listen_host, const char *local)
{
    size_t length = host_length(host, n);
    return length > 0 &&
           (same_name(host, length, "localhost") || same_name(host, length, "127.0.0.1") ||
            same_name(host, length, "[::1]") || same_name(host, length, listen_host) ||
            same_name(host, length, local));
}

bool server_origin_allowed(const char *origin, size_t n, const char *host, size_t host_n)
{
    size_t skip = n > 7 && strncasecmp(origin, "http://", 7) == 0    ? 7
                  : n > 8 && strncasecmp(origin, "https://", 8) == 0 ? 8
                                                                     : 0;
    return skip && n - skip == host_n && strncasecmp(origin + skip, host, host_n) == 0 &&
           host_length(host, host_n) > 0;
}
