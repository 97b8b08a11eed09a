/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/backtrace/backtrace_external.c - `backtrace --external`: stacks of a process that is
 * not entered, only read.
 *
 * One thread.  Python's side is the python plugin's own code ("python.external/1"), which this
 * command loads as it would lie in the target; this file is its host there: it finds what the
 * plugin asks for in the other process, and what the threads that wait do in native code.  Nothing
 * is written and nobody is stopped: what a thread that runs does natively is not known.
 */
#include "cli/commands/backtrace/backtrace_external.h"

#include <dlfcn.h>
#include <errno.h>
#include <probing/ext/draft/python_external.h>
#include <probing/ext/draft/stack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/target/installed.h"
#include "cli/target/target.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "core/base/err.h"
#include "core/stack/stack.h"
#include "sdk/cpython.h"
#include "sdk/lib/proc/task.h"

#define PYTHONS_MAX 8 /* CPythons in a process */

/* The functions that the plugin calls carry no context; one process is looked at at a time. */
static struct {
    pid_t pid;
    struct stack_process *view;
} other;

/* ---- "probing.stack/1" of the other process ---- */

/* Reads the system call that a thread waits in, its ip and sp.  false: it runs, or is gone. */
static bool waits_at(int32_t tid, int64_t *ret_call, struct stack_registers *ret)
{
    struct proc_syscall now;
    if (proc_syscall_of(other.pid, tid, &now) <= PROC_RUNS)
        return false;
    *ret_call = now.number;
    *ret = (struct stack_registers){.known = UINT64_C(1) << STACK_REG_SP | UINT64_C(1)
                                                                               << STACK_REG_IP};
    ret->value[STACK_REG_SP] = now.sp;
    ret->value[STACK_REG_IP] = now.ip;
    return true;
}

static bool same_place(const struct stack_registers *a, const struct stack_registers *b)
{
    return a->value[STACK_REG_SP] == b->value[STACK_REG_SP] &&
           a->value[STACK_REG_IP] == b->value[STACK_REG_IP];
}

static int thread_held(int32_t tid, uint64_t timeout_ns, void (*fn)(void *arg), void *arg,
                       struct probing_stack_thread *ret)
{
    struct stack_frame frames[STACK_FRAMES_MAX];
    struct stack_registers before, after;
    enum stack_end end = STACK_END_LOST;
    int64_t call;
    (void)timeout_ns;
    if (!waits_at(tid, &ret->syscall, &before))
        return -EBUSY;
    stack_process_refresh(other.view, /* maps_too= */ false);
    uint32_t max = ret->max_frames < STACK_FRAMES_MAX ? ret->max_frames : STACK_FRAMES_MAX;
    int n = stack_unwind(other.view, &before, frames, max, &end);
    ret->n_frames = n > 0 ? (uint32_t)n : 0;
    ret->end = (int32_t)end;
    for (uint32_t i = 0; i < ret->n_frames; i++)
        ret->frames[i] = (struct probing_stack_frame){frames[i].ip, frames[i].sp};
    if (fn != NULL)
        fn(arg);
    return waits_at(tid, &call, &after) && same_place(&before, &after);
}

static int read_thread(int32_t tid, uint64_t timeout_ns, struct probing_stack_thread *ret)
{
    int rc = thread_held(tid, timeout_ns, NULL, NULL, ret);
    return rc < 0 ? rc : 0;
}

static int find_symbol(uint64_t address, struct probing_stack_symbol *ret)
{
    struct stack_symbol s;
    int rc = stack_symbol(other.view, address, &s);
    (void)snprintf(ret->name, sizeof(ret->name), "%s", s.name);
    (void)snprintf(ret->module, sizeof(ret->module), "%s", s.module != NULL ? s.module : "");
    ret->offset = s.offset;
    ret->module_offset = s.module_offset;
    return rc;
}

static int refresh_modules(void)
{
    return 0; /* the view was opened for this look */
}

static const struct probing_stack_1 stack_part = {.size = sizeof(stack_part),
                                                  .thread = read_thread,
                                                  .thread_held = thread_held,
                                                  .symbol = find_symbol,
                                                  .refresh = refresh_modules};

/* ---- a host for the plugin ---- */

static int host_fail(const struct probing_host *h, int code, const char *text)
{
    (void)h;
    return err_set(code, "%s", text);
}

static int host_reply(struct probing_reply *out, const void *text, size_t n)
{
    (void)out;
    return fwrite(text, 1, n, stdout) == n ? 0 : -EPIPE;
}

static int host_cancelled(const struct probing_reply *out)
{
    (void)out;
    return cli_interrupted != 0;
}

static const void *host_extension(const struct probing_host *h, const char *id)
{
    (void)h;
    return strcmp(id, PROBING_STACK_1) == 0 ? &stack_part : NULL;
}

static const struct probing_host host = {.size = sizeof(host),
                                         .abi = PROBING_ABI,
                                         .fail = host_fail,
                                         .reply = host_reply,
                                         .cancelled = host_cancelled,
                                         .extension = host_extension};

/* Once in a process: the children of one that has done so have it, too. */
static int load_plugin(const struct probing_python_external_1 **ret)
{
    static const struct probing_python_external_1 *loaded;
    char path[4096];
    *ret = loaded;
    if (loaded != NULL)
        return 0;
    int rc = plugin_find("python", path, sizeof(path));
    if (rc < 0)
        return rc;
    void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* for as long as we run */
    const struct probing_plugin *plugin = file != NULL ? dlsym(file, "probing_plugin_v1") : NULL;
    const struct probing_python_external_1 *part =
        plugin != NULL && plugin->extension != NULL
            ? plugin->extension(NULL, PROBING_PYTHON_EXTERNAL_1)
            : NULL;
    if (part == NULL)
        return err_set(-ENOEXEC,
                       "%s cannot look at another process: is probing installed completely?", path);
    *ret = loaded = part;
    return 0;
}

/* ---- the other process ---- */

struct pythons {
    const struct stack_module *in[PYTHONS_MAX]; /* the modules that hold an interpreter */
    uint32_t n;
    bool like, pypy; /* some module is called so */
};

static int find_python(void *arg, const struct stack_module *m)
{
    struct pythons *p = arg;
    const char *file = strrchr(m->path, '/');
    p->like = p->like || strstr(file != NULL ? file : m->path, "python") != NULL;
    p->pypy = p->pypy || cpython_is_pypy(m->path);
    if (p->n < PYTHONS_MAX && stack_symbol_address(other.view, m, "_PyRuntime") != 0)
        p->in[p->n++] = m;
    return 0;
}

static int any_module(void *arg, const struct stack_module *m)
{
    (void)arg;
    (void)m;
    return 1;
}

static uint64_t symbol_address(void *arg, const char *name)
{
    return stack_symbol_address(other.view, arg, name);
}

/* PY_VERSION_HEX: from 3.11 on a variable of it; before, what its file is called must do.  0: not
 * known. */
static uint32_t python_version(const struct stack_module *m)
{
    uint64_t at = stack_symbol_address(other.view, m, "Py_Version"), value = 0;
    if (at != 0 && stack_read(other.view, at, &value, sizeof(value)) == 0)
        return (uint32_t)value;
    const char *p = strrchr(m->path, '/');
    p = p != NULL ? strstr(p, "python3.") : NULL;
    unsigned minor = 0;
    for (p = p != NULL ? p + 8 : ""; *p >= '0' && *p <= '9' && minor < 100; p++)
        minor = minor * 10 + (unsigned)(*p - '0');
    return minor >= 8 && minor <= 10 ? 0x030000f0u | minor << 16 : 0;
}

/* The Pythons that are in there; what is wrong with them, "" where there is none. */
static void describe_pythons(struct probing_python_process *ret, char *why, size_t size)
{
    struct pythons all = {.n = 0};
    uint32_t n = 0;
    why[0] = '\0';
    (void)stack_modules(other.view, find_python, &all);
    ret[0] = (struct probing_python_process){
        .size = sizeof(*ret), .pid = other.pid, .address = symbol_address, .why = why};
    for (uint32_t i = 0; i < all.n; i++) {
        uint32_t version = python_version(all.in[i]);
        if (version == 0) {
            (void)snprintf(why, size, "cannot tell which version of Python %.150s is",
                           all.in[i]->path);
            continue;
        }
        ret[n] = ret[0];
        ret[n].version = version;
        ret[n].arg = (void *)(uintptr_t)all.in[i];
        ret[n].next = NULL;
        if (n > 0)
            ret[n - 1].next = &ret[n];
        n++;
    }
    if (all.n > 0)
        return;
    if (all.pypy)
        (void)snprintf(why, size, "%s", CPYTHON_PYPY);
    else if (all.like)
        (void)snprintf(
            why, size,
            "found no Python that can be read from outside: nothing in the process exports "
            "_PyRuntime (its binary has no symbols, or its Python is older than 3.8)");
}

void external_backtrace_prepare(void)
{
    const struct probing_python_external_1 *part;
    (void)load_plugin(&part); /* what is wrong will be said when it is used */
}

int external_backtrace(struct target *t, int argc, char **argv)
{
    const struct probing_python_external_1 *part = NULL;
    struct probing_python_process pythons[PYTHONS_MAX];
    char why[200];

    if (t->pid == 0)
        return err_set(-EINVAL, "--external reads a process of this machine: -t <pid>");
    int rc = load_plugin(&part);
    if (rc == 0)
        rc = stack_process_open(t->pid, &other.view);
    if (rc < 0)
        return rc;
    if (stack_modules(other.view, any_module, NULL) == 0) {
        stack_process_free(other.view);
        return err_set(-ESRCH,
                       "process %d has no memory to read: it is a kernel thread, or it has ended, "
                       "or its first thread has ended while others still run",
                       (int)t->pid);
    }
    other.pid = t->pid;
    describe_pythons(pythons, why, sizeof(why));
    rc = part->backtrace(&host, pythons, argc, (const char *const *)argv, /* out= */ NULL);
    stack_process_free(other.view);
    return rc < 0 ? rc : EXIT_DONE;
}
