/* SPDX-License-Identifier: Apache-2.0
 *
 * core/compat/lws_adopt.c - a socket that the server takes in does not wake up the server.
 *
 * libwebsockets 4.1.6 writes into its own pipe for each socket that is adopted, so that poll() is
 * called anew with it (lib/core-net/adopt.c).  All that has a wsi is done by the loop's thread, or
 * before there is one: poll() comes next in any case, and would only come back for the pipe, twice
 * a connection.  What other threads have to say goes by lws_cancel_service(), which is left alone.
 *
 * Threads: the server's loop.  Part of all that holds a server, by --wrap=lws_cancel_service_pt.
 */
#include <libwebsockets.h>

void __wrap_lws_cancel_service_pt(struct lws *wsi);

void __wrap_lws_cancel_service_pt(struct lws *wsi)
{
    (void)wsi;
}
