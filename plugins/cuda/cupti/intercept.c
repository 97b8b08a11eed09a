/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/intercept.c - functions that stand before CUPTI's in the slots of others.
 *
 * Threads: as intercept.h says.  These functions outlive the plugin: a thread may be inside when it
 * goes.  Slots are written while dl_iterate_phdr() keeps others who write to them out (plugin
 * memory).  The slots of torch's wheels are writable (2.11, CUDA 13); where the loader has made
 * them read-only, they are not for that moment.
 */
#include "cupti/intercept.h"

#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cupti/others.h"
#include "lib/slots/object.h"
#include "lib/slots/page.h"
#include "probing_sdk.h"

/* Since its last call one that has nothing switched on is done: between switching off and taking
 * its buffers Kineto is quicker (it is one function of torch's). */
#define QUIET_NS (2 * PROBING_NS_PER_S)

static struct {
    _Atomic(void (*)(void)) begins;
    _Atomic uint64_t kinds, called_ns; /* that are on; when one of ours was called last; 0: never */
    char who[96];                      /* written once, before `known` */
    _Atomic bool known;
} others;

/* ---- in CUPTI's place ---- */

static int register_callbacks(cupti_requested *requested, cupti_completed *completed);
static int enable_kind(int kind);
static int disable_kind(int kind);
static int flush_all(uint32_t flag);

enum { REGISTER, ENABLE, DISABLE, FLUSH, N_STANDINS };

static struct {
    const char *name;
    _Atomic uintptr_t real; /* 0: not there yet */
} standins[N_STANDINS] = {[REGISTER] = {.name = "cuptiActivityRegisterCallbacks"},
                          [ENABLE] = {.name = "cuptiActivityEnable"},
                          [DISABLE] = {.name = "cuptiActivityDisable"},
                          [FLUSH] = {.name = "cuptiActivityFlushAll"}};

static uintptr_t real_of(int which)
{
    return atomic_load_explicit(&standins[which].real, memory_order_acquire);
}

static uintptr_t ours_of(int which)
{
    uintptr_t ours[N_STANDINS];
    memcpy(&ours[REGISTER], &(int (*)(cupti_requested *, cupti_completed *)){register_callbacks},
           sizeof(uintptr_t));
    memcpy(&ours[ENABLE], &(int (*)(int)){enable_kind}, sizeof(uintptr_t));
    memcpy(&ours[DISABLE], &(int (*)(int)){disable_kind}, sizeof(uintptr_t));
    memcpy(&ours[FLUSH], &(int (*)(uint32_t)){flush_all}, sizeof(uintptr_t));
    return ours[which];
}

static void note_call(void)
{
    atomic_store_explicit(&others.called_ns, probing_clock_ns(CLOCK_MONOTONIC),
                          memory_order_relaxed);
}

static void tell_begin(void)
{
    void (*begins)(void) = atomic_load_explicit(&others.begins, memory_order_acquire);
    note_call();
    if (begins)
        begins();
}

static int register_callbacks(cupti_requested *requested, cupti_completed *completed)
{
    int (*real)(cupti_requested *, cupti_completed *) = NULL;
    memcpy(&real, &(uintptr_t){real_of(REGISTER)}, sizeof(real));
    tell_begin();
    return real(requested, completed);
}

static uint64_t bit_of(int kind)
{
    return kind > 0 && kind < 64 ? UINT64_C(1) << kind : 0;
}

static int enable_kind(int kind)
{
    int (*real)(int) = NULL;
    memcpy(&real, &(uintptr_t){real_of(ENABLE)}, sizeof(real));
    if (!atomic_load_explicit(&others.kinds, memory_order_relaxed))
        tell_begin();
    int rc = real(kind);
    if (rc == CUPTI_SUCCESS)
        atomic_fetch_or_explicit(&others.kinds, bit_of(kind), memory_order_relaxed);
    note_call();
    return rc;
}

static int disable_kind(int kind)
{
    int (*real)(int) = NULL;
    memcpy(&real, &(uintptr_t){real_of(DISABLE)}, sizeof(real));
    int rc = real(kind);
    atomic_fetch_and_explicit(&others.kinds, ~bit_of(kind), memory_order_relaxed);
    note_call();
    return rc;
}

static int flush_all(uint32_t flag)
{
    int (*real)(uint32_t) = NULL;
    memcpy(&real, &(uintptr_t){real_of(FLUSH)}, sizeof(real));
    note_call();
    int rc = real(flag);
    note_call();
    return rc;
}

/* ---- slots ---- */

struct pass {
    const struct pages *pages;
    uint32_t cuptis; /* libraries in the process */
    bool out;        /* put back */
    bool open;       /* the object's read-only slots may be written for now */
};

static int standin_of(const char *symbol)
{
    for (int i = 0; strncmp(symbol, "cupti", 5) == 0 && i < N_STANDINS; i++)
        if (strcmp(symbol, standins[i].name) == 0)
            return i;
    return -1;
}

/* Pages that the loader has not finished with are still writable, and must stay so. */
static bool may_write(struct pass *p, const struct object *o, uintptr_t at)
{
    if (at < o->relro_start || at >= o->relro_end)
        return page_is_writable(p->pages, at);
    if (!p->open && !page_is_writable(p->pages, at))
        p->open = object_open(o);
    return p->open;
}

static void write_slot(void *arg, const struct object *o, const char *symbol,
                       _Atomic uintptr_t *slot, enum slot_kind kind, uintptr_t own)
{
    struct pass *p = arg;
    int i = standin_of(symbol);
    (void)own;
    if (i < 0 || kind == SLOT_DATA)
        return;
    uintptr_t real = real_of(i), ours = ours_of(i);
    uintptr_t value = atomic_load_explicit(slot, memory_order_relaxed);
    /* One that has not been called yet leads to where the loader looks for it: which it is, is
     * known where there is one. */
    bool unbound = kind == SLOT_CALL && p->cuptis == 1 && object_has(o, value, PF_X);
    bool takes = p->out ? value == ours : value == real || unbound;
    if (!real || !takes || !may_write(p, o, (uintptr_t)slot))
        return;
    (void)atomic_compare_exchange_strong_explicit(slot, &value, p->out ? real : ours,
                                                  memory_order_release, memory_order_relaxed);
    if (!p->out && !atomic_load_explicit(&others.known, memory_order_relaxed)) {
        const char *file = strrchr(o->name, '/');
        (void)snprintf(others.who, sizeof(others.who), "%.60s traces by CUPTI",
                       file         ? file + 1
                       : o->name[0] ? o->name
                                    : "the program");
        atomic_store_explicit(&others.known, true, memory_order_release);
    }
}

static int look_at_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct pass *p = arg;
    struct object o;
    (void)size;
    if (!object_read(info, &o) || !others_links_cupti(&o))
        return 0;
    p->open = false;
    object_slots(&o, write_slot, p);
    if (p->open)
        object_close(&o);
    return 0;
}

static int count_cuptis(struct dl_phdr_info *info, size_t size, void *arg)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    (void)size;
    ((struct pass *)arg)->cuptis +=
        strncmp(slash ? slash + 1 : info->dlpi_name, "libcupti.so", 11) == 0;
    return 0;
}

static void pass_slots(bool out)
{
    struct pages pages;
    struct pass p = {.pages = &pages, .out = out};
    (void)dl_iterate_phdr(count_cuptis, &p);
    if (pages_take(&pages) == 0)
        (void)dl_iterate_phdr(look_at_object, &p);
    pages_free(&pages);
}

static void set_real(int which, const void *function) /* function: a pointer to one */
{
    uintptr_t address;
    memcpy(&address, function, sizeof(address));
    atomic_store_explicit(&standins[which].real, address, memory_order_release);
}

void intercept_look(const struct cupti *c)
{
    if (!c->ActivityRegisterCallbacks ||
        !atomic_load_explicit(&others.begins, memory_order_relaxed))
        return;
    if (real_of(REGISTER) == 0) { /* it is the process's for good */
        set_real(ENABLE, &c->ActivityEnable);
        set_real(DISABLE, &c->ActivityDisable);
        set_real(FLUSH, &c->ActivityFlushAll);
        set_real(REGISTER, &c->ActivityRegisterCallbacks);
    }
    pass_slots(/* out= */ false);
}

void intercept_out(void)
{
    if (real_of(REGISTER))
        pass_slots(/* out= */ true);
}

void intercept_listen(void (*begins)(void))
{
    atomic_store_explicit(&others.begins, begins, memory_order_release);
}

const char *intercept_other(void)
{
    uint64_t called_ns = atomic_load_explicit(&others.called_ns, memory_order_relaxed);
    bool traces = atomic_load_explicit(&others.kinds, memory_order_relaxed) ||
                  (called_ns && probing_clock_ns(CLOCK_MONOTONIC) - called_ns < QUIET_NS);
    return traces && atomic_load_explicit(&others.known, memory_order_acquire) ? others.who : NULL;
}

bool intercept_enabled(int kind)
{
    return atomic_load_explicit(&others.kinds, memory_order_relaxed) & bit_of(kind);
}

void intercept_forked(void)
{
    atomic_store_explicit(&others.begins, NULL, memory_order_relaxed);
}
