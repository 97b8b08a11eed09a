/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/unwind_index.c - executable mappings, their .eh_frame_hdr tables, and a cache of
 * rules.
 *
 * Its owner's thread only.  It does not ask ld.so, whose lock a thread may hold for long: what
 * is mapped is read from /proc/self/maps, and ld.so's list of modules is read as bytes.
 */
#include "unwind_index.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "frame_size.h"
#include "lib/hash.h"
#include "lib/proc/maps.h"
#include "lib/proc/memory.h"
#include "probing_sdk.h"

#define TEXTS_FIRST 512u
#define TEXTS_MAX (1u << 18) /* executable mappings; torch has 400 */
#define RULES_FIRST 4096u
#define RULES_MAX (1u << 18) /* 8 MiB; a large training job shows some ten thousand places */
#define ENTRY_MAX 4096u      /* bytes of an .eh_frame entry; the largest of torch's has 1,300 */
#define MODULES_MAX 8192
#define AGAIN_NS UINT64_C(100000000) /* maps are read again after this, at an unknown address */
#define PIECES 1024u                 /* a system call: IOV_MAX */
#define SEARCHED 512u                /* entries of a table that are read at once: a page */
#define ENTRY_GUESS 192u             /* bytes of an entry; most have less than 100 */
#define NOT_LOOKED (-2)

struct text {
    uint64_t start, end, base; /* base: where the file's first byte is mapped; 0: no file */
    uint64_t table, eh_frame_hdr;
    uint32_t n_entries;
    bool looked;
};

struct cached {
    uint64_t ip;    /* 0: empty */
    uint64_t begin; /* of its function; 0: not known */
    struct cfi_rule rule;
    int32_t held; /* bytes between the frame pointer and sp here; NOT_LOOKED, or -1: not known */
};

struct code {
    struct text *texts; /* by address */
    uint32_t n_texts;
    uint64_t read_ns;
    struct cached *rules;
    uint32_t n_rules, room; /* room: a power of two */
    uint64_t modules;       /* of ld.so's list */
    const struct r_debug *debug;
    struct link_map *maps; /* ld.so's list as it was; n_maps of them */
    uint64_t *maps_at;     /* and where each lies */
    uint32_t n_maps;
    uint64_t cie_at; /* what `cie` is a copy of; 0: nothing */
    uint32_t cie_size;
    uint8_t cie[ENTRY_MAX], fde[ENTRY_MAX];
};

/* As many bytes as there are, up to `size`. */
static size_t read_some(uint64_t address, void *ret, size_t size)
{
    struct proc_memory own = PROC_MEMORY_OF(0);
    return proc_memory_read(&own, address, ret, size);
}

bool code_read(uint64_t address, void *ret, size_t size)
{
    return read_some(address, ret, size) == size;
}

static uint64_t now_ns(void)
{
    return probing_clock_ns(CLOCK_MONOTONIC);
}

/* ---- what is mapped ---- */

/* The start of a mapping's file, if it is the one that was mapped from its first byte last. */
static uint64_t base_of(const struct proc_mapping *first, const struct proc_mapping *m)
{
    bool same =
        m->inode ? m->inode == first->inode && m->major == first->major && m->minor == first->minor
                 : m->start == first->start && m->path[0] == '['; /* the vdso */
    return same ? first->start : 0;
}

/* Room for one more; false: there is none. */
static bool make_place(struct text **texts, uint32_t n, uint32_t *room)
{
    if (n < *room)
        return true;
    struct text *more = n < TEXTS_MAX ? realloc(*texts, (size_t)(*room * 2) * sizeof(*more)) : NULL;
    if (!more)
        return false;
    *texts = more;
    *room *= 2;
    return true;
}

static void refresh_code(struct code *c)
{
    char line[PROC_MAPS_ROOM];
    struct proc_lines l;
    struct proc_mapping m, first = {.inode = 0};
    uint32_t n = 0, room = TEXTS_FIRST;
    struct text *texts = malloc(room * sizeof(*texts));
    c->read_ns = now_ns();
    if (!texts)
        return;
    bool whole = proc_maps_open(&l, 0, line, sizeof(line)) == 0;
    while (whole && proc_maps_next(&l, &m)) {
        if (m.offset == 0)
            first = m;
        if (!m.executable)
            continue;
        whole = make_place(&texts, n, &room);
        if (whole)
            texts[n++] = (struct text){.start = m.start, .end = m.end, .base = base_of(&first, &m)};
    }
    whole = whole && l.error == 0;
    proc_lines_close(&l);
    if (!whole) {
        free(texts);
        return;
    }
    free(c->texts);
    c->texts = texts;
    c->n_texts = n;
}

static struct text *text_find(struct code *c, uint64_t ip)
{
    uint32_t low = 0, high = c->n_texts;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (c->texts[middle].end <= ip)
            low = middle + 1;
        else
            high = middle;
    }
    return low < c->n_texts && c->texts[low].start <= ip ? &c->texts[low] : NULL;
}

static struct text *text_at(struct code *c, uint64_t ip)
{
    struct text *t = text_find(c, ip);
    if (!t && ip >= 4096 && now_ns() - c->read_ns > AGAIN_NS) {
        refresh_code(c);
        t = text_find(c, ip);
    }
    return t;
}

/* The .eh_frame_hdr of a mapped file: version 1, pointer pcrel sdata4, count udata4, table datarel
 * sdata4 is what every linker writes; another form counts as no table. */
static void find_table(struct text *t)
{
    static const uint8_t form[4] = {1, 0x1b, 0x03, 0x3b};
    Elf64_Ehdr header;
    Elf64_Phdr segments[32];
    uint64_t first = UINT64_MAX, table = 0;
    uint8_t head[12];
    t->looked = true;
    if (!t->base || !code_read(t->base, &header, sizeof(header)) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_phentsize != sizeof(segments[0]))
        return;
    uint32_t n = header.e_phnum < 32 ? header.e_phnum : 32;
    if (!code_read(t->base + header.e_phoff, segments, n * sizeof(segments[0])))
        return;
    for (uint32_t i = 0; i < n; i++) {
        if (segments[i].p_type == PT_LOAD && segments[i].p_offset == 0)
            first = segments[i].p_vaddr;
        if (segments[i].p_type == PT_GNU_EH_FRAME)
            table = segments[i].p_vaddr;
    }
    if (first == UINT64_MAX || !table)
        return;
    uint64_t at = t->base - first + table;
    if (!code_read(at, head, sizeof(head)) || memcmp(head, form, sizeof(form)) != 0)
        return;
    memcpy(&t->n_entries, head + 8, sizeof(t->n_entries));
    t->eh_frame_hdr = at;
    t->table = at + sizeof(head);
}

/* Address of the entry for the last function that begins at or before ip, and where that is; 0:
 * none. */
static uint64_t find_fde(const struct text *t, uint64_t ip, uint64_t *ret_begin)
{
    int32_t pairs[SEARCHED][2];
    uint32_t low = 0, high = t->n_entries;
    int64_t want = (int64_t)(ip - t->eh_frame_hdr);
    while (high - low > SEARCHED) { /* pair `low` is not behind ip, or is the first */
        uint32_t middle = low + (high - low) / 2;
        if (!code_read(t->table + middle * UINT64_C(8), pairs[0], sizeof(pairs[0])))
            return 0;
        if (pairs[0][0] <= want)
            low = middle;
        else
            high = middle;
    }
    uint32_t n = high - low, i = 0;
    if (!n || !code_read(t->table + low * UINT64_C(8), pairs, n * sizeof(pairs[0])))
        return 0;
    while (n > 1) { /* the same in the copy */
        uint32_t half = n / 2;
        i += pairs[i + half][0] <= want ? half : 0;
        n -= half;
    }
    if (pairs[i][0] > want)
        return 0;
    *ret_begin = t->eh_frame_hdr + (uint64_t)(int64_t)pairs[i][0];
    return t->eh_frame_hdr + (uint64_t)(int64_t)pairs[i][1];
}

static uint32_t read_entry(uint64_t address, uint8_t *to)
{
    size_t got = read_some(address, to, ENTRY_GUESS);
    uint32_t size = got >= 8 ? cfi_entry_size(to) : 0;
    if (size < 8 || size > ENTRY_MAX)
        return 0;
    return size <= got || code_read(address, to, size) ? size : 0;
}

/* ---- rules ---- */

static struct cached find_rule(struct code *c, uint64_t ip)
{
    struct cached found = {.ip = ip, .rule = {.kind = CFI_LOST}, .held = NOT_LOOKED};
    struct text *t = text_at(c, ip);
    if (t && !t->looked)
        find_table(t);
    uint64_t fde = t && t->table ? find_fde(t, ip, &found.begin) : 0;
    uint32_t fde_size = fde ? read_entry(fde, c->fde) : 0;
    uint64_t cie = fde_size ? cfi_cie_address(c->fde, fde) : 0;
    if (cie && cie != c->cie_at) { /* a module has a few, and all its functions share them */
        c->cie_size = read_entry(cie, c->cie);
        c->cie_at = c->cie_size ? cie : 0;
    }
    if (cie && cie == c->cie_at &&
        cfi_rule(c->cie, c->cie_size, c->fde, fde_size, fde, ip, &found.rule) < 0)
        found.rule.kind = CFI_LOST;
    return found;
}

static struct cached *rule_slot(struct cached *rules, uint32_t room, uint64_t ip)
{
    uint32_t i = (uint32_t)(hash_spread(ip) >> 40) & (room - 1);
    while (rules[i].ip && rules[i].ip != ip)
        i = (i + 1) & (room - 1);
    return &rules[i];
}

static void forget_code(struct code *c)
{
    memset(c->rules, 0, c->room * sizeof(*c->rules));
    c->n_rules = 0;
    c->cie_at = 0;
}

static void make_room(struct code *c)
{
    uint32_t room = c->room * 2;
    struct cached *more = room <= RULES_MAX ? calloc(room, sizeof(*more)) : NULL;
    if (!more) {
        forget_code(c); /* too many places: begin again */
        return;
    }
    for (uint32_t i = 0; i < c->room; i++)
        if (c->rules[i].ip)
            *rule_slot(more, room, c->rules[i].ip) = c->rules[i];
    free(c->rules);
    c->rules = more;
    c->room = room;
}

static struct cached rule_of(struct code *c, uint64_t ip)
{
    struct cached *slot = rule_slot(c->rules, c->room, ip);
    if (slot->ip)
        return *slot;
    struct cached found = find_rule(c, ip);
    if (!ip)
        return found;
    if (c->n_rules * 4 >= c->room * 3) {
        make_room(c);
        slot = rule_slot(c->rules, c->room, ip);
    }
    *slot = found;
    c->n_rules++;
    return found;
}

struct cfi_rule code_rule(struct code *c, uint64_t ip)
{
    return rule_of(c, ip).rule;
}

uint64_t code_function(struct code *c, uint64_t ip)
{
    return rule_of(c, ip).begin;
}

int64_t code_held(struct code *c, uint64_t ip, bool exact)
{
    uint8_t code[FRAME_CODE_BYTES];
    uint64_t begin = rule_of(c, ip - !exact).begin, size = ip - begin;
    struct cached *slot = rule_slot(c->rules, c->room, ip - !exact);
    if (!begin || !slot->ip)
        return -1;
    size = size < sizeof(code) ? size : sizeof(code);
    if (slot->held == NOT_LOOKED)
        slot->held = code_read(begin, code, size) ? (int32_t)frame_size(code, size) : -1;
    return slot->held;
}

bool code_is_behind_call(uint64_t ip)
{
    uint8_t call[FRAME_CALL_BYTES];
    return code_read(ip - sizeof(call), call, sizeof(call)) && frame_is_behind_call(call);
}

bool code_has_no_table(struct code *c, uint64_t ip)
{
    struct text *t = text_at(c, ip);
    if (t && !t->looked)
        find_table(t);
    return t && !t->table;
}

/* ---- modules that come and go ---- */

/* The list as it was read last, by one system call for many of its items.  false: another one. */
static bool read_maps_again(const struct code *c, uint64_t first)
{
    struct iovec pieces[PIECES];
    for (uint32_t done = 0; done < c->n_maps;) {
        uint32_t some = c->n_maps - done < PIECES ? c->n_maps - done : PIECES;
        struct iovec to = {c->maps + done, some * sizeof(*c->maps)};
        for (uint32_t i = 0; i < some; i++)
            pieces[i] = (struct iovec){(void *)(uintptr_t)c->maps_at[done + i], sizeof(*c->maps)};
        if (process_vm_readv(getpid(), &to, 1, pieces, some, 0) != (ssize_t)to.iov_len)
            return false;
        done += some;
    }
    for (uint32_t i = 0; i < c->n_maps; i++) {
        if (c->maps_at[i] != first)
            return false;
        first = (uint64_t)(uintptr_t)c->maps[i].l_next;
    }
    return first == 0;
}

/* The list from item to item; false: it changed while it was read. */
static bool read_maps_anew(struct code *c, uint64_t at)
{
    c->n_maps = 0;
    if (!c->maps)
        c->maps = malloc(MODULES_MAX * (sizeof(*c->maps) + sizeof(*c->maps_at)));
    if (!c->maps)
        return false;
    c->maps_at = (uint64_t *)(void *)(c->maps + MODULES_MAX);
    for (; at && c->n_maps < MODULES_MAX; at = (uint64_t)(uintptr_t)c->maps[c->n_maps++].l_next) {
        c->maps_at[c->n_maps] = at;
        if (!code_read(at, &c->maps[c->n_maps], sizeof(*c->maps)))
            return false;
    }
    return true;
}

/* A number for ld.so's list as it is now; 0: it changed while it was read, or is not there. */
static uint64_t modules_number(struct code *c)
{
    struct r_debug debug;
    uint64_t number = 1;
    if (!c->debug || !code_read((uint64_t)(uintptr_t)c->debug, &debug, sizeof(debug)))
        return 0;
    uint64_t first = (uint64_t)(uintptr_t)debug.r_map;
    if (!read_maps_again(c, first) && !read_maps_anew(c, first))
        return 0;
    for (uint32_t i = 0; i < c->n_maps; i++) {
        const struct link_map *m = &c->maps[i];
        number = hash_spread(number ^ c->maps_at[i] ^ (uint64_t)m->l_addr << 1 ^
                             (uint64_t)(uintptr_t)m->l_ld << 7);
        number ^= number >> 29;
    }
    return number ? number : 1;
}

bool code_changed(struct code *c)
{
    uint64_t number = modules_number(c);
    if (number && number == c->modules)
        return false;
    c->modules = number;
    refresh_code(c);
    forget_code(c);
    return true;
}

int code_open(struct code **ret)
{
    struct code *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->room = RULES_FIRST;
    c->rules = calloc(c->room, sizeof(*c->rules));
    if (!c->rules) {
        free(c);
        return -ENOMEM;
    }
    c->debug = dlsym(RTLD_DEFAULT, "_r_debug");
    (void)code_changed(c);
    *ret = c;
    return 0;
}

void code_free(struct code *c)
{
    if (!c)
        return;
    free(c->texts);
    free(c->rules);
    free(c->maps);
    free(c);
}
