/* SPDX-License-Identifier: Apache-2.0
 *
 * core/core.h - all parts of the core in one struct: what core/runtime makes and core/builtin ask.
 *
 * There is one a process, and it lives in core/runtime/lifecycle.c.
 */
#ifndef CORE_CORE_H
#define CORE_CORE_H

#include <pthread.h>
#include <stdbool.h>

#include "core/datadir/own_dir.h"

struct config;
struct crash;
struct event;
struct host;
struct scripts;
struct server;
struct sql;
struct store;
struct tables;

struct core {
    struct tables *tables;
    struct store *store;
    struct sql *sql;
    struct host *host;
    struct scripts *scripts;
    struct server *server;
    struct crash *crash;
    struct own_dir place;
    struct config *config;
    int home_fd;   /* keeps `home` locked; -1: none */
    bool follower; /* this life began with a fork */
    pthread_t plugin_thread;
    bool plugin_thread_made;
    _Atomic bool plugins_come; /* `plugins` are being loaded; read in a child that is followed */
    struct event *plugins_loaded;
    struct event *again; /* woken for host_plugins_again() and host_watch() */
    char plugins[1024];  /* to load at the start, with ',' between */
    const char *version;
    void (*stop)(void *arg); /* ask for the end; returns at once */
    void *stop_arg;
};

#endif
