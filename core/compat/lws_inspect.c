/* SPDX-License-Identifier: Apache-2.0
 *
 * core/compat/lws_inspect.c - bytes of a websocket client are shown to the server before they are
 * used.
 *
 * libwebsockets 4.1.6 takes frames without a mask from a client, which RFC 6455 (5.1) tells a
 * server to refuse, and answers any number of pings; it has no option for either (lib/roles/ws/
 * ops-ws.c).  So what it has read from a socket goes to the protocol's callback as
 * LWS_CALLBACK_USER; a negative answer closes the connection.  Can go when it can be told to.
 *
 * Threads: the server's loop.  Part of all that holds a server, by
 * --wrap=lws_ssl_capable_read_no_ssl.
 */
#include <libwebsockets.h>

int __real_lws_ssl_capable_read_no_ssl(struct lws *wsi, unsigned char *buf, int size);
int __wrap_lws_ssl_capable_read_no_ssl(struct lws *wsi, unsigned char *buf, int size);

int __wrap_lws_ssl_capable_read_no_ssl(struct lws *wsi, unsigned char *buf, int size)
{
    int n = __real_lws_ssl_capable_read_no_ssl(wsi, buf, size);
    const struct lws_protocols *p = n > 0 ? lws_get_protocol(wsi) : NULL;
    if (p && p->callback(wsi, LWS_CALLBACK_USER, lws_wsi_user(wsi), buf, (size_t)n) < 0)
        return -1; /* as if the socket were broken */
    return n;
}
