/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/seccomp_program.c - a seccomp filter's program, run on numbers of which some are not
 * known: a descriptor or an address may be anything, so where the program looks at one it may go on
 * either way.
 *
 * Own thread only.
 */
#include "cli/inject/seccomp_program.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>

#define STEPS_MAX (1u << 18) /* of one call: some milliseconds */
#define WAYS_MAX 4096        /* one for each instruction: BPF_MAXINSNS of the kernel */

#if defined(__x86_64__)
#define OUR_AUDIT_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_AUDIT_ARCH AUDIT_ARCH_AARCH64
#endif

struct number {
    uint32_t value;
    bool known;
};

/* The state of the program on one of the ways that it may have come. */
struct way {
    uint32_t at;
    struct number a, x, memory[BPF_MEMWORDS];
    bool plain; /* nothing but `a` was ever written */
};

struct filter_run {
    const struct sock_filter *program;
    uint32_t n;
    uint32_t words[4 + 2 * SECCOMP_ARGUMENTS];
    bool known[4 + 2 * SECCOMP_ARGUMENTS];
    struct way *ways; /* WAYS_MAX of them, that are to be gone yet */
    uint32_t n_ways, steps, says;
    bool seen[WAYS_MAX]; /* one way came here knowing nothing: the next would find the same */
};

static struct number compute_number(uint16_t code, struct number x, struct number y)
{
    uint32_t a = x.value, b = y.value, r = a;
    switch (BPF_OP(code)) {
    case BPF_ADD:
        r = a + b;
        break;
    case BPF_SUB:
        r = a - b;
        break;
    case BPF_MUL:
        r = a * b;
        break;
    case BPF_DIV:
        r = b ? a / b : 0;
        break;
    case BPF_OR:
        r = a | b;
        break;
    case BPF_AND:
        r = a & b;
        break;
    case BPF_XOR:
        r = a ^ b;
        break;
    case BPF_LSH:
        r = b < 32 ? a << b : 0;
        break;
    case BPF_RSH:
        r = b < 32 ? a >> b : 0;
        break;
    case BPF_NEG:
        return (struct number){0 - a, x.known};
    }
    return (struct number){r, x.known && y.known};
}

static bool is_jump_taken(uint16_t code, uint32_t a, uint32_t b)
{
    switch (BPF_OP(code)) {
    case BPF_JEQ:
        return a == b;
    case BPF_JGT:
        return a > b;
    case BPF_JGE:
        return a >= b;
    case BPF_JSET:
        return (a & b) != 0;
    }
    return false;
}

static struct number load_number(const struct filter_run *r, const struct way *w,
                                 const struct sock_filter *s)
{
    uint32_t word = s->k / 4;
    switch (BPF_MODE(s->code)) {
    case BPF_ABS:
        if (s->k % 4 || word >= sizeof(r->words) / sizeof(r->words[0]))
            return (struct number){0, false};
        return (struct number){r->words[word], r->known[word]};
    case BPF_MEM:
        return w->memory[s->k % BPF_MEMWORDS];
    case BPF_LEN:
        return (struct number){sizeof(struct seccomp_data), true};
    }
    return (struct number){s->k, true};
}

static void note_return(struct filter_run *r, struct number action)
{
    switch (action.value & SECCOMP_RET_ACTION_FULL) {
    case SECCOMP_RET_ERRNO:
        r->says |= SAYS_ERROR;
        break;
    case SECCOMP_RET_KILL_PROCESS:
    case SECCOMP_RET_KILL_THREAD:
    case SECCOMP_RET_TRAP:
        r->says |= SAYS_END;
        break;
    }
    if (!action.known)
        r->says |= SAYS_ANYTHING;
}

static void push_way(struct filter_run *r, struct way w)
{
    if (r->n_ways == WAYS_MAX || w.at >= r->n)
        r->says |= SAYS_ANYTHING;
    else
        r->ways[r->n_ways++] = w;
}

static void follow_branch(struct filter_run *r, struct way *w, const struct sock_filter *s)
{
    struct number operand = BPF_SRC(s->code) == BPF_X ? w->x : (struct number){s->k, true};
    if (w->a.known && operand.known) {
        w->at += is_jump_taken(s->code, w->a.value, operand.value) ? s->jt : s->jf;
        return;
    }
    struct way other = *w;
    other.at += s->jf;
    if (s->jt != s->jf)
        push_way(r, other);
    w->at += s->jt;
}

/* One way to its end. */
static void follow_way(struct filter_run *r, struct way w)
{
    while (w.at < r->n) {
        const struct sock_filter *s = &r->program[w.at];
        if (w.plain && !w.a.known) {
            if (r->seen[w.at])
                return;
            r->seen[w.at] = true;
        }
        if (++r->steps > STEPS_MAX)
            break;
        w.at++;
        w.plain = w.plain && BPF_CLASS(s->code) != BPF_LDX && BPF_CLASS(s->code) != BPF_ST &&
                  BPF_CLASS(s->code) != BPF_STX && BPF_CLASS(s->code) != BPF_MISC;
        switch (BPF_CLASS(s->code)) {
        case BPF_LD:
            w.a = load_number(r, &w, s);
            break;
        case BPF_LDX:
            w.x = load_number(r, &w, s);
            break;
        case BPF_ST:
            w.memory[s->k % BPF_MEMWORDS] = w.a;
            break;
        case BPF_STX:
            w.memory[s->k % BPF_MEMWORDS] = w.x;
            break;
        case BPF_ALU:
            w.a = compute_number(s->code, w.a,
                                 BPF_SRC(s->code) == BPF_X ? w.x : (struct number){s->k, true});
            break;
        case BPF_JMP:
            if (BPF_OP(s->code) == BPF_JA)
                w.at += s->k;
            else
                follow_branch(r, &w, s);
            break;
        case BPF_RET:
            note_return(r, BPF_RVAL(s->code) == BPF_A ? w.a : (struct number){s->k, true});
            return;
        case BPF_MISC:
            if (BPF_MISCOP(s->code) == BPF_TAX)
                w.x = w.a;
            else
                w.a = w.x;
            break;
        }
    }
    r->says |= SAYS_ANYTHING;
}

/* With the arguments as r->words has them. */
static void try_choice(struct filter_run *r)
{
    struct way first = {.a.known = true, .x.known = true, .plain = true};
    for (uint32_t i = 0; i < BPF_MEMWORDS; i++)
        first.memory[i].known = true;
    for (uint32_t i = 0; i < r->n; i++)
        r->seen[i] = false;
    r->n_ways = r->steps = 0;
    push_way(r, first);
    while (r->n_ways > 0 && !(r->says & SAYS_ANYTHING))
        follow_way(r, r->ways[--r->n_ways]);
}

/* The next choice of one value for each argument that is known; false: there were all. */
static bool next_choice(const struct call_shape *call, uint32_t chosen[SECCOMP_ARGUMENTS])
{
    for (uint32_t i = 0; i < SECCOMP_ARGUMENTS; i++) {
        if (chosen[i] + 1 < call->argument[i].n) {
            chosen[i]++;
            return true;
        }
        chosen[i] = 0;
    }
    return false;
}

uint32_t program_says(const struct sock_filter *program, uint32_t n, const struct call_shape *call)
{
    static struct way ways[WAYS_MAX];
    static struct filter_run r;
    uint32_t chosen[SECCOMP_ARGUMENTS] = {0};
    r = (struct filter_run){.program = program, .n = n < WAYS_MAX ? n : WAYS_MAX, .ways = ways};
    r.words[0] = call->number;
    r.words[1] = OUR_AUDIT_ARCH;
    r.known[0] = r.known[1] = true;
    do {
        for (uint32_t i = 0; i < SECCOMP_ARGUMENTS; i++) { /* a low word, and a high one of zeros */
            bool known = call->argument[i].n > 0;
            r.words[4 + 2 * i] = known ? call->argument[i].values[chosen[i]] : 0;
            r.known[4 + 2 * i] = r.known[5 + 2 * i] = known;
        }
        try_choice(&r);
    } while (next_choice(call, chosen) && r.says < SAYS_ANYTHING);
    return r.says;
}
