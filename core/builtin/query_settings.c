/* SPDX-License-Identifier: Apache-2.0
 *
 * core/builtin/query_settings.c - the settings query.*: what a statement may use of the process it
 * runs in.
 *
 * Threads: main adds them, control changes them; a query sees what held when it began.
 */
#include <errno.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/builtin/builtin.h"
#include "core/plugin_host/plugin_host.h"
#include "core/sql/sql.h"

#define NICE_MAX 19
#define THREADS_MAX 8

static const struct query_setting {
    struct probing_config config; /* first: the host reads it at this stride */
    enum sql_setting which;
} settings[] = {
    {{.name = "max_memory",
      .value = "256MB",
      .doc = "bytes that one query may use; a query that needs more fails, and its error names the "
             "operator",
      .type = PROBING_I64,
      .unit = PROBING_BYTES,
      .flags = PROBING_LIVE,
      .min = 1 << 20,
      .max = INT64_C(1) << 46},
     SQL_SET_MEMORY},
    {{.name = "timeout",
      .value = "60s",
      .doc = "maximum duration of a query; a query that runs longer is stopped",
      .type = PROBING_I64,
      .unit = PROBING_NS,
      .flags = PROBING_LIVE,
      .min = NS_PER_MS,
      .max = 86400 * (int64_t)NS_PER_S},
     SQL_SET_TIMEOUT},
    {{.name = "max_rows",
      .value = "0",
      .doc = "an answer ends after this many rows, and says so; 0: no limit",
      .type = PROBING_I64,
      .flags = PROBING_LIVE,
      .min = 0,
      .max = INT64_MAX},
     SQL_SET_ROWS},
    {{.name = "nice",
      .value = "10",
      .doc =
          "how much lower the priority of queries is than that of the process, as in nice(2); 0: "
          "the same priority",
      .type = PROBING_I64,
      .flags = PROBING_LIVE,
      .min = 0,
      .max = NICE_MAX},
     SQL_SET_NICE},
    {{.name = "watermark_delay",
      .value = "1s",
      .doc = "watch sends a bucket of time this long after its end; rows that come later are only "
             "counted",
      .type = PROBING_I64,
      .unit = PROBING_NS,
      .flags = PROBING_LIVE,
      .min = 0,
      .max = 3600 * (int64_t)NS_PER_S},
     SQL_SET_LATE},
    {{.name = "threads",
      .value = "1",
      .doc = "maximum number of threads for a long group by over one stored table",
      .type = PROBING_I64,
      .flags = PROBING_LIVE,
      .min = 1,
      .max = THREADS_MAX},
     SQL_SET_THREADS},
    {.config = {.name = NULL}}};

static int set_setting(void *self, const char *name, const char *value)
{
    struct core *c = self;
    uint64_t number;
    int rc = parse_u64(value, &number);
    for (const struct query_setting *s = settings; rc == 0 && s->config.name; s++)
        if (strcmp(s->config.name, name) == 0)
            sql_configure(c->sql, s->which, number);
    return rc;
}

int queries_settings_add(struct core *c)
{
    for (const struct query_setting *s = settings; s->config.name; s++) {
        const char *value = s->config.value;
        uint64_t number;
        int rc = s->config.unit == PROBING_BYTES ? parse_bytes(value, &number)
                 : s->config.unit == PROBING_NS  ? parse_ns(value, &number)
                                                 : parse_u64(value, &number);
        if (rc < 0)
            return rc;
        sql_configure(c->sql, s->which, number);
    }
    return host_settings_add(c->host, "query", &settings[0].config, sizeof(settings[0]),
                             set_setting, c);
}
