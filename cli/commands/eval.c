/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/eval.c - `eval`: code goes to the process as it is, or the text of a file with its
 * name.
 *
 * One thread.  The process reads all other options.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/target/live_run.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "sdk/lib/buf.h"

#define FILE_MAX_BYTES ((size_t)900 << 10) /* a request has 1 MiB at most */

/* Index of -f or --file among the options before the code; 0: there is none. */
static int find_file(int argc, char **argv)
{
    for (int i = 1; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "-f") == 0 || strcmp(argv[i], "--file") == 0)
            return i;
        if (strcmp(argv[i], "--timeout") == 0)
            i++;
        else
            return 0;
    }
    return 0;
}

/* argv with --file NAME TEXT in the place of -f NAME. */
static int run_file(struct target *t, int argc, char **argv, int at, char *text)
{
    static char option[] = "--file", input[] = "<stdin>";
    char **words = calloc((size_t)argc + 2, sizeof(*words));
    int n = 0;

    if (words == NULL)
        return err_set(-ENOMEM, "no memory");
    for (int i = 0; i < at; i++)
        words[n++] = argv[i];
    words[n++] = option;
    words[n++] = strcmp(argv[at + 1], "-") == 0 ? input : argv[at + 1];
    words[n++] = text;
    for (int i = at + 2; i < argc; i++)
        words[n++] = argv[i];
    int rc = live_run(t, n, (const char *const *)words);
    free(words);
    return rc;
}

/* --raw is for us, not for the process: out of the options before the code.  Gives how many words
 * are left. */
static int take_raw(int argc, char **argv)
{
    for (int i = 1; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--raw") == 0) {
            terminal_raw();
            memmove(&argv[i], &argv[i + 1],
                    (size_t)(argc - i) * sizeof(argv[0])); /* and the NULL */
            return argc - 1;
        }
        if (strcmp(argv[i], "--timeout") == 0)
            i++;
        else
            break;
    }
    return argc;
}

int command_eval(struct target *t, int argc, char **argv)
{
    argc = take_raw(argc, argv);
    terminal_exact();
    int at = find_file(argc, argv);
    struct buf b;

    if (at == 0)
        return live_run(t, argc, (const char *const *)argv);
    if (at + 1 == argc)
        return cli_misuse(err_set(-EINVAL, "eval: --file needs a file: --file look.py"));
    const char *path = argv[at + 1];
    buf_init(&b, FILE_MAX_BYTES);
    int rc = file_read_named(path, &b);
    if (rc == 0 && strlen(buf_text(&b)) != b.size)
        rc = err_set(-EINVAL, "%s contains a zero byte, so it is not Python source", path);
    if (rc == 0)
        rc = run_file(t, argc, argv, at, b.data);
    buf_done(&b);
    return rc;
}
