/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/loaded_name.h - what the loader says that a library of ours is called.
 */
#ifndef CORE_GUEST_LOADED_NAME_H
#define CORE_GUEST_LOADED_NAME_H

/* A library that was loaded through a descriptor is "/proc/PID/fd/N" to the loader for good, and N
 * is soon a file of the program's, or none.  Whoever opens what dl_iterate_phdr() or a debugger is
 * told then reads from a pipe for ever, or fails: torch's snapshots of memory did.  So take that
 * name away: "" is a library without a file, as the kernel's own is.  Nothing happens to one that
 * was loaded by its path.  code: an address in it.                                      [any] */
void loaded_name_forget(const void *code);

#endif
