/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/plugin_door.c - how a plugin's file gets into the target.
 *
 * It is sent as an open descriptor through the data directory's `door`, so it loads into a
 * container that has no such file.  One thread.
 */
#include "cli/target/plugin_door.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/inject/starved.h"
#include "cli/link/pass_descriptors.h"
#include "cli/target/core_lookup.h"
#include "cli/target/target.h"
#include "cli/terminal/interrupt.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/crash/crash.h"
#include "core/datadir/datadir.h"
#include "core/guest/headroom.h"
#include "core/plugin_file/sealed_copy.h"
#include "sdk/client/door.h"

#define UPLOAD_TIMEOUT_MS 30000 /* a plugin's start may wait for the GIL */

static int upload_send(int door, const char *words, int fd)
{
    int rc = pass_send(door, words, strlen(words), &fd, 1);

    return rc < 0 ? err_set(rc, "cannot send the plugin to the process: %s", strerror(-rc)) : 0;
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
static int explain_end(const struct client_process *p, const char *name)
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
        return explain_end(who, name);
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
