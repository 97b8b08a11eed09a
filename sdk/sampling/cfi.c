/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/cfi.c - run the call frame instructions of one .eh_frame entry.
 *
 * Any thread, nothing kept.  The bytes come from the process's own memory, which may be unmapped
 * and used for something else while they are copied: every read is bounded, a strange byte ends it.
 * Sources: DWARF 5, sections 6.4 and 7.24; LSB 5, "Exception Frames".
 */
#include "cfi.h"

#include <errno.h>
#include <string.h>

#define REMEMBERED 8 /* depth of remember_state; compilers use 1 */

/* Bytes still to be read; once it ran out, everything reads as 0. */
struct bytes {
    const uint8_t *at, *end;
    bool out;
};

struct entry {
    struct bytes code;
    uint64_t code_align;
    int64_t data_align;
    uint64_t ra_register;
    uint8_t pointer_form; /* DW_EH_PE_ of the FDE's addresses */
    bool has_size, signal;
    const uint8_t *begin; /* of the copy */
    uint64_t address;     /* of the original */
};

struct machine {
    const struct entry *cie;
    struct cfi_rule rule, first; /* first: after the CIE's own instructions */
    struct cfi_rule kept[REMEMBERED];
    uint32_t n_kept;
    uint64_t place; /* the row goes from here */
    bool bad;
};

static uint64_t read_fixed(struct bytes *b, uint32_t n)
{
    uint64_t value = 0;
    if (n > (size_t)(b->end - b->at)) {
        b->out = true;
        b->at = b->end;
        return 0;
    }
    memcpy(&value, b->at, n); /* both machines are little-endian */
    b->at += n;
    return value;
}

static uint64_t read_uleb(struct bytes *b)
{
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64; shift += 7) {
        uint64_t byte = read_fixed(b, 1);
        value |= (byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    b->out = true;
    return 0;
}

static int64_t read_sleb(struct bytes *b)
{
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64;) {
        uint64_t byte = read_fixed(b, 1);
        value |= (byte & 0x7f) << shift;
        shift += 7;
        if (byte & 0x80)
            continue;
        if (byte & 0x40 && shift < 64)
            value |= ~UINT64_C(0) << shift;
        return (int64_t)value;
    }
    b->out = true;
    return 0;
}

static void skip_bytes(struct bytes *b, uint64_t n)
{
    b->out = b->out || n > (size_t)(b->end - b->at);
    b->at = b->out ? b->end : b->at + n;
}

static void skip_block(struct bytes *b)
{
    uint64_t size = read_uleb(b);
    skip_bytes(b, size);
}

/* DW_EH_PE_*: low four bits the size, the next three what it is relative to. */
static uint64_t read_pointer(struct bytes *b, uint8_t form, const struct entry *e)
{
    uint64_t here = e->address + (uint64_t)(b->at - e->begin), value;
    switch (form & 0x0f) {
    case 0x00: /* absptr */
    case 0x04: /* udata8 */
    case 0x0c: /* sdata8 */
        value = read_fixed(b, 8);
        break;
    case 0x02: /* udata2 */
        value = read_fixed(b, 2);
        break;
    case 0x03: /* udata4 */
        value = read_fixed(b, 4);
        break;
    case 0x0a: /* sdata2 */
        value = (uint64_t)(int64_t)(int16_t)read_fixed(b, 2);
        break;
    case 0x0b: /* sdata4 */
        value = (uint64_t)(int64_t)(int32_t)read_fixed(b, 4);
        break;
    default:
        b->out = true;
        return 0;
    }
    if ((form & 0x70) == 0x10) /* pcrel */
        value += here;
    else if (form & 0xf0)
        b->out =
            b->out || (form & 0x80) == 0; /* indirect: only a personality's, which is skipped */
    return value;
}

uint32_t cfi_entry_size(const uint8_t head[4])
{
    uint32_t size;
    memcpy(&size, head, sizeof(size));
    return size < 8 || size > UINT32_MAX - 16 ? 0 : size + 4; /* the 64-bit form: never seen */
}

uint64_t cfi_cie_address(const uint8_t fde[8], uint64_t fde_address)
{
    uint32_t back;
    memcpy(&back, fde + 4, sizeof(back));
    return back ? fde_address + 4 - back : 0;
}

static int read_cie(const uint8_t *cie, uint32_t size, struct entry *e)
{
    struct bytes *b = &e->code;
    *e = (struct entry){.code = {cie + 4, cie + size, false}, .begin = cie, .pointer_form = 0};
    if (size < 12 || read_fixed(b, 4) != 0)
        return -EBADMSG;
    uint64_t version = read_fixed(b, 1);
    const char *letters = (const char *)b->at;
    size_t n = strnlen(letters, (size_t)(b->end - b->at));
    skip_bytes(b, n + 1);
    if (version == 4)
        (void)read_fixed(b, 2);
    else if (version != 1 && version != 3)
        return -EBADMSG;
    e->code_align = read_uleb(b);
    e->data_align = read_sleb(b);
    e->ra_register = version == 1 ? read_fixed(b, 1) : read_uleb(b);
    if (n > 0 && letters[0] != 'z')
        return -EBADMSG;
    if (n == 0)
        return b->out ? -EBADMSG : 0;
    e->has_size = true;
    uint64_t about = read_uleb(b);
    if (b->out || about > (size_t)(b->end - b->at))
        return -EBADMSG;
    struct bytes data = {b->at, b->at + about, false};
    b->at += about;
    for (size_t i = 1; i < n; i++) {
        if (letters[i] == 'R')
            e->pointer_form = (uint8_t)read_fixed(&data, 1);
        else if (letters[i] == 'L')
            (void)read_fixed(&data, 1);
        else if (letters[i] == 'P')
            (void)read_pointer(&data, (uint8_t)read_fixed(&data, 1) & 0x0f, e);
        else if (letters[i] == 'S')
            e->signal = true;
        else if (letters[i] != 'B')
            return -EBADMSG;
    }
    return data.out || b->out ? -EBADMSG : 0;
}

/* The register's place in the rule, or NULL: one that we do not follow. */
static uint8_t *where_of(struct machine *m, uint64_t number, int32_t **ret_offset)
{
    if (number == CFI_FP) {
        *ret_offset = &m->rule.fp_offset;
        return &m->rule.fp;
    }
    if (number == m->cie->ra_register) {
        *ret_offset = &m->rule.ra_offset;
        return &m->rule.ra;
    }
    return NULL;
}

static void put_rule(struct machine *m, uint64_t number, enum cfi_where where, int64_t offset)
{
    int32_t *to;
    uint8_t *kind = where_of(m, number, &to);
    if (!kind)
        return;
    if (offset < INT32_MIN || offset > INT32_MAX)
        m->bad = true;
    *kind = (uint8_t)where;
    *to = (int32_t)offset;
}

static void restore_rule(struct machine *m, uint64_t number)
{
    if (number == CFI_FP) {
        m->rule.fp = m->first.fp;
        m->rule.fp_offset = m->first.fp_offset;
    } else if (number == m->cie->ra_register) {
        m->rule.ra = m->first.ra;
        m->rule.ra_offset = m->first.ra_offset;
    }
}

static void put_cfa(struct machine *m, uint64_t number, int64_t offset)
{
    if (number >= CFI_REGISTERS || offset < INT32_MIN || offset > INT32_MAX)
        m->bad = true;
    m->rule.cfa = CFA_OFFSET;
    m->rule.cfa_register = (uint8_t)number;
    m->rule.cfa_offset = (int32_t)offset;
}

/* Two expressions are in use: what lies at a register and an offset (functions that align their
 * stack), and the one of x86-64's linkage tables. */
static void cfa_expression(struct machine *m, struct bytes *b)
{
    static const uint8_t plt[] = {0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22};
    uint64_t size = read_uleb(b);
    if (b->out || size > (size_t)(b->end - b->at)) {
        m->bad = true;
        return;
    }
    struct bytes e = {b->at, b->at + size, false};
    b->at += size;
    if (size == sizeof(plt) && memcmp(e.at, plt, 6) == 0 && memcmp(e.at + 7, plt + 7, 4) == 0) {
        m->rule.cfa = CFA_PLT; /* lit11 is where the push has been done */
        m->rule.cfa_offset = e.at[6] - 0x30;
        return;
    }
    uint64_t op = read_fixed(&e, 1);
    int64_t offset = op >= 0x70 && op < 0x90 ? read_sleb(&e) : INT64_MAX;
    if (e.out || offset < INT32_MIN || offset > INT32_MAX || read_fixed(&e, 1) != 0x06 ||
        e.at != e.end) {
        m->bad = true;
        return;
    }
    m->rule.cfa = CFA_DEREF;
    m->rule.cfa_register = (uint8_t)(op - 0x70);
    m->rule.cfa_deref = (int32_t)offset;
    m->rule.cfa_offset = 0;
}

/* A register that is saved where an expression says; only "frame pointer + offset" is known. */
static void at_expression(struct machine *m, struct bytes *b)
{
    uint64_t number = read_uleb(b), size = read_uleb(b);
    if (b->out || size > (size_t)(b->end - b->at)) {
        m->bad = true;
        return;
    }
    struct bytes e = {b->at, b->at + size, false};
    b->at += size;
    bool plain = read_fixed(&e, 1) == 0x70 + CFI_FP;
    int64_t offset = read_sleb(&e);
    put_rule(m, number, plain && !e.out && e.at == e.end ? CFI_AT_FP : CFI_UNKNOWN,
             plain ? offset : 0);
}

/* The instructions whose operands are all in the following bytes. */
static void run_long(struct machine *m, struct bytes *b, uint64_t op, const struct entry *fde)
{
    const struct entry *cie = m->cie;
    uint64_t number;
    switch (op) {
    case 0x00: /* nop */
        break;
    case 0x01: /* set_loc */
        m->place = read_pointer(b, cie->pointer_form, fde);
        break;
    case 0x02: /* advance_loc1, 2, 4 */
    case 0x03:
    case 0x04:
        m->place += read_fixed(b, 1u << (op - 2)) * cie->code_align;
        break;
    case 0x05: /* offset_extended */
        number = read_uleb(b);
        put_rule(m, number, CFI_AT_CFA, (int64_t)read_uleb(b) * cie->data_align);
        break;
    case 0x06: /* restore_extended */
        restore_rule(m, read_uleb(b));
        break;
    case 0x07: /* undefined */
        put_rule(m, read_uleb(b), CFI_UNKNOWN, 0);
        break;
    case 0x08: /* same_value */
        put_rule(m, read_uleb(b), CFI_SAME, 0);
        break;
    case 0x09: /* register */
        put_rule(m, read_uleb(b), CFI_UNKNOWN, 0);
        (void)read_uleb(b);
        break;
    case 0x0a: /* remember_state */
        if (m->n_kept == REMEMBERED)
            m->bad = true;
        else
            m->kept[m->n_kept++] = m->rule;
        break;
    case 0x0b: /* restore_state */
        if (m->n_kept == 0)
            m->bad = true;
        else
            m->rule = m->kept[--m->n_kept];
        break;
    case 0x0c: /* def_cfa */
        number = read_uleb(b);
        put_cfa(m, number, (int64_t)read_uleb(b));
        break;
    case 0x0d: /* def_cfa_register */
        put_cfa(m, read_uleb(b), m->rule.cfa_offset);
        break;
    case 0x0e: /* def_cfa_offset */
        put_cfa(m, m->rule.cfa_register, (int64_t)read_uleb(b));
        break;
    case 0x0f: /* def_cfa_expression */
        cfa_expression(m, b);
        break;
    case 0x10: /* expression */
        at_expression(m, b);
        break;
    case 0x11: /* offset_extended_sf */
        number = read_uleb(b);
        put_rule(m, number, CFI_AT_CFA, read_sleb(b) * cie->data_align);
        break;
    case 0x12: /* def_cfa_sf */
        number = read_uleb(b);
        put_cfa(m, number, read_sleb(b) * cie->data_align);
        break;
    case 0x13: /* def_cfa_offset_sf */
        put_cfa(m, m->rule.cfa_register, read_sleb(b) * cie->data_align);
        break;
    case 0x14: /* val_offset, val_offset_sf */
    case 0x15:
        put_rule(m, read_uleb(b), CFI_UNKNOWN, 0);
        (void)read_uleb(b);
        break;
    case 0x16: /* val_expression */
        put_rule(m, read_uleb(b), CFI_UNKNOWN, 0);
        skip_block(b);
        break;
    case 0x2d: /* aarch64: the return address is signed from here on, or no more */
        break;
    case 0x2e: /* GNU_args_size */
        (void)read_uleb(b);
        break;
    default:
        m->bad = true;
        break;
    }
}

/* Up to the row that holds `ip`. */
static int run_machine(struct machine *m, struct bytes *b, const struct entry *fde, uint64_t ip)
{
    while (b->at < b->end && !b->out && !m->bad) {
        uint64_t op = read_fixed(b, 1), low = op & 0x3f;
        if (op >> 6 == 1)
            m->place += low * m->cie->code_align;
        else if (op >> 6 == 2)
            put_rule(m, low, CFI_AT_CFA, (int64_t)read_uleb(b) * m->cie->data_align);
        else if (op >> 6 == 3)
            restore_rule(m, low);
        else
            run_long(m, b, op, fde);
        if (m->place > ip)
            return 0; /* the row before is ours, and rule was not changed since */
    }
    return b->out || m->bad ? -EBADMSG : 0;
}

int cfi_rule(const uint8_t *cie_bytes, uint32_t cie_size, const uint8_t *fde_bytes,
             uint32_t fde_size, uint64_t fde_address, uint64_t ip, struct cfi_rule *ret)
{
    struct entry cie, fde = {.begin = fde_bytes, .address = fde_address};
    if (fde_size < 12 || read_cie(cie_bytes, cie_size, &cie) < 0)
        return -EBADMSG;
    fde.code = (struct bytes){fde_bytes + 8, fde_bytes + fde_size, false};
    uint64_t begin = read_pointer(&fde.code, cie.pointer_form, &fde);
    uint64_t size = read_pointer(&fde.code, cie.pointer_form & 0x0f, &fde);
    if (cie.has_size)
        skip_block(&fde.code);
    if (fde.code.out)
        return -EBADMSG;
    if (ip < begin || ip - begin >= size)
        return -ENOENT;
    struct machine m = {.cie = &cie, .rule = {.kind = CFI_STEP, .cfa_register = CFI_SP}};
    int r = run_machine(&m, &cie.code, &cie, UINT64_MAX);
    m.first = m.rule;
    m.place = begin;
    if (r == 0)
        r = run_machine(&m, &fde.code, &fde, ip);
    if (r < 0)
        return r;
    if (cie.signal)
        m.rule.kind = CFI_SIGNAL;
    else if (m.rule.ra == CFI_UNKNOWN)
        m.rule.kind = CFI_OUTERMOST;
    *ret = m.rule;
    return 0;
}
