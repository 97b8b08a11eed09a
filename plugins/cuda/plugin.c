/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/plugin.c - the cuda plugin: what kernels, copies and calls of CUDA do, by CUPTI.
 *
 * init, configure, start, stop and destroy on [control].  It needs no CUDA to be built or loaded,
 * loads no part of CUDA's driver and makes no context.
 */
#include <errno.h>
#include <probing/ext/draft/empty.h>
#include <probing/ext/draft/note.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "plugin_files.h"
#include "plugin_malloc.h"
#include "trace/tracer.h"

#define TELL_NS (PROBING_NS_PER_S / 2) /* between looks at what is to be told */

struct plugin {
    const struct probing_host *host;
    struct tracer *tracer;
    const struct probing_note_1 *note; /* NULL: this core has none */
    char told[512];                    /* by it; cuda_tick()'s, as the next */
    bool logged;                       /* that it traces in windows */
};

static const struct probing_config settings[] = {TRACER_SETTINGS, {.name = NULL}};

/* ---- what is traced, and what is not ---- */

static const struct probing_column tracing_columns[] = {
    PROBING_STR_COLUMN("state", "off, waiting, tracing, between (two windows), aside or refused"),
    PROBING_STR_COLUMN("reason",
                       "why it does not trace, or not all the time; NULL: it does, or is off"),
    PROBING_COLUMN("since", PROBING_TIME, PROBING_NS, "since when it is in that state"),
    PROBING_STR_COLUMN("library", "the file that is CUPTI here; NULL: none was found yet"),
    PROBING_I64_COLUMN("version", PROBING_PLAIN,
                       "its CUPTI_API_VERSION: 18 for CUDA 11.8, 130001 for 13.0.1"),
    PROBING_I64_COLUMN("shared", PROBING_PLAIN,
                       "1: other profilers can trace at the same time (CUPTI 13.2 and newer); 0: "
                       "only one can; NULL: it does not trace"),
    PROBING_I64_COLUMN("begun", PROBING_COUNT, "how often tracing has begun"),
    PROBING_I64_COLUMN("traced_ns", PROBING_NS, "for how long in all it has traced"),
    PROBING_I64_COLUMN("calls_per_second", PROBING_COUNT,
                       "calls of which CUPTI made records, in the last second of tracing or two"),
    PROBING_F64_COLUMN(
        "max_cost_pct", PROBING_PERCENT,
        "of the program's time that this has cost then, at most: 8 us a call, but no "
        "more than the device waited"),
    PROBING_I64_COLUMN("records", PROBING_COUNT, "records of CUPTI that were read"),
    PROBING_I64_COLUMN("unknown", PROBING_COUNT, "records of kinds that are not read here"),
    PROBING_I64_COLUMN("torn", PROBING_COUNT, "records that were cut short or wrong"),
    PROBING_I64_COLUMN("lost", PROBING_COUNT, "records that CUPTI has dropped"),
    PROBING_I64_COLUMN("refused", PROBING_COUNT, "times that CUPTI asked for a buffer in vain"),
    PROBING_I64_COLUMN("late", PROBING_COUNT, "buffers that came when tracing had ended"),
    PROBING_I64_COLUMN("buffers_taken", PROBING_COUNT, "buffers that CUPTI has now, of 256 KiB"),
    PROBING_I64_COLUMN("buffers_full", PROBING_COUNT, "buffers that wait to be read"),
    PROBING_I64_COLUMN("kernels", PROBING_COUNT, "kernels that were seen"),
    PROBING_I64_COLUMN("kernel_rows", PROBING_COUNT, "those that have a row in cuda.kernels"),
    PROBING_I64_COLUMN(
        "unlaunched", PROBING_COUNT,
        "kernels and copies whose call was not seen, so that step, module and thread "
        "are NULL"),
    PROBING_I64_COLUMN("unplaced", PROBING_COUNT,
                       "records that were too many to wait for their call"),
    PROBING_I64_COLUMN(
        "clock_error_ns", PROBING_NS,
        "at most so far are CUPTI's times from the host's; NULL: it does not trace")};

static int scan_tracing(void *self, struct probing_rows *out) /* [worker] */
{
    static const char *const states[N_SESSION_STATES] = {
        [SESSION_OFF] = "off",         [SESSION_WAITING] = "waiting",
        [SESSION_TRACING] = "tracing", [SESSION_BETWEEN] = "between",
        [SESSION_ASIDE] = "aside",     [SESSION_REFUSED] = "refused"};
    const struct plugin *p = self;
    struct tracer_about a;
    tracer_about(p->tracer, &a);
    const struct session_about *s = &a.session;
    const union probing_cell cells[] = {
        probing_str(states[s->state]),
        probing_str(s->reason[0] ? s->reason : NULL),
        probing_i64((int64_t)s->since_ns),
        probing_str(s->library[0] ? s->library : NULL),
        probing_i64(s->version ? (int64_t)s->version : PROBING_NULL_I64),
        probing_i64(s->state == SESSION_TRACING ? s->shared : PROBING_NULL_I64),
        probing_i64((int64_t)s->begun),
        probing_i64((int64_t)s->traced_ns),
        probing_i64((int64_t)s->calls),
        probing_f64(100 * s->cost),
        probing_i64((int64_t)s->records),
        probing_i64((int64_t)s->unknown),
        probing_i64((int64_t)s->torn),
        probing_i64((int64_t)s->lost),
        probing_i64((int64_t)s->refused),
        probing_i64((int64_t)s->late),
        probing_i64(s->taken),
        probing_i64(s->full),
        probing_i64((int64_t)a.kernels),
        probing_i64((int64_t)a.kernel_rows),
        probing_i64((int64_t)a.unlaunched),
        probing_i64((int64_t)a.unplaced),
        probing_i64(s->clock_error_ns < 0 ? PROBING_NULL_I64 : s->clock_error_ns)};
    return probing_scanned(p->host->emit(out, cells, PROBING_LENGTH(cells)));
}

static const struct probing_table_desc tracing_table =
    PROBING_COMPUTED_TABLE("tracing", tracing_columns, scan_tracing,
                           "whether CUDA is traced, by which CUPTI, why not, and what was lost");

/* ---- the plugin ---- */

/* Tell the state that probing.plugins shows beside the plugin. */
static void tell_state(struct plugin *p) /* [worker] */
{
    struct tracer_about a;
    tracer_about(p->tracer, &a);
    if (a.session.costs && !p->logged)
        p->host->log(p->host, PROBING_INFO, a.session.reason);
    p->logged |= a.session.costs;
    if (!p->note || strcmp(p->told, a.session.reason) == 0)
        return;
    (void)snprintf(p->told, sizeof(p->told), "%s", a.session.reason);
    p->note->set(p->host, p->told);
}

static void cuda_tick(void *self, uint64_t now) /* [worker] */
{
    struct plugin *p = self;
    (void)now;
    tell_state(p);
}

static int why_empty(void *self, const char *table, char *text, uint32_t size) /* [worker] */
{
    const struct plugin *p = self;
    struct tracer_about a;
    tracer_about(p->tracer, &a);
    return cuda_why_empty(&a.session, table, text, size);
}

static const void *cuda_extension(void *self, const char *id)
{
    static const struct probing_empty_1 empty = {.size = sizeof(empty), .why = why_empty};
    (void)self;
    return strcmp(id, PROBING_EMPTY_1) == 0 ? &empty : NULL;
}

static void cuda_destroy(void *self)
{
    struct plugin *p = self;
    tracer_free(p->tracer);
    free(p);
}

static int cuda_init(const struct probing_host *host, void **ret_self)
{
    memory_take(host);
    files_take(host);
    struct plugin *p = calloc(1, sizeof(*p));
    if (!p)
        return host->fail(host, -ENOMEM, "no memory");
    p->host = host;
    p->note = host->extension(host, PROBING_NOTE_1);
    struct probing_table *tracing;
    int rc = tracer_new(host, &p->tracer);
    if (rc == 0)
        rc = host->table(host, &tracing_table, &tracing);
    if (rc == 0)
        rc = host->every(host, TELL_NS, cuda_tick);
    if (rc < 0) {
        cuda_destroy(p);
        return rc;
    }
    *ret_self = p;
    return 0;
}

static int cuda_configure(void *self, const char *name, const char *value)
{
    const struct plugin *p = self;
    return tracer_configure(p->tracer, name, value);
}

static int cuda_start(void *self)
{
    const struct plugin *p = self;
    return tracer_start(p->tracer);
}

static int cuda_stop(void *self)
{
    const struct plugin *p = self;
    tracer_stop(p->tracer);
    return 0;
}

static void cuda_fork(void *self, int phase) /* [child] */
{
    const struct plugin *p = self;
    if (phase == PROBING_FORK_CHILD)
        tracer_forked(p->tracer);
}

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin),
    .abi = PROBING_ABI,
    .name = "cuda",
    .version = PROBING_VERSION,
    .doc = "kernels, copies and calls of CUDA, switched on and off while the program runs",
    .config = settings,
    .config_size = sizeof(struct probing_config),
    .init = cuda_init,
    .configure = cuda_configure,
    .start = cuda_start,
    .stop = cuda_stop,
    .fork = cuda_fork,
    .destroy = cuda_destroy,
    .extension = cuda_extension,
    .declares = &cuda_declares,
};
