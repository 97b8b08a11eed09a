/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/token.h - the token that a relay which listens wants, and that who comes there shows.
 *
 * One thread.
 */
#ifndef CLI_LINK_TOKEN_H
#define CLI_LINK_TOKEN_H

#include <stdbool.h>
#include <stddef.h>

/* Read the token of a file, else PROBING_TOKEN, else the file of PROBING_TOKEN_FILE; "": none. */
int link_token(const char *file, char *ret, size_t size);
/* All of it is compared, however soon it differs. */
bool token_is(const char *token, const char *shown);

#endif
