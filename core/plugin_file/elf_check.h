/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_file/elf_check.h - is this file a plugin that the loader can take without harm?
 *
 * ld.so believes what it maps: a table that lies outside of the file, a hash table without an end
 * or a relocation that goes astray crash the process in which dlopen() was called.  So all that it
 * will read is looked at first.  What the plugin's own code does is not known before it runs.
 */
#ifndef CORE_PLUGIN_FILE_ELF_CHECK_H
#define CORE_PLUGIN_FILE_ELF_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLUGIN_SYMBOL "probing_plugin_v1"
#define REPORT_SYMBOL "probing_report_v1"

struct elf_facts {
    uint64_t used;      /* bytes from the front of the file that the loader needs */
    uint64_t plugin;    /* where in the file PLUGIN_SYMBOL stands, 0: it is not exported */
    uint64_t plugin_at; /* its address, when the file is mapped from 0 on */
    uint64_t report;    /* as plugin, of REPORT_SYMBOL: it brings commands (probing/report.h) */
    bool origin;        /* it looks for its libraries beside itself ($ORIGIN) */
    bool runs;          /* loading runs code of it: constructors, indirect functions */
    uint32_t n_needed;  /* libraries that it names */
};

/* 0, or -ENOEXEC with err_set(): what is wrong and what to do.  Any thread; `bytes` may not change
 * meanwhile. */
int elf_check(const void *bytes, size_t size, struct elf_facts *ret);

#endif
