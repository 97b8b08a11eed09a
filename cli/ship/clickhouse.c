/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/clickhouse.c - ClickHouse over HTTP: a table for each of ours, rows as Arrow.
 *
 * One thread.  A batch is one INSERT, which ClickHouse takes whole or not at all; its name
 * (insert_deduplication_token) is the source, the table and the range of rows, so one that is sent
 * again is not taken twice while the table remembers it (its last 1,000).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ship/http_post.h"
#include "cli/ship/ship.h"
#include "core/base/err.h"
#include "sdk/lib/hash.h"

#define BODY_BYTES ((size_t)160 << 20) /* of a batch, whose rows take 64 MiB at most */
#define KNOWN_MAX 4096
#define WINDOW 1000 /* inserts that a table remembers */
/* ClickHouse's codes of what is wrong with the server, not with what it was asked: too many
 * statements, too little memory, no space, too many parts, no keeper. */
static const uint64_t passing[] = {202, 241, 243, 252, 999};

struct clickhouse {
    struct http http;
    char database[128];
    uint64_t known[KNOWN_MAX]; /* tables with these columns have been made */
    uint32_t n_known;
    bool greeted;
};

static void add_name(struct buf *b, const char *name)
{
    (void)buf_addc(b, '`');
    for (; *name != '\0'; name++) {
        if (*name == '`' || *name == '\\')
            (void)buf_addc(b, '\\');
        (void)buf_addc(b, *name);
    }
    (void)buf_addc(b, '`');
}

static void add_table(struct buf *b, const struct clickhouse *c, const struct ship_batch *batch)
{
    char name[2 * SHIP_NAME_BYTES + 2];

    (void)snprintf(name, sizeof(name), "%s_%s", batch->table->schema, batch->table->name);
    add_name(b, c->database);
    (void)buf_addc(b, '.');
    add_name(b, name);
}

static void add_type(struct buf *b, const struct sql_column *c, bool key)
{
    static const char *const types[] = {
        [SQL_NULL] = "String",     [SQL_BOOL] = "Bool",
        [SQL_INT] = "Int64",       [SQL_DOUBLE] = "Float64",
        [SQL_TEXT] = "String",     [SQL_BLOB] = "String",
        [SQL_DATE] = "Date32",     [SQL_INTERVAL] = "Int64",
        [SQL_CALENDAR] = "String", [SQL_TIMESTAMP] = "DateTime64(9, 'UTC')"};

    (void)buf_addf(b, key ? "%s" : "Nullable(%s)", types[c->type]);
}

static bool is_key(const struct ship_batch *b, uint32_t column)
{
    return column == SHIP_TAGS - 1 || (int)column == ship_batch_time(b);
}

static bool is_passing(uint64_t code)
{
    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
        if (passing[i] == code)
            return true;
    return false;
}

/* One request; statement: in the query when there is a body. */
static int send_request(struct ship_destination *d, const char *statement, const char *token,
                        const struct buf *body, struct http_answer *ret)
{
    struct clickhouse *c = d->self;
    struct buf query;

    buf_init(&query, (size_t)1 << 20);
    (void)buf_addf(&query, "%s%swait_end_of_query=1", c->http.query, c->http.query[0] ? "&" : "");
    if (token != NULL)
        (void)buf_addf(&query, "&insert_deduplicate=1&insert_deduplication_token=%s", token);
    if (body != NULL) {
        (void)buf_adds(&query, "&query=");
        http_add_escaped(&query, statement);
    }
    const struct http_post p = {.path = c->http.path,
                                .query = buf_text(&query),
                                .type = body != NULL ? "application/vnd.apache.arrow.stream"
                                                     : "text/plain",
                                .body = body != NULL ? body->data : statement,
                                .size = body != NULL ? body->size : strlen(statement)};
    int rc =
        query.failed ? err_set(-EFBIG, "the statement is too long") : http_post(&c->http, &p, ret);
    rc = http_judge(&c->http, rc, ret, &d->wait_ns);
    buf_done(&query);
    return rc == -EAGAIN && ret->code != 0 && !is_passing(ret->code)
               ? err_set(-EREMOTEIO, "ClickHouse refuses it: %.300s", buf_text(&ret->body))
               : rc;
}

static int run_words(struct ship_destination *d, const char *statement)
{
    struct http_answer a = {.status = 0};
    int rc = send_request(d, statement, NULL, NULL, &a);

    buf_done(&a.body);
    return rc;
}

/* Is it ClickHouse at all?  Rows that go to something else are gone. */
static int check_server(struct ship_destination *d)
{
    struct clickhouse *c = d->self;
    struct http_answer a = {.status = 0};
    struct buf statement;
    int rc = send_request(d, "SELECT 'probing'", NULL, NULL, &a);

    if (rc == 0 && strcmp(buf_text(&a.body), "probing\n") != 0)
        rc = err_set(-EPROTO, "the server at %s:%s is no ClickHouse", c->http.host, c->http.port);
    buf_done(&a.body);
    buf_init(&statement, 1024);
    (void)buf_adds(&statement, "CREATE DATABASE IF NOT EXISTS ");
    add_name(&statement, c->database);
    if (rc == 0)
        rc = run_words(d, buf_text(&statement));
    buf_done(&statement);
    c->greeted = rc == 0;
    return rc;
}

static uint64_t hash_of(const struct ship_batch *b)
{
    uint64_t h = hash_text(hash_text(HASH_FNV, b->table->schema), b->table->name);

    for (uint32_t i = SHIP_TAGS; i < b->n_columns; i++) {
        h = hash_text(h ^ (uint64_t)b->columns[i].type, b->columns[i].name);
        h = hash_spread(h);
    }
    return h;
}

static int create_table(struct ship_destination *d, const struct ship_batch *b)
{
    struct clickhouse *c = d->self;
    int time = ship_batch_time(b);
    struct buf s;

    buf_init(&s, (size_t)1 << 20);
    (void)buf_adds(&s, "CREATE TABLE IF NOT EXISTS ");
    add_table(&s, c, b);
    for (uint32_t i = 0; i < b->n_columns; i++) {
        (void)buf_adds(&s, i == 0 ? " (" : ", ");
        add_name(&s, b->columns[i].name);
        (void)buf_addc(&s, ' ');
        add_type(&s, &b->columns[i], is_key(b, i));
    }
    (void)buf_adds(&s, ") ENGINE = MergeTree ORDER BY (`_process`");
    if (time >= 0) {
        (void)buf_adds(&s, ", ");
        add_name(&s, b->columns[time].name);
    }
    (void)buf_addf(&s, ") SETTINGS non_replicated_deduplication_window = %d", WINDOW);
    int rc = s.failed ? err_set(-EREMOTEIO, "too many columns") : run_words(d, buf_text(&s));
    buf_reset(&s);
    /* It may be there from before, of a program with other columns. */
    (void)buf_adds(&s, "ALTER TABLE ");
    add_table(&s, c, b);
    for (uint32_t i = 0; i < b->n_columns; i++) {
        if (is_key(b, i))
            continue;
        (void)buf_adds(&s, i == 0 ? " ADD COLUMN IF NOT EXISTS " : ", ADD COLUMN IF NOT EXISTS ");
        add_name(&s, b->columns[i].name);
        (void)buf_addc(&s, ' ');
        add_type(&s, &b->columns[i], false);
    }
    if (rc == 0)
        rc = s.failed ? err_set(-EREMOTEIO, "too many columns") : run_words(d, buf_text(&s));
    buf_done(&s);
    return rc;
}

static int ensure_table(struct ship_destination *d, const struct ship_batch *b)
{
    struct clickhouse *c = d->self;
    uint64_t h = hash_of(b);

    for (uint32_t i = 0; i < c->n_known; i++)
        if (c->known[i] == h)
            return 0;
    int rc = create_table(d, b);
    if (rc == 0) {
        c->n_known = c->n_known < KNOWN_MAX ? c->n_known : 0;
        c->known[c->n_known++] = h;
    }
    return rc;
}

/* ---- rows as Arrow ---- */

struct part {
    const struct ship_batch *batch;
    uint32_t part;
};

static void value_of(void *arg, uint32_t row, uint32_t column, struct sql_value *ret)
{
    const struct part *p = arg;

    ship_batch_value(p->batch, p->part, row, column, ret);
}

static int add_bytes(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size) != 0
               ? err_set(-EFBIG, "a batch is longer than %zu bytes", BODY_BYTES)
               : 0;
}

static int make_arrow(const struct ship_batch *b, struct buf *ret)
{
    const struct sql_report report = {.rows = b->rows};
    struct sql_writer *w = NULL;
    int rc = sql_writer_new(SQL_FORMAT_ARROW, 0, add_bytes, ret, &w);

    if (rc < 0)
        return rc;
    struct sql_sink sink = sql_writer_sink(w);
    rc = sink.columns(sink.arg, b->columns, b->n_columns);
    for (uint32_t i = 0; i < b->n_parts && rc == 0; i++) {
        struct part p = {b, i};
        const struct sql_given given = {b->columns, b->n_columns, value_of, &p};
        rc = sql_give_rows(&sink, &given, answer_rows_count(b->parts[i]));
    }
    if (rc == 0)
        rc = sql_writer_finish(w, &report);
    sql_writer_free(w);
    return rc;
}

static int insert_rows(struct ship_destination *d, const struct ship_batch *b,
                       const struct buf *body)
{
    struct clickhouse *c = d->self;
    struct http_answer a = {.status = 0};
    char process[24], token[128];
    struct buf s;

    ship_process_text(b->source, process);
    (void)snprintf(token, sizeof(token), "probing-%s-%u-%llu-%llu", process, b->table->id,
                   (unsigned long long)b->from, (unsigned long long)b->to);
    buf_init(&s, (size_t)1 << 20);
    (void)buf_adds(&s, "INSERT INTO ");
    add_table(&s, c, b);
    for (uint32_t i = 0; i < b->n_columns; i++) {
        (void)buf_adds(&s, i == 0 ? " (" : ", ");
        add_name(&s, b->columns[i].name);
    }
    (void)buf_adds(&s, ") FORMAT ArrowStream");
    int rc = s.failed ? err_set(-EREMOTEIO, "too many columns")
                      : send_request(d, buf_text(&s), token, body, &a);
    if (rc == -EPROTO && a.status == 404) { /* somebody has dropped the table: it is made again */
        c->n_known = 0;
        c->greeted = false;
        rc = err_set(-EAGAIN, "the table has gone there: %.200s", buf_text(&a.body));
    }
    buf_done(&a.body);
    buf_done(&s);
    return rc;
}

static int send_batch(struct ship_destination *d, const struct ship_batch *b)
{
    struct clickhouse *c = d->self;
    struct buf body;
    int rc = c->greeted ? 0 : check_server(d);

    if (rc == 0)
        rc = ensure_table(d, b);
    buf_init(&body, BODY_BYTES);
    if (rc == 0)
        rc = make_arrow(b, &body);
    if (rc == 0)
        rc = insert_rows(d, b, &body);
    buf_done(&body);
    return rc;
}

/* "database=NAME" is ours to know, and the server's, too. */
static int take_database(struct clickhouse *c)
{
    const char *at = strstr(c->http.query, "database=");
    size_t n = at != NULL ? strcspn(at + 9, "&") : 0;

    (void)snprintf(c->database, sizeof(c->database), "%s", "probing");
    if (at == NULL)
        return 0;
    if (n == 0 || n >= sizeof(c->database) ||
        strspn(at + 9, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") < n)
        return err_set(-EINVAL, "database= needs a name of letters, digits and '_'");
    (void)snprintf(c->database, sizeof(c->database), "%.*s", (int)n, at + 9);
    /* It is made by a request that may not name it: whoever names one that is not there is refused.
     */
    size_t from = (size_t)(at - c->http.query), to = from + 9 + n;
    memmove(c->http.query + from, c->http.query + to + (c->http.query[to] == '&'),
            strlen(c->http.query + to + (c->http.query[to] == '&')) + 1);
    return 0;
}

static int open_clickhouse(struct ship_destination *d, const char *rest)
{
    struct clickhouse *c = calloc(1, sizeof(*c));

    if (c == NULL)
        return err_set(-ENOMEM, "no memory for a destination");
    d->self = c;
    int rc = http_open(rest, d->http.tls ? "8443" : "8123", &d->http, &c->http);
    return rc < 0 ? rc : take_database(c);
}

static void close_clickhouse(struct ship_destination *d)
{
    struct clickhouse *c = d->self;

    if (c != NULL)
        http_close(&c->http);
    free(c);
}

const struct ship_kind ship_clickhouse = {.schemes = {"clickhouse+http://", "clickhouse://"},
                                          .example = "clickhouse+http://HOST:8123",
                                          .doc = "ClickHouse: a table for each",
                                          .promise = "each row once",
                                          .all_tables = true,
                                          .once = true,
                                          .open = open_clickhouse,
                                          .send = send_batch,
                                          .close = close_clickhouse};
