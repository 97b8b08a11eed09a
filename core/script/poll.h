/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/poll.h - the place in Lua's own code where a script can be ended or made to wait.
 *
 * Included before each file of Lua's (scripts/tools/deps.py), and by script.c.  The memory in front
 * of each lua_State is the script's pointer, and a script begins with its flag `poll`: not zero,
 * somebody wants something of it.  What that is, script_polled() finds out; it may not come back.
 * `lua_lock` is Lua's name for what is done whenever its API is entered; where Lua runs long
 * without that, scripts/tools/lua_mends.py has put a script_poll() of its own.
 */
#ifndef CORE_SCRIPT_POLL_H
#define CORE_SCRIPT_POLL_H

struct lua_State;
void script_polled(struct lua_State *L);

static inline __attribute__((always_inline, unused)) void script_poll(struct lua_State *L)
{
    const int *flag = *(const int *const *)((const char *)L - sizeof(void *));
    if (__builtin_expect(__atomic_load_n(flag, __ATOMIC_RELAXED) != 0, 0))
        script_polled(L);
}

#define lua_lock(L) script_poll(L)
#define lua_unlock(L) ((void)0)

#endif
