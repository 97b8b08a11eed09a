/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_file/declared_file.c - what a plugin declares, out of its file, of which nothing is
 * mapped to be run and nothing runs.
 *
 * Any thread.  The file is copied and proved as if it were to be loaded (elf_check.h); a pointer in
 * it is what a relocation says that the loader will write there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/plugin_file/declared.h"
#include "core/plugin_file/internal.h"

#define FILES_MAX 256 /* of one directory */

#if defined(__x86_64__)
enum { RELATIVE = R_X86_64_RELATIVE, ABSOLUTE = R_X86_64_64 };
#else
enum { RELATIVE = R_AARCH64_RELATIVE, ABSOLUTE = R_AARCH64_ABS64 };
#endif

/* Apply r as the loader does with base 0, if r_offset lies in the n bytes from `address`. */
static void apply_relocation(const struct elf *e, const Elf64_Rela *r, uint64_t address, void *ret,
                             size_t n)
{
    uint64_t at = r->r_offset - address, value = (uint64_t)r->r_addend;
    uint32_t type = ELF64_R_TYPE(r->r_info);

    if (r->r_offset < address || at > n || n - at < sizeof(value))
        return;
    if (type == ABSOLUTE) {
        Elf64_Sym s = elf_symbol(e, ELF64_R_SYM(r->r_info));
        value = s.st_shndx == SHN_UNDEF ? 0 : s.st_value + value;
    } else if (type != RELATIVE) {
        value = 0;
    }
    memcpy((char *)ret + at, &value, sizeof(value));
}

/* Tables of DT_RELR need nothing: what they would add the base to stands in the file. */
static void apply_all(const struct elf *e, uint64_t address, void *ret, size_t n)
{
    uint64_t size = elf_has(&e->view, DT_RELA) ? elf_value(&e->view, DT_RELASZ) : 0;
    const unsigned char *at = size ? elf_at(e, elf_value(&e->view, DT_RELA), size) : NULL;
    for (uint64_t i = 0; at && i < size / sizeof(Elf64_Rela); i++) {
        Elf64_Rela r;
        memcpy(&r, at + i * sizeof(r), sizeof(r));
        apply_relocation(e, &r, address, ret, n);
    }
}

static size_t read_file(void *arg, uint64_t address, void *ret, size_t n, bool pointers)
{
    const struct elf *e = arg;
    uint64_t room = elf_room(e, address);
    n = n < room ? n : (size_t)room;
    const void *at = n ? elf_at(e, address, n) : NULL;
    if (!at)
        return 0;
    memcpy(ret, at, n);
    if (pointers)
        apply_all(e, address, ret, n);
    return n;
}

static int read_name(const struct declared_source *from, const char *at, char ret[64])
{
    size_t n = from->read(from->arg, (uint64_t)(uintptr_t)at, ret, 63, /* pointers= */ false);
    ret[n] = '\0';
    return text_is_name(ret) ? 0 : err_set(-EINVAL, "the plugin in it has a bad name");
}

static int read_declared(struct elf *e, struct declared **ret)
{
    const struct declared_source from = {.read = read_file, .arg = e};
    struct probing_plugin p = {0};
    const size_t size_1_0 = offsetof(struct probing_plugin, declares);
    char name[64];

    if (e->facts.plugin_at == 0)
        return err_set(-ENOEXEC, "it does not export " PLUGIN_SYMBOL "; is it a probing plugin?");
    size_t n = read_file(e, e->facts.plugin_at, &p, sizeof(p), /* pointers= */ true);
    if (n < size_1_0 || p.abi >> 16 != PROBING_ABI_MAJOR || p.size < size_1_0)
        return err_set(-ENOEXEC, "it is a plugin of another version");
    if (p.size < sizeof(p) || n < sizeof(p) || !p.declares)
        return 0;
    int rc = read_name(&from, p.name, name);
    return rc < 0 ? rc : declared_read(&from, (uint64_t)(uintptr_t)p.declares, name, ret);
}

int declared_of_file(int fd, struct declared **ret)
{
    char *bytes;
    size_t size, room;
    struct elf e;

    *ret = NULL;
    int rc = seal_bytes(fd, DECLARED_FILE_BYTES, &bytes, &size, &room);
    if (rc < 0)
        return rc;
    rc = elf_take(bytes, size, &e);
    if (rc == 0)
        rc = read_declared(&e, ret);
    (void)munmap(bytes, room);
    return rc;
}

/* ---- all that are installed ---- */

static int look_into(const struct declared_search *s, const char *file)
{
    struct declared *d = NULL;
    int fd = file_open(AT_FDCWD, file), rc = 0;

    if (fd < 0)
        return 0;
    if (!s->wanted || s->wanted(s->arg, file, fd)) {
        rc = declared_of_file(fd, &d);
        if (rc < 0 && s->refused)
            s->refused(s->arg, file, err_text());
        err_clear();
        rc = d ? s->found(s->arg, file, d) : 0;
    }
    (void)close(fd);
    return rc;
}

/* "torch.so", "probing_mine.so", as the core looks for them; not "libc.so". */
static bool is_plugins_name(const char *leaf)
{
    char name[64];
    size_t n = strlen(leaf);
    if (n < 4 || n - 3 >= sizeof(name) || strcmp(leaf + n - 3, ".so") != 0)
        return false;
    (void)snprintf(name, sizeof(name), "%.*s", (int)(n - 3), leaf);
    return text_is_name(name) && strncmp(name, "lib", 3) != 0;
}

static int search_in(const struct declared_search *s, const char *directory)
{
    char file[4096];
    struct dirent *e;
    DIR *all = opendir(directory);
    int rc = 0;

    for (int n = 0; all && rc >= 0 && n < FILES_MAX && (e = readdir(all)) != NULL;) {
        if (!is_plugins_name(e->d_name))
            continue;
        n++;
        if (snprintf(file, sizeof(file), "%s/%s", directory, e->d_name) < (int)sizeof(file))
            rc = look_into(s, file);
    }
    if (all)
        (void)closedir(all);
    return rc;
}

int declared_search(const struct declared_search *s)
{
    char directory[3000];
    int rc = 0;

    for (const char *at = s->path ? s->path : ""; *at && rc >= 0;) {
        size_t n = strcspn(at, ":");
        (void)snprintf(directory, sizeof(directory), "%.*s", (int)n, at);
        if (n > 0 && n < sizeof(directory))
            rc = search_in(s, directory);
        at += n + (at[n] == ':');
    }
    return rc < 0 ? rc : 0;
}
