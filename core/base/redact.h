/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/redact.h - what in a text is nobody else's business: values by the names they go under,
 * and by their own shapes.
 *
 * Any thread.  Asked for everything that is shown to clients who may only read.  It is a guess, and
 * rather hides too much: a secret under a harmless name and of no known shape is not found.
 */
#ifndef CORE_BASE_REDACT_H
#define CORE_BASE_REDACT_H

#include <stdbool.h>
#include <stddef.h>

#include "sdk/lib/buf.h"

#define SECRET_SHOWN "***"

/* "HF_TOKEN", "server.password", "aws-access-key". */
bool secret_name(const char *name, size_t n);
/* The same without those that are as often the names of something else: token, key, auth. */
bool secret_name_surely(const char *name, size_t n);
/* Add the value as it may be shown: SECRET_SHOWN for a secret's name and for such as MYSQL_PWD and
 * SMTP_PASS, else as secret_text(). 0, or what buf_add() gives. */
int secret_show(const char *name, size_t name_n, const char *value, struct buf *ret);
/* Add a text in which SECRET_SHOWN stands in the place of
 * - what is assigned to a secret's name: password='x', "api_key": "x", --token x, Cookie: x, in
 *   code, JSON (also in a string of JSON), dictionaries, headers and command lines;
 * - passwords in URLs, PEM private keys, JSON web tokens, and the keys of services that are known
 *   by their beginning (AKIA, ghp_, sk- ...).
 * Quotes stay where they are, so that JSON stays JSON.  1: something was hidden, 0: nothing, or
 * what buf_add() gives. */
int secret_text(const char *text, size_t n, struct buf *ret);
/* For a text that comes in pieces: how many bytes from its beginning can be looked through without
 * the rest, whole lines outside of PEM keys. */
size_t secret_whole(const char *text, size_t n);

#endif
