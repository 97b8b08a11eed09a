/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/list.c - `list`: processes with a core, and dead ones that left data.
 *
 * One thread.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/backtrace/backtrace_crash.h"
#include "cli/commands/commands.h"
#include "cli/target/auth_token.h"
#include "cli/target/core_lookup.h"
#include "cli/target/datadir.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/json.h"

#define JSON_LINE_BYTES 16384

struct listing {
    uint32_t shown;
    bool dead, json;
};

static void print_row(struct listing *l, const char *pid, const char *version,
                      const char *directory, const char *command)
{
    char shown[3][4200];

    if (l->shown == 0)
        printf("%8s  %-8s  %-40s  %s\n", "pid", "version", "data", "command");
    printf("%8s  %-8s  %-40s  %s\n", pid, terminal_field(shown[0], sizeof(shown[0]), version),
           terminal_field(shown[1], sizeof(shown[1]), directory),
           terminal_field(shown[2], sizeof(shown[2]), command));
}

/* Add a note behind the command: whose it is, where it is not ours, and what came of it. */
static void add_note(char *command, size_t size, const char *format, ...)
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
        add_note(c->command, size, "  (page: %s)", c->page);
    if (c->uid != geteuid())
        add_note(c->command, size, "  (uid %u)", (unsigned)c->uid);
    if (c->crash[0] != '\0')
        add_note(c->command, size, "  (crashed: %s)", c->crash);
    if (c->why[0] != '\0')
        add_note(c->command, size, "  (%s)", c->why);
    print_row(l, number, c->version[0] != '\0' ? c->version : "?", c->directory, c->command);
}

#define COMMAND_SHOWN 128 /* bytes: the rest of the line is for notes */

static void list_directory(struct listing *l, pid_t pid, const struct datadir *d,
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

static int list_living_one(void *arg, pid_t pid, const char *directory)
{
    const char *inside = strstr(directory, "/root/");
    struct datadir d;

    if (datadir_open(directory, DATADIR_ANY, &d) == 0)
        list_directory(arg, pid, &d, inside != NULL ? inside + 5 : directory);
    datadir_close(&d);
    return 0;
}

static int list_living(struct listing *l)
{
    int rc = directory_each_living(list_living_one, l);

    if (rc == 0 && l->shown == 0 && !l->json)
        puts("no process of yours has a probing core in it; enter one with: probing -t <pid> "
             "inject");
    return rc < 0 ? rc : EXIT_DONE;
}

static int list_dead_one(void *arg, const struct datadir *d)
{
    pid_t pid;

    if (!directory_alive(d, &pid) && !directory_held(d))
        list_directory(arg, pid, d, d->path);
    return 0;
}

static int parse_option(void *arg, const char *option, const char *value)
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
    int rc = cli_parse(argc, argv, parse_option, &l);

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
