/* SPDX-License-Identifier: Apache-2.0
 *
 * core/compat/libc_start.c - how the probing command starts on a glibc older than its builder's.
 * Threads: the first one, before main().
 * Not part of libprobing.so, which has no start of its own.
 *
 * Since glibc 2.34 a program's start file asks for a new __libc_start_main and leaves the running
 * of constructors to it.  The old one, which every glibc has, wants to be told how; so a release
 * sends the start file here (builders.py).  Can go when the floor is 2.34.
 */
#if defined(__x86_64__)
__asm__(".symver old_start, __libc_start_main@GLIBC_2.2.5");
#else
__asm__(".symver old_start, __libc_start_main@GLIBC_2.17");
#endif

typedef int main_function(int argc, char **argv, char **environment);

int old_start(main_function *program, int argc, char **argv, main_function *init,
              void (*fini)(void), void (*loader_fini)(void), void *stack_end);
int floor___libc_start_main(main_function *program, int argc, char **argv, main_function *init,
                            void (*fini)(void), void (*loader_fini)(void), void *stack_end);

/* The linker's names for the table of constructors. */
extern main_function *__init_array_start[] __attribute__((visibility("hidden")));
extern main_function *__init_array_end[] __attribute__((visibility("hidden")));

static int run_constructors(int argc, char **argv, char **environment)
{
    for (main_function **next = __init_array_start; next < __init_array_end; next++)
        (void)(*next)(argc, argv, environment);
    return 0;
}

int floor___libc_start_main(main_function *program, int argc, char **argv, main_function *init,
                            void (*fini)(void), void (*loader_fini)(void), void *stack_end)
{
    return old_start(program, argc, argv, init ? init : run_constructors, fini, loader_fini,
                     stack_end);
}
