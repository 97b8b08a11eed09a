/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/remote_exec.c - the other way in: CPython from 3.14 on runs a script that it is asked
 * to (PEP 768), at a place of its own choosing, and the script loads the library.
 *
 * Own thread only.  No thread is stopped and none is traced, so it serves where a debugger traces
 * the process already.  It is the second choice: the main thread must come to run Python, and may
 * be in C for hours; and the library lies in a file until it is loaded.  The kernel's rule for
 * writing to a process is that for tracing it, so it gets nobody in who may not trace.
 *
 *     _PyRuntime: the table of offsets, "xdebugpy" ...     (pycore_debug_offsets.h)
 *       -> first interpreter -> its main thread's state
 *            remote_debugger_support: { int32 pending; char script_path[512] }
 *            eval_breaker: the bit that makes the thread look
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cli/inject/internal.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "sdk/lib/buf.h"

#define DEFAULT_NS (5 * NS_PER_S)
#define LOOK_MS 2
#define SCRIPT_MAX_BYTES (4 * SETTINGS_MAX_BYTES)
#define PLEASE_STOP 32u /* _PY_EVAL_PLEASE_STOP_BIT, pycore_ceval.h */
#define NAME_BYTES 100

/* Offsets of the words in struct _Py_DebugOffsets: no release of a version changes them. */
enum {
    VERSION_AT = 8,
    INTERPRETERS_AT = 40,
    THREADS_MAIN_AT = 80,
    SUPPORT_AT_14 = 712, /* eval_breaker, support, enabled, pending, script_path, its size */
    SUPPORT_AT_15 = 840,
    TABLE_BYTES = SUPPORT_AT_15 + 48
};

struct remote {
    pid_t pid;
    struct stack_process *view;
    uint64_t runtime;                /* address of _PyRuntime */
    uint64_t breaker, pending, path; /* addresses in the thread's state */
    uint64_t room;                   /* bytes of path */
    char name[NAME_BYTES];           /* path in the target, without ending */
    int folder;                      /* where it lies, opened as the target sees it; -1: none */
};

/* ---- the interpreter's structures ---- */

static int find_runtime(void *arg, const struct stack_module *m)
{
    struct remote *r = arg;
    r->runtime = stack_symbol_address(r->view, m, "_PyRuntime");
    return r->runtime != 0;
}

static uint64_t word_at(struct remote *r, uint64_t address)
{
    uint64_t word = 0;
    return address && stack_read(r->view, address, &word, sizeof(word)) == 0 ? word : 0;
}

/* 0: a version that is not known, of which nothing is written to. */
static size_t support_at(uint64_t version)
{
    return version >> 16 == 0x030e ? SUPPORT_AT_14 : version >> 16 == 0x030f ? SUPPORT_AT_15 : 0;
}

static int find_thread(struct remote *r)
{
    uint64_t table[TABLE_BYTES / 8];
    int32_t enabled = 0;
    (void)stack_modules(r->view, find_runtime, r);
    if (!r->runtime || stack_read(r->view, r->runtime, table, sizeof(table)) < 0 ||
        memcmp(table, "xdebugpy", 8) != 0 || !support_at(table[VERSION_AT / 8]))
        return err_set(-ENOTSUP,
                       "process %d is no CPython 3.14 or 3.15: it can be entered by ptrace only",
                       r->pid);
    const uint64_t *support = &table[support_at(table[VERSION_AT / 8]) / 8];
    uint64_t interpreter = word_at(r, r->runtime + table[INTERPRETERS_AT / 8]);
    uint64_t thread = interpreter ? word_at(r, interpreter + table[THREADS_MAIN_AT / 8]) : 0;
    if (!thread)
        return err_set(-EAGAIN, "the interpreter of process %d is starting or ending; try again",
                       r->pid);
    if (stack_read(r->view, interpreter + support[2], &enabled, sizeof(enabled)) < 0 || !enabled)
        return err_set(-EACCES,
                       "process %d has remote debugging off (PYTHON_DISABLE_REMOTE_DEBUG or -X "
                       "disable-remote-debug): start it without, or enter it by ptrace",
                       r->pid);
    r->breaker = thread + support[0];
    r->pending = thread + support[1] + support[3];
    r->path = thread + support[1] + support[4];
    r->room = support[5];
    return 0;
}

static int write_remote(const struct remote *r, uint64_t address, const void *data, size_t size)
{
    struct iovec here = {(void *)(uintptr_t)data, size};
    struct iovec there = {(void *)(uintptr_t)address, size};
    return process_vm_writev(r->pid, &here, 1, &there, 1, 0) == (ssize_t)size ? 0 : -errno;
}

/* ---- the files ---- */

/* Give the name in the folder of one of the files. */
static void leaf_of(const struct remote *r, const char *ending, char ret[NAME_BYTES])
{
    (void)snprintf(ret, NAME_BYTES, "%s.%s", strrchr(r->name, '/') + 1, ending);
}

static void remove_files(const struct remote *r)
{
    static const char *const endings[] = {"so", "py", "out"};
    char leaf[NAME_BYTES];
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        leaf_of(r, endings[i], leaf);
        (void)theirs_remove(r->pid, r->folder, leaf);
    }
}

/* The file is the target's user's, so that its script may write into it, and nobody else. */
static int make_file_for(const struct remote *r, const char *ending, const void *data, size_t size)
{
    char leaf[NAME_BYTES];
    int rc = 0;
    leaf_of(r, ending, leaf);
    int fd = theirs_open(r->pid, r->folder, leaf, O_WRONLY | O_CREAT | O_EXCL, 0700);
    if (fd < 0)
        return fd;
    for (size_t done = 0; done < size && rc == 0;) {
        ssize_t n = write(fd, (const char *)data + done, size - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            rc = n == 0 ? -ENOSPC : -errno;
    }
    (void)close(fd);
    return rc;
}

/* Names of the script's own only: it runs in __main__.  Settings are told in hexadecimal. */
static int script_text(const struct remote *r, struct buf *settings, struct buf *ret)
{
    const char *text = buf_text(settings);
    (void)buf_adds(ret, "exec('''import ctypes\n"
                        "try:\n"
                        "    settings = bytes.fromhex(\"");
    for (size_t i = 0; i < settings->size; i++)
        (void)buf_addf(ret, "%02x", (unsigned char)text[i]);
    return buf_addf(ret,
                    "\")\n"
                    "    said = ctypes.CDLL(\"%s.so\").probing_start(settings)\n"
                    "except BaseException as why:\n"
                    "    said = \"failed: %%s\" %% why\n"
                    "with open(\"%s.out\", \"w\") as out:\n"
                    "    out.write(str(said) + \".\")\n"
                    "''', {})\n",
                    r->name, r->name);
}

static int make_files_in(struct remote *r, const char *folder, const struct library *l,
                         struct buf *settings)
{
    struct buf script;
    (void)snprintf(r->name, sizeof(r->name), "%s/.probing-core-%d-%llx", folder, r->pid,
                   (unsigned long long)clock_monotonic());
    r->folder = theirs_folder(r->pid, folder);
    if (r->folder < 0)
        return r->folder;
    buf_init(&script, SCRIPT_MAX_BYTES);
    int rc = script_text(r, settings, &script);
    if (rc == 0)
        rc = make_file_for(r, "so", l->bytes, l->size);
    if (rc == 0)
        rc = make_file_for(r, "py", buf_text(&script), script.size);
    if (rc == 0)
        rc = make_file_for(r, "out", "", 0);
    buf_done(&script);
    if (rc < 0) {
        remove_files(r);
        (void)close(r->folder);
    }
    return rc;
}

static int make_files(struct remote *r, const struct library *l, struct buf *settings)
{
    static const char *const folders[] = {"/dev/shm", "/tmp", "/var/tmp"};
    int rc = -ENOENT;
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]) && rc < 0; i++)
        rc = make_files_in(r, folders[i], l, settings);
    if (rc == 0)
        return 0;
    r->folder = -1;
    return err_set(rc, "process %d takes no file in /dev/shm, /tmp or /var/tmp: %s", r->pid,
                   strerror(-rc));
}

/* ---- asking, and the answer ---- */

/* CPython's own order.  The breaker's other bits may change between our two looks at it, as they
 * may when sys.remote_exec() does this: a signal or a wish for the GIL is then seen a little later.
 */
static int ask_interpreter(struct remote *r)
{
    char path[NAME_BYTES + 8];
    const int32_t one = 1;
    int n = snprintf(path, sizeof(path), "%s.py", r->name);
    int rc = (uint64_t)n < r->room ? write_remote(r, r->path, path, (size_t)n + 1) : -E2BIG;
    if (rc == 0)
        rc = write_remote(r, r->pending, &one, sizeof(one));
    stack_process_refresh(r->view, /* maps_too= */ false);
    uint64_t breaker = word_at(r, r->breaker) | PLEASE_STOP;
    return rc < 0 ? rc : write_remote(r, r->breaker, &breaker, sizeof(breaker));
}

static bool is_answered(const struct remote *r, struct buf *answer)
{
    char leaf[NAME_BYTES];
    struct stat st;
    leaf_of(r, "out", leaf);
    buf_reset(answer);
    int fd = theirs_open(r->pid, r->folder, leaf, O_RDONLY, 0);
    bool read = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                file_read_fd(fd, leaf, answer) == 0;
    if (fd >= 0)
        (void)close(fd);
    return read && answer->size > 0 && buf_text(answer)[answer->size - 1] == '.';
}

static bool wait_answer(const struct remote *r, uint64_t timeout_ns, struct buf *answer)
{
    uint64_t end = clock_monotonic() + timeout_ns;
    while (!is_answered(r, answer)) {
        if (clock_monotonic() > end || signal_pending())
            return false;
        (void)poll(NULL, 0, LOOK_MS);
    }
    return true;
}

/* Nobody came: take the wish back.  If it was being granted just then, its script must find its
 * files, so there is a second wait. */
static bool withdraw_request(struct remote *r, uint64_t timeout_ns, struct buf *answer)
{
    const int32_t none = 0;
    int32_t pending = 0;
    stack_process_refresh(r->view, /* maps_too= */ false);
    bool waits = stack_read(r->view, r->pending, &pending, sizeof(pending)) == 0 && pending;
    (void)write_remote(r, r->pending, &none, sizeof(none));
    return wait_answer(r, waits ? NS_PER_S / 10 : timeout_ns, answer);
}

static int read_answer(const struct remote *r, struct buf *answer, struct inject_result *result)
{
    int64_t code = 0;
    if (number_i64(buf_text(answer), answer->size - 1, &code) < 0 || code < INT32_MIN ||
        code > INT32_MAX)
        return err_set(-ELIBACC, "process %d cannot load the library: %.*s", r->pid,
                       (int)answer->size - 1, buf_text(answer));
    if (code < 0)
        return core_refused(r->pid, (int)code);
    result->already_there = code == 1;
    return 0;
}

static int run_script(struct remote *r, const struct inject_options *o, struct inject_result *ret)
{
    struct buf answer;
    uint64_t timeout_ns = o->timeout_ns ? o->timeout_ns : DEFAULT_NS;
    buf_init(&answer, 4096);
    int rc = ask_interpreter(r);
    if (rc < 0)
        rc = rc == -EPERM ? inject_no_permission(r->pid, rc)
                          : err_set(rc, "cannot write to the memory of process %d: %s", r->pid,
                                    strerror(-rc));
    else if (wait_answer(r, timeout_ns, &answer) || withdraw_request(r, timeout_ns, &answer))
        rc = read_answer(r, &answer, ret);
    else
        rc = err_set(-EAGAIN,
                     "the main thread of process %d ran no Python code within %llu ms, and nothing "
                     "was done; allow more time (--timeout), or enter it by ptrace",
                     r->pid, (unsigned long long)(timeout_ns / NS_PER_MS));
    buf_done(&answer);
    return rc;
}

int remote_exec(const struct inject_options *o, const struct library *l, struct buf *settings,
                struct inject_result *ret)
{
    struct remote r = {.pid = o->pid, .folder = -1};
    int rc = filter_check_traced(o->pid);
    if (rc < 0)
        return rc;
    rc = stack_process_open(o->pid, &r.view);
    if (rc == -EACCES || rc == -EPERM)
        return inject_no_permission(o->pid, rc);
    if (rc < 0)
        return rc;
    rc = find_thread(&r);
    if (rc == 0 && !o->dry_run)
        rc = make_files(&r, l, settings);
    if (rc == 0 && !o->dry_run) {
        rc = run_script(&r, o, ret);
        remove_files(&r);
        (void)close(r.folder);
    }
    (void)snprintf(ret->version, sizeof(ret->version), "%s", l->version);
    stack_process_free(r.view);
    return rc;
}
