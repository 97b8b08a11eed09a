/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/parquet_folder_test.c - a batch of several days of which one is too long: no row of it
 * may stay, because it comes again in other pieces.  tests/ship has the rest.
 */
#include "cli/ship/ship.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/answer/column_roles.c"
#include "cli/export/parquet_file.c"
#include "cli/ship/batch.c"
#include "cli/ship/claims.c"
#include "cli/ship/parquet_folder.c"
#include "core/base/file.h"
#include "tests/test.h"

#define ROWS 64
#define LONG 4000 /* bytes of each text of the second day */

static char place[] = "/tmp/probing-folder-XXXXXX";

const char *output_why(int code)
{
    return strerror(code);
}

void terminal_say(const char *format, ...)
{
    (void)printf("# %s\n", format);
}

uint32_t answer_rows_count(const struct answer_rows *rows)
{
    return rows->n;
}

/* Row 0 to 31 are of the first day and short, the others of the second one. */
void answer_rows_value(const struct answer_rows *rows, uint32_t row, uint32_t column,
                       struct sql_value *ret)
{
    static char text[LONG];

    (void)rows;
    for (uint32_t i = 0, noise = row + 1; i < sizeof(text); i++) { /* which nothing makes shorter */
        noise = noise * 1664525 + 1013904223;
        text[i] = (char)('!' + (noise >> 24) % 90);
    }
    *ret = (struct sql_value){.type = column == 0 ? SQL_TIMESTAMP : SQL_TEXT};
    if (column == 0) {
        ret->integer = (row < ROWS / 2 ? 1 : 2) * ANSWER_DAY_NS + row;
    } else {
        ret->text.data = text;
        ret->text.size = row < ROWS / 2 ? 1 : LONG;
    }
}

static int send_to_folder(struct ship_destination *d, uint64_t from, uint32_t rows)
{
    static const struct sql_column theirs[] = {{"ts", SQL_TIMESTAMP, 0, ""},
                                               {"note", SQL_TEXT, 0, ""}};
    struct ship_source source = {.id = "0:boot:1-2", .tags = {.host = "node", .rank = 3}};
    struct ship_table table = {.id = 6, .schema = "python", .name = "loss"};
    struct answer_rows part = {.n = rows, .n_columns = 2}, *parts[] = {&part};
    struct ship_batch b = {.source = &source,
                           .table = &table,
                           .from = from,
                           .to = from + rows,
                           .rows = rows,
                           .n_columns = SHIP_TAGS + 2,
                           .parts = parts,
                           .n_parts = 1};
    struct arena mem;

    arena_init(&mem, 1 << 20);
    int rc = ship_batch_columns(&mem, theirs, 2, d->kind->reserved, &b.columns);
    rc = rc < 0 ? rc : d->kind->send(d, &b);
    arena_done(&mem);
    return rc;
}

static bool is_there(const char *day, unsigned from, unsigned to)
{
    struct ship_source source = {.id = "0:boot:1-2"};
    char path[300], process[24];

    ship_process_text(&source, process);
    (void)snprintf(path, sizeof(path),
                   "%s/out/schema=python/table=loss/date=1970-01-%s/rank=3/%s-6-%u-%u.parquet",
                   place, day, process, from, to);
    return access(path, F_OK) == 0;
}

TEST(a_range_that_is_too_long_leaves_none_of_its_days)
{
    struct ship_destination d = {.kind = &ship_parquet};
    struct rlimit limit, small;
    char out[100];

    (void)snprintf(out, sizeof(out), "%s/out", place);
    (void)signal(SIGXFSZ, SIG_IGN); /* as the command does */
    CHECK_INT(ship_parquet.open(&d, out), 0);
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 16384;
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    CHECK_INT(send_to_folder(&d, 0, ROWS), -EFBIG);
    CHECK(!is_there("02", 0, ROWS) && !is_there("03", 0, ROWS));
    CHECK_INT(send_to_folder(&d, 0, ROWS / 2), 0); /* as ship() goes on: with half of it */
    CHECK(is_there("02", 0, ROWS / 2));
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_INT(send_to_folder(&d, 0, ROWS), 0);
    CHECK(is_there("02", 0, ROWS) && is_there("03", 0, ROWS));
    ship_parquet.close(&d);
}

int main(void)
{
    if (mkdtemp(place) == NULL)
        return test_skip("no /tmp");
    RUN(a_range_that_is_too_long_leaves_none_of_its_days);
    (void)file_remove_dir(place);
    return test_end();
}
