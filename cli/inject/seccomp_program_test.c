/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/seccomp_program_test.c - what filters say to calls of which not everything is known.
 */
#include <linux/seccomp.h>
#include <stddef.h>

/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/inject/seccomp_program.c"
#include "tests/test.h"

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF(op, value, yes, no) BPF_JUMP(BPF_JMP | (op) | BPF_K, value, yes, no)
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_##action)
#define SAYS(program, call) program_says(program, sizeof(program) / sizeof((program)[0]), call)

static const uint32_t one_or_two[] = {1, 2};
static const struct call_shape plain = {.number = 41};
static const struct call_shape known = {.number = 41, .argument[0] = {one_or_two, 2}};

TEST(by_number)
{
    const struct sock_filter kill_41[] = {LOAD(nr), IF(BPF_JEQ, 41, 0, 1), RETURN(KILL_PROCESS),
                                          RETURN(ALLOW)};
    const struct sock_filter only_41[] = {LOAD(nr), IF(BPF_JEQ, 41, 1, 0), RETURN(KILL_THREAD),
                                          RETURN(ALLOW)};
    CHECK_INT(SAYS(kill_41, &plain), SAYS_END);
    CHECK_INT(SAYS(kill_41, &known), SAYS_END);
    CHECK_INT(SAYS(only_41, &plain), 0);
}

TEST(by_argument)
{
    for (uint32_t value = 0; value < 4; value++) {
        const struct sock_filter f[] = {LOAD(args[0]), IF(BPF_JEQ, value, 0, 1), RETURN(TRAP),
                                        RETURN(ERRNO)};
        CHECK_INT(SAYS(f, &plain), SAYS_END | SAYS_ERROR);
        CHECK_INT(SAYS(f, &known), value == 1 || value == 2 ? SAYS_END | SAYS_ERROR : SAYS_ERROR);
    }
    const struct sock_filter high[] = {LOAD(args[0]) /* and now its upper half */,
                                       BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 20), IF(BPF_JEQ, 0, 1, 0),
                                       RETURN(KILL_PROCESS), RETURN(ALLOW)};
    CHECK_INT(SAYS(high, &known), 0);
    CHECK_INT(SAYS(high, &plain), SAYS_END);
}

/* Values computed from an unknown number are unknown, in X and in memory, too. */
TEST(by_way_of)
{
    const struct sock_filter f[] = {LOAD(args[1]),
                                    BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff),
                                    BPF_STMT(BPF_ST, 3),
                                    LOAD(nr),
                                    BPF_STMT(BPF_LDX | BPF_W | BPF_MEM, 3),
                                    BPF_STMT(BPF_MISC | BPF_TXA, 0),
                                    IF(BPF_JGT, 200, 0, 1),
                                    RETURN(KILL_PROCESS),
                                    RETURN(ALLOW)};
    const struct call_shape here = {.number = 41, .argument[1] = {one_or_two, 2}};
    CHECK_INT(SAYS(f, &known), SAYS_END);
    CHECK_INT(SAYS(f, &here), 0);
}

/* Each question doubles the ways; ways that know nothing more are gone once. */
TEST(many_ways)
{
    struct sock_filter f[200], remembering[200];
    for (uint32_t i = 0; i < 198; i += 2) {
        f[i] = (struct sock_filter)LOAD(args[i % 5]);
        f[i + 1] = (struct sock_filter)IF(BPF_JEQ, i, 0, 0);
        if (i % 4)
            f[i + 1] = (struct sock_filter)IF(BPF_JSET, 1, 1, 0);
        remembering[i] = (struct sock_filter)BPF_STMT(BPF_ST, i % BPF_MEMWORDS);
        remembering[i + 1] = i ? f[i + 1] : (struct sock_filter)LOAD(args[2]);
    }
    f[198] = remembering[198] = (struct sock_filter)RETURN(ALLOW);
    f[199] = remembering[199] = (struct sock_filter)RETURN(KILL_PROCESS);
    CHECK_INT(SAYS(f, &plain), 0);
    CHECK_INT(SAYS(remembering, &plain), SAYS_ANYTHING);
}

int main(void)
{
    RUN(by_number);
    RUN(by_argument);
    RUN(by_way_of);
    RUN(many_ways);
    return test_end();
}
