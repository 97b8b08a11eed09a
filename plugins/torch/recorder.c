/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/recorder.c - torch's own flight recorder as a table, where torch keeps one.
 *
 * Threads: [worker]; the GIL is held only while torch writes its records down.
 * The records are torch's, in JSON; a field that it does not have is NULL.
 */
#include "torch.h"

#include <errno.h>
#include <stdlib.h>

#include <probing/ext/draft/python.h>

#define GIL_WAIT_NS UINT64_C(2000000000)
#define VALUE_BYTES 512u

enum kind { NUMBER, TEXT };
static const struct field {
    const char *name, *key;
    enum kind kind;
} fields[] = {
    {"record_id", "record_id", NUMBER},
    {"pg_id", "pg_id", NUMBER},
    {"process_group", "process_group", TEXT},
    {"collective_seq_id", "collective_seq_id", NUMBER},
    {"p2p_seq_id", "p2p_seq_id", NUMBER},
    {"op_id", "op_id", NUMBER},
    {"profiling_name", "profiling_name", TEXT},
    {"state", "state", TEXT},
    {"input_sizes", "input_sizes", TEXT},
    {"input_dtypes", "input_dtypes", TEXT},
    {"output_sizes", "output_sizes", TEXT},
    {"output_dtypes", "output_dtypes", TEXT},
    {"time_created_ns", "time_created_ns", NUMBER},
    {"time_started_ns", "time_discovered_started_ns", NUMBER},
    {"time_completed_ns", "time_discovered_completed_ns", NUMBER},
    {"timeout_ms", "timeout_ms", NUMBER},
    {"is_p2p", "is_p2p", TEXT},
    {"retired", "retired", TEXT},
    {"thread_name", "thread_name", TEXT},
};
#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))

static const struct probing_column columns[N_FIELDS] = {
    {.name = "record_id", .type = PROBING_I64, .doc = "number of the record"},
    {.name = "pg_id", .type = PROBING_I64, .doc = "number of the process group"},
    {.name = "process_group", .type = PROBING_STR, .doc = "name and description of the group"},
    {.name = "collective_seq_id", .type = PROBING_I64, .doc = "number of the collective in it"},
    {.name = "p2p_seq_id", .type = PROBING_I64, .doc = "number of the send or receive in it"},
    {.name = "op_id", .type = PROBING_I64, .doc = "number of the operation, coalesced ones apart"},
    {.name = "profiling_name", .type = PROBING_STR, .doc = "backend and operation"},
    {.name = "state", .type = PROBING_STR, .doc = "scheduled, started or completed"},
    {.name = "input_sizes", .type = PROBING_STR, .doc = "shapes, JSON"},
    {.name = "input_dtypes", .type = PROBING_STR, .doc = "JSON"},
    {.name = "output_sizes", .type = PROBING_STR, .doc = "shapes, JSON"},
    {.name = "output_dtypes", .type = PROBING_STR, .doc = "JSON"},
    {.name = "time_created_ns", .type = PROBING_I64, .doc = "ns since the epoch"},
    {.name = "time_started_ns", .type = PROBING_I64, .doc = "likewise; 0: not seen by torch"},
    {.name = "time_completed_ns", .type = PROBING_I64, .doc = "likewise; 0: not seen by torch"},
    {.name = "timeout_ms", .type = PROBING_I64, .doc = "of the operation, milliseconds"},
    {.name = "is_p2p", .type = PROBING_STR, .doc = "true or false"},
    {.name = "retired", .type = PROBING_STR, .doc = "true: torch watches it no more"},
    {.name = "thread_name", .type = PROBING_STR, .doc = "that started it"},
};

struct dump {
    char *text; /* owned */
    size_t n;
};

static int dump_now(void *arg)
{
    static const char *const functions[] = {"_dump_nccl_trace_json", "_dump_fr_trace_json"};
    struct cpython *py = &torch_state.py;
    struct dump *d = arg;
    PyObject *module = torch_on() ? py->PyDict_GetItemString(py->PyImport_GetModuleDict(),
                                                             "torch._C._distributed_c10d")
                                  : NULL;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]) && module && !d->n; i++) {
        PyObject *function = py->PyObject_GetAttrString(module, functions[i]);
        py->PyErr_Clear();
        PyObject *answer = function ? py->PyObject_CallFunctionObjArgs(function, NULL) : NULL;
        char *bytes = NULL;
        Py_ssize_t n = 0;
        if (answer && py->PyBytes_AsStringAndSize(answer, &bytes, &n) == 0 &&
            strstr(bytes, "\"entries\":[{")) {
            d->text = malloc((size_t)n + 1);
            if (d->text)
                memcpy(d->text, bytes, (size_t)n + 1);
            d->n = d->text ? (size_t)n : 0;
        }
        py->PyErr_Clear();
        py->Py_DecRef(answer);
        py->Py_DecRef(function);
    }
    return 0;
}

/* Past one JSON value; NULL: the text ends in it. */
static const char *skip_value(const char *p)
{
    int depth = 0;
    bool text = false;
    for (; *p; p++) {
        if (text) {
            if (*p == '\\' && p[1])
                p++;
            else if (*p == '"')
                text = false;
            continue;
        }
        if (depth == 0 && (*p == ',' || *p == '}' || *p == ']'))
            return p;
        if (*p == '"')
            text = true;
        else if (*p == '{' || *p == '[')
            depth++;
        else if (*p == '}' || *p == ']')
            depth--;
    }
    return NULL;
}

static void take_value(const struct field *f, const char *begin, const char *end,
                       union probing_cell *cell, char *room)
{
    if (f->kind == NUMBER) {
        int64_t n = 0;
        for (; begin < end && *begin >= '0' && *begin <= '9' && n < INT64_MAX / 10 - 9; begin++)
            n = n * 10 + (*begin - '0');
        cell->i = begin == end ? n : PROBING_NULL_I64;
        return;
    }
    size_t n = (size_t)(end - begin);
    if (n >= 2 && *begin == '"') { /* escapes stay as they are: names have none */
        begin++;
        n -= 2;
    }
    n = n < VALUE_BYTES ? n : VALUE_BYTES - 1;
    memcpy(room, begin, n);
    room[n] = '\0';
    cell->s = room;
}

/* One record, from its first key on; gives where it ends, NULL: it does not. */
static const char *read_record(const char *p, union probing_cell *cells, char (*rooms)[VALUE_BYTES])
{
    while (*p == '"') {
        const char *key = ++p, *colon = strstr(p, "\":");
        const char *end = colon ? skip_value(colon + 2) : NULL;
        if (!end)
            return NULL;
        for (size_t i = 0; i < N_FIELDS; i++)
            if (strlen(fields[i].key) == (size_t)(colon - key) &&
                strncmp(fields[i].key, key, (size_t)(colon - key)) == 0)
                take_value(&fields[i], colon + 2, end, &cells[i], rooms[i]);
        if (*end != ',')
            return end;
        p = end + 1;
    }
    return NULL;
}

static int emit_all(struct probing_rows *out, const char *text)
{
    const char *p = strstr(text, "\"entries\":[{");
    char(*rooms)[VALUE_BYTES] = malloc(N_FIELDS * sizeof(*rooms));
    int rc = rooms ? 0 : -ENOMEM;
    p = p && rooms ? p + strlen("\"entries\":[") : NULL;
    while (p && *p == '{' && rc == 0) {
        union probing_cell cells[N_FIELDS];
        for (size_t i = 0; i < N_FIELDS; i++)
            if (fields[i].kind == NUMBER)
                cells[i].i = PROBING_NULL_I64;
            else
                cells[i].s = NULL;
        p = read_record(p + 1, cells, rooms);
        if (p && *p == '}')
            rc = torch_state.host->emit(out, cells, N_FIELDS);
        p = p && p[0] == '}' && p[1] == ',' ? p + 2 : NULL;
    }
    free(rooms);
    return rc == -ECANCELED ? 0 : rc;
}

static int scan(void *self, struct probing_rows *out)
{
    (void)self;
    const struct probing_host *h = torch_state.host;
    const struct probing_python_gil_1 *gil = h->extension(h, PROBING_PYTHON_GIL_1);
    struct dump dump = {.text = NULL};
    int rc = gil ? gil->call(dump_now, &dump, GIL_WAIT_NS) : 0;
    if (rc == -ETIMEDOUT)
        return h->fail(h, rc, "the interpreter did not give up the GIL for 2 s");
    rc = dump.text ? emit_all(out, dump.text) : 0;
    free(dump.text);
    return rc;
}

const struct probing_table_desc recorder_table = {
    .size = sizeof(recorder_table),
    .column_size = sizeof(struct probing_column),
    .name = "python.torch_nccl_flight_record",
    .columns = columns,
    .n_columns = N_FIELDS,
    .doc = "the newest operations in torch's flight recorder, of NCCL or else of gloo",
    .scan = scan,
};
