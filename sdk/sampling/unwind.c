/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/unwind.c - step from caller to caller by the rules of unwind_index.h.
 *
 * Its owner's thread only.  Only the copy of the stack is read, so a wrong rule gives a short
 * stack and never a fault.
 */
#include "unwind.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>

#define GUESS_MAX (UINT64_C(1) << 20) /* bytes of a frame; a larger one is no frame */
#if defined(__aarch64__)
#define CODE_MASK UINT64_C(0x0000ffffffffffff) /* above: the return address's signature */
#else
#define CODE_MASK UINT64_MAX
#endif

struct cursor {
    struct registers r;
    const struct stack_copy *stack;
};

static bool read_word(const struct cursor *c, uint64_t address, uint64_t *ret)
{
    uint64_t at = address - c->stack->from;
    if (address < c->stack->from || c->stack->size < sizeof(*ret) ||
        at > c->stack->size - sizeof(*ret))
        return false;
    memcpy(ret, c->stack->bytes + at, sizeof(*ret));
    return true;
}

static bool is_known(const struct cursor *c, uint32_t number)
{
    return c->r.known >> number & 1;
}

/* Only ip and sp of a waiting thread are known; no frame further in has touched the rest. */
static void find_frame_pointer(struct cursor *c, struct code *code, bool exact)
{
#if defined(__x86_64__)
    int64_t held = code_held(code, c->r.ip, exact);
    uint64_t fp = c->r.value[CFI_SP] + (uint64_t)held, above;
    if (held < 0 || !read_word(c, fp + 8, &above) || !code_is_behind_call(above))
        return;
    c->r.value[CFI_FP] = fp;
    c->r.known |= UINT64_C(1) << CFI_FP;
#else /* the tables of other machines go by the stack pointer */
    (void)c;
    (void)code;
    (void)exact;
#endif
}

static bool find_cfa(const struct cursor *c, const struct cfi_rule *rule, uint64_t *ret)
{
    uint64_t value = 0;
    if (rule->cfa == CFA_PLT) { /* 16 bytes each; behind the push a word more is on the stack */
        bool pushed = (c->r.ip & 15) >= (uint64_t)rule->cfa_offset;
        *ret = c->r.value[CFI_SP] + (pushed ? 16 : 8);
        return true;
    }
    if (!is_known(c, rule->cfa_register))
        return false;
    value = c->r.value[rule->cfa_register];
    if (rule->cfa == CFA_DEREF && !read_word(c, value + (uint64_t)(int64_t)rule->cfa_deref, &value))
        return false;
    *ret = value + (uint64_t)(int64_t)rule->cfa_offset;
    return true;
}

/* The value that a register had in the caller. */
static bool saved_register(const struct cursor *c, uint8_t where, uint32_t number, int32_t offset,
                           uint64_t cfa, uint64_t *ret)
{
    uint64_t base = where == CFI_AT_CFA ? cfa : c->r.value[CFI_FP];
    if (where == CFI_SAME)
        *ret = c->r.value[number];
    if (where == CFI_SAME)
        return is_known(c, number);
    if (where == CFI_UNKNOWN || (where == CFI_AT_FP && !is_known(c, CFI_FP)))
        return false;
    return read_word(c, base + (uint64_t)(int64_t)offset, ret);
}

static bool step_frame(struct cursor *c, const struct cfi_rule *rule, bool innermost)
{
    uint64_t cfa, ra, fp;
    if (!find_cfa(c, rule, &cfa) || !saved_register(c, rule->ra, CFI_RA, rule->ra_offset, cfa, &ra))
        return false;
    if (cfa < c->r.value[CFI_SP] || (cfa == c->r.value[CFI_SP] && !innermost))
        return false; /* callers lie further up */
    bool has_fp = saved_register(c, rule->fp, CFI_FP, rule->fp_offset, cfa, &fp);
    c->r.known = UINT64_C(1) << CFI_SP;
    c->r.value[CFI_SP] = cfa;
    if (has_fp) {
        c->r.value[CFI_FP] = fp;
        c->r.known |= UINT64_C(1) << CFI_FP;
    }
    c->r.ip = ra & CODE_MASK;
    return true;
}

/* Code without a table, as just-in-time compilers make it, often keeps the frame pointer.  Believe
 * it when it leads up the stack, to code. */
static bool guess_frame(struct cursor *c, struct code *code)
{
    uint64_t fp = c->r.value[CFI_FP], ip, next;
    if (!is_known(c, CFI_FP) || !code_has_no_table(code, c->r.ip) || fp < c->r.value[CFI_SP] ||
        fp - c->r.value[CFI_SP] > GUESS_MAX || fp % 8 || !read_word(c, fp + 8, &ip) ||
        !read_word(c, fp, &next))
        return false;
    ip &= CODE_MASK;
    if (code_rule(code, ip - 1).kind == CFI_LOST && !code_has_no_table(code, ip - 1))
        return false;
    c->r.value[CFI_SP] = fp + 16;
    c->r.value[CFI_FP] = next;
    c->r.known = UINT64_C(1) << CFI_SP | UINT64_C(1) << CFI_FP;
    c->r.ip = ip;
    return true;
}

/* A signal of the program's came here: the kernel put the registers on the stack. */
static bool leave_signal(struct cursor *c)
{
    uint64_t sp = c->r.value[CFI_SP], ip, fp, caller;
#if defined(__x86_64__)
    uint64_t at = sp + offsetof(ucontext_t, uc_mcontext.gregs);
    bool found = read_word(c, at + REG_RIP * 8, &ip) && read_word(c, at + REG_RSP * 8, &caller) &&
                 read_word(c, at + REG_RBP * 8, &fp);
#else
    uint64_t at = sp + sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext);
    bool found = read_word(c, at + offsetof(mcontext_t, pc), &ip) &&
                 read_word(c, at + offsetof(mcontext_t, sp), &caller) &&
                 read_word(c, at + offsetof(mcontext_t, regs) + 29 * 8, &fp);
#endif
    if (!found || caller <= sp) /* another stack (sigaltstack) is not in the copy */
        return false;
    c->r.ip = ip & CODE_MASK;
    c->r.value[CFI_SP] = caller;
    c->r.value[CFI_FP] = fp;
    c->r.known = UINT64_C(1) << CFI_SP | UINT64_C(1) << CFI_FP;
    return true;
}

uint32_t unwind_stack(struct code *c, const struct registers *r, const struct stack_copy *stack,
                      uint64_t *ret_ips, uint64_t *ret_sps, uint32_t max, enum unwind_end *ret_end)
{
    struct cursor cursor = {*r, stack};
    bool exact = true; /* ip is where it is, not a return address */
    uint32_t n = 0;
    *ret_end = UNWIND_LOST;
    if (ret_sps)
        ret_sps[n] = r->value[CFI_SP];
    ret_ips[n++] = r->ip;
    for (;;) {
        struct cfi_rule rule = code_rule(c, cursor.r.ip - !exact);
        bool moved = false;
        if (rule.kind == CFI_OUTERMOST)
            *ret_end = UNWIND_WHOLE;
        else if (rule.kind == CFI_SIGNAL)
            moved = leave_signal(&cursor);
        else if (rule.kind == CFI_STEP) {
            if (rule.cfa_register == CFI_FP && !is_known(&cursor, CFI_FP))
                find_frame_pointer(&cursor, c, exact);
            moved = step_frame(&cursor, &rule, n == 1);
        } else
            moved = guess_frame(&cursor, c);
        if (!moved)
            return n;
        exact = rule.kind == CFI_SIGNAL;
        if (cursor.r.ip == 0) { /* glibc's thread start has no caller */
            *ret_end = UNWIND_WHOLE;
            return n;
        }
        if (n == max) {
            *ret_end = UNWIND_LIMIT;
            return n;
        }
        if (ret_sps)
            ret_sps[n] = cursor.r.value[CFI_SP];
        ret_ips[n++] = cursor.r.ip;
    }
}
