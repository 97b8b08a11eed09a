/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/parquet_folder.c - a folder of Parquet files, partitioned as Hive, DuckDB, Polars and
 * Spark read it:
 *
 *     DIR/schema=python/table=loss/date=2026-01-31/rank=3/<process>-<table>-<from>-<to>.parquet
 *
 * One thread.  A file is written beside under a name that no reader takes (".part"), brought to the
 * disk, and renamed; a range that is there already under its name is whole, and not written again.
 * So each row is in one file, once.  Rows of one range that are of several days are in several.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/export/parquet_file.h"
#include "cli/ship/ship.h"
#include "cli/terminal/atomic_output.h"
#include "core/base/err.h"

#define FILE_BYTES ((size_t)160 << 20)
#define NO_DAY INT64_MIN
#define DAYS_MAX 64 /* of a batch: with more its times mean nothing, and it is put where none are */
static const char NOTHING[] = "__HIVE_DEFAULT_PARTITION__"; /* Hive's word for NULL */

#define LOCK ".probing-ship.lock" /* no reader of folders takes names with '.' in front */

struct folder {
    int fd;
    const char *path;     /* borrowed from the command line */
    struct stat identity; /* of fd */
    uid_t own;            /* whose the files are that we make there: a server may have its own */
};

/* Rows of one day, by part and row. */
struct day {
    const struct ship_batch *batch;
    uint32_t *parts, *rows;
    uint32_t n;
    int64_t day; /* since 1970, NO_DAY: they have no time */
};

static void value_of(void *arg, uint32_t row, uint32_t column, struct sql_value *ret)
{
    const struct day *d = arg;

    ship_batch_value(d->batch, d->parts[row], d->rows[row], column, ret);
}

static int64_t day_of(const struct ship_batch *b, int time, uint32_t part, uint32_t row)
{
    struct sql_value v = {.type = SQL_NULL};

    if (time >= 0)
        ship_batch_value(b, part, row, (uint32_t)time, &v);
    return v.type == SQL_TIMESTAMP ? v.integer / ANSWER_DAY_NS - (v.integer % ANSWER_DAY_NS < 0)
                                   : NO_DAY;
}

/* ---- folders and files ---- */

/* A full disk may get room; what is in the way, not allowed, or nothing that the file system can,
 * stays so; of what is too long half may not be. */
static int report_failure(const char *name, int code)
{
    static const int stay[] = {ELOOP,  ENOTDIR, EACCES,  EPERM,  EROFS, ENAMETOOLONG,
                               EISDIR, EINVAL,  ENOTSUP, ENOSYS, EEXIST};
    bool stays = false;

    for (size_t i = 0; i < sizeof(stay) / sizeof(stay[0]); i++)
        stays = stays || code == stay[i];

    return err_set(stays           ? -EPROTO
                   : code == EFBIG ? -EFBIG
                                   : -EAGAIN,
                   "%s cannot be written: %s", name, output_why(code));
}

/* Refuse a folder that another user has made in a place like /tmp, where all may make files but
 * none may remove those of others: the rows would be his, and he could claim that they were there
 * already. */
static bool is_strangers(const struct folder *f, const struct stat *st)
{
    return (f->identity.st_mode & S_ISVTX) != 0 && st->st_uid != 0 &&
           st->st_uid != f->identity.st_uid && st->st_uid != f->own;
}

/* The folder `name` in `parent`, made where it is not there; *fd is closed.  No link is followed:
 * whoever may write to the folder could lead us elsewhere. */
static int step_into(const struct folder *f, int *fd, const char *name)
{
    struct stat st;
    int parent = *fd;

    *fd = -1;
    if (mkdirat(parent, name, 0777) == -1 && errno != EEXIST) {
        int code = errno;
        (void)close(parent);
        return report_failure(name, code);
    }
    *fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int code = errno;
    (void)fsync(parent);
    (void)close(parent);
    if (*fd == -1)
        return report_failure(name, code);
    if (fstat(*fd, &st) == -1)
        return report_failure(name, errno);
    return is_strangers(f, &st)
               ? err_set(-EPROTO,
                         "%s in the folder belongs to user %u, who made it first: everybody may "
                         "write to %s; ship to a folder of your own",
                         name, (unsigned)st.st_uid, f->path)
               : 0;
}

static void date_text(int64_t day, char *ret, size_t size)
{
    time_t seconds = (time_t)(day * (ANSWER_DAY_NS / 1000000000));
    struct tm t;

    if (day == NO_DAY || gmtime_r(&seconds, &t) == NULL)
        (void)snprintf(ret, size, "date=%s", NOTHING);
    else
        (void)snprintf(ret, size, "date=%04d-%02d-%02d", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday);
}

static int open_partition(const struct folder *f, const struct ship_batch *b, int64_t day, int *ret)
{
    char name[4][SHIP_NAME_BYTES + 16];
    int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

    if (fd == -1)
        return report_failure("the folder", errno);
    (void)snprintf(name[0], sizeof(name[0]), "schema=%s", b->table->schema);
    (void)snprintf(name[1], sizeof(name[1]), "table=%s", b->table->name);
    date_text(day, name[2], sizeof(name[2]));
    if (b->source->tags.rank == MEMBER_UNKNOWN)
        (void)snprintf(name[3], sizeof(name[3]), "rank=%s", NOTHING);
    else
        (void)snprintf(name[3], sizeof(name[3]), "rank=%lld", (long long)b->source->tags.rank);
    for (int i = 0; i < 4 && rc == 0; i++)
        rc = step_into(f, &fd, name[i]);
    *ret = fd;
    return rc;
}

static int write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n == -1 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 ? ENOSPC : errno;
        data += n;
        size -= (size_t)n;
    }
    return fsync(fd) == -1 && !output_never_syncs(errno) ? errno : 0;
}

static int write_file(int dir, const char *name, const struct buf *text)
{
    char part[300];

    (void)snprintf(part, sizeof(part), ".%s.part", name);
    (void)unlinkat(dir, part, 0); /* of one who was killed */
    int fd = openat(dir, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    int code = fd == -1 ? errno : write_all(fd, text->data, text->size);
    if (fd != -1 && close(fd) == -1 && code == 0)
        code = errno;
    if (code == 0 && renameat(dir, part, dir, name) == -1)
        code = errno;
    if (code == 0)
        (void)fsync(dir);
    else
        (void)unlinkat(dir, part, 0);
    return code == 0 ? 0 : report_failure(name, code);
}

static void name_of(const struct ship_batch *b, char *ret, size_t size)
{
    char process[24];

    ship_process_text(b->source, process);
    (void)snprintf(ret, size, "%s-%u-%llu-%llu.parquet", process, b->table->id,
                   (unsigned long long)b->from, (unsigned long long)b->to);
}

/* Is the file one of this table of this process, with rows of the range or behind it, under another
 * name?  Files of ours end where the range begins. */
static bool is_ahead(const struct ship_batch *b, const char *name, const char *own)
{
    char begin[64], process[24], *end;

    ship_process_text(b->source, process);
    (void)snprintf(begin, sizeof(begin), "%s-%u-", process, b->table->id);
    if (strncmp(name, begin, strlen(begin)) != 0 || strcmp(name, own) == 0)
        return false;
    (void)strtoull(name + strlen(begin), &end, 10);
    if (*end != '-')
        return false;
    uint64_t to = strtoull(end + 1, &end, 10);
    return strcmp(end, ".parquet") == 0 && to > b->from;
}

/* Somebody with another state file has sent the same rows here, or ours was lost: they would be
 * here twice.  One look a table and run, since a folder may have very many files; but what lies
 * here already under its own name does not count as one. */
static int check_alone(const struct ship_batch *b, int dir, const char *own)
{
    int fd = b->first ? openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, rc = 0;
    DIR *all = fd != -1 ? fdopendir(fd) : NULL;

    if (fd != -1 && all == NULL)
        (void)close(fd);
    for (const struct dirent *e; all != NULL && rc == 0 && (e = readdir(all)) != NULL;)
        if (is_ahead(b, e->d_name, own))
            rc = err_set(-EREMOTEIO,
                         "rows from %llu on are in %s already, in other pieces: was there another "
                         "`probing ship` to this folder, or was the state file lost? Remove its "
                         "files, or ship to another folder",
                         (unsigned long long)b->from, e->d_name);
    if (all != NULL)
        (void)closedir(all);
    return rc;
}

static int make_file(struct day *d, struct buf *ret)
{
    const struct parquet_rows rows = {.n_rows = d->n, .value = value_of, .arg = d};
    struct parquet_file *f = NULL;
    int rc = parquet_begin(d->batch->columns, d->batch->n_columns, ret, &f);

    if (rc == 0)
        rc = parquet_add_rows(f, &rows, ret);
    if (rc == 0)
        rc = parquet_end(f, ret);
    parquet_free(f);
    return rc;
}

/* 1: it is there already. */
static int write_day(const struct folder *f, struct day *d)
{
    const struct ship_batch *b = d->batch;
    char name[160];
    struct stat st;
    struct buf text;
    int dir = -1, rc = open_partition(f, b, d->day, &dir);

    name_of(b, name, sizeof(name));
    buf_init(&text, FILE_BYTES);
    bool there = rc == 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                 S_ISREG(st.st_mode) && st.st_size > 0;
    if (rc == 0 && !there)
        rc = check_alone(b, dir, name);
    if (rc == 0 && !there)
        rc = make_file(d, &text);
    if (rc == 0 && !there)
        rc = write_file(dir, name, &text);
    buf_done(&text);
    if (dir != -1)
        (void)close(dir);
    return rc == 0 && there ? 1 : rc;
}

/* The range comes in other pieces: what is there of it, under its name, would be there twice. */
static int take_back(const struct folder *f, const struct ship_batch *b, int64_t day)
{
    char name[160];
    int dir = -1, rc = open_partition(f, b, day, &dir);

    name_of(b, name, sizeof(name));
    if (rc == 0 && unlinkat(dir, name, 0) == -1 && errno != ENOENT)
        rc = report_failure(name, errno);
    if (rc == 0)
        (void)fsync(dir);
    if (dir != -1)
        (void)close(dir);
    return rc;
}

/* ---- a batch, day by day ---- */

static void take_day(struct day *d, int time, int64_t day)
{
    d->n = 0;
    d->day = day;
    for (uint32_t part = 0; part < d->batch->n_parts; part++)
        for (uint32_t row = 0; row < answer_rows_count(d->batch->parts[part]); row++)
            if (day_of(d->batch, time, part, row) == day) {
                d->parts[d->n] = part;
                d->rows[d->n++] = row;
            }
}

/* The first day behind `after` (NULL: of all); false: there is none. */
static bool next_day(const struct ship_batch *b, int time, const int64_t *after, int64_t *ret)
{
    bool any = false;

    for (uint32_t part = 0; part < b->n_parts; part++)
        for (uint32_t row = 0; row < answer_rows_count(b->parts[part]); row++) {
            int64_t day = day_of(b, time, part, row);
            if ((after == NULL || day > *after) && (!any || day < *ret)) {
                *ret = day;
                any = true;
            }
        }
    return any;
}

/* The column by whose days a batch is taken apart; -1: none. */
static int time_of(const struct ship_batch *b)
{
    int time = ship_batch_time(b), n = 0;
    int64_t day = 0, last;

    for (bool more = next_day(b, time, NULL, &day); more && n <= DAYS_MAX; n++) {
        last = day;
        more = next_day(b, time, &last, &day);
    }
    return n > DAYS_MAX ? -1 : time;
}

/* ---- the folder ---- */

/* Give the owner of a file that we make; where none can be, the first rows find that out. */
static uid_t owner_there(int dir)
{
    char name[64];
    struct stat st;

    (void)snprintf(name, sizeof(name), ".probing-ship.%d.part", (int)getpid());
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool made = fd != -1 && fstat(fd, &st) == 0;

    if (fd != -1) {
        (void)close(fd);
        (void)unlinkat(dir, name, 0);
    }
    return made ? st.st_uid : geteuid();
}

static int open_path(struct ship_destination *d, struct folder *f)
{
    int fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    if (fd == -1 || fstat(fd, &st) == -1)
        return err_set(-errno, "the folder %s: %s", f->path, strerror(errno));
    int rc = f->fd != -1 && st.st_uid != f->identity.st_uid && st.st_uid != geteuid()
                 ? err_set(-EPERM, "the folder %s is another one, of user %u", f->path,
                           (unsigned)st.st_uid)
                 : ship_claims_open(fd, LOCK, &d->claims);
    if (rc < 0) {
        (void)close(fd);
        return rc;
    }
    if (f->fd != -1)
        (void)close(f->fd);
    f->fd = fd;
    f->identity = st;
    f->own = (st.st_mode & S_ISVTX) != 0 ? owner_there(fd) : geteuid();
    return 0;
}

/* The path counts: another folder may have come in its place.  It is not made anew: where it was
 * the place of a disk that is not there now, the rows would go to another one. */
static int check_path(struct ship_destination *d)
{
    struct folder *f = d->self;
    struct stat st;

    if (stat(f->path, &st) == 0 && st.st_dev == f->identity.st_dev &&
        st.st_ino == f->identity.st_ino)
        return 0;
    int rc = open_path(d, f);
    char why[ERR_TEXT_BYTES];
    (void)snprintf(why, sizeof(why), "%s", err_why(rc));
    return rc < 0
               ? err_set(-EAGAIN,
                         "%.700s; it was there before: make it again, or mount what it was on", why)
               : err_set(-EAGAIN, "there is another folder at %s now, and the rows go there",
                         f->path);
}

static int send_batch(struct ship_destination *to, const struct ship_batch *b)
{
    struct day d = {.batch = b,
                    .parts = calloc(b->rows + 1, sizeof(uint32_t)),
                    .rows = calloc(b->rows + 1, sizeof(uint32_t))};
    int time = time_of(b), there = 0, rc = check_path(to);
    int64_t day = 0, last;

    if (rc == 0 && (d.parts == NULL || d.rows == NULL))
        rc = err_set(-ENOMEM, "no memory for %llu rows", (unsigned long long)b->rows);
    for (bool more = rc == 0 && next_day(b, time, NULL, &day); more && rc == 0;) {
        take_day(&d, time, day);
        rc = write_day(to->self, &d);
        there = rc > 0 ? 1 : there;
        rc = rc > 0 ? 0 : rc;
        last = day;
        more = next_day(b, time, &last, &day);
    }
    int back = 0;
    for (bool more = rc == -EFBIG && next_day(b, time, NULL, &day); more && back == 0;) {
        back = take_back(to->self, b, day);
        last = day;
        more = next_day(b, time, &last, &day);
    }
    free(d.parts);
    free(d.rows);
    return back < 0 ? back : rc == 0 ? there : rc;
}

static int open_folder(struct ship_destination *d, const char *path)
{
    struct folder *f = calloc(1, sizeof(*f));

    if (f == NULL)
        return err_set(-ENOMEM, "no memory for a destination");
    d->self = f;
    *f = (struct folder){.fd = -1, .path = path};
    if (path[0] == '\0')
        return err_set(-EINVAL, "parquet: needs a folder: parquet:/data/runs");
    if (mkdir(path, 0777) == -1 && errno != EEXIST)
        return err_set(-errno, "the folder %s cannot be made: %s", path, strerror(errno));
    return open_path(d, f);
}

static void close_folder(struct ship_destination *d)
{
    struct folder *f = d->self;

    if (f != NULL && f->fd != -1)
        (void)close(f->fd);
    free(f);
}

static const char *const partitions[] = {"schema", "table", "date", "rank", NULL};

const struct ship_kind ship_parquet = {.schemes = {"parquet:"},
                                       .example = "parquet:FOLDER",
                                       .doc = "Parquet files, partitioned",
                                       .promise = "each row once",
                                       .reserved = partitions,
                                       .all_tables = true,
                                       .once = true,
                                       .open = open_folder,
                                       .send = send_batch,
                                       .close = close_folder};
