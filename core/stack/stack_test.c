/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/stack_test.c - modules, symbols and unwinding of ourselves and of a child.
 */
#include "core/stack/stack.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/test.h"

#if defined(__x86_64__)
#define LIBUTIL "/lib/x86_64-linux-gnu/libutil.so.1"
#elif defined(__aarch64__)
#define LIBUTIL "/lib/aarch64-linux-gnu/libutil.so.1"
#endif

static struct stack_process *self;
static struct stack_frame frames[STACK_FRAMES_MAX];

TEST(reads_memory_and_refuses_holes)
{
    char text[] = "some words", copy[sizeof(text)] = "";
    CHECK_INT(stack_read(self, (uintptr_t)text, copy, sizeof(copy)), 0);
    CHECK_STR(copy, text);
    CHECK_INT(stack_read(self, 8, copy, sizeof(copy)), -EFAULT);
    CHECK_INT(stack_read_cached(self, 8, copy, sizeof(copy)), -EFAULT);
    CHECK_INT(stack_read_some(self, 8, copy, sizeof(copy)), 0);

    /* The page cache forgets what may be written; an overlay goes before memory. */
    CHECK_INT(stack_read_cached(self, (uintptr_t)text, copy, sizeof(copy)), 0);
    text[0] = 'S';
    stack_process_refresh(self, false);
    CHECK_INT(stack_read_cached(self, (uintptr_t)text, copy, sizeof(copy)), 0);
    CHECK_STR(copy, "Some words");
    stack_overlay(self, (uintptr_t)text + 2, "XY", 2);
    CHECK_INT(stack_read_cached(self, (uintptr_t)text, copy, sizeof(copy)), 0);
    CHECK_STR(copy, "SoXY words");
    stack_process_refresh(self, false);
}

static int count_module(void *arg, const struct stack_module *m)
{
    (void)m;
    (*(int *)arg)++;
    return 0;
}

TEST(finds_modules_and_symbols)
{
    int n = 0;
    CHECK_INT(stack_modules(self, count_module, &n), 0);
    CHECK(n >= 4); /* the program, libc, ld.so, vdso */
    const struct stack_module *libc = stack_module_named(self, "libc.so.6");
    if (!libc)
        libc = stack_module_named(self, "libc-2.");
    if (!CHECK(libc != NULL))
        return;
    void *real = dlsym(RTLD_DEFAULT, "getppid");
    CHECK_INT(stack_symbol_address(self, libc, "getppid"), (uintptr_t)real);
    CHECK_INT(stack_symbol_address(self, libc, "no_such_name_at_all"), 0);
    CHECK(stack_module_at(self, (uintptr_t)real) == libc);
    CHECK(stack_module_at(self, 4096) == NULL);
    CHECK(stack_module_at(self, (uintptr_t)&n) == NULL);

    const struct stack_module *vdso = stack_module_named(self, "[vdso]");
    if (CHECK(vdso != NULL)) {
        CHECK_INT(vdso->base, getauxval(AT_SYSINFO_EHDR));
#ifdef __x86_64__
        CHECK(stack_symbol_address(self, vdso, "__vdso_clock_gettime") > vdso->base);
#endif
    }
}

/* Dynamic symbols, symbols of the file, and an address in nothing. */
TEST(names_addresses)
{
    struct stack_symbol s;
    uintptr_t here = (uintptr_t)test_names_addresses;
    CHECK_INT(stack_symbol(self, here + 1, &s), 0);
    CHECK_STR(s.name, "test_names_addresses");
    CHECK_INT(s.offset, 1);
    CHECK(s.module != NULL && strstr(s.module, "stack_test") != NULL);
    CHECK_INT(stack_symbol(self, (uintptr_t)dlsym(RTLD_DEFAULT, "getppid"), &s), 0);
    CHECK_STR(s.name, "getppid");
    CHECK_INT(stack_symbol(self, (uintptr_t)&s, &s), -ENOENT);
    CHECK_STR(s.name, "");
}

/* Take the registers that getcontext() keeps: those that survive a call. */
static void take_registers(const ucontext_t *c, struct stack_registers *r)
{
#if defined(__x86_64__)
    *r = (struct stack_registers){.known = 1u << STACK_REG_FP | 1u << STACK_REG_SP |
                                           1u << STACK_REG_IP | 1u << 3 | 0xfu << 12};
    r->value[3] = (uint64_t)c->uc_mcontext.gregs[REG_RBX];
    for (int i = 12; i < 16; i++)
        r->value[i] = (uint64_t)c->uc_mcontext.gregs[REG_R8 + i - 8];
    r->value[STACK_REG_FP] = (uint64_t)c->uc_mcontext.gregs[REG_RBP];
    r->value[STACK_REG_SP] = (uint64_t)c->uc_mcontext.gregs[REG_RSP];
    r->value[STACK_REG_IP] = (uint64_t)c->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    *r = (struct stack_registers){.known = (UINT64_C(1) << 33) - (1 << 19)};
    for (int i = 19; i < 31; i++)
        r->value[i] = c->uc_mcontext.regs[i];
    r->value[STACK_REG_SP] = c->uc_mcontext.sp;
    r->value[STACK_REG_IP] = c->uc_mcontext.pc;
#endif
}

static int unwound;
static enum stack_end end;

static __attribute__((noinline)) int deep(int n)
{
    struct stack_registers r;
    ucontext_t context;
    if (n > 0)
        return deep(n - 1) + 1; /* the compiler must not make a loop of it */
    CHECK_INT(getcontext(&context), 0);
    take_registers(&context, &r);
    stack_process_refresh(self, /* maps_too= */ false); /* the stack is another than last time */
    unwound = stack_unwind(self, &r, frames, STACK_FRAMES_MAX, &end);
    return 0;
}

static int in_compare(const void *a, const void *b)
{
    (void)a;
    (void)b;
    return deep(10) * 0;
}

static bool named(int n, const char *name)
{
    struct stack_symbol s;
    /* "deep.isra.0" is deep as well */
    return stack_symbol(self, frames[n].ip - 1, &s) == 0 &&
           strncmp(s.name, name, strlen(name)) == 0;
}

TEST(unwinds_itself_through_libc)
{
    int pair[2] = {1, 2};
    qsort(pair, 2, sizeof(pair[0]), in_compare); /* a callback: libc's frames in the middle */
    CHECK_INT(end, STACK_END_OUTERMOST);
    int deeps = 0, mains = 0;
    for (int i = 0; i < unwound; i++) {
        deeps += named(i, "deep");
        mains += named(i, "main");
    }
    CHECK(deeps >= 1);
    CHECK_INT(mains, 1);
    for (int i = 1; i < unwound; i++)
        CHECK(frames[i].sp > frames[i - 1].sp);
}

TEST(says_when_it_is_lost_or_full)
{
    struct stack_registers r;
    ucontext_t context;
    CHECK_INT(getcontext(&context), 0);
    take_registers(&context, &r);
    CHECK_INT(stack_unwind(self, &r, frames, 2, &end), 2);
    CHECK_INT(end, STACK_END_LIMIT);
    r.value[STACK_REG_IP] = (uintptr_t)&r; /* no code there */
    CHECK_INT(stack_unwind(self, &r, frames, STACK_FRAMES_MAX, &end), 1);
    CHECK_INT(end, STACK_END_LOST);
    r.value[STACK_REG_IP] = (uintptr_t)test_says_when_it_is_lost_or_full + 64;
    for (uint64_t wild = 0; wild < 2000; wild++) { /* whatever the registers hold: an answer */
        r.value[STACK_REG_SP] = wild * UINT64_C(0x9e3779b97f4a7c15);
        r.value[STACK_REG_FP] = r.value[STACK_REG_SP] >> (wild % 60);
        CHECK(stack_unwind(self, &r, frames, STACK_FRAMES_MAX, &end) >= 1);
    }
    r.known = 0;
    CHECK_INT(stack_unwind(self, &r, frames, STACK_FRAMES_MAX, &end), -EINVAL);
}

TEST(looks_at_a_child)
{
    struct stack_process *child;
    pid_t pid = fork();
    if (pid == 0) {
        (void)pause();
        _exit(0);
    }
    if (CHECK_INT(stack_process_open(pid, &child), 0)) {
        struct stack_symbol s;
        char text[16] = "";
        static char marker[] = "in both";
        CHECK_INT(stack_read(child, (uintptr_t)marker, text, sizeof(marker)), 0);
        CHECK_STR(text, marker);
        CHECK_INT(stack_symbol(child, (uintptr_t)test_looks_at_a_child, &s), 0);
        CHECK_STR(s.name, "test_looks_at_a_child");
        stack_process_free(child);
    }
    CHECK_INT(kill(pid, SIGKILL), 0);
    CHECK_INT(waitpid(pid, NULL, 0), pid);
    CHECK_INT(stack_process_open(pid, &child), -ESRCH);
}

/* A library in a memfd has no file to read: names come from memory. */
TEST(knows_memfd_modules)
{
    char bytes[65536], path[64];
    ssize_t n;
    int out = memfd_create("probing", MFD_CLOEXEC);
    FILE *in = fopen(LIBUTIL, "rb");
    if (!in)
        in = fopen("/lib64/libutil.so.1", "rb");
    if (!in || out == -1) {
        printf("# no small library to try with\n");
        return;
    }
    while ((n = (ssize_t)fread(bytes, 1, sizeof(bytes), in)) > 0)
        CHECK_INT(write(out, bytes, (size_t)n), n);
    (void)fclose(in);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/././%d", out);
    for (uint64_t i = 1; i < 100; i++) { /* at addresses in no module, as generated code has */
        stack_process_refresh(self, /* maps_too= */ false);
        CHECK(stack_module_at(self, i << 46) == NULL);
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (CHECK(handle != NULL)) {
        uint64_t address = (uint64_t)(uintptr_t)((struct link_map *)handle)->l_ld;
        uint64_t limit = clock_monotonic() + 60 * NS_PER_S;
        do
            stack_process_refresh(self, /* maps_too= */ false);
        while (stack_module_at(self, address) == NULL && clock_monotonic() < limit);
        CHECK(stack_module_at(self, address) != NULL);
        stack_process_refresh(self, true);
        const struct stack_module *m = stack_module_named(self, "memfd:probing (deleted)");
        CHECK(m != NULL && strcmp(m->path, "/memfd:probing (deleted)") == 0);
        CHECK(m != NULL && m->n_text == 1);
        dlclose(handle);
        stack_process_refresh(self, true);
        CHECK(stack_module_named(self, "memfd:probing") == NULL);
    }
    (void)close(out);
}

int main(void)
{
    if (stack_process_open(getpid(), &self) < 0)
        return test_skip("cannot read our own memory map");
    RUN(reads_memory_and_refuses_holes);
    RUN(finds_modules_and_symbols);
    RUN(names_addresses);
    RUN(unwinds_itself_through_libc);
    RUN(says_when_it_is_lost_or_full);
    RUN(looks_at_a_child);
    RUN(knows_memfd_modules);
    stack_process_free(self);
    return test_end();
}
