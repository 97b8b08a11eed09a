/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/native_roles.c - tell the interpreter's own functions from those that are
 * called.
 *
 * Any thread; nothing kept.
 */
#include "inspect/native_roles.h"

#include <probing/ext/draft/python_frames.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Is it the eval function, one native call of which runs the Python frames of one entry? */
static bool native_is_eval(const char *function)
{
    static const char name[] = "_PyEval_EvalFrameDefault";
    return strncmp(function, name, sizeof(name) - 1) == 0;
}

void native_interpreter(const struct probing_stack_1 *stack, const struct cpython *py, char *ret,
                        size_t size)
{
    struct probing_stack_symbol symbol = {.size = sizeof(symbol)};
    ret[0] = '\0';
    if (stack && stack->symbol((uint64_t)(uintptr_t)py->PyEval_EvalCode, &symbol) == 0)
        (void)snprintf(ret, size, "%s", symbol.module);
}

/* The interpreter's own frames between Python calls: how a call is made, not what is called. */
static bool makes_calls(const char *function)
{
    static const char *const names[] = {
        "_PyEval_",
        "_PyFunction_",
        "_PyObject_",
        "PyObject_Call",
        "PyObject_Vectorcall",
        "PyVectorcall",
        "_PyVectorcall",
        "PyEval_",
        "_PyCFunction_",
        "_PyCallMethodDescriptor", /* these from 3.15 on */
        "_Py_BuiltinCallFast",
        "_Py_CallBuiltinClass",
        "_Py_VectorCall",
        "cfunction_",
        "call_function",
        "method_vectorcall",
        "object_vacall",
        "slot_tp_",
        "vectorcall_",
        "function_code_",
        "type_call",
        "gen_send_ex",
        "PyRun_",
        "_PyRun_",
        "run_mod",
        "run_eval_code",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strncmp(function, names[i], strlen(names[i])) == 0)
            return true;
    return function[0] == '\0';
}

int native_kind(const char *interpreter, const char *function, const char *module)
{
    const char *file = strrchr(module, '/');
    file = file ? file + 1 : module;
    bool own = interpreter[0] && strcmp(module, interpreter) == 0;
    if (native_is_eval(function))
        return PROBING_PYTHON_EVAL;
    if (strncmp(file, "_greenlet.", 10) == 0 &&
        (strstr(function, "inner_bootstrap") || strstr(function, "g_initialstub")))
        return PROBING_PYTHON_BASE;
    if (own && makes_calls(function))
        return PROBING_PYTHON_PLUMBING;
    if (own || strncmp(file, "libc.", 5) == 0 || strncmp(file, "libc-", 5) == 0 ||
        strncmp(file, "libpthread", 10) == 0 || strcmp(function, "_start") == 0)
        return PROBING_PYTHON_BEGIN;
    return PROBING_PYTHON_NATIVE;
}
