/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/token.c - the token of a process on this machine, found by the port it says it listens on.
 *
 * A token is shown only to the process it belongs to: each of our living processes is asked over
 * its private socket where it listens, and only an equal port gives its token.  One thread.
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"
#include "sdk/client/client.h"

#define ASK_NS (2 * NS_PER_S) /* a process that does not answer by then is not the one */
#define INFO_MAX_BYTES 65536

struct wanted {
    uint16_t port;
    char *token; /* TOKEN_BYTES */
};

static int keep(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

/* The port behind "listening: 127.0.0.1:9922" of an `info` answer, 0: none. */
static uint16_t port_of(const char *info)
{
    const char *line = strstr(info, "\nlistening: ");
    char address[300];
    uint64_t port = 0;

    if (line == NULL)
        return 0;
    line += strlen("\nlistening: ");
    (void)snprintf(address, sizeof address, "%.*s", (int)strcspn(line, "\n"), line);
    const char *colon = strrchr(address, ':');
    return colon != NULL && parse_u64(colon + 1, &port) == 0 && port < 65536 ? (uint16_t)port : 0;
}

static uint16_t listening_port(const char *directory)
{
    static const char *const WORDS[] = {"info"};
    struct probing_client *c = NULL;
    struct buf info;
    uint16_t port = 0;
    int status;

    buf_init(&info, INFO_MAX_BYTES);
    if (directory_connect(directory, &c) == 0 &&
        client_run(c, 1, WORDS, ASK_NS, keep, &info, &status) == 0 && status == 0)
        port = port_of(buf_text(&info));
    client_close(c);
    buf_done(&info);
    return port;
}

int token_read(const char *directory, char *ret)
{
    struct buf text;
    char path[4200];

    (void)snprintf(path, sizeof path, "%s/token", directory);
    buf_init(&text, TOKEN_BYTES - 1);
    int r = file_read(AT_FDCWD, path, &text);
    if (r == 0)
        (void)snprintf(ret, TOKEN_BYTES, "%.*s", (int)strcspn(buf_text(&text), "\n"),
                       buf_text(&text));
    buf_done(&text);
    return r;
}

static int try_directory(void *arg, const struct datadir *d)
{
    struct wanted *w = arg;
    pid_t pid;

    return directory_alive(d, &pid) && token_read(d->path, w->token) == 0 &&
           listening_port(d->path) == w->port;
}

const char *token_for(const struct target *t, char *room)
{
    const char *given = getenv("PROBING_TOKEN");
    struct wanted w = {.port = t->port, .token = room};

    if (given != NULL && given[0] != '\0')
        return given;
    if (strcmp(t->host, "localhost") != 0 && strncmp(t->host, "127.", 4) != 0 &&
        strcmp(t->host, "::1") != 0)
        return NULL; /* another machine's: only its owner can say it */
    return directory_each(try_directory, &w) != 0 ? room : NULL;
}
