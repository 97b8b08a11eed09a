/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/frame_size_test.c - functions that set a frame pointer in all the ways compilers
 * do, asked from within for what only they know: found, or not told; never another.
 */
#include "frame_size.h"

#include "tests/test.h"

#if defined(__x86_64__)

static int64_t told, truth;

/* Called in the middle of a function, which goes on at `ip`. */
__attribute__((used)) static void look(const uint8_t *start, const uint8_t *ip, uint64_t sp,
                                       uint64_t fp)
{
    truth = (int64_t)(fp - sp);
    told = frame_size(start, (size_t)(ip - start));
    CHECK(frame_is_behind_call(ip - FRAME_CALL_BYTES));
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
    printf("# %s: %lld\n", name, (long long)told);
    CHECK_INT(told, truth);
}

static void is_not_told(const char *name, void (*function)(void))
{
    function();
    printf("# %s\n", name);
    CHECK_INT(told, -1);
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
    is_not_told("set otherwise", fp_none);
}

/* The sum is short then: what lies above is no return address, and the caller sees that. */
TEST(room_behind_a_branch)
{
    fp_late();
    CHECK(told >= 0 && told < truth);
}

TEST(calls)
{
    static const struct {
        uint8_t bytes[FRAME_CALL_BYTES];
        bool is;
    } cases[] = {{{0, 0, 0xe8, 1, 2, 3, 4}, true},       /* call there */
                 {{0, 0, 0, 0, 0, 0xff, 0xd0}, true},    /* call *%rax */
                 {{0, 0, 0, 0, 0x41, 0xff, 0xd7}, true}, /* call *%r15 */
                 {{0, 0, 0, 0, 0xff, 0x50, 8}, true},    /* call *8(%rax) */
                 {{0, 0, 0, 0xff, 0x54, 0x24, 8}, true}, /* call *8(%rsp) */
                 {{0, 0xff, 0x15, 1, 2, 3, 4}, true},    /* call *there(%rip) */
                 {{0xff, 0x94, 0xc1, 1, 2, 3, 4}, true}, /* call *disp(%rcx,%rax,8) */
                 {{0, 0xff, 0x25, 1, 2, 3, 4}, false},   /* jmp *there(%rip) */
                 {{0, 0, 0, 0, 0, 0xff, 0x50}, false},   /* one without its displacement */
                 {{0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xc3}, false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CHECK_INT(frame_is_behind_call(cases[i].bytes), cases[i].is);
}

int main(void)
{
    RUN(heads_with_constants);
    RUN(what_cannot_be_known);
    RUN(room_behind_a_branch);
    RUN(calls);
    return test_end();
}

#else

int main(void)
{
    return test_skip("other machines' unwind tables go by the stack pointer");
}

#endif
