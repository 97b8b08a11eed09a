/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/package_api/user_tables.h - the tables that the program writes:
 * probing.table().
 */
#ifndef PYTHON_PACKAGE_API_USER_TABLES_H
#define PYTHON_PACKAGE_API_USER_TABLES_H

#include "cpython.h"

struct plugin;

int written_init(struct plugin *p);
void written_wake(void); /* those who wait for a table to be made: we leave */
/* Tables that the program had declared before probing came are made by [control]: code of a client
 * that appends to one finds it there, unless that takes seconds.  With the GIL, which is let go
 * meanwhile. */
void written_wait_all(void);
/* 1: there may be some, somebody is about to ask for them; -1: he has.  With the GIL, which he may
 * lose in between. */
void written_expect(int change);

extern struct cpython_method written_natives[]; /* for the package */

#endif
