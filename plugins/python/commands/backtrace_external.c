/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/commands/backtrace_external.c - "python.external/1": the command backtrace on
 * another process.
 *
 * [worker], one call at a time; no plugin of the process that calls is started.  It reads only.
 */
#include "commands/backtrace_external.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"
#include "stack/snapshot.h"

/* Describe the other CPython for a look: addresses there, none of which is called or read here. */
static const char *describe_process(const struct probing_python_process *p, struct cpython *ret)
{
    const char *missing = NULL;
    uint64_t address;
    *ret = (struct cpython){.version = p->version};
    address = p->address(p->arg, "_PyRuntime");
    memcpy(&ret->runtime, &address, sizeof(address));
    if (!address)
        missing = "_PyRuntime";
    address = p->address(p->arg, "PyEval_EvalCode");
    memcpy(&ret->PyEval_EvalCode, &address, sizeof(address));
#define FIND(name)                                 \
    address = p->address(p->arg, #name);           \
    memcpy(&ret->name, &address, sizeof(address)); \
    if (!address && !missing)                      \
        missing = #name;
    CPYTHON_OBJECTS(FIND)
#undef FIND
    return missing;
}

static int show_threads(const struct probing_host *h, struct snapshot *l,
                        const struct backtrace_words *options, struct probing_reply *out)
{
    struct sink_reply s;
    l->options = *options;
    if (!l->py->version && options->want == WANT_PYTHON)
        return h->fail(h, -ENOTSUP, l->why[0] ? l->why : "there is no Python in this process");
    if (!l->readable && (options->want == WANT_PYTHON || !l->stack))
        return h->fail(h, -ENOTSUP, l->why);
    sink_reply_begin(&s, h, out, options->json);
    l->sink = &s.sink;
    if (l->why[0] && options->want != WANT_NATIVE)
        sink_reply_warn(&s, l->why);
    return sink_reply_end(&s, snapshot_show(l));
}

struct other_python {
    struct cpython py;
    struct snapshot look;
};

static void end_looks(struct snapshot *l)
{
    for (struct snapshot *next; l; l = next) {
        next = l->next;
        snapshot_done(l);
        free((char *)l - offsetof(struct other_python, look));
    }
}

/* A look at each CPython, those that can be read first.  0, or -errno with one line in `why`. */
static int begin_looks(const struct probing_host *h, const struct probing_python_process *p,
                       struct snapshot **ret, char *why, size_t why_size)
{
    *ret = NULL;
    for (; p; p = p->size >= sizeof(*p) ? p->next : NULL) {
        struct other_python *o = calloc(1, sizeof(*o));
        const char *missing = o && p->version ? describe_process(p, &o->py) : NULL;
        if (missing) {
            free(o);
            (void)snprintf(why, why_size,
                           "its CPython does not export %s, so its stacks cannot be read", missing);
            continue;
        }
        if (!o || snapshot_begin(&o->look, p->pid, &o->py, h->extension(h, PROBING_STACK_1))) {
            free(o);
            end_looks(*ret);
            (void)snprintf(why, why_size, "no memory to read stacks");
            return -ENOMEM;
        }
        if (!p->version)
            (void)snprintf(o->look.why, sizeof(o->look.why), "%s", p->why);
        struct snapshot **at = ret;
        while (*at && (*at)->readable >= o->look.readable)
            at = &(*at)->next;
        o->look.next = *at;
        *at = &o->look;
    }
    return *ret ? 0 : -ENOTSUP;
}

static int external_backtrace(const struct probing_host *h, const struct probing_python_process *p,
                              int argc, const char *const *argv, struct probing_reply *out)
{
    struct backtrace_words options;
    struct snapshot *l;
    char text[300];
    int r = backtrace_words(argc, argv, BACKTRACE_OUTSIDE, &options, text, sizeof(text));
    if (r < 0)
        return h->fail(h, r, text);
    if (options.only && syscall(SYS_tgkill, p->pid, options.only, 0) == -1 && errno == ESRCH)
        return probing_failf(h, -ESRCH, "that process has no thread %d", options.only);
    r = begin_looks(h, p, &l, text, sizeof(text));
    if (r < 0)
        return h->fail(h, r, text);
    r = show_threads(h, l, &options, out);
    end_looks(l);
    return r;
}

const struct probing_python_external_1 external_part = {
    .size = sizeof(struct probing_python_external_1),
    .backtrace = external_backtrace,
};
