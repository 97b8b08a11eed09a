/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/export/export_tracks.h - what plugins declare for the time line of a trace (struct
 * probing_track).
 *
 * One thread.
 */
#ifndef CLI_COMMANDS_EXPORT_EXPORT_TRACKS_H
#define CLI_COMMANDS_EXPORT_EXPORT_TRACKS_H

#include <stdint.h>

struct export_tracks {
    const char *names; /* "kernels,steps"; NULL: all */
    uint64_t last_ns;  /* 0: from the first event on */
    /* name: lives until all are through.  -ENOENT: what it is of is not there; on with the next. */
    int (*each)(void *arg, const char *name, const char *statement);
    void *arg;
};

/* Each track that the target has, in the order of its plugins.  -ENOENT: it has none. */
struct target;
int export_tracks_each(const struct target *t, const struct export_tracks *wanted);

#endif
