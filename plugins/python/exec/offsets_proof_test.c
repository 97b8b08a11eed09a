/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/offsets_proof_test.c - the known stack is read right, and with any offset
 * wrong it is not.
 *
 * Each shared libpython of the machine (Debian's and pyenv's) in a process of its own.
 * usage: proof_test [LIBRARY...]
 */
#include "exec/offsets_proof.h"

#include "exec/bindings.h"

#include "inspect/interpreter.h"
#include "inspect/libraries_test.h"

static struct cpython py;

#define OF(name)                              \
    {                                         \
#name, offsetof(struct offsets, name) \
    }

/* The offsets without which a stack and its variables do not read right. */
static const struct {
    const char *name;
    size_t at;
} needed[] = {
    OF(is_threads),   OF(gil_holder),    OF(gil_locked),    OF(ts_next),     OF(ts_interp),
    OF(ts_thread_id), OF(ts_frame),      OF(ts_cframe),     OF(cf_frame),    OF(f_code),
    OF(f_back),       OF(f_instr),       OF(f_locals),      OF(f_dict),      OF(co_first_line),
    OF(co_file),      OF(co_qualname),   OF(co_lines),      OF(co_bytecode), OF(co_local_names),
    OF(co_n_locals),  OF(co_cell_names), OF(co_free_names), OF(tuple_items), OF(list_items),
    OF(ob_type),      OF(ob_head),       OF(var_size),      OF(bytes_data),  OF(str_length),
    OF(str_state),    OF(str_ascii),     OF(str_compact),   OF(is_modules),  OF(module_dict),
    OF(dict_keys),    OF(module_name),   OF(function_name), OF(error_args),  OF(set_table),
    OF(type_flags),
};

/* With one offset wrong: 0, or -ENOTSUP. */
static int try_wrong(size_t at, int by)
{
    struct walk w;
    char why[240];
    int field;
    if (!CHECK_INT(walk_open_unproved(&w, &py, why, sizeof(why)), 0))
        return -ENOTSUP;
    memcpy(&field, (char *)&w.o + at, sizeof(field));
    int r = -ENOTSUP;
    if (field >= 0) { /* this version has it */
        field += by;
        memcpy((char *)&w.o + at, &field, sizeof(field));
        r = proof_read(&py, &w, why, sizeof(why));
        CHECK(r == 0 || why[0]);
    }
    walk_close(&w);
    return r;
}

static void read_wrong(void)
{
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        for (int by = -8; by <= 8; by += 16)
            if (!CHECK_INT(try_wrong(needed[i].at, by), -ENOTSUP))
                printf("# %s by %d\n", needed[i].name, by);
    /* any other: right or refused, and no fault */
    for (size_t at = 0; at < sizeof(struct offsets); at += sizeof(int))
        for (int by = -4; by <= 4096; by = by < 0 ? 4 : by * 4)
            (void)try_wrong(at, by);
}

static void *reader(void *arg)
{
    struct walk w;
    char why[200];
    (void)arg;
    if (!CHECK_INT(cpython_load(&py), 0))
        return NULL;
    natives_py = py;
    int state = py.PyGILState_Ensure();
    if (CHECK_INT(walk_open_unproved(&w, &py, why, sizeof(why)), 0)) {
        if (!CHECK_INT(proof_read(&py, &w, why, sizeof(why)), 0))
            printf("# %s\n", why);
        walk_close(&w);
        read_wrong();
    }
    py.PyGILState_Release(state);
    return NULL;
}

static int libraries;
static char **named; /* on the command line */

TEST(a_known_stack)
{
    const struct libraries_job job = {"import threading, time\n"
                                      "threading.Thread(target=time.sleep, args=(1e6,),\n"
                                      "                 daemon=True).start()\n",
                                      reader};
    libraries = libraries_run(named, &job);
}

int main(int argc, char **argv)
{
    named = argc > 1 ? argv + 1 : NULL;
    RUN(a_known_stack);
    return libraries || test_end() ? test_end() : test_skip("no shared libpython 3.8 to 3.15");
}
