# SPDX-License-Identifier: Apache-2.0
"""What is changed in Lua's sources so that a script can be ended anywhere, not only between two
instructions: Lua 5.4's hooks are not called inside finalizers, message handlers and C functions.

core/script/poll.h is included before every file of Lua's and gives it script_poll(L), which looks
at one flag of the script.  It stands for `lua_lock`, which Lua calls at the start of each function
of its API, and after each C function; the mends below put it into the loops that call none.
Each was made for 5.4.4 and holds for 5.4.4 to 5.4.8; where a text is not found the build fails.
They can go when Lua itself can be interrupted inside C functions and finalizers.  Taken out one by
one, those for jumps, the beginning of functions, growing tables and rep of an empty text left
scripts of tests/hostile/lua that ran on for more than 12 s; those of the lexer and of goto half a
second; for those of the collector no script was found that needs them, and others were not tried.
"""
import os

# file, how often it stands there, what, what instead, why
MENDS = (
    ("lstate.c", 1, "  L = &l->l.l;\n  g = &l->g;\n",
     "  L = &l->l.l;\n  g = &l->g;\n  *(void **)lua_getextraspace(L) = ud;\n",
     "script_poll() finds the script, which is the allocator's argument, from the start"),
    ("lvm.c", 1, "#define updatetrap(ci)  (trap = ci->u.l.trap)",
     "#define updatetrap(ci)  (script_poll(L), trap = ci->u.l.trap)",
     "jumps back and calls, in finalizers and message handlers too"),
    ("lvm.c", 1, "  trap = L->hookmask;\n", "  script_poll(L);\n  trap = L->hookmask;\n",
     "a Lua function begins: recursion and tail calls"),
    ("lvm.c", 2, "  for (loop = 0; loop < MAXTAGLOOP; loop++) {\n",
     "  for (loop = 0; loop < MAXTAGLOOP; loop++) {\n    script_poll(L);\n",
     "2,000 tables' __index, each with keys that collide"),
    ("ltable.c", 1, "    Node *old = gnode(ot, j);\n",
     "    Node *old = gnode(ot, j);\n    script_poll(L);\n",
     "a table grows whose keys collide only then: quadratic"),
    ("lgc.c", 1, "  while (g->gray)\n    tot += propagatemark(g);\n",
     "  while (g->gray) {\n    script_poll(g->mainthread);\n    tot += propagatemark(g);\n  }\n",
     "the atomic phase marks what was written meanwhile"),
    ("lgc.c", 1, "      nw2black(h);  /* out of the list (for now) */\n",
     "      nw2black(h);  /* out of the list (for now) */\n      script_poll(g->mainthread);\n",
     "weak tables whose keys reach one another: quadratic"),
    ("lgc.c", 1, "  lua_assert(!g->gcstopem);  /* collector is not reentrant */\n",
     "  lua_assert(!g->gcstopem);\n  script_poll(L);\n", "a whole collection"),
    ("llex.c", 1, "  ls->lastline = ls->linenumber;\n  if (ls->lookahead",
     "  script_poll(ls->L);\n  ls->lastline = ls->linenumber;\n  if (ls->lookahead",
     "a large text is compiled"),
    ("lparser.c", 1, "  Labeldesc *gt = &gl->arr[g];  /* goto to be resolved */\n",
     "  Labeldesc *gt = &gl->arr[g];\n  script_poll(ls->L);\n",
     "32,000 goto to one label: quadratic"),
    ("lstrlib.c", 1, "    while (n-- > 1) {  /* first n-1 copies (followed by separator) */\n",
     "    while (n-- > 1) {\n      script_poll(L);\n", "rep of an empty text"),
    ("lstrlib.c", 1, "matchdepth-- == 0))\n    luaL_error(ms->L, \"pattern too complex\");\n",
     "matchdepth-- == 0))\n    luaL_error(ms->L, \"pattern too complex\");\n"
     "  script_poll(ms->L);\n", "patterns that explode"),
    ("lstrlib.c", 1, "      case '[': return matchbracketclass(c, p, ep-1);\n",
     "      case '[': script_poll(ms->L); return matchbracketclass(c, p, ep-1);\n",
     "a set of millions of letters held against each letter"),
    ("lstrlib.c", 1, "static const char *lmemfind (const char *s1,",
     "static const char *lmemfind (lua_State *L, const char *s1,", "for the one after the next"),
    ("lstrlib.c", 1, " = lmemfind(s + init,", " = lmemfind(L, s + init,", "for the next"),
    ("lstrlib.c", 1, "      init++;   /* 1st char is already checked */\n",
     "      init++;\n      script_poll(L);\n", "plain find of what is nearly there everywhere"),
    ("lstrlib.c", 1, "  while (len--) {\n    if (*s == '\"'",
     "  while (len--) {\n    script_poll(b->L);\n    if (*s == '\"'", "%q of a large text"),
    ("lstrlib.c", 1, "  KOption opt = getoption(h, fmt, psize);\n",
     "  KOption opt = getoption(h, fmt, psize);\n  script_poll(h->L);\n",
     "a format of pack with millions of options"),
    ("lutf8lib.c", 1, "  while (posi <= posj) {\n",
     "  while (posi <= posj) {\n    script_poll(L);\n", "utf8.len of a large text"),
)


def mend_lua(src, fail):
    """Change the sources in the folder `src`; fail(text) is called where they are not as known."""
    for name, times, old, new, why in MENDS:
        path = os.path.join(src, name)
        with open(path) as source:
            text = source.read()
        if text.count(old) != times:
            fail("%s of this Lua has %d times %r, not %d: scripts/tools/lua_mends.py must be made "
                 "for it (%s)" % (name, text.count(old), old, times, why))
        with open(path, "w") as out:
            out.write(text.replace(old, new))
