/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/script_manager.c - the scripts of a process: start, stop, reload, list.
 *
 * Threads: workers.  A script that has ended stays in the list until one of its name is started.
 */
#include "core/script/script.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "core/script/internal.h"

#define LIVING_MAX 32
#define ENDED_MAX 32 /* that are still listed; of more the oldest is forgotten */
#define SCRIPTS_MAX (LIVING_MAX + ENDED_MAX)
#define SOURCE_MAX_BYTES ((size_t)1 << 20)
#define GRACE_NS (500 * NS_PER_MS) /* for at_stop, and for the state that a reload keeps */
#define END_NS (5 * NS_PER_S) /* a stopped one ends at once: more, and it gets no time to run */
#define LUA_STACK ((size_t)1 << 20) /* bytes: Lua's C calls nest up to 200 deep */

static const char *const state_names[] = {[SCRIPT_LOADING] = "running",
                                          [SCRIPT_RUNNING] = "running",
                                          [SCRIPT_ENDED] = "ended",
                                          [SCRIPT_FAILED] = "failed",
                                          [SCRIPT_STOPPED] = "stopped"};

const char *script_state_name(int state)
{
    return state_names[state];
}

static int state_of(const struct script *s)
{
    return atomic_load_explicit(&s->state, memory_order_acquire);
}

static bool is_running(const struct script *s)
{
    return state_of(s) == SCRIPT_LOADING || state_of(s) == SCRIPT_RUNNING;
}

static void script_free(struct script *s)
{
    free(s->words);
    free(s->kept);
    free(s->left);
    free(s->answer);
    event_done(&s->wake);
    event_done(&s->loaded);
    event_done(&s->ended);
    (void)pthread_mutex_destroy(&s->mutex);
    free(s->source);
    free(s);
}

static struct script *script_new(struct scripts *all, const struct script_start *start)
{
    static const struct script_start none = {.words = "", .words_size = 1};
    struct script *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->owner = all;
    s->started = clock_now();
    s->size = start->size;
    (void)snprintf(s->name, sizeof(s->name), "%s", start->name);
    (void)snprintf(s->topic, sizeof(s->topic), "script.%s", start->name);
    (void)pthread_mutex_init(&s->mutex, NULL);
    const struct script_start *words = start->words_size > 0 ? start : &none;
    s->source = malloc(start->size + 1);
    s->words = malloc(words->words_size);
    s->kept = start->kept ? strdup(start->kept) : NULL;
    bool made = s->source && s->words && (s->kept || !start->kept);
    if (made) {
        memcpy(s->source, start->source, start->size);
        memcpy(s->words, words->words, words->words_size);
        s->words_size = words->words_size;
    }
    made = made && event_init(&s->wake) == 0;
    made = made && event_init(&s->loaded) == 0;
    made = made && event_init(&s->ended) == 0;
    if (made)
        return s;
    free(s->source); /* an event that was made holds no memory */
    free(s->words);
    free(s->kept);
    free(s);
    return NULL;
}

static struct script *find_script(struct scripts *all, const char *name)
{
    for (struct script *s = all->first; s; s = s->next)
        if (strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

/* lock held.  Takes *at, which has ended, out of the list. */
static void forget_script(struct script **at)
{
    struct script *s = *at;
    *at = s->next;
    (void)pthread_join(s->thread, NULL); /* it has ended: no wait */
    script_free(s);
}

/* lock held.  The name is free, or its owner has ended and is forgotten.  Only those that live
 * count against the limit: the list is newest first, so that the oldest ended ones go. */
static int make_room(struct scripts *all, const char *name)
{
    if (all->closed)
        return err_set(-ESHUTDOWN, "the core is leaving the process");
    uint32_t n_living = 0, n_ended = 0;
    for (struct script **at = &all->first; *at;) {
        struct script *s = *at;
        bool same = strcmp(s->name, name) == 0, lives = is_running(s);
        if (same && (lives || s->users > 0))
            return err_set(-EEXIST, "script '%s' runs already; script stop %s first", name, name);
        n_living += lives;
        n_ended += !lives;
        if (!lives && s->users == 0 && (same || n_ended >= ENDED_MAX))
            forget_script(at);
        else
            at = &s->next;
    }
    return n_living < LIVING_MAX
               ? 0
               : err_set(-ENOSPC, "%d scripts run already; script stop one of them", LIVING_MAX);
}

int scripts_start(struct scripts *all, const struct script_start *start)
{
    const char *name = start->name;
    if (!text_is_name(name))
        return err_set(-EINVAL, "'%.80s' is not a script's name: [a-z][a-z0-9_]*", name);
    if (start->size > SOURCE_MAX_BYTES)
        return err_set(-E2BIG, "a script may have at most %zu bytes", SOURCE_MAX_BYTES);
    struct script *s = script_new(all, start);
    if (!s)
        return err_set(-ENOMEM, "no memory for script '%s'", name);
    (void)pthread_mutex_lock(&all->mutex);
    int rc = make_room(all, name);
    if (rc == 0)
        rc = share_keep(all);
    if (rc == 0)
        rc = thread_start(&s->thread, "probing/lua", LUA_STACK, script_thread, s);
    if (rc < 0) {
        (void)pthread_mutex_unlock(&all->mutex);
        script_free(s);
        return rc;
    }
    s->next = all->first;
    all->first = s;
    s->users = 1;
    (void)pthread_mutex_unlock(&all->mutex);
    (void)event_wait(&s->loaded, start->limit_ns);
    (void)pthread_mutex_lock(&s->mutex);
    if (state_of(s) == SCRIPT_FAILED)
        rc = err_set(-EINVAL, "%s", s->error);
    else if (state_of(s) == SCRIPT_LOADING)
        rc = 1;
    (void)pthread_mutex_unlock(&s->mutex);
    (void)pthread_mutex_lock(&all->mutex);
    s->users--;
    (void)pthread_mutex_unlock(&all->mutex);
    return rc;
}

int scripts_run(struct scripts *all, const char *name, const char *source, size_t size)
{
    struct script_start start = {
        .name = name, .source = source, .size = size, .limit_ns = SCRIPT_LOAD_NS};
    int rc = scripts_start(all, &start);
    return rc < 0 ? rc : 0;
}

int scripts_run_within(struct scripts *all, const char *name, const char *source, size_t size,
                       uint64_t limit_ns)
{
    struct script_start start = {
        .name = name, .source = source, .size = size, .limit_ns = limit_ns};
    int rc = scripts_start(all, &start);
    if (rc <= 0)
        return rc;
    (void)scripts_stop(all, name);
    return err_set(-ETIMEDOUT, "it ran for more than %g s without pause, so it was stopped",
                   (double)limit_ns / 1e9);
}

/* The script has ended, and its only user alone frees it, by script_drop().  false: it has others
 * who wait for its end. */
static bool script_hide(struct scripts *all, struct script *gone)
{
    bool alone = false;
    (void)pthread_mutex_lock(&all->mutex);
    struct script **at = &all->first;
    while (*at && *at != gone)
        at = &(*at)->next;
    if (*at && gone->users == 1) {
        *at = gone->next;
        alone = true;
    }
    (void)pthread_mutex_unlock(&all->mutex);
    return alone;
}

static void script_drop(struct script *s)
{
    (void)pthread_join(s->thread, NULL);
    script_free(s);
}

static bool wait_end(struct script *s, uint64_t limit)
{
    while (is_running(s) && clock_now() < limit)
        (void)event_wait(&s->ended, NS_PER_S / 10); /* another may have taken the flag */
    return !is_running(s);
}

/* Find a script that runs and keep it from being freed until script_put(). */
static int script_get(struct scripts *all, const char *name, struct script **ret)
{
    const char *names[SCRIPTS_MAX];
    size_t n = 0;
    int rc = 0;

    (void)pthread_mutex_lock(&all->mutex);
    struct script *s = find_script(all, name);
    for (struct script *at = all->first; at && n < SCRIPTS_MAX; at = at->next)
        names[n++] = at->name;
    if (!s) {
        const char *near = text_nearest(name, names, n);
        rc = near ? err_set(-ENOENT, "no script '%.80s'; did you mean '%s'?", name, near)
                  : err_set(-ENOENT, "no script '%.80s' runs; script list shows them", name);
    } else if (!is_running(s)) {
        rc = err_set(-ENOENT, "script '%s' does not run (%s)", name, state_names[state_of(s)]);
    } else {
        s->users++;
        *ret = s;
    }
    (void)pthread_mutex_unlock(&all->mutex);
    return rc;
}

static void script_put(struct scripts *all, struct script *s)
{
    (void)pthread_mutex_lock(&all->mutex);
    s->users--;
    (void)pthread_mutex_unlock(&all->mutex);
}

/* Ask for what a script does at its end by itself; it has the time that it gets before it is
 * ended. */
static void ask_end(struct script *s)
{
    if (!atomic_load_explicit(&s->has_end, memory_order_acquire) &&
        !atomic_load_explicit(&s->keeps_state, memory_order_acquire))
        return;
    atomic_store_explicit(&s->ends, true, memory_order_release);
    event_raise(&s->wake);
}

static int end_script(struct script *s)
{
    ask_end(s);
    if (atomic_load_explicit(&s->ends, memory_order_acquire))
        (void)wait_end(s, clock_now() + GRACE_NS);
    script_interrupt(s);
    if (!wait_end(s, clock_now() + END_NS))
        return err_set(
            -EBUSY,
            "script '%s' has not ended in %g s: its thread gets no time to run, or waits "
            "for a setting's plugin; it ends when it does",
            s->name, (double)END_NS / 1e9);
    return 0;
}

int scripts_stop(struct scripts *all, const char *name)
{
    struct script *s;
    int rc = script_get(all, name, &s);

    if (rc < 0)
        return rc;
    rc = end_script(s);
    bool unheard = rc == 0 && atomic_load_explicit(&s->has_end, memory_order_acquire);
    script_put(all, s);
    return rc < 0 ? rc : unheard;
}

int scripts_ask(struct scripts *all, const char *question, const struct script_start *start,
                char **ret)
{
    int rc = 0;
    if (start->size > SOURCE_MAX_BYTES)
        return err_set(-E2BIG, "a script may have at most %zu bytes", SOURCE_MAX_BYTES);
    struct script *s = script_new(all, start);
    if (!s)
        return err_set(-ENOMEM, "no memory to read script '%s'", start->name);
    s->question = question;
    rc = thread_start(&s->thread, "probing/lua", LUA_STACK, script_thread, s);
    if (rc < 0) {
        script_free(s);
        return rc;
    }
    (void)wait_end(s, clock_now() + start->limit_ns);
    script_interrupt(s);
    (void)pthread_join(s->thread, NULL);
    if (state_of(s) == SCRIPT_STOPPED)
        rc = err_set(-ETIMEDOUT, "reading script '%s' takes more than %g s", start->name,
                     (double)start->limit_ns / 1e9);
    else if (state_of(s) == SCRIPT_FAILED)
        rc = err_set(-EINVAL, "%s", s->error);
    *ret = s->answer;
    s->answer = NULL;
    script_free(s);
    return rc;
}

int scripts_reload(struct scripts *all, const struct script_start *wanted)
{
    struct script_start start = *wanted, old;
    struct script *s = NULL;
    char *answer = NULL;
    int rc = script_get(all, start.name, &s);

    if (rc < 0)
        return rc;
    old = (struct script_start){.name = s->name,
                                .source = s->source,
                                .size = s->size,
                                .words = s->words,
                                .words_size = s->words_size,
                                .limit_ns = SCRIPT_LOAD_NS};
    if (!start.source) {
        start.source = old.source;
        start.size = old.size;
    }
    if (start.words_size <= 1) {
        start.words = old.words;
        start.words_size = old.words_size;
    }
    rc = scripts_ask(all, "compile", &start, &answer);
    free(answer);
    if (rc == 0) {
        atomic_store_explicit(&s->keeps_state, true, memory_order_release);
        rc = end_script(s);
    }
    if (rc == 0 && !script_hide(all, s))
        rc = err_set(-EBUSY, "somebody else stops script '%s'", start.name);
    if (rc < 0) {
        script_put(all, s);
        return rc;
    }
    bool lost = s->left == NULL;
    start.kept = old.kept = s->left;
    rc = scripts_start(all, &start);
    if (rc < 0) {
        char why[ERR_TEXT_BYTES];
        (void)snprintf(why, sizeof(why), "%s", err_text());
        rc = scripts_start(all, &old) < 0
                 ? err_set(-EINVAL, "%s; the old one does not start again: %s", why, err_text())
                 : err_set(-EINVAL, "%s; the old one goes on", why);
    }
    script_drop(s);
    return rc < 0 ? rc : lost;
}

/* ---- the list of them ---- */

int scripts_source(struct scripts *all, const char *name, char **ret, size_t *ret_size)
{
    char *copy = NULL;

    (void)pthread_mutex_lock(&all->mutex);
    const struct script *s = find_script(all, name);
    if (s && (copy = malloc(s->size + 1)) != NULL) {
        memcpy(copy, s->source, s->size);
        copy[s->size] = '\0';
        *ret_size = s->size;
    }
    (void)pthread_mutex_unlock(&all->mutex);
    if (!copy)
        return err_set(-ENOENT, "no script '%.80s' was started; script list shows them", name);
    *ret = copy;
    return 0;
}

int scripts_each(struct scripts *all, int (*fn)(void *arg, const struct script_view *v), void *arg)
{
    struct script_view *views = calloc(SCRIPTS_MAX, sizeof(*views));
    uint32_t n = 0;
    int rc = 0;

    if (!views)
        return err_set(-ENOMEM, "no memory to list scripts");
    (void)pthread_mutex_lock(&all->mutex);
    for (struct script *s = all->first; s && n < SCRIPTS_MAX; s = s->next, n++) {
        (void)snprintf(views[n].name, sizeof(views[n].name), "%s", s->name);
        (void)pthread_mutex_lock(&s->mutex);
        (void)snprintf(views[n].error, sizeof(views[n].error), "%s", s->error);
        (void)pthread_mutex_unlock(&s->mutex);
        views[n].state = state_of(s);
        views[n].started = s->started;
        views[n].rows = atomic_load_explicit(&s->rows, memory_order_relaxed);
        views[n].cpu_ns = atomic_load_explicit(&s->share.cpu_ns, memory_order_relaxed);
        views[n].throttled_ns = atomic_load_explicit(&s->share.throttled_ns, memory_order_relaxed);
        views[n].memory_bytes = atomic_load_explicit(&s->memory.mapped_bytes, memory_order_relaxed);
        views[n].dropped = atomic_load_explicit(&s->dropped, memory_order_relaxed);
        views[n].errors = atomic_load_explicit(&s->errors, memory_order_relaxed);
    }
    (void)pthread_mutex_unlock(&all->mutex);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = fn(arg, &views[i]);
    free(views);
    return rc;
}

/* ---- all ---- */

int scripts_new(const struct scripts_options *o, struct scripts **ret)
{
    struct scripts *all = calloc(1, sizeof(*all));
    if (!all)
        return err_set(-ENOMEM, "no memory for scripts");
    all->host = o->host;
    all->sql = o->sql;
    all->store = *o->store;
    all->version = o->version;
    (void)pthread_mutex_init(&all->mutex, NULL);
    (void)pthread_mutex_init(&all->limits, NULL);
    if (event_init(&all->run) < 0 || event_init(&all->idle) < 0) {
        free(all); /* an event that was made holds no memory */
        return err_set(-ENOMEM, "no memory for scripts");
    }
    int rc = script_commands_add(all);
    if (rc == 0)
        rc = script_events_add(all);
    if (rc < 0) {
        free(all);
        return rc;
    }
    *ret = all;
    return 0;
}

/* Is one of those that shall end by themselves still at it? */
static bool some_finish(struct scripts *all)
{
    bool found = false;
    (void)pthread_mutex_lock(&all->mutex);
    for (const struct script *s = all->first; s && !found; s = s->next)
        found = is_running(s) && atomic_load_explicit(&s->ends, memory_order_acquire);
    (void)pthread_mutex_unlock(&all->mutex);
    return found;
}

static bool some_command(struct scripts *all)
{
    return atomic_load_explicit(&all->n_commands, memory_order_acquire) > 0;
}

static void rest_while(struct scripts *all, bool (*fn)(struct scripts *all), uint64_t limit_ns)
{
    uint64_t limit = clock_now() + limit_ns;
    while (fn(all) && clock_now() < limit)
        (void)event_wait(&all->idle, 5 * NS_PER_MS); /* nobody raises it: a rest */
}

/* No script starts any more, those that run are ended, and the commands that touch them return.
 * false: one of these is still inside. */
static bool close_scripts(struct scripts *all)
{
    (void)pthread_mutex_lock(&all->mutex);
    all->closed = true;
    for (struct script *s = all->first; s; s = s->next)
        ask_end(s);
    (void)pthread_mutex_unlock(&all->mutex);
    rest_while(all, some_finish, GRACE_NS);
    (void)pthread_mutex_lock(&all->mutex);
    for (struct script *s = all->first; s; s = s->next)
        script_interrupt(s);
    (void)pthread_mutex_unlock(&all->mutex);
    rest_while(all, some_command, END_NS);
    return !some_command(all);
}

/* A script that has not ended in END_NS (it waits for a plugin that sets a setting), and a command
 * that has not returned, are left to end by themselves: what they still touch is left, too. */
void scripts_free(struct scripts *all)
{
    if (!all)
        return;
    bool left = !close_scripts(all);
    share_keep_end(all);
    uint64_t limit = clock_now() + END_NS;
    for (struct script *s = left ? NULL : all->first, *next; s; s = next) {
        next = s->next;
        if (wait_end(s, limit)) {
            (void)pthread_join(s->thread, NULL);
            script_free(s);
        } else {
            (void)pthread_detach(s->thread);
            left = true;
        }
    }
    if (left)
        return;
    event_done(&all->run);
    event_done(&all->idle);
    (void)pthread_mutex_destroy(&all->limits);
    (void)pthread_mutex_destroy(&all->mutex);
    free(all);
}
