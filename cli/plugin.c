/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/plugin.c - the `plugin` command, and how a plugin's file gets into the target.
 *
 * A plugin is sent as an open descriptor through the data directory's `door`, so it loads into a
 * container that has no such file.  One thread.
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/text.h"

#define DOOR_TIMEOUT_MS 30000 /* a plugin's start may wait for the GIL */

/* ---- the door ---- */

static int door_send(int door, const char *name, int fd)
{
    char text[160];
    int n = snprintf(text, sizeof text, "plugin %s", name);
    struct iovec part = {.iov_base = text, .iov_len = (size_t)n};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    if (sendmsg(door, &message, MSG_NOSIGNAL) == -1)
        return err_set(-errno, "cannot send the plugin to the process: %s", strerror(errno));
    return 0;
}

static int door_answer(int door, const char *name)
{
    char text[ERR_TEXT_BYTES];
    struct pollfd p = {.fd = door, .events = POLLIN};
    int ready = poll(&p, 1, DOOR_TIMEOUT_MS);

    if (ready == 0)
        return err_set(-ETIMEDOUT, "plugin %s: no answer from the process in %d s", name,
                       DOOR_TIMEOUT_MS / 1000);
    if (ready == -1)
        return err_set(-errno, "plugin %s: %s", name, strerror(errno));
    ssize_t n = recv(door, text, sizeof text - 1, 0);
    if (n <= 0)
        return err_set(-ECONNRESET, "plugin %s: the process closed the connection", name);
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (strncmp(text, "error: ", 7) == 0)
        return err_set(-EPROTO, "%s", text + 7);
    return 0;
}

int door_load_plugin(const struct target *t, const char *name, const char *file)
{
    const struct door_owner who = {.pid = t->pid, .start_time = t->start_time};
    int fd = open(file, O_RDONLY | O_CLOEXEC);

    if (fd == -1)
        return err_set(-errno, "cannot open %s: %s", file, strerror(errno));
    int door = door_dial(t->directory, t->start_time != 0 ? &who : NULL, "door", SOCK_SEQPACKET);
    int r = door < 0 ? door : door_send(door, name, fd);
    if (r == 0)
        r = door_answer(door, name);
    if (door >= 0)
        (void)close(door);
    (void)close(fd);
    return r;
}

/* ---- the command ---- */

/* "torch", "./my_plugin.so": name and file.  -ENOENT: we have no such file (the target may). */
static int plugin_file(const char *word, char *name, size_t name_size, char *file, size_t file_size)
{
    const char *slash = strrchr(word, '/'), *leaf = slash != NULL ? slash + 1 : word;
    size_t n = strlen(leaf);

    if (n > 3 && strcmp(leaf + n - 3, ".so") == 0) {
        /* The plugin says its own name; the file's is only for messages. */
        const char *bare = strncmp(leaf, "probing_", 8) == 0 ? leaf + 8 : leaf;
        (void)snprintf(name, name_size, "%.*s", (int)(strlen(bare) - 3), bare);
        (void)snprintf(file, file_size, "%s", word);
        return access(word, R_OK) == 0
                   ? 0
                   : err_set(-errno, "cannot read the plugin %s: %s", word, strerror(errno));
    }
    if (!text_is_name(word))
        return err_set(-EINVAL, "'%s' is no plugin name (small letters, digits, _) and no .so file",
                       word);
    (void)snprintf(name, name_size, "%s", word);
    return plugin_find(word, file, file_size);
}

static int load(struct target *t, const char *word)
{
    char name[64], file[4096];
    int r = plugin_file(word, name, sizeof name, file, sizeof file);

    if (r == -ENOENT && strchr(word, '/') == NULL) {
        const char *words[] = {"plugin", "load",
                               word}; /* we have none: the target's own path may */
        return live_run(t, 3, words);
    }
    if (r < 0)
        return r;
    if (t->host[0] != '\0') { /* a remote process may load only what is in its own plugin path */
        const char *words[] = {"plugin", "load", name};
        return live_run(t, 3, words);
    }
    r = door_load_plugin(t, name, file);
    if (r < 0)
        return r;
    printf("plugin %s loaded\n", name);
    return EXIT_DONE;
}

int command_plugin(struct target *t, int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "load") == 0) {
        struct probing_client *probe = NULL; /* says first, in one line, when nobody is there */
        if (t->kind != TARGET_LIVE)
            return target_connect(t, &probe);
        return load(t, argv[2]);
    }
    return command_forward(t, argc, argv);
}
