/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/note.h - "probing.note/1", by the core: what a plugin that runs has to say of
 * itself, such as what it could not do here.  probing.plugins shows it as the reason.
 *
 * Draft: may change until two plugins use it; the id stays.
 */
#ifndef PROBING_EXT_NOTE_H
#define PROBING_EXT_NOTE_H

#include <stdint.h>

#include <probing/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_NOTE_1 "probing.note/1"

struct probing_note_1 {
    uint32_t size, reserved;
    /* One line in place of what was there; "": nothing.  It is copied.                  [any] */
    void (*set)(const struct probing_host *h, const char *text);
};

#ifdef __cplusplus
}
#endif
#endif
