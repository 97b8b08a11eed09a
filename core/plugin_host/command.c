/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/command.c - the list of commands, and a request's way from a client's words to
 * done().
 *
 * Threads: host_submit() from any; commands run on workers (worker_pool.c), those of plugins on a
 * thread for which the worker waits (plugin_call.c).  A command of a plugin that has stopped stays
 * in the list and answers that it has stopped.
 */
#include <errno.h>
#include <probing/ext/draft/access.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "core/plugin_host/internal.h"

#define ARGUMENTS_MAX 256
#define ARGUMENT_MAX_BYTES ((size_t)4 << 20) /* a script's source is the longest */
#define COMMANDS_MAX 512
#define REPLY_LINE_BYTES 4096
#define BEGIN_NS (10 * NS_PER_S) /* who enters a process brings the first plugins by then */

struct command_job {
    struct job job;
    struct command *command; /* NULL: work() */
    int (*work)(struct probing_reply *r);
    void (*done)(struct probing_reply *r, int status, const char *error);
    int argc;
    const char *argv[]; /* then the bytes */
};

/* ---- the list ---- */

static struct command *find_named(struct host *h, const char *name)
{
    for (uint32_t i = 0; i < h->n_commands; i++)
        if (strcmp(h->commands[i]->name, name) == 0)
            return h->commands[i];
    return NULL;
}

static bool command_name_ok(const char *name)
{
    size_t n = name ? strlen(name) : 0;
    if (n == 0 || n >= HOST_NAME_BYTES || name[0] < 'a' || name[0] > 'z')
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-= ") == n;
}

static struct command *command_new(const char *owner, const struct probing_command *c)
{
    struct command *made = calloc(1, sizeof(*made));
    if (!made)
        return NULL;
    made->name = strdup(c->name);
    made->usage = strdup(c->usage ? c->usage : "");
    made->doc = strdup(c->doc ? c->doc : "");
    (void)snprintf(made->owner, sizeof(made->owner), "%s", owner);
    if (made->name && made->usage && made->doc)
        return made;
    free(made->name);
    free(made->usage);
    free(made->doc);
    free(made);
    return NULL;
}

static int add_locked(struct host *h, struct plugin *p, const char *owner,
                      const struct probing_command *c, void *self)
{
    struct command *found = find_named(h, c->name);
    if (found && strcmp(found->owner, owner) != 0)
        return err_set(-EEXIST, "command '%s' is %s's already", c->name, found->owner);
    if (!found) {
        if (h->n_commands >= COMMANDS_MAX)
            return err_set(-ENOSPC, "there are %d commands already", COMMANDS_MAX);
        struct command **grown =
            realloc(h->commands, (h->n_commands + 1) * sizeof(struct command *));
        if (!grown)
            return err_set(-ENOMEM, "no memory for command '%s'", c->name);
        h->commands = grown;
        found = command_new(owner, c);
        if (!found)
            return err_set(-ENOMEM, "no memory for command '%s'", c->name);
        h->commands[h->n_commands++] = found;
    }
    found->flags = p ? c->flags & ~(HOST_URGENT | HOST_LASTS) : c->flags; /* the core's own only */
    found->run = c->run;
    found->self = self;
    found->plugin = p;
    return 0;
}

int command_add(struct host *h, struct plugin *p, const char *owner,
                const struct probing_command *c, void *self)
{
    if (c->size < sizeof(struct probing_command))
        return err_set(-EINVAL, "a command of '%s' has size %u, not %zu: set .size", owner, c->size,
                       sizeof(struct probing_command));
    if (!command_name_ok(c->name) || !c->run)
        return err_set(-EINVAL, "a command of '%s' has a bad name or no run(): '%s'", owner,
                       c->name ? c->name : "(null)");
    (void)pthread_mutex_lock(&h->commands_lock);
    int rc = add_locked(h, p, owner, c, self);
    (void)pthread_mutex_unlock(&h->commands_lock);
    return rc;
}

int host_command_add(struct host *h, const char *owner, const struct probing_command *c, void *self)
{
    if (host_is_off(h))
        return -ESHUTDOWN;
    return command_add(h, NULL, owner, c, self);
}

void commands_free(struct host *h)
{
    for (uint32_t i = 0; i < h->n_commands; i++) {
        free(h->commands[i]->name);
        free(h->commands[i]->usage);
        free(h->commands[i]->doc);
        free(h->commands[i]);
    }
    free(h->commands);
}

static bool can_run(const struct command *c)
{
    return !c->plugin ||
           atomic_load_explicit(&c->plugin->state, memory_order_acquire) == PLUGIN_RUNNING;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct command *)a)->name, ((const struct command *)b)->name);
}

int host_commands(struct host *h, int (*fn)(void *arg, const struct probing_command *c), void *arg)
{
    int rc = 0;
    (void)pthread_mutex_lock(&h->commands_lock);
    uint32_t n = h->n_commands;
    struct command *sorted = calloc(n + 1, sizeof(struct command));
    for (uint32_t i = 0; sorted && i < n; i++)
        sorted[i] = *h->commands[i];
    (void)pthread_mutex_unlock(&h->commands_lock);
    if (!sorted)
        return err_set(-ENOMEM, "no memory to list commands");
    qsort(sorted, n, sizeof(struct command), by_name);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        struct probing_command c = {.size = sizeof(c),
                                    .flags = sorted[i].flags,
                                    .name = sorted[i].name,
                                    .usage = sorted[i].usage,
                                    .doc = sorted[i].doc};
        if (can_run(&sorted[i]))
            rc = fn(arg, &c);
    }
    free(sorted);
    return rc;
}

/* ---- which command do these words mean ---- */

/* Is a plugin on its way, of those that the core begins with or another?  What it brings is not
 * known yet then, or does not run. */
static bool plugin_comes(struct host *h, char ret[HOST_NAME_BYTES])
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    struct buf listed;
    bool comes = false;

    for (uint32_t i = 0; i < n && !comes; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        comes = plugin_state_of(p) == PLUGIN_LOADING || plugin_state_of(p) == PLUGIN_READY;
        (void)snprintf(ret, HOST_NAME_BYTES, "%s", comes ? p->name : "");
    }
    if (comes || clock_monotonic() - h->begun_ns > BEGIN_NS)
        return comes;
    buf_init(&listed, 4096);
    const char *at = host_config_get(h, "probing.plugins", &listed) >= 0 ? buf_text(&listed) : "";
    for (at += strspn(at, ", "); *at && !comes; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ", ");
        (void)snprintf(ret, HOST_NAME_BYTES, "%.*s", (int)length, at);
        comes = !plugin_find(h, ret);
        at += length;
    }
    buf_done(&listed);
    return comes;
}

/* Why there is no such command, or it does not run: `rc` and its words, or what passes. */
static int not_now(struct host *h, const char *word, int rc)
{
    char plugin[HOST_NAME_BYTES], why[ERR_TEXT_BYTES];

    if (workers_leaving(h))
        return err_set(-ESHUTDOWN, "the core is leaving this process");
    (void)snprintf(why, sizeof(why), "%s", err_text());
    if (!plugin_comes(h, plugin))
        return err_set(rc, "%s", why);
    return err_set(-EINPROGRESS,
                   "command '%.60s' is not known yet: plugin %s is on its way into the process; "
                   "ask again in a moment",
                   word, plugin);
}

static int refuse_unknown(struct host *h, const char *word, const char *second)
{
    const char *names[COMMANDS_MAX], *subs = NULL;
    char words[512] = "";
    uint32_t n = 0;
    size_t length = strlen(word), used = 0;

    for (uint32_t i = 0; i < h->n_commands; i++) {
        const char *name = h->commands[i]->name;
        names[n++] = name;
        if (strncmp(name, word, length) != 0 || name[length] != ' ' || name[length + 1] == '=')
            continue;
        subs = name;
        int added = snprintf(words + used, sizeof(words) - used, "%s%s", used ? ", " : "",
                             name + length + 1);
        used = added > 0 && used + (size_t)added < sizeof(words) ? used + (size_t)added : used;
    }
    if (subs && second)
        return err_set(-ENOENT, "'%s' has no subcommand '%.60s'; it has: %s", word, second, words);
    if (subs)
        return err_set(-EINVAL, "'%s' needs a subcommand: %s", word, words);
    const char *near = text_nearest(word, names, n);
    if (near)
        return err_set(-ENOENT, "unknown command '%.60s'; did you mean '%s'?", word, near);
    return err_set(-ENOENT,
                   "unknown command '%.60s'; 'help' lists the commands, 'plugin list' the plugins "
                   "that bring more",
                   word);
}

/* A command that words mean.  Its plugin may be loaded again meanwhile, which changes `command`. */
struct resolved {
    struct command *command; /* lives as long as the host; NULL: none */
    struct command now;      /* as it was when the words were read */
    int skip;                /* words after the first that belong to its name */
};

static int resolve_command(struct host *h, int argc, const char *const *argv, struct resolved *ret)
{
    char two[2 * HOST_NAME_BYTES];
    struct command *found = NULL;

    if (argc < 1 || !argv[0][0])
        return err_set(-EINVAL, "no command given; 'help' lists them");
    (void)pthread_mutex_lock(&h->commands_lock);
    if (argc > 1 && strlen(argv[0]) < HOST_NAME_BYTES && strlen(argv[1]) < HOST_NAME_BYTES) {
        (void)snprintf(two, sizeof(two), "%s %s", argv[0], argv[1]);
        found = find_named(h, two);
        ret->skip = found ? 1 : 0;
    }
    if (!found && argc > 1 && strchr(argv[1], '=') && strlen(argv[0]) < HOST_NAME_BYTES) {
        (void)snprintf(two, sizeof(two), "%s =", argv[0]);
        found = find_named(h, two);
    }
    if (!found)
        found = find_named(h, argv[0]);
    int rc = found ? 0 : refuse_unknown(h, argv[0], argc > 1 ? argv[1] : NULL);
    ret->command = found;
    if (found)
        ret->now = *found;
    (void)pthread_mutex_unlock(&h->commands_lock);
    if (rc == 0 && !can_run(&ret->now))
        rc = err_set(-ENOENT, "command '%s' is plugin %s's, which does not run: plugin load %s",
                     ret->now.name, ret->now.owner, ret->now.owner);
    return rc < 0 ? not_now(h, argv[0], rc) : rc;
}

/* ---- running ---- */

static int run_command(struct host *h, struct command *c, int argc, const char *const *argv,
                       struct probing_reply *reply)
{
    (void)pthread_mutex_lock(&h->commands_lock);
    struct command now = *c; /* a plugin that is loaded again changes it */
    (void)pthread_mutex_unlock(&h->commands_lock);

    err_clear();
    return now.plugin ? command_call(&now, argc, argv, reply)
                      : now.run(now.self, argc, argv, reply);
}

static int run_work(int (*work)(struct probing_reply *r), struct probing_reply *reply)
{
    err_clear();
    return work(reply);
}

static void run_job(struct host *h, struct job *j)
{
    struct command_job *c = (struct command_job *)j;
    struct probing_reply *reply = j->reply;
    const char *name = c->command ? c->command->name : c->argv[0];
    int rc = -ECANCELED;
    char why[ERR_TEXT_BYTES];

    if (atomic_load_explicit(&reply->cancelled, memory_order_acquire) == 0)
        rc = c->work ? run_work(c->work, reply)
                     : run_command(h, c->command, c->argc, c->argv, reply);
    workers_ending(h, j);
    int cancelled = atomic_load_explicit(&reply->cancelled, memory_order_acquire);
    if (rc == -ETIME && cancelled != HOST_LEAVING) /* it has words of its own, see plugin_call() */
        rc = err_set(-ETIMEDOUT, "%s", err_text());
    else if (rc < 0 && cancelled == HOST_TIMED_OUT)
        rc = err_set(-ETIMEDOUT, "'%s' did not end in time and was stopped", name);
    else if (rc < 0 && cancelled == HOST_LEAVING)
        rc = err_set(-ESHUTDOWN, "'%s' was stopped: the core is leaving this process", name);
    else if (rc < 0 && cancelled == HOST_CROWDED)
        rc = err_set(-EAGAIN,
                     "'%s' was stopped: its client did not read the answer while other clients "
                     "waited; read the answer as it comes",
                     name);
    (void)snprintf(why, sizeof(why), "%s", rc < 0 ? err_why(rc) : "");
    c->done(reply, rc, why);
    free(c);
    workers_ended(h);
}

/* They have not run, and will not. */
static void end_unrun(struct host *h, struct job *list, int code, const char *why)
{
    if (list)
        (void)err_set(code, "%s", why);
    while (list) {
        struct command_job *c = (struct command_job *)list;
        list = list->next;
        c->done(c->job.reply, code, why);
        free(c);
        workers_ended(h);
    }
}

void commands_expire(struct host *h, uint64_t now)
{
    end_unrun(h, workers_take_expired(h, now), -ETIMEDOUT,
              "the command did not begin within its time, because every worker was busy");
}

static int job_new(const struct host_request *r, int skip, struct command_job **ret)
{
    size_t bytes = 0, at;
    for (int i = 0; i < r->argc; i++)
        bytes += strlen(r->argv[i]) + 1;
    if (r->argc > ARGUMENTS_MAX || bytes > ARGUMENT_MAX_BYTES)
        return err_set(-E2BIG, "a command takes at most %d arguments of %zu bytes in total",
                       ARGUMENTS_MAX, ARGUMENT_MAX_BYTES);
    at = sizeof(struct command_job) + ((size_t)r->argc + 1) * sizeof(char *);
    struct command_job *c = malloc(at + bytes);
    if (!c)
        return err_set(-ENOMEM, "no memory for this command");
    *c = (struct command_job){.job.bytes = bytes};
    char *text = (char *)c + at;
    for (int i = 0; i < r->argc; i++) {
        size_t n = strlen(r->argv[i]) + 1;
        if (i > 0 && i <= skip)
            continue;
        memcpy(text, r->argv[i], n);
        c->argv[c->argc++] = text;
        text += n;
    }
    c->argv[c->argc] = NULL;
    *ret = c;
    return 0;
}

static enum job_lane lane_of(const struct command *c)
{
    return !(c->flags & HOST_URGENT) ? LANE_ANY : c->flags & HOST_LASTS ? LANE_LONG : LANE_SHORT;
}

/* As resolve_command(), and -EACCES where the client may not run it. */
static int resolve_allowed(struct host *h, const struct host_request *r, struct resolved *ret)
{
    int rc = resolve_command(h, r->argc, r->argv, ret);
    if (rc < 0 || !(ret->now.flags & PROBING_WRITES))
        return rc;
    if (r->who)
        audit_command(h, &ret->now, r, ret->skip, r->read_only ? " (refused, may only read)" : "");
    if (r->read_only)
        return err_set(-EACCES,
                       "'%s' changes the process, and this client may only read; the full token "
                       "is in the file 'token' of its data directory",
                       ret->now.name);
    return 0;
}

int host_submit(struct host *h, const struct host_request *r)
{
    struct resolved is = {.command = NULL};
    struct job *out = NULL;
    struct command_job *c = NULL;

    if (host_is_off(h))
        return -ESHUTDOWN;
    err_clear();
    int e = r->work ? 0 : resolve_allowed(h, r, &is);
    if (e == 0)
        e = job_new(r, is.skip, &c);
    if (e < 0)
        return e;
    uint64_t deadline = r->timeout_ns ? clock_now() + r->timeout_ns : 0;
    enum job_lane lane = lane_of(&is.now);
    c->command = is.command;
    c->work = r->work;
    c->done = r->done;
    r->reply->read_only = r->read_only;
    r->reply->urgent = lane != LANE_ANY;
    c->job = (struct job){.run = run_job,
                          .plugin = is.now.plugin,
                          .reply = r->reply,
                          .counted = true,
                          .lane = lane,
                          .stream = r->stream,
                          .client = r->client,
                          .bytes = c->job.bytes,
                          .deadline = deadline};
    e = workers_add(h, &c->job, &out);
    if (e < 0)
        free(c);
    else if (deadline)
        control_wake_for(h, deadline);
    end_unrun(h, out, -EAGAIN,
              "too many commands are waiting, most of them from this client; try again when some "
              "have been answered");
    return e;
}

int host_run(struct host *h, int argc, const char *const *argv, struct probing_reply *reply)
{
    const char *kept[ARGUMENTS_MAX + 1];
    struct resolved is = {.command = NULL};
    int n = 0;

    if (host_is_off(h))
        return -ESHUTDOWN;
    int rc = resolve_command(h, argc, argv, &is);
    if (rc < 0)
        return rc;
    if (argc > ARGUMENTS_MAX)
        return err_set(-E2BIG, "a command takes at most %d arguments", ARGUMENTS_MAX);
    for (int i = 0; i < argc; i++)
        if (i == 0 || i > is.skip)
            kept[n++] = argv[i];
    kept[n] = NULL;
    struct job j = {.plugin = is.now.plugin, .reply = reply};
    workers_enter(h, &j);
    rc = run_command(h, is.command, n, kept, reply);
    workers_leave(h, &j);
    return rc == -ETIME ? err_set(-ETIMEDOUT, "%s", err_text()) : rc;
}

int host_replyf(struct probing_reply *r, const char *format, ...)
{
    char line[REPLY_LINE_BYTES];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (n < 0)
        return err_set(-EINVAL, "an answer could not be formatted");
    if ((size_t)n < sizeof(line))
        return r->write(r, line, (size_t)n);
    char *text = malloc((size_t)n + 1);
    if (!text)
        return err_set(-ENOMEM, "no memory for an answer of %d bytes", n);
    va_start(args, format);
    (void)vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    int e = r->write(r, text, (size_t)n);
    free(text);
    return e;
}

/* ---- the two commands that need nothing but the host ---- */

static int help_line(void *arg, const struct probing_command *c)
{
    size_t n = strlen(c->name);
    int shown = n > 2 && strcmp(c->name + n - 2, " =") == 0 ? (int)n - 2 : (int)n;
    return host_replyf(arg, "%.*s%s%s\n    %s\n", shown, c->name, c->usage[0] ? " " : "", c->usage,
                       c->doc);
}

struct help_one {
    struct probing_reply *out;
    const char *word;
    int found;
};

static int help_matching(void *arg, const struct probing_command *c)
{
    struct help_one *one = arg;
    size_t n = strlen(one->word);
    if (strncmp(c->name, one->word, n) != 0 || (c->name[n] != '\0' && c->name[n] != ' '))
        return 0;
    one->found++;
    return help_line(one->out, c);
}

static int run_help(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct host *h = self;
    if (argc > 2)
        return err_set(-EINVAL, "help takes at most the name of one command");
    if (argc == 1)
        return host_commands(h, help_line, out);
    struct help_one one = {.out = out, .word = argv[1]};
    int rc = host_commands(h, help_matching, &one);
    if (rc < 0 || one.found)
        return rc;
    (void)pthread_mutex_lock(&h->commands_lock);
    rc = refuse_unknown(h, argv[1], NULL);
    (void)pthread_mutex_unlock(&h->commands_lock);
    return rc;
}

static int run_version(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct host *h = self;
    (void)argv;
    if (argc > 1)
        return err_set(-EINVAL, "version takes no arguments");
    return host_replyf(out, "%s\n", h->version);
}

/* probing_access_1's. */
static int read_only(const struct probing_reply *out)
{
    return out->read_only;
}

int commands_builtin(struct host *h)
{
    static const struct probing_command builtin[] = {
        {.size = sizeof(struct probing_command),
         .name = "help",
         .flags = HOST_URGENT,
         .usage = "[COMMAND]",
         .doc = "list the commands, or describe one",
         .run = run_help},
        {.size = sizeof(struct probing_command),
         .name = "version",
         .flags = HOST_URGENT,
         .usage = "",
         .doc = "version of the core in this process",
         .run = run_version},
    };
    static const struct probing_access_1 access = {.size = sizeof(access), .read_only = read_only};
    int rc = host_extension_add(h, PROBING_ACCESS_1, &access);
    for (size_t i = 0; i < sizeof(builtin) / sizeof(builtin[0]) && rc == 0; i++)
        rc = command_add(h, NULL, "probing", &builtin[i], h);
    return rc;
}
