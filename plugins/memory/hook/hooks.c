/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/hook/hooks.c - our functions in the slots of loaded objects, and out again.
 *
 * Nothing is remembered of a slot: each pass walks the objects that are loaded at that moment,
 * under the dynamic linker's own lock, and knows by a slot's value what to do.  So an object that
 * has gone is not written to, and a slot that somebody else has changed stays as it is.
 *
 * A slot is taken when it holds the function that every object gets (the first in the order of
 * search), the program's own entry for it, or is not bound yet: then the dynamic linker would bind
 * it to that function.  What is put back is that function.
 */
#include "hook.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/slots/object.h"
#include "lib/slots/page.h"
#include "probing_sdk.h"
#include "wrappers.h"

#define WRAPPERS_MAX 64
#define KNOWN_MAX 4096 /* objects; those behind are walked at each look */
#define KINDS 5        /* enum wrapper_kind */
#define EARLIER_MAX 8  /* copies of this plugin that were loaded before */
#define TRIES 8        /* while objects come and go */
#define LOWEST 65536   /* of addresses; below: 0 for a weak symbol, or not relocated yet */
#define AGAIN 3        /* looks: what ld.so was at work on is done by then */

struct range {
    uintptr_t start, end;
};

/* One for the process, as are the slots.  lock: of all of it, taken before the dynamic linker's. */
static struct hooks {
    pthread_mutex_t lock;
    bool in;
    uint32_t again;                  /* so many looks walk all objects, not only new ones */
    unsigned long long adds, subs;   /* of objects, ever, as far as they were looked at */
    uintptr_t entries[WRAPPERS_MAX]; /* the program's own entry for a function; 0: none */
    uintptr_t allocator, libc;       /* first segment's address; 0: not found */
    struct range earlier[EARLIER_MAX];
    uint32_t n_earlier;
    const ElfW(Phdr) * known[KNOWN_MAX]; /* objects that are done, in the order of the list */
    uint32_t n_known;
    uint32_t objects, slots; /* that hold our functions */
    uint32_t foreign, stuck; /* objects that call others' functions; slots that can't be written */
    bool program_allocates;
    char allocator_name[64], words[256];
    uintptr_t core; /* an address in libprobing.so */
} hooks = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The number of the wrapper for a function, -1: it is none of them. */
static int wrapper_of(const char *symbol)
{
    if (!strchr("acdfmprv_", symbol[0]) ||
        (symbol[0] == '_' && (symbol[1] != 'Z' || (symbol[2] != 'n' && symbol[2] != 'd'))))
        return -1;
    for (uint32_t i = 0; i < wrappers_n; i++)
        if (strcmp(symbol, wrappers[i].name) == 0)
            return (int)i;
    return -1;
}

static uintptr_t real_of(uint32_t i)
{
    return atomic_load_explicit(wrappers[i].real, memory_order_relaxed);
}

static uintptr_t id_of(const struct object *o)
{
    return (uintptr_t)o->segments;
}

/* ---- which objects are whose ---- */

/* The dynamic linker's own calls are made with its locks held, and it had its own malloc() once. */
static bool is_linker(const struct object *o)
{
    return object_defines(o, "_rtld_global") != 0;
}

static bool is_ours(const struct object *o)
{
    return object_has(o, (uintptr_t)hooks_in, PF_X) || object_has(o, hooks.core, PF_X) ||
           object_defines(o, "probing_plugin_v1") != 0;
}

/* ---- which function each object gets ---- */

struct search {
    uint32_t n; /* objects seen */
    uintptr_t found[WRAPPERS_MAX], definer[WRAPPERS_MAX];
    uintptr_t libc;
    const char *checked_by; /* a sanitizer; NULL: none */
    char allocator[64];
    bool program_allocates;
};

static void keep_earlier(const struct object *o)
{
    const struct probing_plugin *p = (const void *)object_defines(o, "probing_plugin_v1");
    if (!p || object_has(o, (uintptr_t)hooks_in, PF_X) || strcmp(p->name, "memory") != 0)
        return;
    for (uint32_t i = 0; i < o->n_segments && hooks.n_earlier < EARLIER_MAX; i++) {
        const ElfW(Phdr) *s = &o->segments[i];
        if (s->p_type == PT_LOAD && s->p_flags & PF_X)
            hooks.earlier[hooks.n_earlier++] =
                (struct range){o->base + s->p_vaddr, o->base + s->p_vaddr + s->p_memsz};
    }
}

static const char *sanitizer_in(const struct object *o)
{
    static const char *const signs[][2] = {{"__asan_init", "AddressSanitizer"},
                                           {"__tsan_init", "ThreadSanitizer"},
                                           {"__msan_init", "MemorySanitizer"},
                                           {"__hwasan_init", "HWAddressSanitizer"},
                                           {"__lsan_init", "LeakSanitizer"}};
    for (size_t i = 0; i < PROBING_LENGTH(signs); i++)
        if (object_defines(o, signs[i][0]))
            return signs[i][1];
    return NULL;
}

static void name_allocator(const struct object *o, char ret[64])
{
    static const char *const signs[][2] = {
        {"mallctl", "jemalloc"},   {"je_mallctl", "jemalloc"},
        {"tc_malloc", "tcmalloc"}, {"TCMallocInternalMalloc", "tcmalloc"},
        {"mi_malloc", "mimalloc"}, {"gnu_get_libc_version", "glibc"}};
    const char *file = strrchr(o->name, '/');
    (void)snprintf(ret, 64, "%s", file ? file + 1 : o->name[0] ? o->name : "the program's own");
    for (size_t i = 0; i < PROBING_LENGTH(signs); i++)
        if (object_defines(o, signs[i][0])) {
            (void)snprintf(ret, 64, "%s", signs[i][1]);
            return;
        }
}

static void take_entry(void *arg, const struct object *o, const char *symbol,
                       _Atomic uintptr_t *slot, enum slot_kind kind, uintptr_t own)
{
    int i = kind == SLOT_CALL && own ? wrapper_of(symbol) : -1;
    (void)arg, (void)slot;
    if (i >= 0 && !object_defines(o, symbol))
        hooks.entries[i] = own;
}

static int search_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *s = arg;
    struct object o;
    uint32_t index = s->n++;
    (void)size;
    if (!object_read(info, &o) || is_linker(&o))
        return 0;
    keep_earlier(&o);
    if (index == 0)
        object_slots(&o, take_entry, NULL);
    if (!s->checked_by)
        s->checked_by = sanitizer_in(&o);
    if (object_has(&o, (uintptr_t)hooks_in, PF_X) && index != 0)
        return 0;
    if (!s->libc && object_defines(&o, "gnu_get_libc_version"))
        s->libc = id_of(&o);
    for (uint32_t i = 0; i < wrappers_n; i++) {
        uintptr_t at = s->found[i] ? 0 : object_defines(&o, wrappers[i].name);
        if (!at)
            continue;
        s->found[i] = at;
        s->definer[i] = id_of(&o);
        if (i == 0) { /* malloc() itself */
            name_allocator(&o, s->allocator);
            s->program_allocates = index == 0;
        }
    }
    return 0;
}

/* Another thread reads the pointer behind a wrapper after it has read a slot; nothing in between
 * orders the two.  So every thread has seen a pointer before a slot leads to it. */
static void seen_by_all(void)
{
    (void)syscall(SYS_membarrier, 1 /* MEMBARRIER_CMD_GLOBAL */, 0, 0);
}

static int find_functions(const struct probing_host *host)
{
    struct search s = {0};
    bool news = false;

    memset(hooks.entries, 0, sizeof(hooks.entries));
    hooks.n_earlier = 0;
    (void)dl_iterate_phdr(search_object, &s);
    if (s.checked_by)
        return probing_failf(host, -ENOTSUP,
                             "%s is in this process and keeps its own account of memory, which it "
                             "would not recognize through ours; run the program without it",
                             s.checked_by);
    if (!s.found[0])
        return probing_failf(host, -ENOTSUP,
                             "no loaded object has malloc() for others to call; is "
                             "the program linked statically?");
    for (uint32_t i = 0; i < wrappers_n; i++) {
        bool below = (wrappers[i].kind == WRAPS_REPEATED && s.definer[i] == s.libc) ||
                     (wrappers[i].kind == WRAPS_CPLUSPLUS && s.definer[i] != s.definer[0]);
        uintptr_t real = below ? 0 : s.found[i];
        if (real && real != real_of(i)) {
            atomic_store_explicit(wrappers[i].real, real, memory_order_release);
            news = true;
        }
    }
    if (news)
        seen_by_all();
    hooks.allocator = s.definer[0];
    hooks.libc = s.libc;
    (void)snprintf(hooks.allocator_name, sizeof(hooks.allocator_name), "%s", s.allocator);
    hooks.program_allocates = s.program_allocates;
    return 0;
}

/* ---- one pass over the objects ---- */

struct pass {
    const struct pages *pages; /* NULL with out */
    bool out;                  /* put back, not in */
    bool all;                  /* the objects that are known, too */
    bool changed;              /* objects came or went since the last pass */
    bool unfinished;           /* there is one that the dynamic linker has not finished with */
    uint32_t index;            /* of the object */
    uint32_t n_begun;          /* objects that the program began with */
    bool has_private;          /* some objects may have an allocator that others have not */
    bool foreign[KINDS];       /* the object calls somebody else's functions of the kind */
    uint32_t held, todo;       /* its slots with our function, its slots that are to be written */
    bool open;                 /* its pages are writable for now */
    bool waits;                /* it was not finished */
    uint32_t stuck;
};

static bool is_earlier(uintptr_t value)
{
    for (uint32_t i = 0; i < hooks.n_earlier; i++)
        if (value - hooks.earlier[i].start < hooks.earlier[i].end - hooks.earlier[i].start)
            return true;
    return false;
}

/* A call that has not been made yet goes to the object's own code, from where ld.so binds it: to
 * what all objects get, but for those that were loaded with an allocator of their own
 * (RTLD_DEEPBIND), of which we learn when it is bound. */
static bool is_unbound(const struct pass *p, const struct object *o, enum slot_kind kind,
                       uintptr_t value)
{
    return kind == SLOT_CALL && !o->symbolic && (!p->has_private || p->index <= p->n_begun) &&
           object_has(o, value, PF_X);
}

/* The value that the slot is to get; 0: it is to be left alone. */
static uintptr_t wanted_value(const struct pass *p, const struct object *o, uint32_t i,
                              enum slot_kind kind, uintptr_t value)
{
    uintptr_t real = real_of(i), entry = hooks.entries[i];
    if (p->out)
        return value != wrappers[i].ours ? 0 : kind != SLOT_CALL && entry ? entry : real;
    if (!real || p->foreign[wrappers[i].kind])
        return 0;
    bool takes = value == real || (entry && value == entry) || is_earlier(value) ||
                 is_unbound(p, o, kind, value);
    return takes ? wrappers[i].ours : 0;
}

static void judge_slot(void *arg, const struct object *o, const char *symbol,
                       _Atomic uintptr_t *slot, enum slot_kind kind, uintptr_t own)
{
    struct pass *p = arg;
    int i = wrapper_of(symbol);
    (void)own;
    if (i < 0 || !real_of((uint32_t)i))
        return;
    uintptr_t value = atomic_load_explicit(slot, memory_order_relaxed);
    if (value == wrappers[i].ours)
        p->held++;
    if (wanted_value(p, o, (uint32_t)i, kind, value))
        p->todo++;
    else if (value != wrappers[i].ours && kind != SLOT_DATA && value >= LOWEST &&
             !(kind == SLOT_CALL && object_has(o, value, PF_X)))
        p->foreign[wrappers[i].kind] = true;
}

/* May the slot be written now?  Opens the pages that ld.so has closed.  One that holds our function
 * was written before, so nothing need be asked. */
static bool may_write(struct pass *p, const struct object *o, uintptr_t at)
{
    if (at < o->relro_start || at >= o->relro_end)
        return p->out || page_is_writable(p->pages, at);
    if (p->open)
        return true;
    if (!p->out && page_is_writable(p->pages, at)) {
        p->waits = true;
        return false;
    }
    p->open = object_open(o);
    return p->open;
}

static void write_slot(void *arg, const struct object *o, const char *symbol,
                       _Atomic uintptr_t *slot, enum slot_kind kind, uintptr_t own)
{
    struct pass *p = arg;
    int i = wrapper_of(symbol);
    (void)own;
    if (i < 0)
        return;
    uintptr_t value = atomic_load_explicit(slot, memory_order_relaxed);
    uintptr_t wanted = wanted_value(p, o, (uint32_t)i, kind, value);
    if (!wanted || p->waits)
        return;
    if (!may_write(p, o, (uintptr_t)slot)) {
        p->stuck += !p->waits;
        return;
    }
    /* ld.so may bind the call at this moment: then it is as if we had come before. */
    if (atomic_compare_exchange_strong_explicit(slot, &value, wanted, memory_order_release,
                                                memory_order_relaxed))
        p->held += p->out ? -1u : 1u;
}

static void write_object(struct pass *p, const struct object *o)
{
    p->open = p->waits = false;
    object_slots(o, write_slot, p);
    if (p->open)
        object_close(o);
}

static bool is_left_alone(const struct object *o)
{
    uintptr_t id = id_of(o);
    return is_linker(o) || is_ours(o) || (id == hooks.allocator && id != hooks.libc);
}

static void pass_object(struct pass *p, const struct dl_phdr_info *info)
{
    struct object o;
    memset(p->foreign, 0, sizeof(p->foreign));
    p->held = p->todo = p->stuck = 0;
    p->waits = false;
    if (!object_read(info, &o) || is_left_alone(&o))
        return;
    object_slots(&o, judge_slot, p);
    bool foreign = false;
    for (uint32_t i = 0; i < KINDS; i++)
        foreign |= p->foreign[i];
    if (p->todo)
        write_object(p, &o);
    p->unfinished |= p->waits;
    hooks.foreign += foreign;
    hooks.stuck += p->stuck;
    hooks.slots += p->held;
    hooks.objects += p->held > 0;
}

static void forget_known(void)
{
    hooks.n_known = hooks.objects = hooks.slots = hooks.foreign = hooks.stuck = 0;
}

/* ld.so stands behind the objects that the program began with. */
static int look_around(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct pass *p = arg;
    struct object o;
    (void)size;
    p->index++;
    if (!object_read(info, &o))
        return 0;
    if (is_linker(&o))
        p->n_begun = p->index;
    else if (id_of(&o) != hooks.allocator && id_of(&o) != hooks.libc &&
             object_defines(&o, "malloc"))
        p->has_private = true;
    return 0;
}

static int each_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct pass *p = arg;
    uint32_t index = p->index++;
    (void)size;
    if (index == 0) {
        bool gone = info->dlpi_subs != hooks.subs; /* an address may be another object's now */
        p->changed = gone || info->dlpi_adds != hooks.adds;
        hooks.adds = info->dlpi_adds;
        hooks.subs = info->dlpi_subs;
        if (p->all || gone)
            forget_known();
        if (p->changed && p->pages && !p->pages->asks)
            return -EAGAIN; /* what is known of pages is older */
        p->index = 0;
        if (!p->out)
            (void)dl_iterate_phdr(look_around, p); /* in its lock, which is recursive */
        p->index = 1;
    }
    if (index < hooks.n_known && hooks.known[index] == info->dlpi_phdr)
        return 0;
    pass_object(p, info);
    if (!p->waits && !p->out && index == hooks.n_known && index < KNOWN_MAX)
        hooks.known[hooks.n_known++] = info->dlpi_phdr;
    return 0;
}

/* Ours into all objects, or into those that are new. */
static void walk_in(bool all)
{
    struct pages pages;
    int rc = -EAGAIN;
    bool changed = false;
    for (int i = 0; i < TRIES && rc == -EAGAIN; i++) {
        struct pass p = {.pages = &pages, .all = all};
        rc = pages_take(&pages);
        if (rc == 0)
            rc = dl_iterate_phdr(each_object, &p);
        pages_free(&pages);
        changed |= p.changed || p.unfinished || rc != 0;
    }
    if (changed)
        hooks.again = AGAIN;
}

static void walk_out(void)
{
    struct pass p = {.out = true, .all = true};
    (void)dl_iterate_phdr(each_object, &p);
}

static int compare_counts(struct dl_phdr_info *info, size_t size, void *arg)
{
    bool *news = arg;
    (void)size;
    *news = info->dlpi_adds != hooks.adds || info->dlpi_subs != hooks.subs;
    return 1;
}

static bool is_news(void)
{
    bool news = false;
    (void)dl_iterate_phdr(compare_counts, &news);
    return news;
}

/* ---- in, out and between ---- */

/* By a thread of the program, which may hold the dynamic linker's lock: it waits for nobody. */
static void look_before_lookup(void)
{
    if (pthread_mutex_trylock(&hooks.lock) != 0)
        return;
    if (hooks.in && is_news())
        walk_in(/* all= */ false);
    (void)pthread_mutex_unlock(&hooks.lock);
}

int hooks_in(const struct probing_host *host, struct hooks **ret)
{
    (void)pthread_mutex_lock(&hooks.lock);
    hooks.core = (uintptr_t)host->append;
    int rc = find_functions(host);
    if (rc == 0) {
        hooks.in = true;
        walk_in(/* all= */ true);
        wrappers_on_lookup(look_before_lookup);
    }
    (void)pthread_mutex_unlock(&hooks.lock);
    if (rc == 0)
        *ret = &hooks;
    return rc;
}

void hooks_look(struct hooks *h)
{
    (void)pthread_mutex_lock(&h->lock);
    bool all = h->again > 0;
    if (h->in && (all || is_news())) {
        h->again -= all;
        walk_in(all);
    }
    (void)pthread_mutex_unlock(&h->lock);
}

void hooks_out(struct hooks *h)
{
    wrappers_on_lookup(NULL);
    (void)pthread_mutex_lock(&h->lock);
    h->in = false;
    h->again = 0;
    walk_out();
    (void)pthread_mutex_unlock(&h->lock);
}

void hooks_forked(void)
{
    wrappers_on_lookup(NULL);
    (void)pthread_mutex_init(&hooks.lock, NULL); /* whoever held it is not here */
}

static void add_words(const char *format, uint32_t n)
{
    size_t at = strlen(hooks.words);
    if (n == 0)
        return;
    (void)snprintf(hooks.words + at, sizeof(hooks.words) - at, "%s", at ? "; " : "");
    at = strlen(hooks.words);
    (void)snprintf(hooks.words + at, sizeof(hooks.words) - at, format, n);
}

void hooks_about(struct hooks *h, struct hooks_about *ret)
{
    (void)pthread_mutex_lock(&h->lock);
    h->words[0] = '\0';
    add_words("what the program itself allocates, as malloc() is part of it", h->program_allocates);
    add_words("%u objects that call other functions than all others do", h->foreign);
    add_words("%u calls in memory that may not be written", h->stuck);
    *ret = (struct hooks_about){.objects = h->objects,
                                .slots = h->slots,
                                .allocator = h->allocator_name,
                                .unseen = h->words};
    (void)pthread_mutex_unlock(&h->lock);
}
