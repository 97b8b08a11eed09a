/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/auth_token.h - the token that a core asks its clients for, and the address of its
 * page.
 *
 * One thread.
 */
#ifndef CLI_TARGET_AUTH_TOKEN_H
#define CLI_TARGET_AUTH_TOKEN_H

#include <stddef.h>

struct datadir;

#define TOKEN_BYTES 256
/* For client_new(): the token of the process at the other end of a connection, when that is
 * proved and we may read it; NULL: none is known.  room: TOKEN_BYTES, may hold it. */
const char *token_of_peer(void *room, int fd);
int token_read(const char *directory, char *ret); /* ret: TOKEN_BYTES */

/* "http://127.0.0.1:9922/", the page of the core whose directory it is; "": it does not listen. */
void page_read(const struct datadir *d, char *ret, size_t size);
/* The same of an address that a core listens on. */
void page_of(const char *address, char *ret, size_t size);

#endif
