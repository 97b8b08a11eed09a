/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/batch.c - rows of a source with whose they are in front of them, as every destination
 * gets them.
 *
 * One thread.  Names come from the source: no two columns have one name for destinations that do
 * not tell letters' cases apart, and none has one of ours.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli/answer/column_roles.h"
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

const char *source_label(const struct ship_source *s, char *room, size_t n)
{
    if (s->tags.rank != MEMBER_UNKNOWN)
        (void)snprintf(room, n, "rank %" PRId64 " (process %" PRId64 ")", s->tags.rank, s->pid);
    else
        (void)snprintf(room, n, "process %" PRId64, s->pid);
    return room;
}

/* Names that are taken, in letters of one case, found by their hash: a source may call a thousand
 * columns alike. */
struct names {
    const char **list; /* NULL: free */
    uint32_t *tried;   /* "name_2", up to this, are known to be taken */
    uint32_t mask;
};

static int names_init(struct names *s, struct arena *a, uint32_t n)
{
    uint32_t room = 64;

    while (room < 2 * n)
        room *= 2;
    s->mask = room - 1;
    s->list = arena_zalloc(a, room, sizeof(char *));
    s->tried = arena_zalloc(a, room, sizeof(*s->tried));
    return s->list != NULL && s->tried != NULL ? 0 : -ENOMEM;
}

/* The slot of the name, or the one that it would get. */
static uint32_t slot_of_name(const struct names *s, const char *name)
{
    uint64_t hash = HASH_FNV;

    for (const char *at = name; *at != '\0'; at++) {
        const char small = (char)tolower((unsigned char)*at);
        hash = hash_bytes(hash, &small, 1);
    }
    uint32_t at = (uint32_t)hash_spread(hash) & s->mask;
    while (s->list[at] != NULL && strcasecmp(s->list[at], name) != 0)
        at = (at + 1) & s->mask;
    return at;
}

static void take_name(struct names *s, const char *name)
{
    s->list[slot_of_name(s, name)] = name;
}

/* "rank", or "rank_2" where that is taken; it is taken from now on. */
static const char *free_name(struct names *s, struct arena *a, const char *name)
{
    char room[400];
    int most = (int)(sizeof(room) - 16);

    (void)snprintf(room, sizeof(room), "%.*s", most, name);
    uint32_t first = slot_of_name(s, room);
    for (uint32_t k = s->tried[first] + 2; s->list[slot_of_name(s, room)] != NULL; k++) {
        (void)snprintf(room, sizeof(room), "%.*s_%u", most, name, k);
        s->tried[first] = k - 1;
    }
    const char *ret = strlen(name) < sizeof(room) && strcmp(room, name) == 0
                          ? name
                          : arena_text(a, room, strlen(room));
    if (ret != NULL)
        take_name(s, ret);
    return ret;
}

int ship_batch_columns(struct arena *a, const struct sql_column *theirs, uint32_t n,
                       const char *const *reserved, struct sql_column **ret)
{
    struct sql_column *all = arena_zalloc(a, n + SHIP_TAGS, sizeof(*all));
    struct names names;
    uint32_t n_reserved = 0;

    while (reserved != NULL && reserved[n_reserved] != NULL)
        n_reserved++;
    if (all == NULL || names_init(&names, a, n + SHIP_TAGS + n_reserved) < 0)
        return err_set(-ENOMEM, "no memory for columns");
    memcpy(all, tags, sizeof(tags));
    for (uint32_t i = 0; i < n_reserved; i++)
        take_name(&names, reserved[i]);
    for (uint32_t i = 0; i < SHIP_TAGS; i++)
        take_name(&names, tags[i].name);
    for (uint32_t i = 0; i < n; i++) {
        struct sql_column *c = &all[SHIP_TAGS + i];
        enum sql_type t = theirs[i].type;
        *c = theirs[i];
        c->name = free_name(&names, a, theirs[i].name);
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
    int i = column_in_role(b->columns + SHIP_TAGS, b->n_columns - SHIP_TAGS, ROLE_END);

    return i < 0 ? i : i + SHIP_TAGS;
}
