/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/ext_stack.c - "probing.stack/1" for plugins, over core/stack.
 *
 * Threads: workers, one look at a time under one lock, because a capture uses one signal and one
 * piece of memory.  The functions of an extension carry no context, hence the statics.
 */
#include <errno.h>
#include <probing/ext/draft/stack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/plugin_host/internal.h"
#include "core/stack/stack.h"

static pthread_mutex_t stack_lock = PTHREAD_MUTEX_INITIALIZER; /* for all below */
static struct stack_process *self_process;                     /* opened at first use */
static struct stack_thread *scratch; /* 8 KB of frames: too much for a stack */
static bool stack_on;

static int open_self(void)
{
    if (!stack_on)
        return err_set(-ESHUTDOWN, "the core is being stopped");
    if (!scratch)
        scratch = calloc(1, sizeof(*scratch));
    if (!scratch)
        return err_set(-ENOMEM, "no memory to look at stacks");
    return self_process ? 0 : stack_process_open(getpid(), &self_process);
}

static int look_at_thread(int32_t tid, uint64_t timeout_ns, void (*fn)(void *arg), void *arg,
                          struct probing_stack_thread *ret)
{
    int rc = open_self();
    if (rc < 0)
        return rc;
    rc = fn ? stack_capture_held(self_process, tid, timeout_ns, fn, arg, scratch)
            : stack_capture(self_process, tid, timeout_ns, scratch);
    if (rc < 0 && rc != -ETIMEDOUT)
        return rc;
    const struct stack_thread *t = scratch;
    ret->tid = t->tid;
    memcpy(ret->name, t->name, sizeof(ret->name));
    ret->state = (unsigned char)t->state;
    ret->syscall = t->syscall;
    ret->n_frames = t->n < ret->max_frames ? t->n : ret->max_frames;
    ret->end = t->n > ret->max_frames ? STACK_END_LIMIT : (int32_t)t->end;
    for (uint32_t i = 0; i < ret->n_frames; i++)
        ret->frames[i] = (struct probing_stack_frame){.ip = t->frames[i].ip, .sp = t->frames[i].sp};
    return rc;
}

static int ext_thread_held(int32_t tid, uint64_t timeout_ns, void (*fn)(void *arg), void *arg,
                           struct probing_stack_thread *ret)
{
    if (!ret || ret->size < sizeof(*ret) || (ret->max_frames && !ret->frames))
        return err_set(-EINVAL, "probing.stack/1: set .size and .frames of the thread");
    (void)pthread_mutex_lock(&stack_lock);
    int rc = look_at_thread(tid, timeout_ns, fn, arg, ret);
    (void)pthread_mutex_unlock(&stack_lock);
    return rc;
}

static int ext_thread(int32_t tid, uint64_t timeout_ns, struct probing_stack_thread *ret)
{
    return ext_thread_held(tid, timeout_ns, /* fn= */ NULL, NULL, ret);
}

static int ext_symbol(uint64_t address, struct probing_stack_symbol *ret)
{
    struct stack_symbol found = {.offset = 0};

    if (!ret || ret->size < sizeof(*ret))
        return err_set(-EINVAL, "probing.stack/1: set .size of the symbol");
    (void)pthread_mutex_lock(&stack_lock);
    int rc = open_self();
    if (rc == 0) {
        stack_process_refresh(self_process, /* maps_too= */ false); /* a library may have come */
        rc = stack_symbol(self_process, address, &found);
        (void)snprintf(ret->name, sizeof(ret->name), "%s", found.name);
        (void)snprintf(ret->module, sizeof(ret->module), "%s", found.module ? found.module : "");
        ret->offset = found.offset;
        ret->module_offset = found.module_offset;
    }
    (void)pthread_mutex_unlock(&stack_lock);
    return rc;
}

static int ext_refresh(void)
{
    (void)pthread_mutex_lock(&stack_lock);
    bool opens = !self_process; /* which reads the map */
    int rc = open_self();
    if (rc == 0 && !opens)
        stack_process_refresh(self_process, /* maps_too= */ true);
    (void)pthread_mutex_unlock(&stack_lock);
    return rc;
}

int host_stack_add(struct host *h)
{
    static const struct probing_stack_1 part = {.size = sizeof(part),
                                                .thread = ext_thread,
                                                .thread_held = ext_thread_held,
                                                .symbol = ext_symbol,
                                                .refresh = ext_refresh};
    int rc = host_extension_add(h, PROBING_STACK_1, &part);
    if (rc == 0) {
        (void)pthread_mutex_lock(&stack_lock);
        stack_on = true;
        (void)pthread_mutex_unlock(&stack_lock);
        h->has_stack = true;
    }
    return rc;
}

void host_stack_off(struct host *h)
{
    if (!h->has_stack)
        return;
    (void)pthread_mutex_lock(&stack_lock);
    stack_on = false;
    stack_capture_off();
    stack_process_free(self_process);
    self_process = NULL;
    free(scratch);
    scratch = NULL;
    (void)pthread_mutex_unlock(&stack_lock);
}

/* The inherited state describes the parent; another thread may have been changing it: not freed. */
void stack_ext_begin_in_child(void)
{
    stack_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    stack_on = false;
    self_process = NULL;
    scratch = NULL;
}
