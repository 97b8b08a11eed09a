/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/list.c - which processes have a core in them, which dead ones left data, and taking
 * that away.
 *
 * One thread.
 */

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <probing/client.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/commands/backtrace_crash.h"
#include "cli/commands/commands.h"
#include "cli/target/apart.h"
#include "cli/target/auth_token.h"
#include "cli/target/core_lookup.h"
#include "cli/target/datadir.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/json.h"
#include "sdk/lib/proc/proc_file.h"

#define JSON_LINE_BYTES 16384

struct listing {
    uint32_t shown;
    bool dead, json;
};

static void line(struct listing *l, const char *pid, const char *version, const char *directory,
                 const char *command)
{
    char shown[3][4200];

    if (l->shown == 0)
        printf("%8s  %-8s  %-40s  %s\n", "pid", "version", "data", "command");
    printf("%8s  %-8s  %-40s  %s\n", pid, terminal_field(shown[0], sizeof(shown[0]), version),
           terminal_field(shown[1], sizeof(shown[1]), directory),
           terminal_field(shown[2], sizeof(shown[2]), command));
}

/* Add a note behind the command: whose it is, where it is not ours, and what came of it. */
static void note(char *command, size_t size, const char *format, ...)
{
    va_list args;
    size_t n = strlen(command);
    va_start(args, format);
    (void)vsnprintf(command + n, size - n, format, args);
    va_end(args);
}

struct core_line {
    pid_t pid;
    uid_t uid;
    const char *directory;
    char version[32], command[256], crash[32], why[96], page[96];
};

/* One process as a line of JSON; what is not known is null. */
static void json_line(const struct core_line *c)
{
    struct buf b;

    buf_init(&b, JSON_LINE_BYTES);
    (void)buf_addc(&b, '{');
    json_add_member_int(&b, "pid", c->pid, 0);
    json_add_member_text(&b, "version", c->version);
    json_add_member_text(&b, "directory", c->directory);
    json_add_member_text(&b, "page", c->page);
    json_add_member_text(&b, "command", c->command);
    json_add_member_text(&b, "crash", c->crash);
    json_add_member_text(&b, "why", c->why);
    (void)buf_addf(&b, "\"uid\": %u}\n", (unsigned)c->uid);
    if (!b.failed)
        (void)fwrite(buf_text(&b), 1, b.size, stdout);
    else
        terminal_say("process %d: its line is too long", (int)c->pid);
    buf_done(&b);
}

static void text_line(struct listing *l, struct core_line *c)
{
    char number[16];
    const size_t size = sizeof(c->command);

    (void)snprintf(number, sizeof(number), "%d", (int)c->pid);
    if (c->command[0] == '\0')
        (void)snprintf(c->command, size, "?");
    if (c->page[0] != '\0')
        note(c->command, size, "  (page: %s)", c->page);
    if (c->uid != geteuid())
        note(c->command, size, "  (uid %u)", (unsigned)c->uid);
    if (c->crash[0] != '\0')
        note(c->command, size, "  (crashed: %s)", c->crash);
    if (c->why[0] != '\0')
        note(c->command, size, "  (%s)", c->why);
    line(l, number, c->version[0] != '\0' ? c->version : "?", c->directory, c->command);
}

#define COMMAND_SHOWN 128 /* bytes: the rest of the line is for notes */

static void describe(struct listing *l, pid_t pid, const struct datadir *d,
                     const char *shown_directory)
{
    struct core_line c = {.pid = pid, .uid = d->owner, .directory = shown_directory};

    (void)directory_info(d, "version", c.version, sizeof(c.version));
    int rc = directory_info(d, "command", c.command, COMMAND_SHOWN);
    if (rc == -EBADMSG)
        (void)snprintf(c.why, sizeof(c.why), "info is damaged");
    else if (rc < 0 && rc != -ENOENT)
        (void)snprintf(c.why, sizeof(c.why), "%s", err_why(rc));
    if (!crash_of(d, c.crash, sizeof(c.crash)))
        c.crash[0] = '\0';
    if (!l->dead)
        page_read(d, c.page, sizeof(c.page));
    if (l->json)
        json_line(&c);
    else
        text_line(l, &c);
    l->shown++;
}

static int list_living(struct listing *l)
{
    struct proc_numbers all;
    struct proc_number one;
    int rc = proc_numbers_open(&all, "/proc");

    if (rc < 0)
        return err_set(rc, "cannot read /proc: %s", strerror(-rc));
    while (rc == 0 && !cli_interrupted && proc_numbers_next(&all, &one)) {
        pid_t pid = (pid_t)one.value;
        char directory[4096];
        int r = directory_of(pid, directory, sizeof(directory));
        rc = apart_pass_over(pid, r, "it is left out");
        if (r == 0) {
            char *inside = strstr(directory, "/root/");
            struct datadir d;
            if (datadir_open(directory, DATADIR_ANY, &d) == 0)
                describe(l, pid, &d, inside != NULL ? inside + 5 : directory);
            datadir_close(&d);
        }
    }
    proc_numbers_close(&all);
    if (rc == 0 && l->shown == 0 && !l->json)
        puts("no process of yours has a probing core in it; enter one with: probing -t <pid> "
             "inject");
    return rc < 0 ? rc : EXIT_DONE;
}

static int list_dead_one(void *arg, const struct datadir *d)
{
    pid_t pid;

    if (!directory_alive(d, &pid) && !directory_held(d))
        describe(arg, pid, d, d->path);
    return 0;
}

static int take_list(void *arg, const char *option, const char *value)
{
    struct listing *l = arg;

    if (option == NULL)
        return err_set(-EINVAL, "list takes no argument '%s'", value);
    if (strcmp(option, "--json") == 0)
        l->json = true;
    else
        l->dead = true; /* --dead */
    return 0;
}

int command_list(struct target *t, int argc, char **argv)
{
    struct listing l = {0};
    int rc = cli_parse(argc, argv, take_list, &l);

    (void)t;
    if (rc < 0)
        return rc;
    if (!l.dead)
        return list_living(&l);
    if ((rc = directory_each(list_dead_one, &l, /* says= */ true)) < 0)
        return rc;
    if (l.shown == 0 && !l.json)
        puts("there is no data of ended processes");
    return EXIT_DONE;
}

/* ---- ui ---- */

/* The page of a core on this machine, "": it has none; of another machine what the user wrote. */
static int find_page(const struct target *t, char *ret, size_t size)
{
    struct datadir d;

    if (t->directory[0] == '\0') {
        const char *form = strchr(t->host, ':') != NULL ? "http://[%s]:%u/" : "http://%s:%u/";
        (void)snprintf(ret, size, form, t->host, (unsigned)t->port);
        return 0;
    }
    int rc = datadir_open(t->directory, DATADIR_ANY, &d);
    if (rc == 0)
        page_read(&d, ret, size);
    datadir_close(&d);
    return rc;
}

static int print_page(const struct target *t, const char *page)
{
    char token[TOKEN_BYTES] = "";
    const char *given = getenv("PROBING_TOKEN");

    if (page[0] == '\0')
        return err_set(-ENOENT,
                       "process %d has no page, because it does not listen on TCP; to open one on "
                       "this machine: probing -t %d ui --open",
                       (int)t->pid, (int)t->pid);
    int rc = t->directory[0] != '\0' ? token_read(t->directory, token) : 0;
    if (rc < 0)
        return rc;
    if (t->directory[0] == '\0' && given != NULL)
        (void)snprintf(token, sizeof(token), "%s", given);
    printf("%s%s%s\n", page, token[0] != '\0' ? "?token=" : "", token);
    return EXIT_DONE;
}

static int take_ui(void *arg, const char *option, const char *value)
{
    if (option == NULL)
        return err_set(-EINVAL, "ui takes no argument '%s'", value);
    *(bool *)arg = true; /* --open */
    return 0;
}

int command_ui(struct target *t, int argc, char **argv)
{
    static const char *const words[] = {"config", "set", "server.listen", "127.0.0.1:0"};
    bool open = false;
    char page[300] = "";
    struct probing_client *c = NULL;
    struct buf said;
    int rc = cli_parse(argc, argv, take_ui, &open);

    if (rc == 0 && (open || (t->kind != TARGET_LIVE && !t->stopped)))
        rc = target_connect(t, &c); /* it says why not */
    if (rc == 0)
        rc = find_page(t, page, sizeof(page));
    buf_init(&said, JSON_LINE_BYTES);
    if (rc == 0 && open && page[0] == '\0' && (rc = client_command(c, 4, words, &said)) == 0)
        rc = find_page(t, page, sizeof(page));
    buf_done(&said);
    probing_client_free(c);
    return rc < 0 ? rc : print_page(t, page);
}

/* ---- gc ---- */

#define RESUME_S 60 /* by then a core that goes on with a directory has it open */

struct sweep {
    const char *only; /* the root that PROBING_DATA_DIR names; NULL: all of the user's */
    uint64_t older_ns;
    uint32_t removed, kept;
    bool json;
    int failed;
};

/* Does a core hold this directory that has no socket, because it starts or ends just now? */
static bool in_use(const struct datadir *d)
{
    char mapped[4096] = "";
    uint64_t pid, started, now;

    if (!directory_named(d, &pid, &started) || pid > INT32_MAX ||
        proc_start_time((pid_t)pid, &now) < 0 || now != started)
        return false;
    /* It is being made, or is gone on with just now: a core touches it first. */
    if (!datadir_has(d, "info", NULL) || time(NULL) - d->changed.tv_sec < RESUME_S)
        return true;
    (void)directory_of((pid_t)pid, mapped, sizeof(mapped)); /* found, even without socket */
    const char *slash = strrchr(mapped, '/');
    return slash != NULL && strcmp(slash + 1, d->leaf) == 0;
}

/* `list` shows directories in other roots, too; they are taken away only when no root is named. */
static bool is_below(const char *root, const char *path)
{
    size_t n = strlen(root);
    while (n > 1 && root[n - 1] == '/')
        n--;
    return strncmp(path, root, n) == 0 && path[n] == '/';
}

static int sweep_one(void *arg, const struct datadir *d)
{
    struct sweep *s = arg;
    pid_t pid;

    if (s->only && !is_below(s->only, d->path))
        return 0;
    if (directory_alive(d, &pid) || (d->owner != geteuid() && geteuid() != 0))
        return 0;
    uint64_t age_ns =
        (uint64_t)(time(NULL) > d->changed.tv_sec ? time(NULL) - d->changed.tv_sec : 0) *
        UINT64_C(1000000000);
    if (age_ns < s->older_ns || in_use(d) || directory_held(d)) {
        s->kept++;
        return 0;
    }
    int rc = datadir_remove(d);
    if (rc < 0) {
        terminal_say("%s", err_why(rc));
        s->failed = rc;
    } else {
        s->removed++;
    }
    return 0;
}

static int take_gc(void *arg, const char *option, const char *value)
{
    struct sweep *s = arg;
    uint64_t days = 0;

    if (option == NULL)
        return err_set(-EINVAL, "gc takes no argument '%s'", value);
    if (strcmp(option, "--json") == 0) {
        s->json = true;
        return 0;
    }
    if (parse_u64(value, &days) == 0 && days <= 36500) { /* --older */
        s->older_ns = days * UINT64_C(86400000000000);
        return 0;
    }
    if (parse_ns(value, &s->older_ns) < 0)
        return err_set(-EINVAL, "--older is a number of days, or a time like 7d or 12h, not '%s'",
                       value);
    return 0;
}

int command_gc(struct target *t, int argc, char **argv)
{
    const char *named = getenv("PROBING_DATA_DIR");
    struct sweep s = {.only = named && named[0] == '/' ? named : NULL};
    int rc = cli_parse(argc, argv, take_gc, &s);

    (void)t;
    if (rc < 0)
        return rc;
    rc = directory_each(sweep_one, &s, /* says= */ true);
    if (s.json) {
        struct buf b;
        buf_init(&b, JSON_LINE_BYTES);
        (void)buf_addc(&b, '{');
        json_add_member_text(&b, "below", s.only ? s.only : "");
        json_add_member_int(&b, "removed", s.removed, -1);
        (void)buf_addf(&b, "\"kept\": %u}\n", s.kept);
        fputs(buf_text(&b), stdout);
        buf_done(&b);
        return rc < 0 ? rc : s.failed < 0 ? EXIT_FAILED : EXIT_DONE;
    }
    printf("%u data directories removed, %u kept", s.removed, s.kept);
    if (s.only)
        printf(" (below %s, which PROBING_DATA_DIR names)", s.only);
    putchar('\n');
    return rc < 0 ? rc : s.failed < 0 ? EXIT_FAILED : EXIT_DONE;
}
