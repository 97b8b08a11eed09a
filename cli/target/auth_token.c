/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/auth_token.c - the token of a process on this machine, for whoever is proved to be
 * that process.
 *
 * One thread.
 *
 * Anybody can listen on a port, put a file `token` somewhere, and say that he is another.  So the
 * connection stands before a token is looked for, and the kernel is asked whose it is: the other
 * end of that very connection (/proc/net/tcp) is a socket with a number, and the process that holds
 * this socket (/proc/PID/fd) is the one whose directory may have the token.  A user can look into
 * his own processes only; root into all.
 */

#include "cli/target/auth_token.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/target/core_lookup.h"
#include "cli/terminal/interrupt.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/proc_file.h"

#define ACCEPT_NS (2 * NS_PER_S) /* a process that does not take us in by then is not asked */
#define AGAIN_MS 2
#define NET_MAX_BYTES (64u << 20) /* a machine with 400,000 connections */
#define ADDRESS_BYTES 48          /* "0100007F:1F90", as /proc/net/tcp and tcp6 write it */

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* ---- the other end ---- */

static bool is_local(const union address *a)
{
    if (a->any.sa_family == AF_INET)
        return ntohl(a->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return a->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

/* As the kernel prints it, word by word.  six: as tcp6 shows it, which has both kinds. */
static void write_address(const union address *a, bool six, char ret[ADDRESS_BYTES])
{
    uint32_t word[4] = {0, 0, htonl(0xffff), a->v4.sin_addr.s_addr};
    uint16_t port = a->v4.sin_port;

    if (a->any.sa_family == AF_INET6) {
        memcpy(word, &a->v6.sin6_addr, sizeof(word));
        port = a->v6.sin6_port;
    }
    if (six)
        (void)snprintf(ret, ADDRESS_BYTES, "%08X%08X%08X%08X:%04X", word[0], word[1], word[2],
                       word[3], ntohs(port));
    else
        (void)snprintf(ret, ADDRESS_BYTES, "%08X:%04X", word[3], ntohs(port));
}

/* A socket, by its number, and the user who took the connection in. */
struct end {
    unsigned long long inode; /* 0: there is none, or nobody has taken it in yet */
    unsigned uid;
};

/* A line of /proc/net/tcp, if it is the one with these two ends. */
static bool read_connection(const char *line, char ends[2][ADDRESS_BYTES], struct end *ret)
{
    enum { ENDS = 1, UID = 7, INODE = 9 }; /* words of the line */
    const char *word[INODE + 1];
    size_t size[INODE + 1];
    uint64_t uid, inode;

    for (int i = 0; i <= INODE; i++) {
        word[i] = line + strspn(line, " ");
        size[i] = strcspn(word[i], " \n");
        line = word[i] + size[i];
    }
    for (int i = 0; i < 2; i++)
        if (size[ENDS + i] != strlen(ends[i]) ||
            memcmp(word[ENDS + i], ends[i], size[ENDS + i]) != 0)
            return false;
    if (number_u64(word[UID], size[UID], &uid) < 0 || uid > UINT32_MAX ||
        number_u64(word[INODE], size[INODE], &inode) < 0)
        return false;
    *ret = (struct end){.inode = inode, .uid = (unsigned)uid};
    return true;
}

/* The socket with these two ends in a table of connections. */
static struct end end_in(const char *table, const union address *near, const union address *far,
                         bool six)
{
    char ends[2][ADDRESS_BYTES];
    struct end found = {.inode = 0};
    struct buf text;

    write_address(near, six, ends[0]);
    write_address(far, six, ends[1]);
    buf_init(&text, NET_MAX_BYTES);
    if (file_read(AT_FDCWD, table, &text) == 0) {
        for (const char *line = buf_text(&text); line != NULL && found.inode == 0;) {
            struct end e;
            if (read_connection(line, ends, &e))
                found = e;
            line = strchr(line, '\n');
            line = line != NULL ? line + 1 : NULL;
        }
    }
    buf_done(&text);
    return found;
}

/* The other end of our own connection `fd`. */
static struct end peer_end(int fd)
{
    union address own, peer;
    socklen_t own_size = sizeof(own), peer_size = sizeof(peer);
    uint64_t deadline = clock_monotonic() + ACCEPT_NS;
    struct end e = {.inode = 0};

    if (getsockname(fd, &own.any, &own_size) == -1 ||
        getpeername(fd, &peer.any, &peer_size) == -1 || !is_local(&peer))
        return e; /* another machine's: only its owner can say the token */
    for (;;) {
        if (own.any.sa_family == AF_INET)
            e = end_in("/proc/self/net/tcp", &peer, &own, /* six= */ false);
        if (e.inode == 0)
            e = end_in("/proc/self/net/tcp6", &peer, &own, /* six= */ true);
        if (e.inode != 0 || cli_interrupted || clock_monotonic() > deadline)
            return e;
        (void)poll(NULL, 0, AGAIN_MS);
    }
}

/* ---- the process that holds it ---- */

static bool holds_socket(pid_t pid, const char *socket)
{
    char path[PROC_PATH_BYTES], name[24], link[64];
    struct proc_numbers all;
    struct proc_number one;
    bool found = false;

    proc_path(pid, 0, "fd", path);
    (void)proc_numbers_open(&all, path);
    while (!found && proc_numbers_next(&all, &one)) {
        (void)snprintf(name, sizeof(name), "%llu", (unsigned long long)one.value);
        ssize_t n = readlinkat(all.fd, name, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = '\0';
        found = strcmp(link, socket) == 0;
    }
    proc_numbers_close(&all);
    return found;
}

int token_read(const char *directory, char *ret)
{
    struct datadir d;
    struct buf text;
    int rc = datadir_open(directory, DATADIR_ANY, &d);

    if (rc < 0)
        return rc;
    buf_init(&text, TOKEN_BYTES - 1);
    rc = datadir_read(&d, "token", &text);
    if (rc == 0)
        (void)snprintf(ret, TOKEN_BYTES, "%.*s", (int)strcspn(buf_text(&text), "\n"),
                       buf_text(&text));
    buf_done(&text);
    datadir_close(&d);
    return rc;
}

void page_of(const char *address, char *ret, size_t size)
{
    bool every = strncmp(address, "0.0.0.0:", 8) == 0; /* from here it is reached by this name */
    (void)snprintf(ret, size, "http://%s%s/", every ? "localhost" : "",
                   every ? address + 7 : address);
}

void page_read(const struct datadir *d, char *ret, size_t size)
{
    struct buf text;

    ret[0] = '\0';
    buf_init(&text, 96);
    if (datadir_read(d, "token-address", &text) == 0 && text.size > 0 &&
        buf_text(&text)[strcspn(buf_text(&text), " \t\r\n/?")] == '\0')
        page_of(buf_text(&text), ret, size);
    buf_done(&text);
}

const char *token_of_peer(void *room, int fd)
{
    char socket[64], directory[4096];
    struct end end = peer_end(fd);
    const char *token = NULL;
    struct proc_numbers all;
    struct proc_number one;

    if (end.inode == 0)
        return NULL;
    (void)snprintf(socket, sizeof(socket), "socket:[%llu]", end.inode);
    (void)proc_numbers_open(&all, "/proc");
    while (token == NULL && proc_numbers_next(&all, &one)) {
        pid_t pid = (pid_t)one.value;
        if (holds_socket(pid, socket) &&
            process_is_of(pid, end.uid) && /* not one who was handed it by another */
            directory_of(pid, directory, sizeof(directory)) == 0 &&
            token_read(directory, room) == 0)
            token = room;
    }
    proc_numbers_close(&all);
    return token;
}
