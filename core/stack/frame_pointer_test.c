/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/frame_pointer_test.c - functions that set a frame pointer in all the ways compilers
 * do, asked from within for what only they know: found, or not told; never another.
 */
#include <errno.h>
#include <unistd.h>

#include "core/stack/process.h"
#include "tests/test.h"

#if defined(__x86_64__)

static struct stack_process *self;
static int answer;
static uint64_t told, truth;

/* Called in the middle of a function: `ip` is where it goes on, and `sp` what rsp is there. */
__attribute__((used)) static void look(uint64_t start, uint64_t ip, uint64_t sp, uint64_t fp)
{
    truth = fp;
    told = 0;
    stack_process_refresh(self, /* maps_too= */ false);
    answer = frame_pointer_find(self, start, ip, sp, &told);
}

/* A function that begins with `head`, whose stack is then aligned, and asks. */
#define FUNCTION(name, head)                                                        \
    void name(void);                                                                \
    __asm__(".text\n" #name ":\n\t"                                                 \
            "endbr64\n\tpush %rbp\n\t" head "\n\t"                                  \
            "lea " #name "(%rip), %rdi\n\tlea 0f(%rip), %rsi\n\tmov %rsp, %rdx\n\t" \
            "mov %rbp, %rcx\n\tcall look\n0:\n\t"                                   \
            "lea -16(%rbp), %rsp\n\tpop %r12\n\tpop %rbx\n\tpop %rbp\n\tret\n\t"    \
            ".type " #name ", @function\n\t.size " #name ", . - " #name "\n")
#define SAVE "mov %rsp, %rbp\n\tpush %rbx\n\tpush %r12\n\t"

FUNCTION(fp_least, SAVE);
FUNCTION(fp_other_form, ".byte 0x48, 0x8b, 0xec\n\tpush %rbx\n\tpush %r12\n\t");
FUNCTION(fp_small, SAVE "sub $0x20, %rsp");
FUNCTION(fp_guarded, SAVE "mov %edi, %r12d\n\tmov %fs:0x28, %rax\n\tsub $0x1230, %rsp\n\t"
                          "orq $0, (%rsp)\n\tmov %rax, -0x28(%rbp)\n\txor %eax, %eax\n\t"
                          "lea -0x80(%rbp,%rdi,8), %rbx\n\tmovups %xmm0, -0x60(%rbp)\n\t"
                          "movabs $0x1122334455667788, %rax\n\ttestb $1, 0x10(%rsp)\n\t"
                          "cmp $8, %rsp\n\tmovzbl %al, %ebx\n\timul $3, %rbx, %rbx");
FUNCTION(fp_branch, SAVE "sub $0x40, %rsp\n\ttest %edi, %edi\n\tjne 1f\n\tnop\n1:");
FUNCTION(fp_pushes, SAVE "push $7\n\tpush -8(%rbp)\n\tadd $8, %rsp\n\tpop %rax");
FUNCTION(fp_alloca, SAVE "mov $0x40, %eax\n\tsub %rax, %rsp");
FUNCTION(fp_aligned, SAVE "and $-0x40, %rsp\n\tsub $0x40, %rsp");
FUNCTION(fp_late, SAVE "test %rsp, %rsp\n\tje 1f\n\tmovq $0, -0x18(%rbp)\n\tsub $0x20, %rsp\n1:");
FUNCTION(fp_none, "push %rbx\n\tpush %r12\n\tlea 16(%rsp), %rbp\n\t");

static void is_found(const char *name, void (*function)(void))
{
    function();
    printf("# %s: %d\n", name, answer);
    CHECK_INT(answer, 0);
    CHECK(told == truth);
}

static void is_not_told(const char *name, void (*function)(void))
{
    function();
    printf("# %s: %d\n", name, answer);
    CHECK_INT(answer, -ENOENT);
}

TEST(heads_with_constants)
{
    is_found("least", fp_least);
    is_found("mov in its other form", fp_other_form);
    is_found("small", fp_small);
    is_found("guarded", fp_guarded);
    is_found("before a branch", fp_branch);
    is_found("pushes and pops", fp_pushes);
}

TEST(what_cannot_be_known)
{
    is_not_told("alloca", fp_alloca);
    is_not_told("aligned", fp_aligned);
    is_not_told("room behind a branch", fp_late);
    is_not_told("set otherwise", fp_none);
}

int main(void)
{
    if (stack_process_open(getpid(), &self) < 0)
        return 1;
    RUN(heads_with_constants);
    RUN(what_cannot_be_known);
    stack_process_free(self);
    return test_end();
}

#else

int main(void)
{
    return test_skip("other machines' unwind tables go by the stack pointer");
}

#endif
