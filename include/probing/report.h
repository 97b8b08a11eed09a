/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/report.h - commands that a plugin adds to the `probing` command: reports over what it
 * has measured.
 *
 * The plugin's .so exports a second symbol, `probing_report_v1`.  The command loads the file into
 * its own process, never into the target, and only when one of its commands, help or completion is
 * asked for.  No other function of the plugin is called there: no init(), no host, no CPython.
 *
 * All data that hangs on `probing_report_v1` lies in the file itself: constants.  The command reads
 * it before it calls anything, and refuses what is wrong in one sentence.
 *
 * There is one thread.  All functions here are called on it, and yours may call the api's only
 * while run() is under way.  A function gives 0 or more when it worked, a negative errno when not,
 * and then the reason is kept: return the number, and the user reads it.  Strings are UTF-8.  What
 * you pass in stays yours, what you are given is valid until the call ends.
 */
#ifndef PROBING_REPORT_H
#define PROBING_REPORT_H

#include <probing/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_REPORT_MAJOR 1u /* a new major is a new symbol, probing_report_v2 */
#define PROBING_REPORT_MINOR 2u /* one more whenever a struct grows at its end */
#define PROBING_REPORT_ABI ((PROBING_REPORT_MAJOR << 16) | PROBING_REPORT_MINOR)

/* Has this command's api field `f`?  Ask before using anything newer than 1.0. */
#define PROBING_REPORT_HAS(a, f) \
    ((a)->size >= offsetof(struct probing_report_api, f) + sizeof(a)->f && (a)->f)

struct probing_report_file; /* from file_open(); until file_close() */

/* The kind of the target. */
enum {
    PROBING_TARGET_LIVE = 1, /* a process that answers, here or elsewhere */
    PROBING_TARGET_DEAD = 2, /* a data directory whose process is dead or stopped: tables only */
    PROBING_TARGET_BARE = 3, /* a process without a core in it: nothing can be asked */
    PROBING_TARGET_JOB = 4   /* since 1.1: of a PROBING_REPORT_JOB, one process or many */
};

/* Since 1.1: one process that a PROBING_REPORT_JOB is about.  Later minors may add fields at the
 * end.  Texts are "" and numbers PROBING_NULL_I64 where they are not known. */
struct probing_report_member {
    const char *name;                         /* what -t takes for this one alone */
    const char *host, *role;                  /* role: torchrun's */
    const char *why;                          /* NULL: it answered the last question */
    int64_t pid, rank, node_rank, local_rank; /* pid: of a process of this machine */
};

/* One cell of an answer.  Times come as text, UTC. */
struct probing_report_cell {
    uint32_t type;            /* PROBING_I64, PROBING_F64, PROBING_STR; 0: NULL */
    uint32_t size;            /* bytes of value.s */
    union probing_cell value; /* .s has a NUL at its end */
};

/* How fit() shortens a text: the part that is replaced by "...".  FILL, added to one of the others,
 * appends blanks up to the width. */
enum {
    PROBING_FIT_END = 0,
    PROBING_FIT_FRONT = 1,
    PROBING_FIT_MIDDLE = 2,
    PROBING_FIT_FILL = 1u << 4
};

/* The command's interface, as run() gets it. */
struct probing_report_api {
    uint32_t size, abi;      /* of the command; only ever grows */
    void *cli;               /* the command's own */
    const char *target_text; /* as the user wrote it */
    int64_t target_pid;      /* 0: on another machine */
    uint32_t target;         /* PROBING_TARGET_LIVE ... */
    uint32_t reserved;

    /* ---- words ---- */

    /* Take the arguments apart as all commands do: take(arg, "--last", "60s") for each option,
     * whichever way it was written, value NULL for a flag; take(arg, NULL, word) for the rest.
     * What take() gives below 0 ends it.  Options that you do not have are refused with the nearest
     * one that you have.  Below 0: give it back, the exit code will say wrong usage. */
    int (*parse)(const struct probing_report_api *a, int argc, const char *const *argv,
                 int (*take)(void *arg, const char *option, const char *value), void *arg);
    int (*parse_time)(const struct probing_report_api *a, const char *text,
                      uint64_t *ret_ns); /* "60s", "500ms" */
    int (*parse_count)(const struct probing_report_api *a, const char *text, uint64_t *ret);
    /* Keep `text` as the reason; gives `code`: return a->fail(a, -ENODATA, "no step").  misuse()
     * likewise, and the exit code will be that of wrong usage. */
    int (*fail)(const struct probing_report_api *a, int code, const char *text);
    int (*misuse)(const struct probing_report_api *a, int code, const char *text);
    /* The error of a target that has not loaded this plugin: what to do there. */
    int (*no_plugin)(const struct probing_report_api *a);

    /* ---- the target ---- */

    /* Ask a target in SQL, living or dead; row() is called for each row, and a result below 0 ends
     * it.  -ENOENT, -EINVAL: there is no such table or column. */
    int (*ask)(const struct probing_report_api *a, const char *sql,
               int (*row)(void *arg, const struct probing_report_cell *cells, uint32_t n),
               void *arg);
    /* Call a command of the living target.  Its text comes to piece() as it comes, and to the
     * terminal when that is NULL.  Gives the command's own exit code, or below 0. */
    int (*call)(const struct probing_report_api *a, int argc, const char *const *argv,
                int (*piece)(void *arg, const void *bytes, size_t n), void *arg);
    /* Call fn with each living process of this machine that has a core in it and that we may ask,
     * the target among them; what it gives below 0 ends it. */
    int (*processes)(const struct probing_report_api *a, int (*fn)(void *arg, int64_t pid),
                     void *arg);
    /* As ask(), of another process of this machine.  -ESRCH: no core answers there. */
    int (*ask_process)(const struct probing_report_api *a, int64_t pid, const char *sql,
                       int (*row)(void *arg, const struct probing_report_cell *cells, uint32_t n),
                       void *arg);
    /* Has the user pressed Ctrl-C?  Then return soon; your own waits (poll, read) end by EINTR. */
    int (*interrupted)(const struct probing_report_api *a);

    /* ---- what the user sees ---- */

    /* Bytes to standard output.  What would steer a terminal is escaped. */
    int (*print)(const struct probing_report_api *a, const void *text, size_t n);
    /* Flush what was printed.  -EPIPE: nobody reads any more. */
    int (*flush)(const struct probing_report_api *a);
    /* A line to standard error, behind "probing: ". */
    void (*say)(const struct probing_report_api *a, const char *text);
    /* A sentence on standard output, wrapped at the terminal's width, behind `indent`; its further
     * lines are two blanks deeper. */
    void (*print_wrapped)(const struct probing_report_api *a, const char *indent, const char *text,
                          size_t n);
    /* As JSON has them; a NaN or infinity is null. */
    int (*print_json_text)(const struct probing_report_api *a, const char *text, size_t n);
    int (*print_json_number)(const struct probing_report_api *a, double value);
    /* Output from here on is for a program: its bytes are kept where no terminal reads them. */
    void (*exact)(const struct probing_report_api *a);
    void (*clear)(const struct probing_report_api *a); /* the terminal, when it is one */
    /* Columns of the terminal; 0: nobody looks at one, then nothing needs to be cut. */
    uint32_t (*width)(const struct probing_report_api *a);
    uint32_t (*columns)(const struct probing_report_api *a, const char *text, size_t n);
    /* `text` in at most `width` columns (0: any) into `ret`, `room` bytes with the NUL.  Gives how
     * many bytes it has, cut to the room where that is smaller. */
    int (*fit)(const struct probing_report_api *a, const char *text, size_t n, uint32_t width,
               uint32_t how, char *ret, size_t room);

    /* ---- a file that the user named ---- */

    /* It has its name when all is in it: file_close(f, rc) with rc below 0 takes away what was
     * written.  That gives rc, or what went wrong at the end. */
    int (*file_open)(const struct probing_report_api *a, const char *path,
                     struct probing_report_file **ret);
    int (*file_write)(struct probing_report_file *f, const void *bytes, size_t n);
    int (*file_close)(struct probing_report_file *f, int rc);
    /* 1.0 ends here.  New fields go below, never between. */

    /* ---- 1.1 ---- */

    /* For a PROBING_REPORT_JOB: go through the processes behind the target, by rank; a result of fn
     * below 0 ends it. */
    int (*members)(const struct probing_report_api *a,
                   int (*fn)(void *arg, const struct probing_report_member *m), void *arg);

    /* ---- 1.2 ---- */

    /* Read /proc/PID/NAME of any process of this machine into `ret`, with a NUL at its end.  Gives
     * how many bytes; -ENOBUFS: more than `size` - 1.  Where a driver holds the process's memory
     * (state D) such a read never ends if you do it by yourself.  Here it is -ETIMEDOUT after some
     * seconds, the user is told once, and further reads of that process fail at once. */
    int (*read_process)(const struct probing_report_api *a, int64_t pid, const char *name,
                        char *ret, size_t size);
};

struct probing_report_option {
    const char *name;   /* "--last": ^--[a-z][a-z0-9-]*$ */
    const char *letter; /* "-l", or NULL */
    const char *value;  /* "TIME"; NULL: a flag */
    const char *doc;    /* a few words */
};

enum {
    PROBING_REPORT_TARGET = 1u << 0, /* command: it needs a target */
    /* Since 1.1, with PROBING_REPORT_TARGET: it runs once, whatever the target names (a process,
     * `-t 12,13`, `-t job:NAME`), and as `probing cluster NAME` too.  In ask(), global.SCHEMA.TABLE
     * is the table of all of them; a statement without one is run by each, and a column names the
     * member of each row.  Members that cannot be asked, or that lack the table of the first
     * question that anybody answered, are left out: members() gives the reasons, and the command
     * prints them after run().  call() needs one process and fails. */
    PROBING_REPORT_JOB = 1u << 1
};

struct probing_report_command {
    const char *name, *alias;    /* "torch": ^[a-z][a-z0-9_]*$; alias: or NULL */
    const char *arguments, *doc; /* behind the options: "[profile]", ""; one line */
    const char *text;            /* what else a user must know, or NULL; it is filled when shown */
    const struct probing_report_option *options; /* at most 12 */
    const char *const *examples;                 /* at most 4, behind "probing ": "-t 4242 torch" */
    uint32_t n_options, option_size; /* option_size: sizeof(struct probing_report_option) */
    uint32_t n_examples, flags;      /* PROBING_REPORT_TARGET ..., or 0 */
    /* argv[0] is the name.  Gives the exit code, or -errno after fail() or from the api. */
    int (*run)(const struct probing_report_api *a, int argc, const char *const *argv);
};

/* A plugin's declaration of its commands. */
struct probing_report {
    uint32_t size, abi; /* sizeof(struct probing_report), PROBING_REPORT_ABI */
    const char *name;   /* the plugin's, as in probing_plugin_v1 */
    const struct probing_report_command *commands;
    uint32_t n_commands, command_size; /* 1 to 16; sizeof(struct probing_report_command) */
    uint32_t min_minor;                /* the oldest minor of the command's api that is enough */
    uint32_t reserved;
    /* 1.0 ends here. */
};

extern PROBING_EXPORT const struct probing_report probing_report_v1;

#ifdef __cplusplus
}
#endif
#endif
