/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/http.h - between the HTTP connection (http.c) and the paths it serves
 * (http_routes.c).
 *
 * Loop only; private to core/server.
 */
#ifndef CORE_SERVER_HTTP_H
#define CORE_SERVER_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "core/server/message.h"

struct connection;
struct route;

/* ---- http.c: answers that are there at once ---- */
void server_http_whole(struct connection *p, int status, const char *type, const char *body,
                       size_t n);
void server_http_see(struct connection *p, const char *path); /* 303: look there instead */

/* ---- http_routes.c ---- */
const struct route *server_route_find(const struct http_request *r); /* NULL: no such path */
bool server_route_takes(const struct route *route, const struct http_request *r);
const char *server_route_methods(const struct route *route); /* "GET, POST" */
/* Answer, or start the command whose answer will come.  0, or what is wrong with the request. */
int server_route_run(struct connection *p, const struct route *route, const struct http_request *r,
                     struct slice body);

#endif
