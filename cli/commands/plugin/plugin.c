/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/plugin/plugin.c - `plugin`: list, load, stop and check plugins.
 *
 * One thread.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/commands/plugin/plugin_check.h"
#include "cli/target/declarations.h"
#include "cli/target/installed.h"
#include "cli/target/live_run.h"
#include "cli/target/plugin_door.h"
#include "cli/target/query_client.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "core/base/err.h"
#include "core/base/text.h"

/* "torch", "./my_plugin.so": name and file.  -ENOENT: we have no such file (the target may). */
static int plugin_file(const char *word, char *name, size_t name_size, char *file, size_t file_size)
{
    const char *slash = strrchr(word, '/'), *leaf = slash != NULL ? slash + 1 : word;
    size_t n = strlen(leaf);

    if (n > 3 && strcmp(leaf + n - 3, ".so") == 0) {
        /* The plugin says its own name; the file's is only for messages. */
        const char *bare = strncmp(leaf, "probing_", 8) == 0 ? leaf + 8 : leaf;
        (void)snprintf(name, name_size, "%.*s", (int)(strlen(bare) - 3), bare);
        (void)snprintf(file, file_size, "%s", word);
        return access(word, R_OK) == 0
                   ? 0
                   : err_set(-errno, "cannot read the plugin %s: %s", word, strerror(errno));
    }
    if (!text_is_name(word))
        return err_set(
            -EINVAL,
            "'%s' is neither the name of a plugin (lower-case letters, digits, _) nor a .so file",
            word);
    (void)snprintf(name, name_size, "%s", word);
    return plugin_find(word, file, file_size);
}

/* By its name in the target's own path: what ended the connection was asked for by us. */
static int load_there(struct target *t, const char *name)
{
    const char *words[] = {"plugin", "load", name};
    char why[ERR_TEXT_BYTES - 80];
    int rc = live_run(t, 3, words);

    if (rc != -ECONNRESET && rc != -ESTALE)
        return rc;
    (void)snprintf(why, sizeof(why), "%s", err_text());
    return err_set(rc, "plugin %s could not be loaded: %s", name, why);
}

static int load_plugin(struct target *t, const char *word)
{
    char name[64], file[4096], note[ERR_TEXT_BYTES];
    const char *const words[] = {"plugin", "load", word};

    if (t->there != NULL) { /* for `performance`; the command itself runs there as a whole */
        int done = remote_command(t, 3, words);
        if (done == 0)
            printf("plugin %s loaded\n", word);
        return done;
    }
    int rc = plugin_file(word, name, sizeof(name), file, sizeof(file));

    if (rc == -ENOENT && strchr(word, '/') == NULL) {
        rc = load_there(t, word); /* we have none: the target's own path may */
        return rc == -ENOENT ? installed_plugin_near(word, rc) : rc;
    }
    if (rc < 0)
        return rc;
    if (t->host[0] != '\0') /* a remote process may load only what is in its own plugin path */
        return load_there(t, name);
    rc = upload_plugin(t, name, file, note, sizeof(note));
    if (rc == -EALREADY && strchr(word, '/') == NULL) { /* a file may be another one */
        printf("plugin %s is loaded already\n", name);
        return EXIT_DONE;
    }
    if (rc < 0)
        return rc;
    printf("plugin %s loaded%s%s\n", name, note[0] != '\0' ? ": " : "", note);
    return EXIT_DONE;
}

static int check_file(int argc, char **argv)
{
    char name[64], file[4096];

    if (argc == 3 && strcmp(argv[2], "--inside") == 0)
        return plugin_check_inside();
    bool program = argc > 4 && strcmp(argv[3], "--") == 0;
    if (argc != 3 && !program)
        return cli_misuse(
            err_set(-EINVAL, "plugin check needs a file: plugin check FILE [-- PROGRAM ...]"));
    int rc = plugin_file(argv[2], name, sizeof(name), file, sizeof(file));
    return rc < 0 ? rc : plugin_check(name, file, program ? argv + 4 : NULL);
}

static int stop_plugin(struct target *t, const char *name)
{
    const char *words[] = {"plugin", "stop", name};
    return live_run(t, 3, words);
}

/* In their order, up to the first that fails. */
static int for_each_name(struct target *t, int n, char **names,
                         int (*act)(struct target *t, const char *name))
{
    struct probing_client *probe = NULL; /* says first, in one line, when nobody is there */
    int rc = 0;

    if (t->kind != TARGET_LIVE)
        return target_connect(t, &probe);
    for (int i = 0; i < n && rc == 0; i++)
        rc = act(t, names[i]);
    return rc;
}

int command_plugin(struct target *t, int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "check") == 0)
        return check_file(argc, argv);
    if (t->kind == TARGET_NONE)
        return cli_misuse(err_set(-EINVAL,
                                  "plugin needs a target: probing -t <pid> plugin %s (`probing "
                                  "list` shows processes with a core)",
                                  argc > 1 ? argv[1] : "list"));
    /* `load NAME PATH` is the core's own, of a file there. */
    bool by_path = argc == 4 && strchr(argv[2], '/') == NULL && strchr(argv[3], '/') != NULL;
    if (argc >= 3 && strcmp(argv[1], "load") == 0 && !by_path)
        return for_each_name(t, argc - 2, argv + 2, load_plugin);
    if (argc > 3 && strcmp(argv[1], "stop") == 0)
        return for_each_name(t, argc - 2, argv + 2, stop_plugin);
    if (argc >= 2 && strcmp(argv[1], "list") == 0)
        return live_list(t, argc, argv,
                         "select name, version, state, reason, doc, path from probing.plugins "
                         "order by name");
    return live_run(t, argc, (const char *const *)argv);
}
