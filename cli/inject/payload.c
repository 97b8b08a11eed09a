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
#include "sdk/lib/elf_view.h"

static bool has_range(const struct library *l, uint64_t offset, uint64_t size)
{
    return offset <= l->file_size && size <= l->file_size - offset;
}

/* The bytes that are loaded at an address, NULL: not all of them come from the file. */
static void *bytes_at(const struct library *l, uint64_t address, uint64_t size)
{
    const Elf64_Ehdr *e = (const void *)l->bytes;
    const Elf64_Phdr *segments = (const void *)(l->bytes + e->e_phoff);
    for (int i = 0; i < e->e_phnum; i++) {
        const Elf64_Phdr *s = &segments[i];
        uint64_t at = address - s->p_vaddr;
        if (s->p_type == PT_LOAD && address >= s->p_vaddr && at <= s->p_filesz &&
            size <= s->p_filesz - at && has_range(l, s->p_offset, s->p_filesz))
            return l->bytes + s->p_offset + at;
    }
    return NULL;
}

static bool read_file(const struct elf_view *v, uint64_t address, void *ret, size_t n)
{
    const void *at = bytes_at(v->arg, address, n);
    if (at)
        memcpy(ret, at, n);
    return at != NULL;
}

/* false: it has no dynamic section. */
static bool view_library(struct library *l, struct elf_view *ret)
{
    const Elf64_Ehdr *e = (const void *)l->bytes;
    const Elf64_Phdr *segments = (const void *)(l->bytes + e->e_phoff);
    *ret = (struct elf_view){.read = read_file, .arg = l};
    for (int i = 0; i < e->e_phnum; i++)
        if (segments[i].p_type == PT_DYNAMIC)
            return elf_view_dynamic(ret, segments[i].p_vaddr,
                                    segments[i].p_filesz / sizeof(Elf64_Dyn));
    return false;
}

static bool is_defined(void *arg, uint32_t i, const Elf64_Sym *s)
{
    (void)i;
    *(uint64_t *)arg = s->st_value;
    return s->st_shndx != SHN_UNDEF;
}

static int read_symbols(struct library *l, const char *path)
{
    Elf64_Ehdr *e = (void *)l->bytes;
    if (l->file_size < sizeof(*e) || memcmp(e->e_ident, ELFMAG, SELFMAG) != 0 ||
        e->e_ident[EI_CLASS] != ELFCLASS64 || e->e_machine != ARCH_MACHINE || e->e_phoff % 8 ||
        !has_range(l, e->e_phoff, e->e_phnum * sizeof(Elf64_Phdr)))
        return err_set(-ENOEXEC, "'%s' is no " ARCH_NAME " library", path);
    struct elf_view v;
    uint64_t version;
    bool whole = view_library(l, &v);
    bool starts = whole && elf_view_find(&v, "probing_start", is_defined, &l->start);
    const char *text = whole && elf_view_find(&v, "probing_version", is_defined, &version)
                           ? bytes_at(l, version, 1)
                           : NULL;
    if (!starts || !text)
        return err_set(-ENOEXEC, "'%s' is not a libprobing: it exports no %s", path,
                       starts ? "probing_version" : "probing_start");
    size_t left = l->file_size - (size_t)((const unsigned char *)text - l->bytes);
    size_t most = sizeof(l->version) - 1;
    memcpy(l->version, text, strnlen(text, left < most ? left : most));
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

void library_need_not(struct library *l, const char *name)
{
    struct elf_view v;
    Elf64_Dyn d;
    bool whole = view_library(l, &v);
    for (uint64_t i = 0; whole && elf_view_entry(&v, i, &d); i++) {
        if (d.d_tag != DT_NEEDED || !elf_view_has_name(&v, d.d_un.d_val, name))
            continue;
        Elf64_Dyn *at = bytes_at(l, v.dynamic + i * sizeof(d), sizeof(d));
        memmove(at, at + 1, (v.n_dynamic - i) * sizeof(d)); /* the last entry is a DT_NULL */
        return;
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
