/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/ui.c - `ui`: the address of the page of a process, with its token.
 *
 * One thread.
 */

#include <errno.h>
#include <probing/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/target/auth_token.h"
#include "cli/target/core_lookup.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "core/base/err.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/buf.h"

#define ANSWER_BYTES 16384

/* The page of a core on this machine, "": it has none; of another machine what the user wrote. */
static int find_page(const struct target *t, char *ret, size_t size)
{
    struct datadir d;

    if (t->directory[0] == '\0') {
        const char *form = strchr(t->host, ':') != NULL ? "http://[%s]:%u/" : "http://%s:%u/";
        (void)snprintf(ret, size, form, t->host, (unsigned)t->port);
        return 0;
    }
    int rc = datadir_open(t->directory, DATADIR_ANY, &d);
    if (rc == 0)
        page_read(&d, ret, size);
    datadir_close(&d);
    return rc;
}

static int print_page(const struct target *t, const char *page)
{
    char token[TOKEN_BYTES] = "";
    const char *given = getenv("PROBING_TOKEN");

    if (page[0] == '\0')
        return err_set(-ENOENT,
                       "process %d has no page, because it does not listen on TCP; to open one on "
                       "this machine: probing -t %d ui --open",
                       (int)t->pid, (int)t->pid);
    int rc = t->directory[0] != '\0' ? token_read(t->directory, token) : 0;
    if (rc < 0)
        return rc;
    if (t->directory[0] == '\0' && given != NULL)
        (void)snprintf(token, sizeof(token), "%s", given);
    printf("%s%s%s\n", page, token[0] != '\0' ? "?token=" : "", token);
    return EXIT_DONE;
}

static int parse_option(void *arg, const char *option, const char *value)
{
    if (option == NULL)
        return err_set(-EINVAL, "ui takes no argument '%s'", value);
    *(bool *)arg = true; /* --open */
    return 0;
}

int command_ui(struct target *t, int argc, char **argv)
{
    static const char *const words[] = {"config", "set", "server.listen", "127.0.0.1:0"};
    bool open = false;
    char page[300] = "";
    struct probing_client *c = NULL;
    struct buf answer;
    int rc = cli_parse(argc, argv, parse_option, &open);

    if (rc == 0 && (open || (t->kind != TARGET_LIVE && !t->stopped)))
        rc = target_connect(t, &c); /* it says why not */
    if (rc == 0)
        rc = find_page(t, page, sizeof(page));
    buf_init(&answer, ANSWER_BYTES);
    if (rc == 0 && open && page[0] == '\0' && (rc = client_command(c, 4, words, &answer)) == 0)
        rc = find_page(t, page, sizeof(page));
    buf_done(&answer);
    probing_client_free(c);
    return rc < 0 ? rc : print_page(t, page);
}
