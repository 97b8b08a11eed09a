/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/payload.c - our libprobing.so as bytes to be written, two symbols of it, and its load
 * in the target.
 * Sections after the last loaded segment (debug information) are not sent.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/inject/internal.h"

static bool holds(const struct library *l, uint64_t offset, uint64_t size)
{
    return offset <= l->file_size && size <= l->file_size - offset;
}

/* File offset of a loaded address, or UINT64_MAX. */
static uint64_t offset_of(const struct library *l, uint64_t value, size_t size)
{
    const Elf64_Ehdr *e = (const void *)l->bytes;
    const Elf64_Phdr *segments = (const void *)(l->bytes + e->e_phoff);
    for (int i = 0; i < e->e_phnum; i++) {
        if (segments[i].p_type == PT_LOAD && value >= segments[i].p_vaddr &&
            value - segments[i].p_vaddr + size <= segments[i].p_filesz)
            return segments[i].p_offset + (value - segments[i].p_vaddr);
    }
    return UINT64_MAX;
}

/* Value of an exported symbol, 0: none. */
static uint64_t symbol_value(const struct library *l, const char *name)
{
    const Elf64_Ehdr *e = (const void *)l->bytes;
    const Elf64_Shdr *sections = (const void *)(l->bytes + e->e_shoff);
    if (e->e_shoff % 8 || !holds(l, e->e_shoff, e->e_shnum * sizeof(*sections)))
        return 0;
    for (int i = 0; i < e->e_shnum; i++) {
        const Elf64_Shdr *s = &sections[i];
        if (s->sh_type != SHT_DYNSYM || s->sh_link >= e->e_shnum || s->sh_offset % 8)
            continue;
        const Elf64_Shdr *names = &sections[s->sh_link];
        if (!holds(l, s->sh_offset, s->sh_size) || !holds(l, names->sh_offset, names->sh_size))
            return 0;
        const Elf64_Sym *symbols = (const void *)(l->bytes + s->sh_offset);
        const char *text = (const char *)l->bytes + names->sh_offset;
        for (uint64_t k = 0; k < s->sh_size / sizeof(*symbols); k++) {
            if (symbols[k].st_shndx != SHN_UNDEF && symbols[k].st_name < names->sh_size &&
                strncmp(text + symbols[k].st_name, name,
                        (size_t)(names->sh_size - symbols[k].st_name)) == 0)
                return symbols[k].st_value;
        }
    }
    return 0;
}

static int read_symbols(struct library *l, const char *path)
{
    Elf64_Ehdr *e = (void *)l->bytes;
    if (l->file_size < sizeof(*e) || memcmp(e->e_ident, ELFMAG, SELFMAG) != 0 ||
        e->e_ident[EI_CLASS] != ELFCLASS64 || e->e_machine != ARCH_MACHINE || e->e_phoff % 8 ||
        !holds(l, e->e_phoff, e->e_phnum * sizeof(Elf64_Phdr)))
        return err_set(-ENOEXEC, "'%s' is no " ARCH_NAME " library", path);
    uint64_t version = symbol_value(l, "probing_version");
    uint64_t at = version ? offset_of(l, version, 1) : UINT64_MAX;
    l->start = symbol_value(l, "probing_start");
    if (!l->start || at == UINT64_MAX || !holds(l, at, 1))
        return err_set(-ENOEXEC, "'%s' is not a libprobing: it exports no %s", path,
                       l->start ? "probing_version" : "probing_start");
    size_t size = strnlen((char *)l->bytes + at, l->file_size - at);
    if (size >= sizeof(l->version))
        size = sizeof(l->version) - 1;
    memcpy(l->version, l->bytes + at, size);
    const Elf64_Phdr *segments = (const void *)(l->bytes + e->e_phoff);
    for (int i = 0; i < e->e_phnum; i++) {
        uint64_t end = segments[i].p_offset + segments[i].p_filesz;
        if (segments[i].p_type == PT_LOAD && end > l->size && end <= l->file_size)
            l->size = end;
    }
    e->e_shoff = 0; /* the sections are not sent */
    e->e_shnum = e->e_shstrndx = 0;
    return 0;
}

/* The entries of its dynamic section, and the text that their names are in.  NULL: it has none. */
static Elf64_Dyn *dynamic_of(const struct library *l, uint64_t *ret_n, const char **ret_names)
{
    const Elf64_Ehdr *e = (const void *)l->bytes;
    const Elf64_Phdr *segments = (const void *)(l->bytes + e->e_phoff);
    for (int i = 0; i < e->e_phnum; i++) {
        const Elf64_Phdr *s = &segments[i];
        if (s->p_type != PT_DYNAMIC || s->p_offset % 8 || !holds(l, s->p_offset, s->p_filesz))
            continue;
        Elf64_Dyn *d = (void *)(l->bytes + s->p_offset);
        *ret_n = s->p_filesz / sizeof(*d);
        for (uint64_t k = 0; k < *ret_n; k++) {
            uint64_t at = d[k].d_tag == DT_STRTAB ? offset_of(l, d[k].d_un.d_ptr, 1) : UINT64_MAX;
            *ret_names = at != UINT64_MAX ? (const char *)l->bytes + at : NULL;
            if (*ret_names)
                return d;
        }
    }
    return NULL;
}

void library_need_not(struct library *l, const char *name)
{
    const char *names = NULL;
    uint64_t n = 0;
    Elf64_Dyn *d = dynamic_of(l, &n, &names);
    for (uint64_t i = 0; d && i < n; i++) {
        uint64_t room = l->file_size - (uint64_t)((const unsigned char *)names - l->bytes);
        if (d[i].d_tag == DT_NEEDED && d[i].d_un.d_val < room &&
            strncmp(names + d[i].d_un.d_val, name, room - d[i].d_un.d_val) == 0) {
            memmove(d + i, d + i + 1, (n - i - 1) * sizeof(*d)); /* the last entry is a DT_NULL */
            return;
        }
    }
}

int library_open(const char *path, struct library *ret)
{
    struct library l = {0};
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1 || fstat(fd, &st) == -1 || st.st_size == 0) {
        int code = fd == -1 ? -errno : -ENOEXEC;
        if (fd != -1)
            (void)close(fd);
        return err_set(code, "cannot read the library '%s': %s", path, strerror(-code));
    }
    void *bytes =
        mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    (void)close(fd);
    if (bytes == MAP_FAILED)
        return err_set(-errno, "cannot map the library '%s': %s", path, strerror(errno));
    l.bytes = bytes;
    l.file_size = (size_t)st.st_size;
    int rc = read_symbols(&l, path);
    if (rc < 0) {
        library_done(&l);
        return rc;
    }
    *ret = l;
    return 0;
}

void library_done(struct library *l)
{
    if (l->bytes)
        (void)munmap(l->bytes, l->file_size);
    l->bytes = NULL;
}

/* ---- in the target ---- */

/* The remedy for a reason that the loader gave. */
static const char *loader_remedy(const char *text)
{
    if (strstr(text, "GLIBC_"))
        return "; its glibc is too old: a release build of probing runs on 2.17 and newer";
    if (strstr(text, "failed to map") || strstr(text, "annot allocate"))
        return "; it has no memory left: raise its limit (prlimit --as, its cgroup)";
    return "";
}

static int loader_error(struct target *t, const char *path)
{
    char text[600] = "";
    uint64_t at = 0;
    if (t->dlerror && tracee_call(t, t->dlerror, (uint64_t[4]){0}, &at) == 0 && at)
        (void)stack_read_some(t->view, at, text, sizeof(text) - 1);
    text[strcspn(text, "\n")] = '\0';
    size_t n = strlen(path);
    char *words = strncmp(text, path, n) == 0 && text[n] == ':' ? text + n + 2 : text;
    char *who = strstr(words, " (required by "); /* us, by a path that tells nobody anything */
    if (who != NULL)
        *who = '\0';
    return err_set(-ELIBACC, "process %d cannot load the library: %s%s", t->pid,
                   words[0] ? words : "its loader gave no reason", loader_remedy(words));
}

/* dlopen in the target.  Its handle is a struct link_map, which begins with the load address. */
int library_load(struct target *t, const struct library *l, const char *path, uint64_t *ret_start)
{
    uint64_t handle, bias, flags = 2 /* RTLD_NOW, local */;
    int rc = tracee_write(t, t->scratch, path, strlen(path) + 1);
    if (t->old_dlopen)
        flags |= 0x80000000u; /* __RTLD_DLOPEN */
    if (rc == 0)
        rc = tracee_call(t, t->dlopen, (uint64_t[4]){t->scratch, flags}, &handle);
    if (rc < 0)
        return rc;
    if (!handle)
        return loader_error(t, path);
    if (stack_read(t->view, handle, &bias, sizeof(bias)) < 0 || bias % 4096)
        return err_set(-ENOEXEC, "the loader of process %d is not a known one", t->pid);
    t->handle = handle;
    *ret_start = bias + l->start;
    return 0;
}

/* A library that has made no thread, and whose code therefore nobody is in. */
void library_unload(struct target *t)
{
    uint64_t ignored;
    if (t->handle && t->dlclose && !t->left_alone)
        (void)tracee_call(t, t->dlclose, (uint64_t[4]){t->handle}, &ignored);
    t->handle = 0;
}
