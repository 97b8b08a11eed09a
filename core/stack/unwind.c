/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/unwind.c - unwinding by CFI: libunwind's generic part over a stack_process.
 * Owner's thread only.  libunwind's own way to find tables (dl_iterate_phdr, files) is not used:
 * it takes ld.so's lock, which a thread we look at may hold.
 */
#include <errno.h>
#include <libunwind.h>
#include <string.h>

#include "core/base/err.h"
#include "core/stack/internal.h"
#include "sdk/frame_size.h"

#define REGISTERS (STACK_REG_IP + 1)
#define GUESS_MAX_BYTES (UINT64_C(1) << 20) /* a frame larger than this is no frame */

/* libunwind's argument: whose memory, which registers. */
struct snapshot {
    struct stack_process *p;
    struct stack_registers r;
    struct stack_frame here; /* the frame that is looked at */
    bool inner; /* `here` is the thread's innermost frame: its ip is no return address */
};

extern int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t space, unw_word_t ip,
                                              unw_dyn_info_t *table, unw_proc_info_t *ret,
                                              int need_info, void *arg);

/* libunwind (seen in 1.6.2) opens a pipe at its first use, to try addresses of its own process
 * with, and never closes it.  We read memory ourselves (access_mem), so in libprobing.so this takes
 * its place (see --wrap in core/SConscript).  Can go when /proc/PID/fd shows no pipe without it. */
#define WRAPPED(name) WRAPPED_AGAIN(name)
#define WRAPPED_AGAIN(name) __wrap_##name
void WRAPPED(UNW_OBJ(init_mem_validate))(void);
void WRAPPED(UNW_OBJ(init_mem_validate))(void)
{
}

/* LSB .eh_frame_hdr: version 1, eh_frame pointer pcrel sdata4, count udata4, table datarel sdata4.
 * Every linker writes just this; another form counts as no table. */
static int find_proc_info(unw_addr_space_t space, unw_word_t ip, unw_proc_info_t *ret,
                          int need_info, void *arg)
{
    static const unsigned char form[4] = {1, 0x1b, 0x03, 0x3b};
    struct snapshot *look = arg;
    unsigned char head[12];
    uint32_t count;
    struct module *m = module_at(look->p, ip);
    look->p->no_table = true;
    if (!m || !m->about.eh_frame_hdr ||
        stack_read_cached(look->p, m->about.eh_frame_hdr, head, sizeof(head)) < 0 ||
        memcmp(head, form, sizeof(form)) != 0)
        return -UNW_ENOINFO;
    memcpy(&count, head + 8, sizeof(count));
    unw_dyn_info_t table = {
        .format = UNW_INFO_FORMAT_REMOTE_TABLE, .start_ip = m->about.base, .end_ip = m->about.end};
    table.u.rti.segbase = m->about.eh_frame_hdr;
    table.u.rti.table_data = m->about.eh_frame_hdr + sizeof(head);
    table.u.rti.table_len = count * UINT64_C(8) / sizeof(unw_word_t);
    int rc = UNW_OBJ(dwarf_search_unwind_table)(space, ip, &table, ret, need_info, arg);
    look->p->no_table = rc < 0;
    return rc;
}

static void put_unwind_info(unw_addr_space_t space, unw_proc_info_t *info, void *arg)
{
    (void)space;
    (void)info;
    (void)arg;
}

static int dyn_info_list(unw_addr_space_t space, unw_word_t *ret, void *arg)
{
    (void)space;
    (void)ret;
    (void)arg;
    return -UNW_ENOINFO;
}

/* Return addresses may be signed in the bits above an address (PAC of aarch64); programs that are
 * have them so on the stack and in x30.  from: where the value stands, 0: in a register. */
static void take_off_sign(struct stack_process *p, uint64_t from, unw_word_t *value)
{
#if defined(__aarch64__)
    const uint64_t address = *value & UINT64_C(0xffffffffffff);
    if (*value != address && module_at(p, address) && !module_at(p, from)) /* tables stay */
        *value = address;
#else
    (void)p;
    (void)from;
    (void)value;
#endif
}

static int access_mem(unw_addr_space_t space, unw_word_t address, unw_word_t *value, int write,
                      void *arg)
{
    struct snapshot *look = arg;
    (void)space;
    if (write || stack_read_cached(look->p, address, value, sizeof(*value)) < 0)
        return -UNW_EINVAL;
    take_off_sign(look->p, address, value);
    return 0;
}

/* If only ip and sp of a thread are known, the frame pointer is derived from the code of the
 * function that needs it.  No frame further in has touched it, or it would have been found where it
 * was saved. */
static bool find_frame_pointer(unw_addr_space_t space, struct snapshot *look)
{
#if defined(__x86_64__) /* the tables of other machines go by the stack pointer */
    uint8_t code[FRAME_CODE_BYTES], call[FRAME_CALL_BYTES];
    uint64_t ip = look->here.ip, above;
    unw_proc_info_t info;
    if (find_proc_info(space, ip - !look->inner, &info, 0, look) < 0 || ip <= info.start_ip)
        return false;
    size_t size = ip - info.start_ip < sizeof(code) ? ip - info.start_ip : sizeof(code);
    if (stack_read_cached(look->p, info.start_ip, code, size) < 0)
        return false;
    int64_t held = frame_size(code, size);
    uint64_t fp = look->here.sp + (uint64_t)held;
    if (held < 0 || stack_read_cached(look->p, fp + 8, &above, sizeof(above)) < 0 ||
        !stack_is_code(look->p, above) ||
        stack_read_cached(look->p, above - sizeof(call), call, sizeof(call)) < 0 ||
        !frame_is_behind_call(call))
        return false;
    look->r.value[STACK_REG_FP] = fp;
    look->r.known |= UINT64_C(1) << STACK_REG_FP;
    return true;
#else
    (void)space;
    (void)look;
    return false;
#endif
}

/* libunwind's numbers are DWARF's on both machines. */
static int access_reg(unw_addr_space_t space, unw_regnum_t number, unw_word_t *value, int write,
                      void *arg)
{
    struct snapshot *look = arg;
    if (write)
        return -UNW_EREADONLYREG;
    if (number < 0 || number >= REGISTERS)
        return -UNW_EBADREG;
    if (!(look->r.known >> number & 1) &&
        !(number == STACK_REG_FP && find_frame_pointer(space, look)))
        return -UNW_EBADREG;
    *value = look->r.value[number];
    take_off_sign(look->p, 0, value);
    return 0;
}

static int access_fpreg(unw_addr_space_t space, unw_regnum_t number, unw_fpreg_t *value, int write,
                        void *arg)
{
    (void)space;
    (void)number;
    (void)value;
    (void)write;
    (void)arg;
    return -UNW_EINVAL;
}

static int refuse_resume(unw_addr_space_t space, unw_cursor_t *cursor, void *arg)
{
    (void)space;
    (void)cursor;
    (void)arg;
    return -UNW_EINVAL;
}

static int proc_name(unw_addr_space_t space, unw_word_t address, char *name, size_t size,
                     unw_word_t *ret_offset, void *arg)
{
    (void)space;
    (void)address;
    (void)name;
    (void)size;
    (void)ret_offset;
    (void)arg;
    return -UNW_ENOINFO;
}

void unwind_flush(struct stack_process *p)
{
    if (p->space)
        unw_flush_cache(p->space, 0, 0);
}

void unwind_done(struct stack_process *p)
{
    if (p->space)
        unw_destroy_addr_space(p->space);
    p->space = NULL;
}

int unwind_begin(struct stack_process *p)
{
    static unw_accessors_t accessors = {.find_proc_info = find_proc_info,
                                        .put_unwind_info = put_unwind_info,
                                        .get_dyn_info_list_addr = dyn_info_list,
                                        .access_mem = access_mem,
                                        .access_reg = access_reg,
                                        .access_fpreg = access_fpreg,
                                        .resume = refuse_resume,
                                        .get_proc_name = proc_name};
    if (p->space)
        return 0;
    p->space = unw_create_addr_space(&accessors, 0);
    if (!p->space)
        return err_set(-ENOMEM, "no memory to unwind stacks");
    (void)unw_set_caching_policy(p->space, UNW_CACHE_GLOBAL);
    return 0;
}

/* Without a table, libunwind follows the frame pointer.  That is right for JIT code that keeps one
 * and nonsense elsewhere: believe it only outside modules with tables, and only when it leads up
 * the stack to code. */
static bool guess_holds(struct stack_process *p, const struct stack_frame *from, uint64_t ip,
                        uint64_t sp)
{
    const struct module *m = module_at(p, from->ip);
    if (m && m->about.eh_frame_hdr)
        return false;
    const struct proc_mapping *here = process_mapping_at(p, from->ip);
    const struct proc_mapping *there = process_mapping_at(p, ip);
    return sp > from->sp && sp - from->sp < GUESS_MAX_BYTES && here && here->executable && there &&
           there->executable;
}

int stack_unwind(struct stack_process *p, const struct stack_registers *r,
                 struct stack_frame *frames, uint32_t max, enum stack_end *ret_end)
{
    struct snapshot look = {.p = p, .r = *r, .inner = true};
    unw_cursor_t cursor;
    uint32_t n = 0;
    uint64_t need = UINT64_C(1) << STACK_REG_IP | UINT64_C(1) << STACK_REG_SP;
    if (max == 0 || (r->known & need) != need)
        return err_set(-EINVAL, "unwinding needs room and the registers ip and sp");
    int rc = unwind_begin(p);
    if (rc < 0)
        return rc;
    frames[n++] = (struct stack_frame){r->value[STACK_REG_IP], r->value[STACK_REG_SP]};
    *ret_end = STACK_END_LOST;
    if (unw_init_remote(&cursor, p->space, &look) < 0)
        return (int)n;
    for (;;) {
        unw_word_t ip, sp;
        look.here = frames[n - 1];
        look.inner = n == 1;
        p->no_table = false;
        rc = unw_step(&cursor);
        if (rc == 0 && !p->no_table)
            *ret_end = STACK_END_OUTERMOST;
        if (rc <= 0 || unw_get_reg(&cursor, UNW_REG_IP, &ip) < 0 ||
            unw_get_reg(&cursor, UNW_REG_SP, &sp) < 0)
            return (int)n;
        if (p->no_table && !guess_holds(p, &frames[n - 1], ip, sp))
            return (int)n;
        if (ip == 0) {
            *ret_end = STACK_END_OUTERMOST;
            return (int)n;
        }
        if (n == max) {
            *ret_end = STACK_END_LIMIT;
            return (int)n;
        }
        frames[n++] = (struct stack_frame){ip, sp};
    }
}
