/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/relay_port.h - a relay that waits at a port, for who shows its token.
 *
 * One thread; a process for each who came.
 */
#ifndef CLI_RELAY_RELAY_PORT_H
#define CLI_RELAY_RELAY_PORT_H

/* address: "PORT", ":PORT" (of this machine only), "ADDR:PORT", "[v6]:PORT".  token_file: NULL, as
 * link_token() finds it; without one nothing is opened.  Until Ctrl-C or SIGTERM: 0, or -errno. */
int relay_listen(const char *address, const char *token_file);

#endif
