/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/plugin/plugin.c - the commands `plugin` and `performance`, and how a plugin's file
 * gets into the target.
 *
 * A plugin is sent as an open descriptor through the data directory's `door`, so it loads into a
 * container that has no such file.  One thread.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/commands/plugin/plugin_check.h"
#include "cli/commands/plugin/plugin_upload.h"
#include "cli/inject/starved.h"
#include "cli/target/core_lookup.h"
#include "cli/target/declarations.h"
#include "cli/target/installed.h"
#include "cli/target/live_run.h"
#include "cli/target/query_client.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/crash/crash.h"
#include "core/datadir/datadir.h"
#include "core/guest/headroom.h"
#include "core/plugin_file/sealed_copy.h"
#include "sdk/client/door.h"

#define UPLOAD_TIMEOUT_MS 30000 /* a plugin's start may wait for the GIL */

/* ---- the door ---- */

static int upload_send(int door, const char *words, int fd)
{
    struct iovec part = {.iov_base = (char *)(uintptr_t)words, .iov_len = strlen(words)};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    if (sendmsg(door, &message, MSG_NOSIGNAL) == -1)
        return err_set(-errno, "cannot send the plugin to the process: %s", strerror(errno));
    return 0;
}

/* The stack that crashed, where there is a report: is it the plugin's own code? */
static void name_crash(const char *directory, const char *name, char *ret, size_t size)
{
    struct crash_reports all = {.n = 0};
    struct datadir d;
    char image[96];
    const char *inside = strstr(directory, "/root/"); /* /proc shows no root of the dead */

    ret[0] = '\0';
    if (datadir_open(inside != NULL ? inside + 5 : directory, DATADIR_ANY, &d) < 0)
        return;
    if (crash_read(&d, &all) < 0)
        all.n = 0;
    (void)snprintf(image, sizeof(image), "%.63s.so", name); /* a copy is called after its file */
    const struct crash_report *last = all.n > 0 ? &all.list[all.n - 1] : NULL;
    const struct crash_thread *t = last && last->n_threads > 0 ? &last->threads[0] : NULL;
    if (last)
        (void)snprintf(ret, size, ": %s", last->signal);
    for (uint32_t i = 0; t && i < t->n_frames; i++) {
        const struct crash_frame *f = &t->frames[i];
        if (strstr(f->module, image) == NULL)
            continue;
        (void)snprintf(ret, size, ": %s %s the plugin's own code (%s+0x%llx)", last->signal,
                       i == 0 ? "in" : "below", f->func[0] ? f->func : "offset",
                       (unsigned long long)(f->func[0] ? f->function_offset : f->offset));
        break;
    }
    if (last)
        crash_reports_done(&all);
    datadir_close(&d);
}

/* The connection ended without an answer. */
static int lost(const struct client_process *p, const char *name)
{
    char crash[300];

    switch (client_process_end(p)) {
    case PROBING_CLIENT_DIED:
        name_crash(p->directory, name, crash, sizeof(crash));
        return err_set(
            -ECONNRESET,
            "process %d ended while plugin %s was being loaded (in a constructor of its file, its "
            "init or its start)%s; try it in a separate process first: probing plugin check FILE",
            (int)p->pid, name, crash);
    case PROBING_CLIENT_LEFT:
        return err_set(-ECONNRESET,
                       "the core left process %d while plugin %s was being loaded; enter it again: "
                       "probing -t %d inject",
                       (int)p->pid, name, (int)p->pid);
    case PROBING_CLIENT_REPLACED:
        return err_set(-ESTALE,
                       "process %d runs another program now (exec): it came while plugin %s was "
                       "being loaded into the one before; enter it again: probing -t %d inject",
                       (int)p->pid, name, (int)p->pid);
    case PROBING_CLIENT_CLOSED:
    case PROBING_CLIENT_UNKNOWN:
    case PROBING_CLIENT_OPEN:
        break;
    }
    return err_set(-ECONNRESET,
                   "plugin %s: the connection was closed by the core without an answer; see plugin "
                   "list and probing.log",
                   name);
}

static int upload_answer(int door, const struct client_process *who, const char *name,
                         char *ret_note, size_t size)
{
    char text[ERR_TEXT_BYTES + 16], starved[300];
    uint64_t until = clock_monotonic() + (uint64_t)UPLOAD_TIMEOUT_MS * NS_PER_MS;
    struct pollfd p = {.fd = door, .events = POLLIN};
    struct starved looks;
    int ready;

    starved_begin(&looks, who->pid, /* only= */ 0, /* from_birth= */ false);
    starved_look(&looks, clock_monotonic());
    do {
        ready = poll(&p, 1, 100);
        starved_look(&looks, clock_monotonic());
    } while ((ready == 0 || (ready == -1 && errno == EINTR)) && !cli_interrupted &&
             clock_monotonic() < until);
    if (cli_interrupted)
        return err_set(-ECANCELED, "interrupted; plugin %s may still be loaded", name);
    if (ready == 0) {
        starved_words(&looks, (uint64_t)UPLOAD_TIMEOUT_MS * NS_PER_MS, starved, sizeof(starved));
        return err_set(-ETIMEDOUT, "plugin %s: no answer from the process in %d s%s", name,
                       UPLOAD_TIMEOUT_MS / 1000, starved);
    }
    if (ready == -1)
        return err_set(-errno, "plugin %s: %s", name, strerror(errno));
    ssize_t n = recv(door, text, sizeof(text) - 1, 0);
    if (n <= 0)
        return lost(who, name);
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (strncmp(text, "error: ", 7) == 0)
        return err_set(strstr(text, "is loaded already") != NULL ? -EALREADY : -EPROTO, "%s",
                       text + 7);
    (void)snprintf(ret_note, size, "%s", strncmp(text, "ok: ", 4) == 0 ? text + 4 : "");
    return 0;
}

/* The file may be written over while it is on its way: what goes is a copy that nobody can change,
 * and a file that is no plugin goes nowhere. */
static int open_copy(const char *name, const char *file)
{
    struct elf_facts facts;
    int copied = -1, fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd == -1)
        return err_set(-errno, "cannot open %s: %s", file, strerror(errno));
    int rc = seal_copy(fd, name, &copied, &facts);
    if (rc == 0 || rc == -ENOEXEC)
        (void)close(fd);
    if (rc == -ENOEXEC) {
        char why[ERR_TEXT_BYTES];
        (void)snprintf(why, sizeof(why), "%s", err_text());
        return err_set(rc, "plugin %s: %s: %s", name, file, why);
    }
    return rc == 0 ? copied : fd; /* where no copy can be made the core looks for another way */
}

/* name: of what goes, for words. */
static int say_at_door(const struct target *t, const char *words, const char *name, int fd,
                       char *ret_note, size_t size)
{
    const struct endpoint_owner owner = {.pid = t->pid, .start_time = t->start_time};
    struct client_process who;
    if (t->pid > 0 && room_of(t->pid, ROOM_DESCRIPTORS) == 0)
        return err_set(-EMFILE,
                       "plugin %s: process %d may have no more open files (ulimit -n); raise the "
                       "limit: prlimit --pid %d --nofile=1024",
                       name, (int)t->pid, (int)t->pid);
    int door =
        endpoint_dial(t->directory, t->start_time != 0 ? &owner : NULL, "door", SOCK_SEQPACKET);
    int rc = door;
    if (door >= 0) {
        client_process_of(door, t->directory, "sock", &who);
        rc = upload_send(door, words, fd);
    }
    if (rc == 0)
        rc = upload_answer(door, &who, name, ret_note, size);
    if (door >= 0)
        (void)close(door);
    return rc;
}

int upload_plugin(const struct target *t, const char *name, const char *file, char *ret_note,
                  size_t size)
{
    char words[160];
    int fd = open_copy(name, file);

    if (fd < 0)
        return fd;
    (void)snprintf(words, sizeof(words), "plugin %s", name);
    int rc = say_at_door(t, words, name, fd, ret_note, size);
    (void)close(fd);
    return rc;
}

int door_tell_known(const struct target *t, int fd)
{
    char note[ERR_TEXT_BYTES];
    return say_at_door(t, "known", "lines", fd, note, sizeof(note));
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
        return err_set(
            -EINVAL,
            "'%s' is neither the name of a plugin (lower-case letters, digits, _) nor a .so file",
            word);
    (void)snprintf(name, name_size, "%s", word);
    return plugin_find(word, file, file_size);
}

/* By its name in the target's own path: what ended the connection was asked for by us. */
static int load_there(struct target *t, const char *name)
{
    const char *words[] = {"plugin", "load", name};
    char why[ERR_TEXT_BYTES - 80];
    int rc = live_run(t, 3, words);

    if (rc != -ECONNRESET && rc != -ESTALE)
        return rc;
    (void)snprintf(why, sizeof(why), "%s", err_text());
    return err_set(rc, "plugin %s could not be loaded: %s", name, why);
}

static int load(struct target *t, const char *word)
{
    char name[64], file[4096], note[ERR_TEXT_BYTES];
    const char *const words[] = {"plugin", "load", word};

    if (t->there != NULL) { /* for `performance`; the command itself runs there as a whole */
        int done = remote_command(t, 3, words);
        if (done == 0)
            printf("plugin %s loaded\n", word);
        return done;
    }
    int rc = plugin_file(word, name, sizeof(name), file, sizeof(file));

    if (rc == -ENOENT && strchr(word, '/') == NULL) {
        rc = load_there(t, word); /* we have none: the target's own path may */
        return rc == -ENOENT ? installed_plugin_near(word, rc) : rc;
    }
    if (rc < 0)
        return rc;
    if (t->host[0] != '\0') /* a remote process may load only what is in its own plugin path */
        return load_there(t, name);
    rc = upload_plugin(t, name, file, note, sizeof(note));
    if (rc == -EALREADY && strchr(word, '/') == NULL) { /* a file may be another one */
        printf("plugin %s is loaded already\n", name);
        return EXIT_DONE;
    }
    if (rc < 0)
        return rc;
    printf("plugin %s loaded%s%s\n", name, note[0] != '\0' ? ": " : "", note);
    return EXIT_DONE;
}

static int check(int argc, char **argv)
{
    char name[64], file[4096];

    if (argc == 3 && strcmp(argv[2], "--inside") == 0)
        return plugin_check_inside();
    bool program = argc > 4 && strcmp(argv[3], "--") == 0;
    if (argc != 3 && !program)
        return cli_misuse(
            err_set(-EINVAL, "plugin check needs a file: plugin check FILE [-- PROGRAM ...]"));
    int rc = plugin_file(argv[2], name, sizeof(name), file, sizeof(file));
    return rc < 0 ? rc : plugin_check(name, file, program ? argv + 4 : NULL);
}

static int stop(struct target *t, const char *name)
{
    const char *words[] = {"plugin", "stop", name};
    return live_run(t, 3, words);
}

/* In their order, up to the first that fails. */
static int each(struct target *t, int n, char **names,
                int (*act)(struct target *t, const char *name))
{
    struct probing_client *probe = NULL; /* says first, in one line, when nobody is there */
    int rc = 0;

    if (t->kind != TARGET_LIVE)
        return target_connect(t, &probe);
    for (int i = 0; i < n && rc == 0; i++)
        rc = act(t, names[i]);
    return rc;
}

int command_plugin(struct target *t, int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "check") == 0)
        return check(argc, argv);
    if (t->kind == TARGET_NONE)
        return cli_misuse(err_set(-EINVAL,
                                  "plugin needs a target: probing -t <pid> plugin %s (`probing "
                                  "list` shows processes with a core)",
                                  argc > 1 ? argv[1] : "list"));
    /* `load NAME PATH` is the core's own, of a file there. */
    bool by_path = argc == 4 && strchr(argv[2], '/') == NULL && strchr(argv[3], '/') != NULL;
    if (argc >= 3 && strcmp(argv[1], "load") == 0 && !by_path)
        return each(t, argc - 2, argv + 2, load);
    if (argc > 3 && strcmp(argv[1], "stop") == 0)
        return each(t, argc - 2, argv + 2, stop);
    return command_forward(t, argc, argv);
}

/* ---- `performance`: the name that plugins profile and torch had before ---- */

struct wanted {
    bool cc, torch;
};

static int take_wanted(void *arg, const char *option, const char *value)
{
    struct wanted *w = arg;
    if (option == NULL)
        return err_set(-EINVAL, "performance takes --cc or --torch, not '%s'", value);
    w->cc = w->cc || strcmp(option, "--cc") == 0;
    w->torch = w->torch || strcmp(option, "--torch") == 0;
    return 0;
}

static int load_wanted(struct target *t, const char *plugin, const char *then)
{
    char *words[] = {(char *)(uintptr_t) "plugin", (char *)(uintptr_t) "load",
                     (char *)(uintptr_t)plugin, NULL};
    bool runs = t->kind == TARGET_LIVE && answer_plugin_runs(t, plugin);
    int rc = runs ? EXIT_DONE : command_plugin(t, 3, words);
    if (runs)
        printf("plugin %s is loaded already\n", plugin);
    if (rc == EXIT_DONE)
        printf("look at it with: probing -t %s %s\n", t->text, then);
    return rc;
}

int command_performance(struct target *t, int argc, char **argv)
{
    struct wanted w = {.cc = false};
    int rc = cli_parse(argc, argv, take_wanted, &w);

    if (rc == 0 && !w.cc && !w.torch)
        rc = err_set(-EINVAL, "performance needs --cc (C, C++ and Python code) or --torch");
    if (rc == 0 && w.cc)
        rc = load_wanted(t, "profile", "flamegraph --last 1m -o out.html");
    if (rc == 0 && w.torch)
        rc = load_wanted(t, "torch", "torch");
    return rc;
}
