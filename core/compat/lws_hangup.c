/* SPDX-License-Identifier: Apache-2.0
 *
 * core/compat/lws_hangup.c - a websocket client that hung up while a frame to it was half sent is
 * closed at once.
 *
 * libwebsockets 4.1.6 wants to flush the rest first, and does so without going back to poll():
 * lws_service_fd_tsi() says "closed, look at this slot again", the slot still shows the end of the
 * stream, and the two go round for ever (lib/plat/unix/unix-service.c, lib/core-net/close.c).  Can
 * go when the oldest version that we build with clears revents there.
 *
 * Threads: the server's loop.  Part of all that holds a server, by --wrap=lws_close_free_wsi.
 */
#include <libwebsockets.h>
#include <stdbool.h>
#include <sys/socket.h>

void __real_lws_close_free_wsi(struct lws *wsi, enum lws_close_status reason, const char *caller);
void __wrap_lws_close_free_wsi(struct lws *wsi, enum lws_close_status reason, const char *caller);

static bool has_hung_up(struct lws *wsi)
{
    char byte;
    int fd = lws_get_socket_fd(wsi);
    return fd != -1 && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

void __wrap_lws_close_free_wsi(struct lws *wsi, enum lws_close_status reason, const char *caller)
{
    if (wsi && lws_partial_buffered(wsi) && has_hung_up(wsi))
        reason = LWS_CLOSE_STATUS_NOSTATUS_CONTEXT_DESTROY; /* no flushing, no goodbye */
    __real_lws_close_free_wsi(wsi, reason, caller);
}
