/* SPDX-License-Identifier: Apache-2.0
 *
 * core/builtin/builtin.c - built-in commands that need more than the host: SQL, plugins,
 * settings, eject.
 *
 * Threads: workers.  A command reads its words strictly: what it does not know is an error that
 * names the nearest it does.
 */
#include "core/builtin/builtin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/redact.h"
#include "core/base/text.h"
#include "core/crash/crash.h"
#include "core/guest/owned_signals.h"
#include "core/plugin_host/plugin_host.h"
#include "core/server/server.h"
#include "core/sql/sql.h"

#define SQL_MAX_BYTES ((size_t)1 << 20)
#define WIDTH_MAX 10000

enum { TAKES_FORMAT = 1, TAKES_LIMITS = 2 };

struct args {
    enum sql_format format;
    uint32_t width;
    uint64_t limit, timeout_ns;
    uint64_t from_row, to_row; /* of the tables' rows by number, 0: all */
    int n;
    const char *const *rest; /* what is not an option; options come first */
};

static int option_value(struct args *w, const char *option, const char *value)
{
    uint64_t n;
    int rc;

    if (strcmp(option, "--format") == 0)
        return sql_format_parse(value, &w->format);
    if (strcmp(option, "--timeout") == 0)
        return parse_ns(value, &w->timeout_ns);
    rc = parse_u64(value, &n);
    if (rc < 0)
        return err_set(rc, "%s must be a number, not '%.40s'", option, value);
    uint64_t *number = strcmp(option, "--limit") == 0      ? &w->limit
                       : strcmp(option, "--from-row") == 0 ? &w->from_row
                       : strcmp(option, "--to-row") == 0   ? &w->to_row
                                                           : NULL;
    if (number) {
        *number = n;
        return 0;
    }
    if (n > WIDTH_MAX)
        return err_set(-ERANGE, "--width is 0 to %d columns", WIDTH_MAX);
    w->width = (uint32_t)n;
    return 0;
}

static int read_args(int argc, const char *const *argv, int takes, struct args *ret)
{
    static const char *const options[] = {"--format",  "--width",    "--limit",
                                          "--timeout", "--from-row", "--to-row"};
    size_t n_options = takes & TAKES_LIMITS ? 6 : takes & TAKES_FORMAT ? 2 : 0;
    int i = 1;

    *ret = (struct args){.format = SQL_FORMAT_TABLE};
    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        char name[32];
        size_t length = strcspn(argv[i], "=");
        const char *value = argv[i][length] ? argv[i] + length + 1 : NULL;
        bool known = false;
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        (void)snprintf(name, sizeof(name), "%.*s", (int)length, argv[i]);
        for (size_t k = 0; k < n_options; k++)
            known = known || strcmp(name, options[k]) == 0;
        if (!known) {
            const char *near = text_nearest(name, options, n_options);
            return near ? err_set(-EINVAL, "'%s' has no option '%s'; did you mean '%s'?", argv[0],
                                  name, near)
                        : err_set(-EINVAL, "'%s' has no option '%s'", argv[0], name);
        }
        if (!value && i + 1 < argc)
            value = argv[++i];
        if (!value)
            return err_set(-EINVAL, "%s needs a value", name);
        int rc = option_value(ret, name, value);
        if (rc < 0)
            return rc;
    }
    ret->n = argc - i;
    ret->rest = argv + i;
    return 0;
}

static int no_more(const struct args *w, int most, const char *usage)
{
    if (w->n > most)
        return err_set(-EINVAL, "unexpected argument '%.60s': %s", w->rest[most], usage);
    return 0;
}

/* ---- SQL ---- */

static int to_reply(void *arg, const char *data, size_t size)
{
    struct probing_reply *out = arg;
    return out->write(out, data, size);
}

/* set NAME = VALUE, by who may change settings. */
static int set_by_query(void *arg, const char *name, const char *value)
{
    struct core *c = arg;
    struct buf shown;
    int rc = host_config_set(c->host, name, value);
    buf_init(&shown, 2 * SQL_MAX_BYTES);
    (void)secret_show(name, strlen(name), value, &shown);
    if (rc >= 0)
        host_log(c->host, PROBING_INFO, "a query has set %s = %s", name, buf_text(&shown));
    buf_done(&shown);
    return rc < 0 ? rc : 0;
}

static void log_stopped(struct core *c, int code, const char *text, size_t size)
{
    struct buf shown;

    buf_init(&shown, 2 * SQL_MAX_BYTES);
    (void)secret_text(text, size, &shown);
    host_log(c->host, PROBING_WARN, "a query was stopped: %s: %.300s", err_why(code),
             buf_text(&shown));
    buf_done(&shown);
}

static int answer_sql(struct core *c, const char *text, size_t size, const struct args *w,
                      struct probing_reply *out)
{
    struct sql_options o = {.timeout_ns = w->timeout_ns,
                            .max_rows = w->limit,
                            .from_row = w->from_row,
                            .to_row = w->to_row,
                            .cancel = &out->cancelled,
                            .hide_secrets = out->read_only,
                            .set = out->read_only ? NULL : set_by_query,
                            .set_arg = c};
    struct sql_report report = {0};
    struct sql_writer *writer = NULL;

    if (w->format == SQL_FORMAT_ARROW && !out->takes_bytes)
        return err_set(-EINVAL, "arrow is bytes, and this way carries text only; ask by HTTP "
                                "(/query?format=arrow) or with the command probing");
    int rc = sql_writer_new(w->format, w->width, to_reply, out, &writer);
    if (rc < 0)
        return rc;
    out->clean = true;
    if (w->format == SQL_FORMAT_ARROW)
        out->media_type = SQL_ARROW_TYPE;
    struct sql_sink sink = sql_writer_sink(writer);
    rc = sql_run(c->sql, text, size, &o, &sink, &report);
    out->ending = true;
    if (rc == 0)
        rc = sql_writer_finish(writer, &report);
    sql_writer_free(writer);
    if (rc == -ETIMEDOUT || rc == -ETIME || rc == -ENOMEM)
        log_stopped(c, rc, text, size);
    if (rc == 0)
        sql_report_note(&report, w->format, out->note, sizeof(out->note));
    return rc;
}

static int run_query(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct buf text;
    struct args w;

    int rc = read_args(argc, argv, TAKES_LIMITS, &w);
    if (rc < 0)
        return rc;
    if (w.n == 0)
        return err_set(-EINVAL, "query needs a statement: query \"select * from probing.tables\"");
    buf_init(&text, SQL_MAX_BYTES);
    for (int i = 0; i < w.n; i++) {
        if (i > 0)
            (void)buf_addc(&text, ' ');
        (void)buf_adds(&text, w.rest[i]);
    }
    rc = text.failed ? err_set(-E2BIG, "the statement is longer than %zu bytes", SQL_MAX_BYTES)
                     : answer_sql(self, text.data, text.size, &w, out);
    buf_done(&text);
    return rc;
}

/* A command that is a statement. */
static int answer_listing(struct core *c, int argc, const char *const *argv,
                          struct probing_reply *out, const char *statement)
{
    struct args w;
    int rc = read_args(argc, argv, TAKES_FORMAT, &w);
    if (rc == 0)
        rc = no_more(&w, 0, "only --format and --width may follow");
    return rc < 0 ? rc : answer_sql(c, statement, strlen(statement), &w, out);
}

static int run_tables(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    return answer_listing(
        self, argc, argv, out,
        "select schema, name, kind, rows, bytes, lost, doc from probing.tables order by 1, 2");
}

static int run_plugin_list(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    return answer_listing(
        self, argc, argv, out,
        "select name, version, state, reason, doc from probing.plugins order by 1");
}

static int run_scripts(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    return answer_listing(self, argc, argv, out, "select * from probing.scripts order by 1");
}

static int run_describe(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    char statement[512];
    struct args w;

    int rc = read_args(argc, argv, TAKES_FORMAT, &w);
    if (rc == 0)
        rc = no_more(&w, 1, "describe TABLE");
    if (rc < 0)
        return rc;
    if (w.n == 0 || strlen(w.rest[0]) > 400 || strpbrk(w.rest[0], ";'\n"))
        return err_set(-EINVAL, "describe needs a table's name; 'tables' lists them");
    int n = snprintf(statement, sizeof(statement), "describe %s", w.rest[0]);
    return answer_sql(self, statement, (size_t)n, &w, out);
}

/* ---- plugins ---- */

/* "dir/probing_cuda.so" is plugin cuda. */
static void name_of_file(const char *path, char ret[64])
{
    const char *slash = strrchr(path, '/');
    const char *leaf = slash ? slash + 1 : path;
    if (strncmp(leaf, "probing_", 8) == 0)
        leaf += 8;
    (void)snprintf(ret, 64, "%.*s", (int)strcspn(leaf, "."), leaf);
}

static int say_done(struct core *c, const char *name, const char *what, struct probing_reply *out)
{
    struct buf note;

    buf_init(&note, 4096);
    host_plugin_note(c->host, name, &note);
    int rc =
        host_replyf(out, "plugin %s %s%s%s\n", name, what, note.size ? ": " : "", buf_text(&note));
    buf_done(&note);
    return rc;
}

static int run_plugin_load(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct core *c = self;
    struct args w;
    char name[64];
    const char *path = NULL;

    int rc = read_args(argc, argv, 0, &w);
    if (rc == 0)
        rc = no_more(&w, 2, "plugin load NAME [PATH]");
    if (rc < 0)
        return rc;
    if (w.n == 0)
        return err_set(-EINVAL, "plugin load needs a name: plugin load NAME [PATH]");
    if (w.n == 1 && strchr(w.rest[0], '/')) {
        path = w.rest[0];
        name_of_file(path, name);
    } else {
        (void)snprintf(name, sizeof(name), "%s", w.rest[0]);
        path = w.n == 2 ? w.rest[1] : NULL;
    }
    if (path && out->remote)
        return err_set(
            -EACCES,
            "a TCP client may load plugins from the process's own plugin path only, not the file "
            "'%.80s'; use plugin load NAME, or load the file from its own machine",
            path);
    rc = host_plugin_load(c->host, name, path, /* fd= */ -1);
    return rc < 0 ? rc : say_done(c, name, "runs", out);
}

static int run_plugin_stop(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct core *c = self;
    struct args w;

    int rc = read_args(argc, argv, 0, &w);
    if (rc == 0)
        rc = no_more(&w, 1, "plugin stop NAME");
    if (rc < 0)
        return rc;
    if (w.n == 0)
        return err_set(-EINVAL, "plugin stop needs a name; plugin list shows them");
    rc = host_plugin_stop(c->host, w.rest[0]);
    return rc < 0 ? rc : say_done(c, w.rest[0], "has stopped", out);
}

/* ---- settings ---- */

static int config_print(struct core *c, const char *name, struct probing_reply *out)
{
    struct buf value;
    buf_init(&value, 8192);
    int rc = host_config_get(c->host, name, &value);
    bool hidden = rc >= 0 && value.size > 0 && secret_name(name, strlen(name));
    if (rc >= 0) /* also to who may only read */
        rc = host_replyf(out, "%s\n", hidden ? SECRET_SHOWN : buf_text(&value));
    buf_done(&value);
    return rc;
}

static int run_config_get(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct args w;
    int rc = read_args(argc, argv, 0, &w);
    if (rc == 0)
        rc = no_more(&w, 1, "config get NAME");
    if (rc < 0)
        return rc;
    if (w.n == 0)
        return err_set(-EINVAL, "config get needs a name; 'config' lists them");
    return config_print(self, w.rest[0], out);
}

static int config_change(struct core *c, const char *name, const char *value,
                         struct probing_reply *out)
{
    char own[HOST_SETTING_BYTES];
    int rc = host_config_set(c->host, name, value);
    if (rc < 0)
        return rc;
    if (secret_name(name, strlen(name)))
        value = SECRET_SHOWN;
    if (rc == 1 && strncmp(name, "table.", 6) == 0)
        return host_replyf(out, "%s=%s (there is no such table yet)\n", name, value);
    name = host_config_name(c->host, name, own);
    if (rc == 1)
        return host_replyf(out, "%s=%s (kept until plugin %.*s is loaded)\n", name, value,
                           (int)strcspn(name, "."), name);
    if (strcmp(name, "server.listen") == 0 && value[0] && c->server)
        return host_replyf(out, "%s=%s\n", name, server_address(c->server));
    return host_replyf(out, "%s=%s\n", name, value);
}

static int run_config_set(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct args w;
    char name[160];

    int rc = read_args(argc, argv, 0, &w);
    if (rc == 0)
        rc = no_more(&w, 2, "config set NAME VALUE");
    if (rc < 0)
        return rc;
    const char *equals = w.n == 1 ? strchr(w.rest[0], '=') : NULL;
    if (w.n == 2)
        return config_change(self, w.rest[0], w.rest[1], out);
    if (!equals || (size_t)(equals - w.rest[0]) >= sizeof(name))
        return err_set(-EINVAL, "config set needs NAME VALUE");
    (void)snprintf(name, sizeof(name), "%.*s", (int)(equals - w.rest[0]), w.rest[0]);
    return config_change(self, name, equals + 1, out);
}

static int run_config(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct args w;
    int rc = read_args(argc, argv, TAKES_FORMAT, &w);
    if (rc == 0)
        rc = no_more(&w, 1, "config [NAME | NAME=VALUE | get NAME | set NAME VALUE]");
    if (rc < 0)
        return rc;
    if (w.n == 1)
        return config_print(self, w.rest[0], out);
    return answer_listing(
        self, argc, argv, out,
        "select name, value, \"default\", unit, doc from probing.settings order by 1");
}

/* ---- the core ---- */

static int run_info(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct core *c = self;
    struct args w;

    int rc = read_args(argc, argv, 0, &w);
    if (rc == 0)
        rc = no_more(&w, 0, "info takes no arguments");
    if (rc < 0)
        return rc;
    const char *address = c->server ? server_address(c->server) : "";
    return host_replyf(out, "pid: %d\nversion: %s\ndata: %s\nmemory: %s\nlistening: %s\n",
                       (int)getpid(), c->version, c->place.directory,
                       c->place.fast[0] ? c->place.fast : "(in data)",
                       address[0] ? address : "(local socket only)");
}

static int run_eject(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct core *c = self;
    char why[ERR_TEXT_BYTES / 2];
    struct args w;

    bool force = argc > 1 && strcmp(argv[1], "--force") == 0;
    int rc = read_args(argc - (force ? 1 : 0), argv + (force ? 1 : 0), 0, &w);
    if (rc == 0)
        rc = no_more(&w, 0, "eject [--force]");
    if (rc == 0)
        rc = host_leave(c->host, out);
    if (rc < 0)
        return rc;
    /* Now, while a reason against it can still be answered. */
    rc = host_plugins_stop(c->host, force);
    if (rc < 0) {
        host_stay(c->host);
        (void)snprintf(why, sizeof(why), "%s", err_why(rc));
        return err_set(rc,
                       "%s; every plugin runs on and the core stays; eject --force leaves all the "
                       "same",
                       why);
    }
    struct buf names, stay, kept;
    buf_init(&names, 4096);
    buf_init(&stay, 4096);
    buf_init(&kept, 4096);
    /* Now, so that the answer can say which signals have to stay. */
    if (c->crash)
        (void)crash_switch(c->crash, false);
    host_stack_off(c->host);
    (void)signals_kept(&kept);
    c->stop(c->stop_arg); /* which waits for this command's end */
    uint32_t n = host_plugins_inside(c->host, &names);
    uint32_t n_stay = host_plugins_staying(c->host, &stay);
    rc = host_replyf(out,
                     "ejected; what was measured stays in %s\n"
                     "the code of probing stays mapped and idle: a thread may still be about to "
                     "return into it\n",
                     c->place.directory);
    if (rc == 0 && kept.size > 0)
        rc = host_replyf(out, "%s", buf_text(&kept));
    if (n > 0 && rc == 0)
        rc = host_replyf(out,
                         "a thread is still inside plugin %s, which has not returned; it is called "
                         "plugin-left\n",
                         buf_text(&names));
    if (n_stay > 0 && rc == 0)
        rc = host_replyf(out, "plugin %s refused to stop: its threads and hooks stay as they are\n",
                         buf_text(&stay));
    buf_done(&names);
    buf_done(&stay);
    buf_done(&kept);
    return rc;
}

#define COMMAND(n, u, d, f, r)                                                               \
    {                                                                                        \
        .size = sizeof(struct probing_command), .flags = f, .name = n, .usage = u, .doc = d, \
        .run = r                                                                             \
    }
#define THROUGH (HOST_URGENT | HOST_LASTS) /* it must get through, and may take a while */
#define LISTS "[--format table|expanded|json|jsonl|csv|arrow] [--width N]"

int commands_add(struct core *c)
{
    static const struct probing_command commands[] = {
        COMMAND(
            "query", LISTS " [--limit N] [--timeout TIME] [--from-row N] [--to-row N] SQL",
            "query the tables in SQL; --from-row and --to-row (exclusive): their rows by number", 0,
            run_query),
        COMMAND("tables", LISTS, "tables, their rows and bytes", 0, run_tables),
        COMMAND("describe", LISTS " TABLE", "columns of a table with their units", 0, run_describe),
        COMMAND("plugin list", LISTS, "plugins and their states", THROUGH, run_plugin_list),
        COMMAND("plugins", LISTS, "the same as plugin list", THROUGH, run_plugin_list),
        COMMAND("plugin load", "NAME [PATH]", "load a plugin by name, or from a file",
                PROBING_WRITES, run_plugin_load),
        COMMAND("plugin stop", "NAME", "stop a plugin; its rows stay", PROBING_WRITES | THROUGH,
                run_plugin_stop),
        COMMAND("config", LISTS " [NAME]", "list settings or show one", THROUGH, run_config),
        COMMAND("config list", LISTS, "list settings", THROUGH, run_config),
        COMMAND("config get", "NAME", "show one setting", THROUGH, run_config_get),
        COMMAND("config set", "NAME VALUE", "change a setting", PROBING_WRITES | THROUGH,
                run_config_set),
        COMMAND("config =", "NAME=VALUE", "change a setting", PROBING_WRITES | THROUGH,
                run_config_set),
        COMMAND("scripts", LISTS, "probe scripts and their states", THROUGH, run_scripts),
        COMMAND("info", "", "process, version, data directory, address", HOST_URGENT, run_info),
        COMMAND("eject", "[--force]",
                "leave the process: threads, sockets and hooks of probing are removed; --force: "
                "also where a plugin refuses to stop, which then stays",
                PROBING_WRITES | THROUGH, run_eject),
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]) && rc == 0; i++)
        rc = host_command_add(c->host, "probing", &commands[i], c);
    return rc;
}
