/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/unwind_test.c - unwinding a copied stack, against what glibc's own unwinder says,
 * and what the core's says (libunwind): the same stack by each of them.
 */
#include "unwind.h"

#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include "core/stack/stack.h"
#include "tests/test.h"

#define STACK (64u << 10)

static uint8_t copy[STACK];
static uint64_t ours[256], our_sps[256], theirs[256];
static struct stack_process *self;
static struct stack_frame cores[256];
static int n_cores;
static enum stack_end cores_end;
static uint32_t n_ours;
static int n_theirs;
static enum unwind_end end;
static struct code *code;

static void registers_of(const ucontext_t *context, struct registers *r)
{
    memset(r, 0, sizeof(*r));
#if defined(__x86_64__)
    r->value[CFI_SP] = (uint64_t)context->uc_mcontext.gregs[REG_RSP];
    r->value[CFI_FP] = (uint64_t)context->uc_mcontext.gregs[REG_RBP];
    r->ip = (uint64_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    r->value[CFI_SP] = context->uc_mcontext.sp;
    r->value[CFI_FP] = context->uc_mcontext.regs[29];
    r->value[CFI_RA] = context->uc_mcontext.regs[30];
    r->known = UINT64_C(1) << CFI_RA;
    r->ip = context->uc_mcontext.pc;
#endif
    r->known |= UINT64_C(1) << CFI_SP | UINT64_C(1) << CFI_FP;
}

static uint32_t take_stack(const struct registers *r)
{
    struct iovec to = {copy, STACK}, from = {(void *)(uintptr_t)r->value[CFI_SP], STACK};
    ssize_t n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    return n > 0 ? (uint32_t)n : 0;
}

static void look(const ucontext_t *context)
{
    struct registers r;
    void *found[256];
    registers_of(context, &r);
    const struct stack_copy stack = {copy, r.value[CFI_SP], take_stack(&r)};
    struct stack_registers whole;
    n_ours = unwind_stack(code, &r, &stack, ours, our_sps, 256, &end);
    stack_registers_of(context, &whole);
    stack_process_refresh(self, /* maps_too= */ false);
    n_cores = stack_unwind(self, &whole, cores, 256, &cores_end);
    n_theirs = backtrace(found, 256);
    for (int i = 0; i < n_theirs; i++)
        theirs[i] = (uint64_t)(uintptr_t)found[i];
}

/* Frame by frame, and where each begins: stacks on demand and profiles name the same functions. */
static bool same_as_the_core(void)
{
    bool same = n_cores == (int)n_ours && (int)cores_end == (int)end;
    for (uint32_t i = 0; same && i < n_ours; i++)
        same = cores[i].ip == ours[i] && cores[i].sp == our_sps[i];
    for (uint32_t i = 0; !same && (i < n_ours || (int)i < n_cores); i++)
        printf("# %2u: ours %llx %llx, the core's %llx %llx\n", i, (unsigned long long)ours[i],
               (unsigned long long)our_sps[i], (unsigned long long)cores[i].ip,
               (unsigned long long)cores[i].sp);
    return same;
}

__attribute__((noinline)) static int deep(int n, int (*leaf)(void))
{
    volatile char room[64];
    room[0] = (char)n;
    return n > 0 ? deep(n - 1, leaf) + room[0] : leaf() + room[0];
}

/* The outermost `n` frames of both are the same. */
static bool same_tail(uint32_t n)
{
    if (n_ours < n || (uint32_t)n_theirs < n)
        return false;
    return memcmp(ours + (n_ours - n), theirs + ((uint32_t)n_theirs - n), n * sizeof(*ours)) == 0;
}

static int leaf_here(void)
{
    ucontext_t context;
    if (getcontext(&context) == 0)
        look(&context);
    return 0;
}

TEST(agrees_with_glibc)
{
    (void)deep(20, leaf_here);
    CHECK_INT(end, UNWIND_WHOLE);
    CHECK(n_ours > 22);
    CHECK(same_tail(22));
    CHECK(same_as_the_core());
}

#ifdef __SANITIZE_THREAD__
/* core/stack keeps what it reads in memory of malloc(): only this test uses it in a handler. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "signal:process_alloc\n";
}
#endif

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    look(context);
}

static int leaf_signal(void)
{
    return raise(SIGUSR1);
}

TEST(from_a_signal)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    (void)sigaction(SIGUSR1, &action, NULL);
    (void)deep(12, leaf_signal);
    CHECK_INT(end, UNWIND_WHOLE);
    CHECK(same_tail(14));
    CHECK(same_as_the_core());
}

/* The signal's own frame is crossed: look from inside of the handler, not at what it interrupted.
 */
static void on_signal_inside(int number)
{
    (void)number;
    (void)leaf_here();
}

TEST(through_a_signal)
{
    struct sigaction action = {.sa_handler = on_signal_inside};
    (void)sigaction(SIGUSR1, &action, NULL);
    (void)deep(12, leaf_signal);
    CHECK_INT(end, UNWIND_WHOLE);
    CHECK(same_tail(16));
    CHECK(same_as_the_core());
}

static int by_number(const void *a, const void *b)
{
    const int *x = a, *y = b;
    if (n_ours == 0)
        (void)leaf_here();
    return *x < *y ? -1 : *x > *y;
}

TEST(through_the_c_library)
{
    int numbers[] = {3, 1, 2};
    n_ours = 0;
    qsort(numbers, 3, sizeof(numbers[0]), by_number);
    CHECK_INT(end, UNWIND_WHOLE);
    CHECK(same_tail(4));
    CHECK(same_as_the_core());
}

static void *on_thread(void *arg)
{
    (void)deep(5, leaf_here);
    return arg;
}

TEST(a_thread_begins_somewhere)
{
    pthread_t thread;
    if (!CHECK_INT(pthread_create(&thread, NULL, on_thread, NULL), 0))
        return;
    (void)pthread_join(thread, NULL);
    CHECK_INT(end, UNWIND_WHOLE);
    CHECK(same_tail(7));
    CHECK(same_as_the_core());
}

#if defined(__GNUC__) && !defined(__clang__)
#define KEEPS_FRAME_POINTER __attribute__((noinline, optimize("no-omit-frame-pointer")))
#else
#define KEEPS_FRAME_POINTER __attribute__((noinline))
#endif

KEEPS_FRAME_POINTER static int leaf_of_a_waiting_thread(void)
{
    struct registers r;
    void *found[256];
    ucontext_t context;
    (void)getcontext(&context);
    registers_of(&context, &r);
    r.known &= ~(UINT64_C(1) << CFI_FP);
    r.value[CFI_FP] = 0;
    const struct stack_copy stack = {copy, r.value[CFI_SP], take_stack(&r)};
    n_ours = unwind_stack(code, &r, &stack, ours, NULL, 256, &end);
    n_theirs = backtrace(found, 256);
    for (int i = 0; i < n_theirs; i++)
        theirs[i] = (uint64_t)(uintptr_t)found[i];
    return 0;
}

KEEPS_FRAME_POINTER static int deep_with_frame_pointers(int n)
{
    volatile char room[64];
    room[0] = (char)n;
    return n > 0 ? deep_with_frame_pointers(n - 1) + room[0] : leaf_of_a_waiting_thread() + room[0];
}

/* proc(5) tells ip and sp only; Ubuntu's code then needs the frame pointer. */
TEST(the_frame_pointer_is_found)
{
    (void)deep_with_frame_pointers(12);
    CHECK_INT(end, UNWIND_WHOLE);
    CHECK(same_tail(14));
}

TEST(a_short_copy_is_said)
{
    struct registers r;
    ucontext_t context;
    (void)getcontext(&context);
    registers_of(&context, &r);
    const struct stack_copy none = {copy, r.value[CFI_SP], 0};
    uint32_t n = unwind_stack(code, &r, &none, ours, NULL, 256, &end);
    CHECK_INT(n, 1);
    CHECK_INT(end, UNWIND_LOST);
    const struct stack_copy whole = {copy, r.value[CFI_SP], take_stack(&r)};
    CHECK_INT(unwind_stack(code, &r, &whole, ours, NULL, 1, &end), 1);
    CHECK_INT(end, UNWIND_LIMIT);
}

TEST(nonsense_gives_a_short_stack)
{
    struct registers r = {.known = UINT64_MAX};
    for (int i = 0; i < 20000; i++) {
        for (int k = 0; k < CFI_REGISTERS; k++)
            r.value[k] = (uint64_t)random() << 32 ^ (uint64_t)random();
        for (uint32_t k = 0; k < 4096; k++)
            copy[k] = (uint8_t)random();
        r.ip = (uint64_t)(uintptr_t)qsort + (uint64_t)random() % 65536;
        const struct stack_copy stack = {copy, r.value[CFI_SP], 4096};
        if (!CHECK(unwind_stack(code, &r, &stack, ours, NULL, 256, &end) >= 1))
            return;
    }
}

int main(void)
{
    void *warm[4];
    (void)backtrace(warm, 4);
    if (code_open(&code) < 0 || stack_process_open(getpid(), &self) < 0)
        return test_skip("no memory");
    RUN(agrees_with_glibc);
    RUN(from_a_signal);
    RUN(through_a_signal);
    RUN(through_the_c_library);
    RUN(a_thread_begins_somewhere);
    RUN(the_frame_pointer_is_found);
    RUN(a_short_copy_is_said);
    RUN(nonsense_gives_a_short_stack);
    stack_process_free(self);
    code_free(code);
    return test_end();
}
