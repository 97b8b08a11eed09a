/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/usdt_test.c - what a tool outside would see: the notes of this program are
 * read, a breakpoint is put where each says, and arguments are taken from where it says.
 */
#include "sample/usdt.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#include "probing_sdk.h"
#include "sample/estimate.h"
#include "sample/sample.h"
#include "sample/sampling.h"
#include "tests/test.h"

#define PROBES 4

static struct probe {
    uint64_t pc; /* in this process */
    char provider[32], name[32], arguments[64];
    uint64_t seen[3];
    uint32_t hits;
} probes[PROBES];
static uint32_t n_probes;

/* ---- the notes ---- */

static int add_bias(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(uint64_t *)arg = info->dlpi_addr; /* the program is the first */
    return 1;
}

/* content: addresses of the nop, of the base and of a counter, and three texts. */
static void take_note(const uint8_t *content, size_t size, uint64_t base, uint64_t bias)
{
    uint64_t words[3];
    struct probe *p = &probes[n_probes];
    if (!CHECK(n_probes < PROBES && size > sizeof(words) && content[size - 1] == '\0'))
        return;
    memcpy(words, content, sizeof(words));
    const char *text = (const char *)content + sizeof(words);
    (void)snprintf(p->provider, sizeof(p->provider), "%s", text);
    text += strlen(text) + 1;
    (void)snprintf(p->name, sizeof(p->name), "%s", text);
    text += strlen(text) + 1;
    (void)snprintf(p->arguments, sizeof(p->arguments), "%s", text);
    CHECK_INT(words[2], 0);
    p->pc = words[0] + (base - words[1]) + bias;
    n_probes++;
}

static void take_notes(const uint8_t *at, size_t size, uint64_t base, uint64_t bias)
{
    while (size >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) head;
        memcpy(&head, at, sizeof(head));
        size_t name = (head.n_namesz + 3u) & ~3u, content = (head.n_descsz + 3u) & ~3u;
        if (!CHECK(size - sizeof(head) >= name + content) || !CHECK_INT(head.n_type, 3) ||
            !CHECK_STR((const char *)at + sizeof(head), "stapsdt"))
            return;
        take_note(at + sizeof(head) + name, head.n_descsz, base, bias);
        at += sizeof(head) + name + content;
        size -= sizeof(head) + name + content;
    }
}

static void read_notes(void)
{
    struct stat s;
    uint64_t bias = 0, base = 0;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (!CHECK(fd >= 0 && fstat(fd, &s) == 0))
        return;
    const uint8_t *file = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    (void)close(fd);
    if (!CHECK(file != MAP_FAILED))
        return;
    (void)dl_iterate_phdr(add_bias, &bias);
    const ElfW(Ehdr) *head = (const void *)file;
    const ElfW(Shdr) *sections = (const void *)(file + head->e_shoff);
    const char *names = (const char *)file + sections[head->e_shstrndx].sh_offset;
    for (uint32_t i = 0; i < head->e_shnum; i++)
        if (strcmp(names + sections[i].sh_name, ".stapsdt.base") == 0)
            base = sections[i].sh_addr;
    CHECK(base);
    for (uint32_t i = 0; i < head->e_shnum; i++)
        if (strcmp(names + sections[i].sh_name, ".note.stapsdt") == 0)
            take_notes(file + sections[i].sh_offset, sections[i].sh_size, base, bias);
    (void)munmap((void *)(uintptr_t)file, (size_t)s.st_size);
}

static struct probe *probe_named(const char *name)
{
    for (uint32_t i = 0; i < n_probes; i++)
        if (strcmp(probes[i].provider, "otel_memory") == 0 && strcmp(probes[i].name, name) == 0)
            return &probes[i];
    return NULL;
}

TEST(each_probe_has_one_note)
{
    read_notes();
    CHECK_INT(n_probes, 2);
    const struct probe *alloc = probe_named("alloc"), *freed = probe_named("free");
    if (!CHECK(alloc && freed))
        return;
#if defined(__x86_64__)
    CHECK_STR(alloc->arguments, "8@%rdi 8@%rsi 8@%rdx");
    CHECK_STR(freed->arguments, "8@%rdi");
#else
    CHECK_STR(alloc->arguments, "8@x0 8@x1 8@x2");
    CHECK_STR(freed->arguments, "8@x0");
#endif
}

/* ---- breakpoints ---- */

static uint64_t argument(const ucontext_t *c, const char *at)
{
    if (strncmp(at, "8@", 2) != 0)
        return UINT64_MAX;
#if defined(__x86_64__)
    static const struct {
        const char *name;
        int number;
    } registers[] = {{"%rdi", REG_RDI}, {"%rsi", REG_RSI}, {"%rdx", REG_RDX}};
    for (size_t i = 0; i < PROBING_LENGTH(registers); i++)
        if (strncmp(at + 2, registers[i].name, 4) == 0)
            return (uint64_t)c->uc_mcontext.gregs[registers[i].number];
    return UINT64_MAX;
#else
    return at[2] == 'x' ? c->uc_mcontext.regs[atoi(at + 3)] : UINT64_MAX;
#endif
}

static void on_trap(int number, siginfo_t *info, void *context)
{
    ucontext_t *c = context;
    (void)number, (void)info;
#if defined(__x86_64__)
    uint64_t pc = (uint64_t)c->uc_mcontext.gregs[REG_RIP] - 1; /* behind it, as behind the nop */
#else
    uint64_t pc = c->uc_mcontext.pc;
    c->uc_mcontext.pc += 4;
#endif
    for (uint32_t i = 0; i < n_probes; i++) {
        struct probe *p = &probes[i];
        if (p->pc != pc)
            continue;
        const char *at = p->arguments;
        for (int k = 0; k < 3 && at; k++) {
            p->seen[k] = argument(c, at);
            at = strchr(at, ' ');
            at = at ? at + 1 : NULL;
        }
        p->hits++;
        return;
    }
    _exit(3);
}

/* false: this machine does not let a program write its own code. */
static bool break_at(const struct probe *p)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = p->pc & ~(page - 1);
    void *code = (void *)(uintptr_t)from;
    if (mprotect(code, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
        return false;
#if defined(__x86_64__)
    uint8_t *at = (uint8_t *)(uintptr_t)p->pc;
    CHECK_INT(*at, 0x90);
    *at = 0xcc;
#else
    uint32_t *at = (uint32_t *)(uintptr_t)p->pc;
    CHECK_INT(*at, 0xd503201f);
    *at = 0xd4200000;
#endif
    __builtin___clear_cache(code, (char *)code + 2 * page);
    (void)mprotect(code, 2 * page, PROT_READ | PROT_EXEC);
    return true;
}

static uint64_t now(void)
{
    return probing_clock_ns(CLOCK_MONOTONIC);
}

static void allocated(uint64_t address, size_t n, enum memory_domain domain)
{
    memory_allocated((void *)(uintptr_t)address, n, domain, __builtin_frame_address(0));
}

TEST(arguments_are_where_the_notes_say)
{
    static const struct probing_host host = {.size = sizeof(host), .now = now};
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    struct sampling with = {.host = &host, .mean = 65536};
    struct probe *alloc = probe_named("alloc"), *freed = probe_named("free");
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGTRAP, &action, NULL);
    if (!alloc || !freed || !break_at(alloc) || !break_at(freed) ||
        !CHECK_INT(live_table_new(1000, &with.live), 0) ||
        !CHECK_INT(sample_pool_new(SAMPLE_SLOTS_MAX, 0, &with.slots), 0))
        return;
    sampling_begin(&with);
    memory_thread = (struct memory_thread){.chance = 12345};
    allocated(0x10000, (size_t)5 << 20, MEMORY_MALLOC); /* so large that it is always one */
    CHECK_INT(alloc->hits, 1);
    CHECK_INT(alloc->seen[0], 0x10000);
    CHECK_INT(alloc->seen[1], 5 << 20);
    CHECK_INT(alloc->seen[2], 5 << 20);
    for (uint64_t i = 1; alloc->hits == 1 && i < 100000; i++) {
        allocated(UINT64_C(0x100000000) + 4096 * i, 4000, MEMORY_MALLOC);
        if (alloc->hits == 1)
            continue;
        CHECK_INT(alloc->seen[0], UINT64_C(0x100000000) + 4096 * i);
        CHECK_INT(alloc->seen[1], 4000);
        CHECK_INT(alloc->seen[2], (int64_t)(4000 * estimate_weight(4000, 65536) + 0.5));
    }
    CHECK_INT(alloc->hits, 2);
    CHECK_INT(freed->hits, 0);
    memory_freed((void *)(uintptr_t)0x10000);
    CHECK_INT(freed->hits, 1);
    CHECK_INT(freed->seen[0], 0x10000);
    memory_freed((void *)(uintptr_t)0x10000);         /* it is none any more */
    allocated(0x20000, (size_t)5 << 20, MEMORY_MMAP); /* not a heap's */
    memory_freed((void *)(uintptr_t)0x20000);
    CHECK_INT(alloc->hits, 2);
    CHECK_INT(freed->hits, 1);
    CHECK_INT(sampling_end(), 0);
}

int main(void)
{
    RUN(each_probe_has_one_note);
    RUN(arguments_are_where_the_notes_say);
    return test_end();
}
