/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/script.h - probe scripts in Lua 5.4: each its own state on its own thread.
 *
 * Isolated from the user's Python by construction; only safe libraries (no io, os.execute, require,
 * debug, loading of binary chunks).  The API a script sees is described in docs/lua.md.
 */
#ifndef CORE_SCRIPT_SCRIPT_H
#define CORE_SCRIPT_SCRIPT_H

#include <stddef.h>
#include <stdint.h>

struct host;
struct sql;
struct scripts;

struct scripts_options {
    struct host *host;
    struct sql *sql;
    /* as host_store.table_add and intern, for probing.table() */
    const struct host_store *store;
    const char *version;
};

int scripts_new(const struct scripts_options *o,
                struct scripts **ret); /* adds command `script` and table probing.scripts */
void scripts_free(struct scripts *s);  /* stops all, joins */

/* Start a script; `name` ^[a-z][a-z0-9_]*$.  -EINVAL with Lua's own message.        [worker] */
int scripts_run(struct scripts *s, const char *name, const char *source, size_t size);
/* The same, but its lines have to run within `limit_ns`, or it is stopped: -ETIMEDOUT. */
int scripts_run_within(struct scripts *s, const char *name, const char *source, size_t size,
                       uint64_t limit_ns);
/* -ENOENT; 1: its function of at_stop did not run, as the script was busy.             [worker] */
int scripts_stop(struct scripts *s, const char *name);

#endif
