/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/batch.c - rows of a source with whose they are in front of them, as every destination
 * gets them.
 *
 * One thread.  Names come from the source: no two columns have one name for destinations that do
 * not tell letters' cases apart, and none has one of ours.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli/ship/ship.h"
#include "core/base/err.h"
#include "sdk/lib/hash.h"

static const struct sql_column tags[SHIP_TAGS] = {
    {.name = "_host", .type = SQL_TEXT, .doc = "machine"},
    {.name = "_rank", .type = SQL_INT, .doc = "rank in its job"},
    {.name = "_pid", .type = SQL_INT, .doc = "process id"},
    {.name = "_job", .type = SQL_TEXT, .doc = "job"},
    {.name = "_role", .type = SQL_TEXT, .doc = "role in its job"},
    {.name = "_clock_offset_ns",
     .type = SQL_INT,
     .unit = PROBING_NS,
     .doc = "how far its times are ahead of the clock of who sent them"},
    {.name = "_clock_error_ns",
     .type = SQL_INT,
     .unit = PROBING_NS,
     .doc = "how sure that is; NULL: its clock is not known"},
    {.name = "_process", .type = SQL_TEXT, .doc = "the same for all rows of one process"}};

void ship_process_text(const struct ship_source *s, char ret[24])
{
    (void)snprintf(ret, 24, "%016llx", (unsigned long long)hash_text(HASH_FNV, s->id));
}

static bool is_taken(const struct sql_column *all, uint32_t n, const char *name,
                     const char *const *reserved)
{
    for (; reserved != NULL && *reserved != NULL; reserved++)
        if (strcasecmp(*reserved, name) == 0)
            return true;
    for (uint32_t i = 0; i < n; i++)
        if (strcasecmp(all[i].name, name) == 0)
            return true;
    return false;
}

/* "rank", or "rank_2" where that is taken. */
static const char *free_name(struct arena *a, const struct sql_column *all, uint32_t n,
                             const char *name, const char *const *reserved)
{
    char room[400];
    int most = (int)(sizeof(room) - 16);

    (void)snprintf(room, sizeof(room), "%.*s", most, name);
    for (uint32_t k = 2; is_taken(all, n, room, reserved); k++)
        (void)snprintf(room, sizeof(room), "%.*s_%u", most, name, k);
    return strlen(name) < sizeof(room) && strcmp(room, name) == 0
               ? name
               : arena_text(a, room, strlen(room));
}

int ship_batch_columns(struct arena *a, const struct sql_column *theirs, uint32_t n,
                       const char *const *reserved, struct sql_column **ret)
{
    struct sql_column *all = arena_zalloc(a, n + SHIP_TAGS, sizeof(*all));

    if (all == NULL)
        return err_set(-ENOMEM, "no memory for columns");
    memcpy(all, tags, sizeof(tags));
    for (uint32_t i = 0; i < n; i++) {
        struct sql_column *c = &all[SHIP_TAGS + i];
        enum sql_type t = theirs[i].type;
        *c = theirs[i];
        c->name = free_name(a, all, SHIP_TAGS + i, theirs[i].name, reserved);
        c->type = t == SQL_INTERVAL ? SQL_INT : t == SQL_CALENDAR || t == SQL_NULL ? SQL_TEXT : t;
        if (c->name == NULL)
            return err_set(-ENOMEM, "no memory for columns");
    }
    *ret = all;
    return 0;
}

static void text_value(struct sql_value *ret, const char *text)
{
    *ret = (struct sql_value){.type = text[0] != '\0' ? SQL_TEXT : SQL_NULL};
    ret->text.data = text;
    ret->text.size = (uint32_t)strlen(text);
}

static void clock_value(struct sql_value *ret, const struct member_clock *c, int64_t ns)
{
    *ret = (struct sql_value){.type = c->error_ns == MEMBER_UNKNOWN ? SQL_NULL : SQL_INT,
                              .integer = ns};
}

static void tag_value(const struct ship_source *s, uint32_t tag, struct sql_value *ret)
{
    static char process[24]; /* of one source at a time; one thread */

    switch (tag) {
    case 0:
        text_value(ret, s->tags.host);
        return;
    case 1:
        *ret = (struct sql_value){.type = s->tags.rank == MEMBER_UNKNOWN ? SQL_NULL : SQL_INT,
                                  .integer = s->tags.rank};
        return;
    case 2:
        *ret = (struct sql_value){.type = s->pid > 0 ? SQL_INT : SQL_NULL, .integer = s->pid};
        return;
    case 3:
        text_value(ret, s->tags.job);
        return;
    case 4:
        text_value(ret, s->tags.role);
        return;
    case 5:
        clock_value(ret, &s->clock, s->clock.offset_ns);
        return;
    case 6:
        clock_value(ret, &s->clock, s->clock.error_ns);
        return;
    default: /* the last one */
        ship_process_text(s, process);
        text_value(ret, process);
        return;
    }
}

void ship_batch_value(const struct ship_batch *b, uint32_t part, uint32_t row, uint32_t column,
                      struct sql_value *ret)
{
    if (column < SHIP_TAGS) {
        tag_value(b->source, column, ret);
        return;
    }
    answer_rows_value(b->parts[part], row, column - SHIP_TAGS, ret);
    if (ret->type == SQL_INTERVAL)
        ret->type = SQL_INT;
    else if (ret->type == SQL_CALENDAR)
        ret->type = SQL_TEXT;
    if (ret->type != b->columns[column].type)
        ret->type = SQL_NULL;
}

int ship_batch_time(const struct ship_batch *b)
{
    int first = -1;

    for (uint32_t i = SHIP_TAGS; i < b->n_columns; i++) {
        if (b->columns[i].type != SQL_TIMESTAMP)
            continue;
        if (strcmp(b->columns[i].name, "ts") == 0)
            return (int)i;
        first = first == -1 ? (int)i : first;
    }
    return first;
}
