/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/package_api/coordinates.h - rank, step and role of the process, for our rows.
 */
#ifndef PYTHON_PACKAGE_API_COORDINATES_H
#define PYTHON_PACKAGE_API_COORDINATES_H

#include <probing/ext/draft/coordinates.h>

extern const struct probing_python_coordinates_1 coordinates_part;

/* As the environment has them, where nothing is known yet.  With the GIL. */
void coordinates_read(void);
void coordinates_put(union probing_cell *cells); /* PROBING_COORDINATES of them         [any] */
void coordinates_forked(void);                   /*                                   [child] */

#endif
