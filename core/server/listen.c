/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/listen.c - make the listening sockets: one in the file system, one on TCP.
 *
 * Any thread; keeps nothing.  Names are not looked up: that may take minutes and loads libraries
 * into the host; "localhost" is known without asking.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/rights.h"
#include "core/base/text.h"
#include "core/server/internal.h"

#define BACKLOG 4096 /* connections that wait to be taken in; the kernel has a limit of its own */

int server_listen_unix(const char *path, int *ret_fd)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof(a.sun_path))
        return err_set(-ENAMETOOLONG,
                       "a socket's path has at most %zu bytes: set a shorter PROBING_DATA_DIR; "
                       "'%.80s...' has %zu",
                       sizeof(a.sun_path) - 1, path, n);
    memcpy(a.sun_path, path, n + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1)
        return err_set(-errno, "no socket: %s", strerror(errno));
    rights_keep();
    (void)unlink(path); /* of an earlier server of this process: the directory is private to it */
    /* On Linux the mode of the socket's inode becomes that of the file, less the umask; the umask
     * is the host's and not touched. */
    if (fchmod(fd, 0600) != 0 || bind(fd, (const struct sockaddr *)&a, sizeof(a)) != 0 ||
        chmod(path, 0600) != 0 || listen(fd, BACKLOG) != 0) {
        int why = errno;
        (void)close(fd);
        return err_set(-why, "cannot listen on '%s': %s", path, strerror(why));
    }
    *ret_fd = fd;
    return 0;
}

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* "HOST:PORT", ":PORT", "PORT", "HOST", "[V6]:PORT" into host text and port. */
static int split_address(const char *listen_on, char *host, size_t size, uint16_t *ret_port)
{
    const char *end = listen_on + strlen(listen_on), *port = NULL;
    const char *bracket = listen_on[0] == '[' ? strchr(listen_on, ']') : NULL;
    const char *colon = bracket ? (bracket[1] == ':' ? bracket + 1 : NULL) : strchr(listen_on, ':');
    if (colon) {
        port = colon + 1;
        end = colon;
    } else if (strspn(listen_on, "0123456789") == (size_t)(end - listen_on)) {
        port = listen_on;
        end = listen_on;
    }
    uint64_t number = SERVER_PORT;
    if (port && (parse_u64(port, &number) != 0 || number > UINT16_MAX))
        return err_set(-EINVAL, "listen address '%s': '%s' is not a port (0 to 65535)", listen_on,
                       port);
    size_t n = (size_t)(end - listen_on);
    if (n >= size)
        return err_set(-EINVAL, "listen address '%s' is too long", listen_on);
    memcpy(host, listen_on, n);
    host[n] = 0;
    *ret_port = (uint16_t)number;
    return 0;
}

static int read_address(const char *listen_on, char *host, size_t size, union address *a,
                        socklen_t *ret_size)
{
    uint16_t port = 0;
    char plain[64] = "";
    int rc = split_address(listen_on, host, size, &port);
    if (rc != 0)
        return rc;
    *a = (union address){.v4 = {.sin_family = AF_INET, .sin_port = htons(port)}};
    *ret_size = sizeof(a->v4);
    if (host[0] == 0) /* never on all addresses unless asked */
        (void)snprintf(host, size, "127.0.0.1");
    if (strcmp(host, "localhost") == 0 || strcmp(host, "*") == 0) {
        a->v4.sin_addr.s_addr = htonl(host[0] == '*' ? INADDR_ANY : INADDR_LOOPBACK);
        return 0;
    }
    if (inet_pton(AF_INET, host, &a->v4.sin_addr) == 1)
        return 0;
    size_t n = strlen(host);
    if (n > 2 && host[0] == '[' && n - 2 < sizeof(plain)) {
        memcpy(plain, host + 1, n - 2);
        *a = (union address){.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)}};
        *ret_size = sizeof(a->v6);
        if (inet_pton(AF_INET6, plain, &a->v6.sin6_addr) == 1)
            return 0;
    }
    return err_set(-EINVAL,
                   "listen address '%s': '%s' is not a number such as 127.0.0.1 or "
                   "[::1], nor localhost or *",
                   listen_on, host);
}

static int open_tcp(const union address *a, socklen_t size, const char *name, int *ret_fd)
{
    int one = 1;
    int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1)
        return err_set(-errno, "no socket for '%s': %s", name, strerror(errno));
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, &a->any, size) != 0 || listen(fd, BACKLOG) != 0) {
        int why = errno;
        (void)close(fd);
        return err_set(-why,
                       why == EADDRINUSE
                           ? "cannot listen on '%s': %s; choose another port, or 0 for any that is "
                             "free"
                           : "cannot listen on '%s': %s",
                       name, strerror(why));
    }
    *ret_fd = fd;
    return 0;
}

int server_listen_tcp(const char *listen_on, int *ret_fd, char *ret_address, size_t address_size,
                      char *ret_host, size_t host_size)
{
    union address a;
    socklen_t size;
    int fd = -1;
    int rc = read_address(listen_on, ret_host, host_size, &a, &size);
    if (rc == 0)
        rc = open_tcp(&a, size, listen_on, &fd);
    if (rc != 0)
        return rc;
    (void)getsockname(fd, &a.any, &size);
    bool v6 = a.any.sa_family == AF_INET6;
    char text[INET6_ADDRSTRLEN] = "";
    (void)inet_ntop(a.any.sa_family, v6 ? (void *)&a.v6.sin6_addr : (void *)&a.v4.sin_addr, text,
                    sizeof(text));
    (void)snprintf(ret_address, address_size, v6 ? "[%s]:%u" : "%s:%u", text,
                   ntohs(v6 ? a.v6.sin6_port : a.v4.sin_port));
    *ret_fd = fd;
    return 0;
}

void server_keep_alive(int fd)
{
    const int on = 1, idle_s = 30, every_s = 15, times = 4;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof(times));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* answers are whole writes */
}

uint64_t server_connection_name(int fd, char *ret, size_t size)
{
    uint64_t source = 0;
    union address a;
    socklen_t n = sizeof(a);
    char text[INET6_ADDRSTRLEN] = "?";
    if (getpeername(fd, &a.any, &n) != 0)
        a.any.sa_family = AF_UNSPEC;
    bool v6 = a.any.sa_family == AF_INET6;
    if (v6 || a.any.sa_family == AF_INET)
        (void)inet_ntop(a.any.sa_family, v6 ? (void *)&a.v6.sin6_addr : (void *)&a.v4.sin_addr,
                        text, sizeof(text));
    (void)snprintf(ret, size, v6 ? "[%s]:%u" : "%s:%u", text,
                   v6                           ? ntohs(a.v6.sin6_port)
                   : a.any.sa_family == AF_INET ? ntohs(a.v4.sin_port)
                                                : 0);
    if (v6) /* one client has all of a network's second half to choose from */
        memcpy(&source, &a.v6.sin6_addr, sizeof(source));
    else if (a.any.sa_family == AF_INET)
        source = a.v4.sin_addr.s_addr;
    return source;
}
