/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/elf_fuzz.c - a plugin's file of any bytes: what the check lets through does not crash
 * the loader.
 *
 * The proof is the loader itself, in a child: the seed runs no code of its own when it is loaded,
 * so whatever happens there is the loader's doing.
 */
#include <dlfcn.h>
#include <probing/plugin.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/plugin_file/elf_check.h"
#include "tests/fuzz/fuzz.h"

#define BAD_LOADER 127 /* ld.so's exit code after one of its assertions */

static void load(const uint8_t *data, size_t size)
{
    const struct rlimit none = {0, 0};
    struct probing_plugin plugin;
    char path[32];

    (void)setrlimit(RLIMIT_CORE, &none);
    int fd = memfd_create("plugin", MFD_CLOEXEC);
    if (fd == -1 || write(fd, data, size) != (ssize_t)size)
        _exit(0);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const void *at = handle != NULL ? dlsym(handle, PLUGIN_SYMBOL) : NULL;
    if (at != NULL)
        memcpy(&plugin, at, sizeof(plugin));
    (void)fopen("/dev/null", "re"); /* its relocations have hurt nobody */
    _exit(at != NULL && plugin.size > 1u << 30 ? 1 : 0);
}

static void must_load(const uint8_t *data, size_t size)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0)
        load(data, size);
    fuzz_must(child > 0 && waitpid(child, &status, 0) == child);
    bool well = WIFEXITED(status) && WEXITSTATUS(status) != BAD_LOADER;
    if (!well) {
        FILE *f = fopen("/tmp/probing-elf-fuzz-crash", "we");
        if (f != NULL && fwrite(data, 1, size, f) == size)
            fprintf(stderr, "the loader crashed (status 0x%x): /tmp/probing-elf-fuzz-crash\n",
                    (unsigned)status);
        if (f != NULL)
            (void)fclose(f);
    }
    fuzz_must(well);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct elf_facts facts = {0};
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) & -page;

    /* The byte behind the last one cannot be read. */
    uint8_t *room =
        mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fuzz_must(room != MAP_FAILED && mprotect(room + whole, page, PROT_NONE) == 0);
    uint8_t *at = room + whole - size;
    if (size > 0)
        memcpy(at, data, size);
    if (elf_check(at, size, &facts) == 0) {
        fuzz_must(facts.used <= size && facts.plugin < size && facts.report < size);
        if (!facts.runs)
            must_load(at, (size_t)facts.used);
    }
    (void)munmap(room, whole + page);
    return 0;
}

/* The library that was built beside us. */
size_t fuzz_seed(uint8_t *data, size_t max)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);

    fuzz_must(n > 0);
    path[n] = '\0';
    (void)snprintf(strrchr(path, '/'), 64, "/../hostile/plugins/bare.so");
    FILE *f = fopen(path, "re");
    fuzz_must(f != NULL);
    size_t size = fread(data, 1, max, f);
    (void)fclose(f);
    struct elf_facts facts = {0};
    fuzz_must(size < max && elf_check(data, size, &facts) == 0);
    fuzz_must(facts.plugin != 0 && !facts.runs);
    return (size_t)facts.used;
}
