/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/cfi_test.c - rules from entries made by hand, and damaged entries.
 */
#include "cfi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"

#if defined(__x86_64__)

/* As gcc writes it: "zR", code 1, data -8, return address 16; cfa = rsp + 8, ra at cfa - 8. */
static const uint8_t cie[] = {20, 0,    0,  0, 0,    0,    0, 0, 1,    'z', 'R', 0,
                              1,  0x78, 16, 1, 0x03, 0x0c, 7, 8, 0x90, 1,   0,   0};

struct fde {
    uint8_t bytes[64];
    uint32_t size;
};

/* A function at 0x1000 of 0x100 bytes (udata4, absolute) with these instructions. */
static struct fde fde_of(const uint8_t *code, uint32_t n)
{
    struct fde f = {.size = 17 + n};
    const uint32_t head[] = {13 + n, 0, 0x1000, 0x100};
    memcpy(f.bytes, head, sizeof(head));
    memcpy(f.bytes + 17, code, n);
    return f;
}

static int rule_at(const struct fde *f, uint64_t ip, struct cfi_rule *ret)
{
    return cfi_rule(cie, sizeof(cie), f->bytes, f->size, 0, ip, ret);
}

TEST(a_usual_function)
{
    /* push rbp; mov rbp, rsp; ...; leave; ret */
    static const uint8_t code[] = {0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x60, 0x0c, 7, 8};
    struct fde f = fde_of(code, sizeof(code));
    struct cfi_rule r;
    CHECK_INT(rule_at(&f, 0x1000, &r), 0);
    CHECK_INT(r.kind, CFI_STEP);
    CHECK_INT(r.cfa_register, CFI_SP);
    CHECK_INT(r.cfa_offset, 8);
    CHECK_INT(r.fp, CFI_SAME);
    CHECK_INT(r.ra, CFI_AT_CFA);
    CHECK_INT(r.ra_offset, -8);
    CHECK_INT(rule_at(&f, 0x1001, &r), 0);
    CHECK_INT(r.cfa_offset, 16);
    CHECK_INT(r.fp, CFI_AT_CFA);
    CHECK_INT(r.fp_offset, -16);
    CHECK_INT(rule_at(&f, 0x1004, &r), 0);
    CHECK_INT(r.cfa_register, CFI_FP);
    CHECK_INT(r.cfa_offset, 16);
    CHECK_INT(rule_at(&f, 0x1024, &r), 0);
    CHECK_INT(r.cfa_register, CFI_SP);
    CHECK_INT(r.cfa_offset, 8);
    CHECK_INT(rule_at(&f, 0xfff, &r), -ENOENT);
    CHECK_INT(rule_at(&f, 0x1100, &r), -ENOENT);
}

TEST(remembered_rows_and_expressions)
{
    static const uint8_t remember[] = {0x42, 0x0e, 32, 0x0a, 0x44, 0x0e, 8, 0x44, 0x0b};
    static const uint8_t deref[] = {0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0};
    static const uint8_t plt[] = {0x0f, 11,   0x77, 8,    0x80, 0,   0x3f,
                                  0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22};
    static const uint8_t outermost[] = {0x07, 16};
    struct fde f = fde_of(remember, sizeof(remember));
    struct cfi_rule r;
    CHECK_INT(rule_at(&f, 0x1006, &r), 0);
    CHECK_INT(r.cfa_offset, 8);
    CHECK_INT(rule_at(&f, 0x100a, &r), 0);
    CHECK_INT(r.cfa_offset, 32);
    f = fde_of(deref, sizeof(deref));
    CHECK_INT(rule_at(&f, 0x1000, &r), 0);
    CHECK_INT(r.cfa, CFA_DEREF);
    CHECK_INT(r.cfa_register, 6);
    CHECK_INT(r.cfa_deref, -8);
    CHECK_INT(r.fp, CFI_AT_FP);
    f = fde_of(plt, sizeof(plt));
    CHECK_INT(rule_at(&f, 0x1000, &r), 0);
    CHECK_INT(r.cfa, CFA_PLT);
    CHECK_INT(r.cfa_offset, 11);
    f = fde_of(outermost, sizeof(outermost));
    CHECK_INT(rule_at(&f, 0x1000, &r), 0);
    CHECK_INT(r.kind, CFI_OUTERMOST);
}

TEST(damage_is_refused)
{
    static const uint8_t code[] = {0x41, 0x0e, 16, 0x86, 2, 0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2};
    struct fde good = fde_of(code, sizeof(code));
    struct cfi_rule r;
    for (int i = 0; i < 200000; i++) {
        struct fde f = good;
        uint8_t c[sizeof(cie)];
        memcpy(c, cie, sizeof(c));
        for (int k = random() % 4; k >= 0; k--) {
            f.bytes[random() % f.size] = (uint8_t)random();
            c[random() % sizeof(c)] = (uint8_t)random();
        }
        uint32_t short_by = (uint32_t)random() % f.size;
        int rc = cfi_rule(c, sizeof(c) - (uint32_t)random() % 4, f.bytes, f.size - short_by, 0,
                          0x1000 + (uint64_t)random() % 64, &r);
        if (!CHECK(rc == 0 || rc == -EBADMSG || rc == -ENOENT))
            return;
    }
    CHECK_INT(cfi_rule(cie, 8, good.bytes, good.size, 0, 0x1000, &r), -EBADMSG);
    CHECK_INT(cfi_entry_size((const uint8_t[]){0xff, 0xff, 0xff, 0xff}), 0);
    CHECK_INT(cfi_entry_size((const uint8_t[]){0, 0, 0, 0}), 0);
    CHECK_INT(cfi_entry_size(cie), 24);
}

int main(void)
{
    RUN(a_usual_function);
    RUN(remembered_rows_and_expressions);
    RUN(damage_is_refused);
    return test_end();
}

#else

int main(void)
{
    return test_skip("the entries in it are x86-64's");
}

#endif
