/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/dist/flight_recorder.c - torch's own flight recorder as a table, where torch keeps
 * one.
 *
 * Threads: [worker]; the GIL is held only while torch writes its records down.
 * The records are torch's, in JSON; a field that it does not have is NULL.
 */
#include "dist/collective.h"
#include "python/pyobject.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define VALUE_BYTES 512u

#define KEPT 256 /* records of a snapshot: the newest */

/* Columns of a record, by their numbers. */
enum { GROUP = 2, SEQ = 3, OP = 6, STATE = 7, CREATED = 12, STARTED, COMPLETED, RETIRED = 17 };
#define N_FIELDS (PROBING_LENGTH(columns) - 1)

static const struct probing_column columns[] = {
    PROBING_I64_COLUMN("snapshot", PROBING_PLAIN, "number, as in python.comm_stuck"),
    PROBING_I64_COLUMN("record_id", PROBING_PLAIN, "number of the record"),
    PROBING_I64_COLUMN("pg_id", PROBING_PLAIN, "number of the process group"),
    PROBING_STR_COLUMN("process_group", "name and description of the group"),
    PROBING_I64_COLUMN("collective_seq_id", PROBING_PLAIN, "number of the collective in it"),
    PROBING_I64_COLUMN("p2p_seq_id", PROBING_PLAIN, "number of the send or receive in it"),
    PROBING_I64_COLUMN("op_id", PROBING_PLAIN,
                       "number of the operation, where coalesced ones are counted separately"),
    PROBING_STR_COLUMN(
        "profiling_name",
        "backend and operation, as torch writes them: \"nccl:send 0->1\" names ranks in the "
        "group"),
    PROBING_STR_COLUMN("state", "scheduled, started or completed"),
    PROBING_STR_COLUMN("input_sizes", "shapes, JSON"),
    PROBING_STR_COLUMN("input_dtypes", "JSON"),
    PROBING_STR_COLUMN("output_sizes", "shapes, JSON"),
    PROBING_STR_COLUMN("output_dtypes", "JSON"),
    PROBING_I64_COLUMN("time_created_ns", PROBING_PLAIN, "ns since the epoch"),
    PROBING_I64_COLUMN("time_started_ns", PROBING_PLAIN,
                       "in ns since the epoch; NULL: not seen by torch"),
    PROBING_I64_COLUMN("time_completed_ns", PROBING_PLAIN,
                       "in ns since the epoch; NULL: not seen by torch"),
    PROBING_I64_COLUMN("timeout_ms", PROBING_PLAIN, "timeout of the operation in milliseconds"),
    PROBING_STR_COLUMN("is_p2p", "true or false"),
    PROBING_STR_COLUMN("retired", "true: torch no longer watches it"),
    PROBING_STR_COLUMN("thread_name", "name of the thread that started it"),
};

static bool is_text(size_t field)
{
    return columns[1 + field].type == PROBING_STR;
}

/* Torch's name for a column. */
static const char *key_of(size_t field)
{
    return field == STARTED     ? "time_discovered_started_ns"
           : field == COMPLETED ? "time_discovered_completed_ns"
                                : columns[1 + field].name;
}

struct dump {
    char *text; /* owned */
    size_t n;
};

static int dump_now(void *arg)
{
    static const char *const functions[] = {"_dump_nccl_trace_json", "_dump_fr_trace_json"};
    struct cpython *py = &python.api;
    struct dump *d = arg;
    PyObject *module = object_module("torch._C._distributed_c10d");
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]) && module && !d->n; i++) {
        PyObject *function = object_get(module, functions[i]);
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

static void take_value(size_t field, const char *begin, const char *end, union probing_cell *cell,
                       char *room)
{
    if (!is_text(field)) {
        int64_t n = 0;
        for (; begin < end && *begin >= '0' && *begin <= '9' && n < INT64_MAX / 10 - 9; begin++)
            n = n * 10 + (*begin - '0');
        bool seen = n || (field != STARTED && field != COMPLETED);
        cell->i = begin == end && seen ? n : PROBING_NULL_I64;
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
            if (strlen(key_of(i)) == (size_t)(colon - key) &&
                strncmp(key_of(i), key, (size_t)(colon - key)) == 0)
                take_value(i, colon + 2, end, &cells[i], rooms[i]);
        if (*end != ',')
            return end;
        p = end + 1;
    }
    return NULL;
}

/* fn for each record of torch's text, until it gives other than 0. */
static int each_record(const char *text, int (*fn)(void *arg, const union probing_cell *cells),
                       void *arg)
{
    const char *p = text ? strstr(text, "\"entries\":[{") : NULL;
    char(*rooms)[VALUE_BYTES] = p ? malloc(N_FIELDS * sizeof(*rooms)) : NULL;
    int rc = p && !rooms ? -ENOMEM : 0;
    p = rooms ? p + strlen("\"entries\":[") : NULL;
    while (p && *p == '{' && rc == 0) {
        union probing_cell cells[N_FIELDS];
        for (size_t i = 0; i < N_FIELDS; i++)
            cells[i] = is_text(i) ? probing_str(NULL) : probing_i64(PROBING_NULL_I64);
        p = read_record(p + 1, cells, rooms);
        if (p && *p == '}')
            rc = fn(arg, cells);
        p = p && p[0] == '}' && p[1] == ',' ? p + 2 : NULL;
    }
    free(rooms);
    return rc;
}

/* Dump what the recorder holds, NULL: nothing; the caller frees it. */
static char *dump_text(int *ret_error)
{
    struct dump dump = {.text = NULL};
    *ret_error = object_lookup(dump_now, &dump);
    return dump.text;
}

static int emit_one(void *out, const union probing_cell *cells)
{
    return torch_state.host->emit(out, cells, N_FIELDS);
}

static int scan_records(void *self, struct probing_rows *out)
{
    (void)self;
    int rc;
    char *text = dump_text(&rc);
    if (rc == 0)
        rc = each_record(text, emit_one, out);
    free(text);
    return probing_scanned(rc);
}

/* ---- for whoever waits ---- */

static bool is_under_way(const union probing_cell *cells)
{
    return cells[RETIRED].s && strcmp(cells[RETIRED].s, "false") == 0 && cells[STATE].s &&
           strcmp(cells[STATE].s, "completed") != 0 && cells[CREATED].i > 0;
}

static int keep_oldest(void *arg, const union probing_cell *cells)
{
    struct recorder_record *r = arg;
    uint64_t created_ns = (uint64_t)cells[CREATED].i;
    if (!is_under_way(cells) || (r->created_ns && r->created_ns <= created_ns))
        return 0;
    *r = (struct recorder_record){.seq = cells[SEQ].i, .created_ns = created_ns};
    const char *op = cells[OP].s ? cells[OP].s : ""; /* "nccl:send 0->1": ranks of the group */
    (void)snprintf(r->op, sizeof(r->op), "%.*s", (int)strcspn(op, " "), op);
    const char *group = cells[GROUP].s ? cells[GROUP].s : ""; /* ["0","default_pg"] */
    if (strncmp(group, "[\"", 2) == 0)
        group += 2;
    (void)snprintf(r->group, sizeof(r->group), "%.*s", (int)strcspn(group, "\""), group);
    return 0;
}

struct keeping {
    int64_t snapshot, n, skip;
};

static int count_one(void *arg, const union probing_cell *cells)
{
    struct keeping *k = arg;
    (void)cells;
    k->skip++;
    return 0;
}

static int keep_one(void *arg, const union probing_cell *cells)
{
    struct keeping *k = arg;
    union probing_cell row[N_FIELDS + 1] = {{.i = k->snapshot}};
    if (k->skip-- > 0)
        return 0;
    for (size_t i = 0; i < N_FIELDS; i++) {
        row[i + 1] = cells[i];
        if (is_text(i))
            row[i + 1].u = probing_intern_text(torch_state.host, cells[i].s);
    }
    k->n++;
    (void)torch_state.host->append(dist.snapshot, torch_state.now(), row, N_FIELDS + 1, NULL, 0);
    return 0;
}

int64_t recorder_keep(int64_t snapshot, struct recorder_record *ret_oldest)
{
    int rc;
    char *text = dump_text(&rc);
    struct keeping k = {.snapshot = snapshot};
    *ret_oldest = (struct recorder_record){.created_ns = 0};
    (void)each_record(text, keep_oldest, ret_oldest);
    if (snapshot) {
        (void)each_record(text, count_one, &k);
        k.skip -= KEPT;
        (void)each_record(text, keep_one, &k);
    }
    free(text);
    return k.n;
}

const struct probing_table_desc recorder_table = {
    .size = sizeof(recorder_table),
    .column_size = sizeof(struct probing_column),
    .name = "python.torch_nccl_flight_record",
    .columns = columns + 1,
    .n_columns = N_FIELDS,
    .doc = "the newest operations in torch's flight recorder, of NCCL or else of gloo",
    .scan = scan_records,
};

const struct probing_table_desc snapshot_table = PROBING_TABLE(
    "python.torch_flight_snapshot", columns,
    "the same records as they were when an operation had waited for torch.comm_timeout");
