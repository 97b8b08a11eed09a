/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/elf.c - modules of a process and their dynamic symbols, from memory alone.
 * Owner's thread only.  It opens no file: what is mapped is right in every mount namespace, chroot
 * and after the file on disk was replaced.  Headers are read when a module is first asked for.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/stack/internal.h"
#include "sdk/lib/elf_view.h"

#define NAMES_MAX_BYTES (UINT64_C(512) << 20)
#define DYNAMIC_MAX 128 /* entries of a dynamic section */
/* times what it took: many threads may stand at addresses in no module */
#define VAIN_PAUSE 20

/* A module begins where a file is mapped from its first byte.  Device memory is left alone. */
static bool may_be_module(const struct proc_mapping *m)
{
    if (strcmp(m->path, "[vdso]") == 0)
        return true;
    return m->offset == 0 && m->path[0] == '/' && m->readable &&
           (strncmp(m->path, "/dev/", 5) != 0 || strncmp(m->path, "/dev/shm/", 9) == 0);
}

static void module_free(const struct stack_process *p, struct module *m)
{
    if (!m)
        return;
    symbols_done(p, &m->symbols);
    process_free(p, m->path);
    process_free(p, m);
}

void modules_free(struct stack_process *p)
{
    for (uint32_t i = 0; i < p->n_modules; i++)
        module_free(p, p->modules[i]);
    process_free(p, p->modules);
    p->modules = NULL;
    p->n_modules = 0;
}

/* The module known before, taken out of the old list when it is still the same. */
static struct module *take_known(struct stack_process *p, uint32_t *at,
                                 const struct proc_mapping *m)
{
    while (*at < p->n_modules && (!p->modules[*at] || p->modules[*at]->about.base < m->start))
        (*at)++;
    if (*at == p->n_modules)
        return NULL;
    struct module *known = p->modules[*at];
    if (known->about.base != m->start || known->inode != m->inode ||
        strcmp(known->path, m->path) != 0)
        return NULL;
    p->modules[(*at)++] = NULL;
    return known;
}

static struct module *module_new(struct stack_process *p, const struct proc_mapping *m)
{
    struct module *new = process_alloc(p, sizeof(*new));
    if (!new)
        return NULL;
    size_t size = strlen(m->path) + 1;
    new->path = process_alloc(p, size);
    if (!new->path) {
        process_free(p, new);
        return NULL;
    }
    memcpy(new->path, m->path, size);
    new->inode = m->inode;
    new->first_end = m->end;
    new->about = (struct stack_module){.path = new->path, .base = m->start, .end = m->end};
    return new;
}

int modules_update(struct stack_process *p)
{
    struct module **list = process_alloc(p, (p->n_maps + 1u) * sizeof(struct module *));
    if (!list)
        return err_set(-ENOMEM, "no memory for the modules of process %d", p->pid);
    uint32_t n = 0, at = 0;
    bool changed = false;
    for (uint32_t i = 0; i < p->n_maps; i++) {
        const struct proc_mapping *m = &p->maps[i];
        if (!may_be_module(m))
            continue;
        struct module *module = take_known(p, &at, m);
        if (!module) {
            module = module_new(p, m);
            changed = true;
        }
        if (module)
            list[n++] = module;
    }
    for (uint32_t i = 0; i < p->n_modules; i++)
        changed = changed || p->modules[i];
    modules_free(p); /* those that were not taken */
    p->modules = list;
    p->n_modules = n;
    if (changed)
        unwind_flush(p);
    return 0;
}

/* A file can be mapped as plain data too: a module has code of the same file mapped. */
static bool has_code_mapped(const struct stack_process *p, const struct module *m)
{
    for (uint32_t i = 0; i < m->about.n_text; i++) {
        const struct proc_mapping *map = process_mapping_at(p, m->about.text[i].start);
        if (map && map->executable && strcmp(map->path, m->path) == 0)
            return true;
    }
    return false;
}

static void find_build_id(struct stack_process *p, struct module *m, uint64_t at, uint64_t size)
{
    while (size >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr note;
        char name[4];
        if (stack_read(p, at, &note, sizeof(note)) < 0)
            return;
        uint64_t name_size = ((uint64_t)note.n_namesz + 3) & ~UINT64_C(3);
        uint64_t all = sizeof(note) + name_size + (((uint64_t)note.n_descsz + 3) & ~UINT64_C(3));
        if (all > size)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && note.n_descsz <= 64 &&
            stack_read(p, at + sizeof(note), name, 4) == 0 && memcmp(name, "GNU", 4) == 0) {
            m->build_id = at + sizeof(note) + name_size;
            m->build_id_size = note.n_descsz;
            return;
        }
        at += all;
        size -= all;
    }
}

static bool read_segments(struct stack_process *p, struct module *m)
{
    struct stack_module *about = &m->about;
    uint64_t low = UINT64_MAX;
    m->n_segments = m->header.e_phnum;
    if (m->n_segments > sizeof(m->segments) / sizeof(m->segments[0]))
        m->n_segments = sizeof(m->segments) / sizeof(m->segments[0]);
    if (m->header.e_phentsize != sizeof(Elf64_Phdr) ||
        stack_read(p, about->base + m->header.e_phoff, m->segments,
                   m->n_segments * sizeof(Elf64_Phdr)) < 0)
        return false;
    for (uint32_t i = 0; i < m->n_segments; i++) {
        if (m->segments[i].p_type == PT_LOAD && m->segments[i].p_vaddr < low)
            low = m->segments[i].p_vaddr;
    }
    if (low == UINT64_MAX)
        return false;
    about->bias = about->base - (low & ~(PAGE_BYTES - 1));
    for (uint32_t i = 0; i < m->n_segments; i++) {
        const Elf64_Phdr *s = &m->segments[i];
        uint64_t start = about->bias + s->p_vaddr, end = start + s->p_memsz;
        if (s->p_type == PT_DYNAMIC)
            m->dynamic = start;
        if (s->p_type == PT_GNU_EH_FRAME)
            about->eh_frame_hdr = start;
        if (s->p_type == PT_NOTE && m->build_id == 0 && s->p_memsz < PAGE_BYTES)
            find_build_id(p, m, start, s->p_memsz);
        if (s->p_type != PT_LOAD)
            continue;
        if (end > about->end)
            about->end = (end + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
        if ((s->p_flags & PF_X) && about->n_text < 4)
            about->text[about->n_text++] = (struct stack_range){start, end};
    }
    return has_code_mapped(p, m);
}

static bool module_is_elf(struct stack_process *p, struct module *m)
{
    if (m->state != MODULE_UNKNOWN)
        return m->state == MODULE_ELF;
    m->state = MODULE_NONE;
    if (stack_read(p, m->about.base, &m->header, sizeof(m->header)) < 0 ||
        memcmp(m->header.e_ident, ELFMAG, SELFMAG) != 0)
        return false;
    m->about.elf_class = m->header.e_ident[EI_CLASS];
    m->about.machine = m->header.e_machine;
    if (m->about.elf_class == ELFCLASS64 && !read_segments(p, m))
        return false;
    m->state = MODULE_ELF;
    return true;
}

static struct module *find_at(struct stack_process *p, uint64_t address)
{
    uint32_t low = 0, high = p->n_modules;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (p->modules[middle]->about.base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    /* Not always the nearest below: plain data may be mapped into a module's hole. */
    for (uint32_t i = low; i > 0 && low - i < 4; i--) {
        struct module *m = p->modules[i - 1];
        if (module_is_elf(p, m) && address < m->about.end)
            return m;
    }
    return NULL;
}

struct module *module_at(struct stack_process *p, uint64_t address)
{
    struct module *m = find_at(p, address);
    uint64_t begin = m || p->maps_fresh ? 0 : clock_monotonic();
    if (begin < p->again_ns || begin == 0)
        return m;
    const struct proc_mapping *map = process_mapping_at(p, address);
    if (map && map->executable)
        return NULL; /* code in no module, and we knew it: no need to read the maps again */
    m = process_read_maps(p) < 0 ? NULL : find_at(p, address);
    uint64_t end = clock_monotonic();
    p->again_ns = m ? 0 : end + VAIN_PAUSE * (end - begin);
    return m;
}

const struct stack_module *stack_module_at(struct stack_process *p, uint64_t address)
{
    struct module *m = module_at(p, address);
    return m ? &m->about : NULL;
}

const struct stack_module *stack_module_named(struct stack_process *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_modules; i++) {
        struct module *m = p->modules[i];
        const char *slash = strrchr(m->path, '/');
        if (strncmp(slash ? slash + 1 : m->path, name, strlen(name)) == 0 && module_is_elf(p, m))
            return &m->about;
    }
    return NULL;
}

int stack_modules(struct stack_process *p, int (*fn)(void *arg, const struct stack_module *m),
                  void *arg)
{
    for (uint32_t i = 0; i < p->n_modules; i++) {
        int rc = module_is_elf(p, p->modules[i]) ? fn(arg, &p->modules[i]->about) : 0;
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* ---- dynamic symbols ---- */

static bool read_target(const struct elf_view *v, uint64_t address, void *ret, size_t n)
{
    return stack_read_cached(v->arg, address, ret, n) == 0;
}

/* false: the module has no symbols. */
static bool view_module(struct stack_process *p, const struct module *m, struct elf_view *ret)
{
    /* ld.so relocates the addresses in place, except in the vdso and in early start. */
    *ret = (struct elf_view){
        .read = read_target, .arg = p, .base = m->about.base, .bias = m->about.bias};
    if (!m->dynamic)
        return false;
    (void)elf_view_dynamic(ret, m->dynamic, DYNAMIC_MAX);
    return elf_has(ret, DT_SYMTAB) && elf_has(ret, DT_STRTAB) &&
           (elf_has(ret, DT_GNU_HASH) || elf_has(ret, DT_HASH));
}

static bool is_defined(void *arg, uint32_t i, const Elf64_Sym *s)
{
    (void)i;
    *(uint64_t *)arg = s->st_value;
    return s->st_shndx != SHN_UNDEF && s->st_value != 0 && ELF64_ST_TYPE(s->st_info) != STT_TLS;
}

uint64_t stack_symbol_address(struct stack_process *p, const struct stack_module *about,
                              const char *name)
{
    struct elf_view v;
    uint64_t value = 0;
    const struct module *m = module_at(p, about->base);
    return m && view_module(p, m, &v) && elf_view_find(&v, name, is_defined, &value)
               ? m->about.bias + value
               : 0;
}

int module_copy_symbols(struct stack_process *p, const struct module *m, struct symbols *ret)
{
    struct elf_view v;
    uint32_t n = view_module(p, m, &v) ? elf_view_count(&v) : 0;
    uint64_t size = elf_value(&v, DT_STRSZ);
    if (n == 0 || size == 0 || size > NAMES_MAX_BYTES)
        return -ENOENT;
    Elf64_Sym *table = process_alloc(p, n * sizeof(*table));
    char *names = process_alloc(p, size + 1);
    int rc = -ENOMEM;
    if (table && names) {
        names[size] = '\0';
        rc = stack_read(p, elf_view_address(&v, DT_SYMTAB), table, n * sizeof(*table));
        if (rc == 0)
            rc = stack_read(p, elf_view_address(&v, DT_STRTAB), names, size);
    }
    if (rc < 0) {
        process_free(p, table);
        process_free(p, names);
        return rc;
    }
    ret->table = table;
    ret->names = names;
    ret->names_size = size;
    ret->n = n;
    return 0;
}

int stack_symbols(struct stack_process *p, const struct stack_module *about,
                  int (*fn)(void *arg, const char *name, uint64_t start, uint64_t size), void *arg)
{
    const struct module *m = module_at(p, about->base);
    struct symbols all = {.n = 0};
    int rc = m ? module_copy_symbols(p, m, &all) : -ENOENT;
    for (uint32_t i = 1; i < all.n && rc == 0; i++) {
        const Elf64_Sym *s = &all.table[i];
        if (symbol_is_function(&all, s))
            rc = fn(arg, all.names + s->st_name, m->about.bias + s->st_value, s->st_size);
    }
    symbols_done(p, &all);
    return rc;
}
