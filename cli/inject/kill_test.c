/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/kill_test.c - kill -9 of the injecting process after each single system call it makes:
 * the target goes on with every register, its signal mask, errno and system call as they were.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/inject/locate.c"
#include "cli/inject/preflight.c"
#include "cli/inject/seccomp.c"
#include "cli/inject/seccomp_program.c"
#define PATIENCE 2000 /* naps: 0.2 s */
#include "cli/inject/headroom.c"
#include "cli/inject/helper_thread.c"
#include "cli/inject/inject.c"
#include "cli/inject/payload.c"
#include "cli/inject/pick_thread.c"
#include "cli/inject/remote_exec.c"
#include "cli/inject/retry.c"
#include "cli/inject/safe_point.c"
#include "cli/inject/sleep_time.c"
#include "cli/inject/starved.c"
#include "cli/inject/target_files.c"
#include "cli/inject/tracee.c"
#include "sdk/lib/proc/task.h"
#include "tests/test.h"

enum { PATIENT_MS = 20000 };

static char folder[64] = "/tmp/probing-kill-XXXXXX";
static char library_path[128];

static const char source[] =
    "#define _GNU_SOURCE\n#include <errno.h>\n#include <pthread.h>\n#include <signal.h>\n"
    "#include <string.h>\n#include <unistd.h>\n"
    "const char probing_version[] = \"1.0-test\"; static int running;\n"
    "static void *run(void *a) { for (;;) pause(); return a; }\n"
    /* vector registers and errno are spoiled on purpose */
    "int probing_start(const char *settings) { pthread_t t; sigset_t all, old; int rc;\n"
    "  volatile double spoil[8]; for (int i = 0; i < 8; i++) spoil[i] = i * 1.5;\n"
    "  (void)settings; errno = 5; (void)close(-1); if (running) return 1;\n"
    "  sigfillset(&all); pthread_sigmask(SIG_BLOCK, &all, &old);\n"
    "  rc = pthread_create(&t, 0, run, 0); pthread_sigmask(SIG_SETMASK, &old, 0);\n"
    "  running = !rc; return -rc; }\n";

static bool build(void)
{
    char text[160], command[512];
    (void)snprintf(text, sizeof(text), "%s/core.c", folder);
    (void)snprintf(library_path, sizeof(library_path), "%s/libcore.so", folder);
    FILE *f = fopen(text, "we");
    if (!f || fputs(source, f) < 0 || fclose(f) != 0)
        return false;
    (void)snprintf(command, sizeof(command), "cc -shared -fPIC -O1 -o %s %s -pthread 2>/dev/null",
                   library_path, text);
    return system(command) == 0;
}

/* ---- targets ---- */

/* A page that the targets and the test share: rounds made, the wish that it ends, and how often a
 * system call was interrupted. */
struct page {
    volatile uint64_t rounds, wish, interrupted;
    char rest[4072];
} page __attribute__((aligned(4096)));

#ifdef __x86_64__
uint64_t words[16]; /* what the registers hold */
unsigned char in[240], out[240], mxcsr[4] = {0x80, 0x3f, 0, 0};
uint64_t x87, flags; /* not static: only the assembler sees that they are used */

#ifdef __clang__
#define BY_STACK_POINTER
#else
#define BY_STACK_POINTER __attribute__((optimize("omit-frame-pointer"))) /* Ubuntu's gcc keeps it */
#endif

/* Everything that a thread has, held for as long as it is not asked to end.  Which of them is not
 * as it was, or 0.  The unwind table goes by the stack pointer: rbp is one of those held. */
BY_STACK_POINTER static int hold_registers(void)
{
    uint64_t wrong;
    __asm__ volatile(
        "push %%rbp; push %%rbx; sub $256, %%rsp; .cfi_adjust_cfa_offset 272\n"
        "fldpi; ldmxcsr mxcsr(%%rip)\n"
        "lea in(%%rip), %%rax\n"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14; movdqu 16*\\n(%%rax), %%xmm\\n; .endr\n"
        "movq words+120(%%rip), %%rax; movq %%rax, -8(%%rsp); movq %%rax, -128(%%rsp)\n"
        ".macro each what\n"
        "\\what words(%%rip), %%rax; \\what words+8(%%rip), %%rbx; \\what words+16(%%rip), %%rcx\n"
        "\\what words+24(%%rip), %%rdx; \\what words+32(%%rip), %%rsi\n"
        "\\what words+40(%%rip), %%rdi; \\what words+48(%%rip), %%rbp\n"
        "\\what words+56(%%rip), %%r8; \\what words+64(%%rip), %%r9; \\what words+72(%%rip), "
        "%%r10\n"
        "\\what words+80(%%rip), %%r11; \\what words+88(%%rip), %%r12\n"
        "\\what words+96(%%rip), %%r13; \\what words+104(%%rip), %%r14\n"
        "\\what words+112(%%rip), %%r15\n.endm\n"
        ".macro same a b; cmpq \\a, \\b; jne 9f; .endm\n"
        "each movq; std\n"
        "1: incq page(%%rip); each same; cmpq $0, page+8(%%rip); je 1b\n"
        "movq -8(%%rsp), %%rax; same words+120(%%rip), %%rax\n"
        "movq -128(%%rsp), %%rax; same words+120(%%rip), %%rax\n"
        "pushfq; popq flags(%%rip); cld; xor %%eax, %%eax; jmp 8f\n"
        "9: cld; mov $1, %%eax\n"
        "8: lea out(%%rip), %%rcx\n"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14; movdqu %%xmm\\n, 16*\\n(%%rcx); .endr\n"
        "fstpl x87(%%rip); stmxcsr mxcsr(%%rip); add $256, %%rsp; pop %%rbx; pop %%rbp\n"
        ".cfi_adjust_cfa_offset -272\n"
        : "=a"(wrong)
        :
        : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0",
          "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
          "xmm12", "xmm13", "xmm14", "st", "memory", "cc");
    return wrong                                 ? 1
           : memcmp(in, out, sizeof(in)) != 0    ? 2
           : x87 != UINT64_C(0x400921fb54442d18) ? 3
           : mxcsr[1] != 0x3f                    ? 4
           : !(flags & 0x400)                    ? 5
                                                 : 0;
}
#else
static int hold_registers(void)
{
    while (!page.wish)
        page.rounds++;
    return 0;
}
#endif

static int signals_are_open(void)
{
    sigset_t set, none;
    (void)sigemptyset(&none);
    return sigprocmask(SIG_BLOCK, NULL, &set) == 0 && memcmp(&set, &none, 8) == 0;
}

static int holder(void)
{
    errno = 77;
    int wrong = hold_registers();
    return wrong ? wrong : errno != 77 ? 6 : !signals_are_open() ? 7 : 0;
}

static int64_t in_nanosleep(void)
{
    return nanosleep(&(struct timespec){.tv_nsec = 3 * NS_PER_MS}, NULL);
}

static int64_t in_futex(void)
{
    uint32_t word = 0;
    struct timespec t = {.tv_nsec = 3 * NS_PER_MS};
    int64_t rc = syscall(SYS_futex, &word, 0, 0, &t, NULL, 0);
    return rc == -1 && errno == ETIMEDOUT ? 0 : rc;
}

static int64_t (*waits_in)(void);

static int waiter(void)
{
    while (!page.wish) {
        errno = 0;
        page.interrupted += waits_in() == -1 && errno == EINTR;
        page.rounds++;
    }
    return signals_are_open() ? 0 : 7;
}

static pid_t begin_life(int (*body)(void))
{
    page.rounds = page.wish = page.interrupted = 0;
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* Ctrl-C of the tests: it would run for ever */
        _exit(body());
    }
    while (page.rounds == 0)
        wait_ns(NS_PER_MS / 5);
    return pid;
}

static bool moves(void)
{
    uint64_t before = page.rounds;
    for (int i = 0; i < PATIENT_MS && page.rounds < before + 2; i++)
        wait_ns(NS_PER_MS);
    return page.rounds >= before + 2;
}

static bool traced(pid_t pid)
{
    struct proc_status s;
    return proc_status_of(pid, 0, &s) == 0 && s.tracer != 0;
}

/* ---- killing ---- */

/* The call that the traced process comes from, or -1: it is not at the end of one. */
static int64_t call_at(pid_t pid, uint64_t *number)
{
    struct __ptrace_syscall_info info = {0};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof(info), &info) <= 0)
        return -1;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
        *number = info.entry.nr;
    return info.op == PTRACE_SYSCALL_INFO_EXIT ? (int64_t)*number : -1;
}

static void injector(pid_t target)
{
    struct inject_result r;
    struct inject_options o = {.pid = target, .library = library_path, .timeout_ns = NS_PER_S};
    _exit(inject_here(&o, &r) < 0);
}

/* Kill the injector when it has made `n` calls from its first ptrace() on, and waited for `delay`.
 * false: it was done before. */
static bool kill_after(pid_t target, uint32_t n, uint64_t delay_ns)
{
    int status;
    uint64_t number = 0;
    pid_t pid = fork();
    if (pid == 0) {
        (void)raise(SIGSTOP);
        injector(target);
    }
    (void)waitpid(pid, &status, WUNTRACED);
    (void)ptrace(PTRACE_SEIZE, pid, NULL, PTRACE_O_TRACESYSGOOD);
    (void)kill(pid, SIGCONT);
    for (bool begun = false;;) {
        if (waitpid(pid, &status, __WALL) != pid || WIFEXITED(status) || WIFSIGNALED(status))
            return false;
        int64_t call = call_at(pid, &number);
        begun = begun || call == SYS_ptrace;
        if (begun && call >= 0 && n-- == 0)
            break;
        bool signal = status >> 16 == 0 && !(WSTOPSIG(status) & 0x80);
        (void)ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)(signal ? WSTOPSIG(status) : 0));
    }
    if (delay_ns)
        wait_ns(delay_ns);
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, __WALL) == pid && !WIFEXITED(status) && !WIFSIGNALED(status))
        (void)ptrace(PTRACE_CONT, pid, NULL, NULL);
    return true;
}

/* Its own end, with everything as it was. */
static bool end_life(pid_t pid)
{
    int status = -1;
    page.wish = 1;
    for (int i = 0; i < PATIENT_MS && waitpid(pid, &status, WNOHANG) == 0; i++)
        wait_ns(NS_PER_MS / 10);
    if (CHECK_INT(status, 0) && CHECK_INT(page.interrupted, 0))
        return true;
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    return false;
}

/* One life of a target, whose injector dies after n calls.  false: it did not, it was done. */
static bool one_death(int (*body)(void), uint32_t n, uint64_t delay_ns)
{
    pid_t pid = begin_life(body);
    bool killed = kill_after(pid, n, delay_ns);
    for (int i = 0; i < PATIENT_MS && traced(pid); i++)
        wait_ns(NS_PER_MS / 10);
    CHECK(moves());
    if (!end_life(pid))
        printf("# killed after %u calls\n", n);
    return killed;
}

static void die_everywhere(int (*body)(void), uint32_t step)
{
    uint32_t n = 0;
    while (one_death(body, n, 0))
        n += step;
    printf("# %u points\n", n / step);
    CHECK(n > 50);
}

TEST(no_register_is_lost)
{
    die_everywhere(holder, 1);
}

TEST(no_sleep_ends_early)
{
    waits_in = in_nanosleep;
    die_everywhere(waiter, 3);
    waits_in = in_futex;
    die_everywhere(waiter, 3);
}

/* The thread runs our code meanwhile: at any place in it. */
TEST(no_register_is_lost_at_any_time)
{
    uint64_t random = 88172645463325252;
    for (int i = 0; i < 150; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (void)one_death(holder, random % 200, random % (300 * NS_PER_US));
    }
}

#ifdef SYS_pause
#define LIBRARY_WAITS SYS_pause
#else
#define LIBRARY_WAITS SYS_ppoll
#endif

/* Is there a thread beside the first one and the library's?  A helper naps, or waits for a
 * processor: "running". */
static bool helper_is_there(pid_t pid)
{
    char path[64], text[32];
    bool there = false;
    (void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        (void)snprintf(path, sizeof(path), "/proc/%d/task/%.16s/syscall", pid, e->d_name);
        long tid = strtol(e->d_name, NULL, 10);
        if (tid > 0 && tid != pid && file_peek(path, text, sizeof(text)) == 0)
            there = there || strncmp(text, "running", 7) == 0 ||
                    strtol(text, NULL, 10) != LIBRARY_WAITS;
    }
    if (d)
        (void)closedir(d);
    return there;
}

TEST(no_helper_stays)
{
    uint32_t seen = 0;
    for (uint32_t n = 40; n < 220; n += 6) {
        int quiet = 0;
        pid_t pid = begin_life(holder);
        (void)kill_after(pid, n, 0);
        for (int i = 0; i < PATIENT_MS && quiet < 30; i++) {
            bool there = helper_is_there(pid);
            seen += there;
            quiet = there ? 0 : quiet + 1;
            wait_ns(NS_PER_MS);
        }
        CHECK_INT(quiet, 30);
        end_life(pid);
    }
    printf("# seen %u times\n", seen); /* never where it is done too soon: glibc 2.41 */
}

int main(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return test_skip("the children of a sanitized program are no ordinary targets");
#endif
    if (system("cc --version >/dev/null 2>&1") != 0)
        return test_skip("no cc to make a library with");
    if (!mkdtemp(folder) || !build())
        return test_skip("cannot make a library");
    if (mmap(&page, sizeof(page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
             -1, 0) == MAP_FAILED)
        return test_skip("no shared memory");
#ifdef __x86_64__
    for (size_t i = 0; i < 16; i++)
        words[i] = (i + 3) * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (unsigned char)(i * 7 + 1);
#endif
    RUN(no_register_is_lost);
    RUN(no_sleep_ends_early);
    RUN(no_register_is_lost_at_any_time);
    RUN(no_helper_stays);
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    if (system(command) != 0)
        printf("# %s is left\n", folder);
    return test_end();
}
