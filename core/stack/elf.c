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

#define SYMBOLS_MAX (8u << 20) /* libtorch_cpu.so has about 200,000 */
#define NAMES_MAX_BYTES (UINT64_C(512) << 20)
#define SYMBOL_NAME_MAX 256u /* bytes of a name that is looked up */
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

static uint32_t count_gnu_hash(struct stack_process *p, uint64_t table)
{
    uint32_t head[4], last = 0, bucket[256], word;
    if (stack_read(p, table, head, sizeof(head)) < 0)
        return 0;
    uint64_t at = table + sizeof(head) + head[2] * UINT64_C(8);
    for (uint32_t i = 0; i < head[0]; i += 256) {
        uint32_t n = head[0] - i < 256 ? head[0] - i : 256;
        if (stack_read(p, at + i * UINT64_C(4), bucket, n * sizeof(bucket[0])) < 0)
            return 0;
        for (uint32_t k = 0; k < n; k++)
            last = bucket[k] > last ? bucket[k] : last;
    }
    if (last < head[1])
        return 0;
    for (at += head[0] * UINT64_C(4); last < SYMBOLS_MAX; last++) {
        if (stack_read_cached(p, at + (last - head[1]) * UINT64_C(4), &word, sizeof(word)) < 0)
            return 0;
        if (word & 1)
            return last + 1;
    }
    return 0;
}

static uint32_t count_symbols(struct stack_process *p, struct module *m)
{
    uint32_t n = m->n_symbols, head[2];
    if (n == 0 && m->gnu_hash)
        n = count_gnu_hash(p, m->gnu_hash);
    if (n == 0 && m->sysv_hash && stack_read(p, m->sysv_hash, head, sizeof(head)) == 0)
        n = head[1];
    m->n_symbols = n <= SYMBOLS_MAX ? n : 0;
    return m->n_symbols;
}

bool module_dynamic(struct stack_process *p, struct module *m)
{
    if (m->dynamic_read)
        return m->symtab && m->strtab && (m->gnu_hash || m->sysv_hash);
    m->dynamic_read = true;
    if (!m->dynamic)
        return false;
    for (uint32_t i = 0; i < 128; i++) {
        Elf64_Dyn d;
        if (stack_read_cached(p, m->dynamic + i * sizeof(d), &d, sizeof(d)) < 0 ||
            d.d_tag == DT_NULL)
            break;
        /* ld.so relocates these in place, except in the vdso and in early start. */
        uint64_t value = d.d_un.d_ptr;
        uint64_t address = value < m->about.base ? value + m->about.bias : value;
        if (d.d_tag == DT_SYMTAB)
            m->symtab = address;
        else if (d.d_tag == DT_STRTAB)
            m->strtab = address;
        else if (d.d_tag == DT_STRSZ)
            m->strtab_size = value;
        else if (d.d_tag == DT_GNU_HASH)
            m->gnu_hash = address;
        else if (d.d_tag == DT_HASH)
            m->sysv_hash = address;
    }
    return module_dynamic(p, m);
}

/* The symbol's address when entry `i` is `name` and defined here. */
static uint64_t symbol_if(struct stack_process *p, const struct module *m, uint32_t i,
                          const char *name)
{
    Elf64_Sym s;
    char found[SYMBOL_NAME_MAX];
    size_t size = strlen(name) + 1;
    if (size > sizeof(found) ||
        stack_read_cached(p, m->symtab + i * sizeof(s), &s, sizeof(s)) < 0 ||
        s.st_shndx == SHN_UNDEF || s.st_value == 0 || ELF64_ST_TYPE(s.st_info) == STT_TLS ||
        s.st_name + size > m->strtab_size ||
        stack_read_cached(p, m->strtab + s.st_name, found, size) < 0 ||
        memcmp(found, name, size) != 0)
        return 0;
    return m->about.bias + s.st_value;
}

static uint64_t find_gnu(struct stack_process *p, const struct module *m, const char *name)
{
    uint32_t head[4], index, word, hash = 5381;
    uint64_t bloom;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    if (stack_read_cached(p, m->gnu_hash, head, sizeof(head)) < 0 || head[0] == 0 || head[2] == 0)
        return 0;
    uint64_t at = m->gnu_hash + sizeof(head);
    if (stack_read_cached(p, at + hash / 64 % head[2] * UINT64_C(8), &bloom, 8) < 0 ||
        !(bloom >> hash % 64 & bloom >> (hash >> (head[3] & 31)) % 64 & 1))
        return 0;
    at += head[2] * UINT64_C(8);
    if (stack_read_cached(p, at + hash % head[0] * UINT64_C(4), &index, 4) < 0 || index < head[1])
        return 0;
    for (at += head[0] * UINT64_C(4); index < SYMBOLS_MAX; index++) {
        if (stack_read_cached(p, at + (index - head[1]) * UINT64_C(4), &word, 4) < 0)
            return 0;
        uint64_t address = (word | 1) == (hash | 1) ? symbol_if(p, m, index, name) : 0;
        if (address || (word & 1))
            return address;
    }
    return 0;
}

uint64_t stack_symbol_address(struct stack_process *p, const struct stack_module *about,
                              const char *name)
{
    struct module *m = module_at(p, about->base);
    if (!m || !module_dynamic(p, m))
        return 0;
    if (m->gnu_hash)
        return find_gnu(p, m, name);
    uint32_t n = count_symbols(p, m); /* DT_HASH alone is the vdso of old kernels: a dozen */
    uint64_t address = 0;
    for (uint32_t i = 1; i < n && !address; i++)
        address = symbol_if(p, m, i, name);
    return address;
}

int module_copy_symbols(struct stack_process *p, struct module *m, Elf64_Sym **ret_table,
                        char **ret_names)
{
    uint32_t n = module_dynamic(p, m) ? count_symbols(p, m) : 0;
    if (n == 0 || m->strtab_size == 0 || m->strtab_size > NAMES_MAX_BYTES)
        return -ENOENT;
    Elf64_Sym *table = process_alloc(p, n * sizeof(*table));
    char *names = process_alloc(p, m->strtab_size + 1);
    int rc = -ENOMEM;
    if (table && names) {
        names[m->strtab_size] = '\0';
        rc = stack_read(p, m->symtab, table, n * sizeof(*table));
        if (rc == 0)
            rc = stack_read(p, m->strtab, names, m->strtab_size);
    }
    if (rc < 0) {
        process_free(p, table);
        process_free(p, names);
        return rc;
    }
    *ret_table = table;
    *ret_names = names;
    return 0;
}

int stack_symbols(struct stack_process *p, const struct stack_module *about,
                  int (*fn)(void *arg, const char *name, uint64_t start, uint64_t size), void *arg)
{
    struct module *m = module_at(p, about->base);
    Elf64_Sym *table;
    char *names;
    int rc = m ? module_copy_symbols(p, m, &table, &names) : -ENOENT;
    if (rc < 0)
        return rc;
    for (uint32_t i = 1; i < m->n_symbols && rc == 0; i++) {
        const Elf64_Sym *s = &table[i];
        unsigned type = ELF64_ST_TYPE(s->st_info);
        if (s->st_shndx != SHN_UNDEF && s->st_value &&
            (type == STT_FUNC || type == STT_GNU_IFUNC) && s->st_name < m->strtab_size)
            rc = fn(arg, names + s->st_name, m->about.bias + s->st_value, s->st_size);
    }
    process_free(p, table);
    process_free(p, names);
    return rc;
}
