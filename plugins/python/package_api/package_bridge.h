/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/package_api/package_bridge.h - what `import probing` gets from the plugin while it
 * runs.
 *
 * The package's functions in C are called by the user's threads at any time, also after the plugin
 * has stopped: each begins with offer_enter().
 */
#ifndef PYTHON_PACKAGE_API_PACKAGE_BRIDGE_H
#define PYTHON_PACKAGE_API_PACKAGE_BRIDGE_H

#include <stdbool.h>

struct plugin;

/* May the core's functions be called?  If so they may until offer_leave().  [any] */
bool offer_enter(void);
void offer_leave(void);
bool offer_ends(
    void); /* stop() waits for those inside                                      [any] */

int offer_init(struct plugin *p); /* [control] */
/* Have the interpreter hand it over when its main thread comes by; nobody waits for that. */
void offer_start(struct plugin *p);
/* The same at once, and wait for the tables that the program has declared.  With the GIL. */
void offer_now(bool tables_too);
int offer_stop(struct plugin *p); /* -EBUSY: somebody is inside */
void offer_forked(void);          /* [child] */

#endif
