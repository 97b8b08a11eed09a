/* SPDX-License-Identifier: Apache-2.0
 *
 * Offsets in CPython's structures, made by cpython_offsets.py: do not edit.
 * From the headers of x86-64 builds; any thread reads it.
 */
/* threaded: 1: a free-threaded build */
/* rt_interpreters: _PyRuntime: first interpreter */
/* rt_gil: _PyRuntime: the GIL's struct, -1: each interpreter points to its own */
/* is_next: interpreter: next */
/* is_threads: interpreter: first thread state */
/* is_gil: interpreter: pointer to the GIL's struct, -1: in _PyRuntime */
/* gil_holder: GIL: last holder */
/* gil_locked: GIL: int, is it held */
/* ts_next: thread state: next */
/* ts_interp: thread state: its interpreter */
/* ts_thread_id: thread state: pthread_t */
/* ts_native_id: thread state: kernel's thread id, -1: not kept */
/* ts_frame: thread state: innermost frame, -1: by way of cframe */
/* ts_base: thread state: frame below the outermost one, no function's; -1: none */
/* ts_cframe: thread state: cframe, -1: none */
/* cf_frame: cframe: innermost frame */
/* f_code: frame: code object */
/* f_back: frame: caller */
/* f_instr: frame: position, an int index before 3.11, then an address */
/* f_owner: frame: byte, who owns it, -1: not kept */
/* f_entry: frame: byte, first frame of a call of the eval function (3.11), -1: not kept */
/* f_locals: frame: first local variable */
/* f_dict: frame: dict of a module's or class body's variables */
/* co_first_line: code: int, line of def */
/* co_file: code: str */
/* co_name: code: str */
/* co_qualname: code: str, -1: not kept */
/* co_lines: code: bytes, the line table */
/* co_version: code: a number that no other one has had, 0: none left; -1: not kept */
/* co_bytecode: code: first instruction, -1: not in the object */
/* co_local_names: code: tuple of str, names of the first locals */
/* co_n_locals: code: int, how many locals have a name */
/* co_cell_names: code: tuple of str, cells that follow the locals, -1: they are among them */
/* co_free_names: code: tuple of str, cells that follow those, -1: as above */
/* co_flags: code: int, the lowest bit: variables are in the frame, not in a dict */
/* tuple_items: tuple: first item */
/* list_items: list: pointer to the first item */
/* ob_type: object: its type */
/* ob_head: object: bytes of what all have; an int's, a float's, a dict's own words follow */
/* var_size: bytes, tuple, list: how many */
/* bytes_data: bytes: first byte */
/* str_length: str: how many characters */
/* str_state: str: word of flags */
/* str_kind: str: lowest of the three bits that tell the width of a character */
/* str_is_compact: str: the bit of one whose characters follow it */
/* str_is_ascii: str: the bit of one of ASCII only */
/* str_ascii: str: first character of an ASCII one */
/* str_compact: str: first character of another one */
/* is_modules: interpreter: sys.modules */
/* module_dict: module: its dict */
/* module_name: module: str */
/* function_name: function: str, its qualified name */
/* set_used: set: how many */
/* set_mask: set: places in its table, less one */
/* set_table: set: pointer to its table of keys and hashes */
/* error_args: exception: tuple */
/* dict_keys: dict: keys object */
/* dict_values: dict: values of a split dict, else NULL */
/* type_basic_size: type: size of an instance */
/* type_flags: type: Py_TPFLAGS_... */
/* type_base: type: what it is derived from first */
/* type_dict_offset: type: where an instance has its dict, 0 or less: elsewhere */
/* type_keys: heap type: keys that instances share */
/* managed_dict: instance: its dict, before it; 0: not kept there */
/* co_copies: code: the threads' own copies of the instructions, -1: none */
/* f_copy: frame: int, which of these it runs, -1: none */
/* frame_size: bytes of a frame that hold the fields above */

/* clang-format off */
static const struct offsets offsets_table[] = {
    { /* 3.8.18 */
        .minor = 8,
        .threaded = 0, .rt_interpreters = 32, .rt_gil = 1152, .is_next = 0,
        .is_threads = 8, .is_gil = -1, .gil_holder = 8, .gil_locked = 16,
        .ts_next = 8, .ts_interp = 16, .ts_thread_id = 176, .ts_native_id = -1,
        .ts_frame = 24, .ts_base = -1, .ts_cframe = -1, .cf_frame = -1,
        .f_code = 32, .f_back = 24, .f_instr = 104, .f_owner = -1,
        .f_entry = -1, .f_locals = 360, .f_dict = 56, .co_first_line = 40,
        .co_file = 104, .co_name = 112, .co_qualname = -1, .co_lines = 120,
        .co_version = -1, .co_bytecode = -1, .co_local_names = 72, .co_n_locals = 28,
        .co_cell_names = 88, .co_free_names = 80, .co_flags = 36, .tuple_items = 24,
        .list_items = 24, .ob_type = 8, .ob_head = 16, .var_size = 16,
        .bytes_data = 32, .str_length = 16, .str_state = 32, .str_kind = 2,
        .str_is_compact = 5, .str_is_ascii = 6, .str_ascii = 48, .str_compact = 72,
        .is_modules = 56, .module_dict = 16, .module_name = 48, .function_name = 104,
        .set_used = 24, .set_mask = 32, .set_table = 40, .error_args = 24,
        .dict_keys = 32, .dict_values = 40, .type_basic_size = 32, .type_flags = 168,
        .type_base = 256, .type_dict_offset = 288, .type_keys = 872, .managed_dict = 0,
        .co_copies = -1, .f_copy = -1, .frame_size = 108,
    },
    { /* 3.9.18 */
        .minor = 9,
        .threaded = 0, .rt_interpreters = 32, .rt_gil = 352, .is_next = 0,
        .is_threads = 8, .is_gil = -1, .gil_holder = 8, .gil_locked = 16,
        .ts_next = 8, .ts_interp = 16, .ts_thread_id = 176, .ts_native_id = -1,
        .ts_frame = 24, .ts_base = -1, .ts_cframe = -1, .cf_frame = -1,
        .f_code = 32, .f_back = 24, .f_instr = 104, .f_owner = -1,
        .f_entry = -1, .f_locals = 360, .f_dict = 56, .co_first_line = 40,
        .co_file = 104, .co_name = 112, .co_qualname = -1, .co_lines = 120,
        .co_version = -1, .co_bytecode = -1, .co_local_names = 72, .co_n_locals = 28,
        .co_cell_names = 88, .co_free_names = 80, .co_flags = 36, .tuple_items = 24,
        .list_items = 24, .ob_type = 8, .ob_head = 16, .var_size = 16,
        .bytes_data = 32, .str_length = 16, .str_state = 32, .str_kind = 2,
        .str_is_compact = 5, .str_is_ascii = 6, .str_ascii = 48, .str_compact = 72,
        .is_modules = 856, .module_dict = 16, .module_name = 48, .function_name = 104,
        .set_used = 24, .set_mask = 32, .set_table = 40, .error_args = 24,
        .dict_keys = 32, .dict_values = 40, .type_basic_size = 32, .type_flags = 168,
        .type_base = 256, .type_dict_offset = 288, .type_keys = 864, .managed_dict = 0,
        .co_copies = -1, .f_copy = -1, .frame_size = 108,
    },
    { /* 3.10.13 */
        .minor = 10,
        .threaded = 0, .rt_interpreters = 32, .rt_gil = 352, .is_next = 0,
        .is_threads = 8, .is_gil = -1, .gil_holder = 8, .gil_locked = 16,
        .ts_next = 8, .ts_interp = 16, .ts_thread_id = 176, .ts_native_id = -1,
        .ts_frame = 24, .ts_base = -1, .ts_cframe = -1, .cf_frame = -1,
        .f_code = 32, .f_back = 24, .f_instr = 96, .f_owner = -1,
        .f_entry = -1, .f_locals = 352, .f_dict = 56, .co_first_line = 40,
        .co_file = 104, .co_name = 112, .co_qualname = -1, .co_lines = 120,
        .co_version = -1, .co_bytecode = -1, .co_local_names = 72, .co_n_locals = 28,
        .co_cell_names = 88, .co_free_names = 80, .co_flags = 36, .tuple_items = 24,
        .list_items = 24, .ob_type = 8, .ob_head = 16, .var_size = 16,
        .bytes_data = 32, .str_length = 16, .str_state = 32, .str_kind = 2,
        .str_is_compact = 5, .str_is_ascii = 6, .str_ascii = 48, .str_compact = 72,
        .is_modules = 856, .module_dict = 16, .module_name = 48, .function_name = 40,
        .set_used = 24, .set_mask = 32, .set_table = 40, .error_args = 24,
        .dict_keys = 32, .dict_values = 40, .type_basic_size = 32, .type_flags = 168,
        .type_base = 256, .type_dict_offset = 288, .type_keys = 872, .managed_dict = 0,
        .co_copies = -1, .f_copy = -1, .frame_size = 100,
    },
    { /* 3.11.7, 3.11.2 */
        .minor = 11,
        .threaded = 0, .rt_interpreters = 40, .rt_gil = 360, .is_next = 0,
        .is_threads = 16, .is_gil = -1, .gil_holder = 8, .gil_locked = 16,
        .ts_next = 8, .ts_interp = 16, .ts_thread_id = 152, .ts_native_id = 160,
        .ts_frame = -1, .ts_base = -1, .ts_cframe = 56, .cf_frame = 8,
        .f_code = 32, .f_back = 48, .f_instr = 56, .f_owner = 69,
        .f_entry = 68, .f_locals = 72, .f_dict = 24, .co_first_line = 72,
        .co_file = 112, .co_name = 120, .co_qualname = 128, .co_lines = 136,
        .co_version = -1, .co_bytecode = 184, .co_local_names = 96, .co_n_locals = 76,
        .co_cell_names = -1, .co_free_names = -1, .co_flags = 48, .tuple_items = 24,
        .list_items = 24, .ob_type = 8, .ob_head = 16, .var_size = 16,
        .bytes_data = 32, .str_length = 16, .str_state = 32, .str_kind = 2,
        .str_is_compact = 5, .str_is_ascii = 6, .str_ascii = 48, .str_compact = 72,
        .is_modules = 888, .module_dict = 16, .module_name = 48, .function_name = 40,
        .set_used = 24, .set_mask = 32, .set_table = 40, .error_args = 24,
        .dict_keys = 32, .dict_values = 40, .type_basic_size = 32, .type_flags = 168,
        .type_base = 256, .type_dict_offset = 288, .type_keys = 872, .managed_dict = -24,
        .co_copies = -1, .f_copy = -1, .frame_size = 72,
    },
    { /* 3.12.1 */
        .minor = 12,
        .threaded = 0, .rt_interpreters = 40, .rt_gil = -1, .is_next = 0,
        .is_threads = 72, .is_gil = 384, .gil_holder = 8, .gil_locked = 16,
        .ts_next = 8, .ts_interp = 16, .ts_thread_id = 136, .ts_native_id = 144,
        .ts_frame = -1, .ts_base = -1, .ts_cframe = 56, .cf_frame = 0,
        .f_code = 0, .f_back = 8, .f_instr = 56, .f_owner = 70,
        .f_entry = -1, .f_locals = 72, .f_dict = 40, .co_first_line = 68,
        .co_file = 112, .co_name = 120, .co_qualname = 128, .co_lines = 136,
        .co_version = 92, .co_bytecode = 192, .co_local_names = 96, .co_n_locals = 72,
        .co_cell_names = -1, .co_free_names = -1, .co_flags = 48, .tuple_items = 24,
        .list_items = 24, .ob_type = 8, .ob_head = 16, .var_size = 16,
        .bytes_data = 32, .str_length = 16, .str_state = 32, .str_kind = 2,
        .str_is_compact = 5, .str_is_ascii = 6, .str_ascii = 40, .str_compact = 56,
        .is_modules = 944, .module_dict = 16, .module_name = 48, .function_name = 40,
        .set_used = 24, .set_mask = 32, .set_table = 40, .error_args = 24,
        .dict_keys = 32, .dict_values = 40, .type_basic_size = 32, .type_flags = 168,
        .type_base = 256, .type_dict_offset = 288, .type_keys = 880, .managed_dict = -24,
        .co_copies = -1, .f_copy = -1, .frame_size = 72,
    },
    { /* 3.13.0, 3.13.18 */
        .minor = 13,
        .threaded = 0, .rt_interpreters = 632, .rt_gil = -1, .is_next = 7264,
        .is_threads = 7344, .is_gil = 16, .gil_holder = 8, .gil_locked = 16,
        .ts_next = 8, .ts_interp = 16, .ts_thread_id = 152, .ts_native_id = 160,
        .ts_frame = 72, .ts_base = -1, .ts_cframe = -1, .cf_frame = -1,
        .f_code = 0, .f_back = 8, .f_instr = 56, .f_owner = 70,
        .f_entry = -1, .f_locals = 72, .f_dict = 40, .co_first_line = 68,
        .co_file = 112, .co_name = 120, .co_qualname = 128, .co_lines = 136,
        .co_version = 92, .co_bytecode = 200, .co_local_names = 96, .co_n_locals = 72,
        .co_cell_names = -1, .co_free_names = -1, .co_flags = 48, .tuple_items = 24,
        .list_items = 24, .ob_type = 8, .ob_head = 16, .var_size = 16,
        .bytes_data = 32, .str_length = 16, .str_state = 32, .str_kind = 2,
        .str_is_compact = 5, .str_is_ascii = 6, .str_ascii = 40, .str_compact = 56,
        .is_modules = 7656, .module_dict = 16, .module_name = 48, .function_name = 40,
        .set_used = 24, .set_mask = 32, .set_table = 40, .error_args = 24,
        .dict_keys = 32, .dict_values = 40, .type_basic_size = 32, .type_flags = 168,
        .type_base = 256, .type_dict_offset = 288, .type_keys = 880, .managed_dict = -24,
        .co_copies = -1, .f_copy = -1, .frame_size = 72,
    },
    { /* 3.13.18t */
        .minor = 13,
        .threaded = 1, .rt_interpreters = 632, .rt_gil = -1, .is_next = 7264,
        .is_threads = 7344, .is_gil = 16, .gil_holder = 16, .gil_locked = 24,
        .ts_next = 8, .ts_interp = 16, .ts_thread_id = 152, .ts_native_id = 160,
        .ts_frame = 72, .ts_base = -1, .ts_cframe = -1, .cf_frame = -1,
        .f_code = 0, .f_back = 8, .f_instr = 56, .f_owner = 70,
        .f_entry = -1, .f_locals = 72, .f_dict = 40, .co_first_line = 84,
        .co_file = 128, .co_name = 136, .co_qualname = 144, .co_lines = 152,
        .co_version = 108, .co_bytecode = 216, .co_local_names = 112, .co_n_locals = 88,
        .co_cell_names = -1, .co_free_names = -1, .co_flags = 64, .tuple_items = 40,
        .list_items = 40, .ob_type = 24, .ob_head = 32, .var_size = 32,
        .bytes_data = 48, .str_length = 32, .str_state = 48, .str_kind = 2,
        .str_is_compact = 5, .str_is_ascii = 6, .str_ascii = 56, .str_compact = 72,
        .is_modules = 7664, .module_dict = 32, .module_name = 64, .function_name = 56,
        .set_used = 40, .set_mask = 48, .set_table = 56, .error_args = 40,
        .dict_keys = 48, .dict_values = 56, .type_basic_size = 48, .type_flags = 184,
        .type_base = 272, .type_dict_offset = 304, .type_keys = 896, .managed_dict = -8,
        .co_copies = -1, .f_copy = -1, .frame_size = 72,
    },
    { /* 3.14.10 */
        .minor = 14,
        .threaded = 0, .rt_interpreters = 808, .rt_gil = -1, .is_next = 7272,
        .is_threads = 7344, .is_gil = 16, .gil_holder = 8, .gil_locked = 16,
        .ts_next = 8, .ts_interp = 16, .ts_thread_id = 152, .ts_native_id = 160,
        .ts_frame = 72, .ts_base = -1, .ts_cframe = -1, .cf_frame = -1,
        .f_code = 0, .f_back = 8, .f_instr = 56, .f_owner = 74,
        .f_entry = -1, .f_locals = 80, .f_dict = 40, .co_first_line = 68,
        .co_file = 112, .co_name = 120, .co_qualname = 128, .co_lines = 136,
        .co_version = 92, .co_bytecode = 208, .co_local_names = 96, .co_n_locals = 72,
        .co_cell_names = -1, .co_free_names = -1, .co_flags = 48, .tuple_items = 32,
        .list_items = 24, .ob_type = 8, .ob_head = 16, .var_size = 16,
        .bytes_data = 32, .str_length = 16, .str_state = 32, .str_kind = 2,
        .str_is_compact = 5, .str_is_ascii = 6, .str_ascii = 40, .str_compact = 56,
        .is_modules = 7688, .module_dict = 16, .module_name = 48, .function_name = 40,
        .set_used = 24, .set_mask = 32, .set_table = 40, .error_args = 24,
        .dict_keys = 32, .dict_values = 40, .type_basic_size = 32, .type_flags = 168,
        .type_base = 256, .type_dict_offset = 288, .type_keys = 880, .managed_dict = -24,
        .co_copies = -1, .f_copy = -1, .frame_size = 80,
    },
    { /* 3.14.10t */
        .minor = 14,
        .threaded = 1, .rt_interpreters = 808, .rt_gil = -1, .is_next = 7272,
        .is_threads = 7344, .is_gil = 16, .gil_holder = 16, .gil_locked = 24,
        .ts_next = 8, .ts_interp = 16, .ts_thread_id = 152, .ts_native_id = 160,
        .ts_frame = 72, .ts_base = -1, .ts_cframe = -1, .cf_frame = -1,
        .f_code = 0, .f_back = 8, .f_instr = 56, .f_owner = 78,
        .f_entry = -1, .f_locals = 80, .f_dict = 40, .co_first_line = 84,
        .co_file = 128, .co_name = 136, .co_qualname = 144, .co_lines = 152,
        .co_version = 108, .co_bytecode = 232, .co_local_names = 112, .co_n_locals = 88,
        .co_cell_names = -1, .co_free_names = -1, .co_flags = 64, .tuple_items = 48,
        .list_items = 40, .ob_type = 24, .ob_head = 32, .var_size = 32,
        .bytes_data = 48, .str_length = 32, .str_state = 48, .str_kind = 8,
        .str_is_compact = 11, .str_is_ascii = 12, .str_ascii = 56, .str_compact = 72,
        .is_modules = 7712, .module_dict = 32, .module_name = 64, .function_name = 56,
        .set_used = 40, .set_mask = 48, .set_table = 56, .error_args = 40,
        .dict_keys = 48, .dict_values = 56, .type_basic_size = 48, .type_flags = 184,
        .type_base = 272, .type_dict_offset = 304, .type_keys = 896, .managed_dict = -8,
        .co_copies = 224, .f_copy = 72, .frame_size = 80,
    },
    { /* 3.15.2 */
        .minor = 15,
        .threaded = 0, .rt_interpreters = 936, .rt_gil = -1, .is_next = 7264,
        .is_threads = 7336, .is_gil = 16, .gil_holder = 8, .gil_locked = 16,
        .ts_next = 8, .ts_interp = 16, .ts_thread_id = 176, .ts_native_id = 184,
        .ts_frame = 72, .ts_base = 80, .ts_cframe = -1, .cf_frame = -1,
        .f_code = 0, .f_back = 8, .f_instr = 56, .f_owner = 74,
        .f_entry = -1, .f_locals = 80, .f_dict = 40, .co_first_line = 68,
        .co_file = 112, .co_name = 120, .co_qualname = 128, .co_lines = 136,
        .co_version = 92, .co_bytecode = 208, .co_local_names = 96, .co_n_locals = 72,
        .co_cell_names = -1, .co_free_names = -1, .co_flags = 48, .tuple_items = 32,
        .list_items = 24, .ob_type = 8, .ob_head = 16, .var_size = 16,
        .bytes_data = 32, .str_length = 16, .str_state = 32, .str_kind = 2,
        .str_is_compact = 5, .str_is_ascii = 6, .str_ascii = 40, .str_compact = 56,
        .is_modules = 7592, .module_dict = 16, .module_name = 40, .function_name = 40,
        .set_used = 24, .set_mask = 32, .set_table = 40, .error_args = 24,
        .dict_keys = 32, .dict_values = 40, .type_basic_size = 32, .type_flags = 168,
        .type_base = 256, .type_dict_offset = 288, .type_keys = 888, .managed_dict = -24,
        .co_copies = -1, .f_copy = -1, .frame_size = 80,
    },
    { /* 3.15.2t */
        .minor = 15,
        .threaded = 1, .rt_interpreters = 936, .rt_gil = -1, .is_next = 7264,
        .is_threads = 7336, .is_gil = 16, .gil_holder = 16, .gil_locked = 24,
        .ts_next = 8, .ts_interp = 16, .ts_thread_id = 176, .ts_native_id = 184,
        .ts_frame = 72, .ts_base = 80, .ts_cframe = -1, .cf_frame = -1,
        .f_code = 0, .f_back = 8, .f_instr = 56, .f_owner = 78,
        .f_entry = -1, .f_locals = 80, .f_dict = 40, .co_first_line = 84,
        .co_file = 128, .co_name = 136, .co_qualname = 144, .co_lines = 152,
        .co_version = 108, .co_bytecode = 232, .co_local_names = 112, .co_n_locals = 88,
        .co_cell_names = -1, .co_free_names = -1, .co_flags = 64, .tuple_items = 48,
        .list_items = 40, .ob_type = 24, .ob_head = 32, .var_size = 32,
        .bytes_data = 48, .str_length = 32, .str_state = 48, .str_kind = 8,
        .str_is_compact = 11, .str_is_ascii = 12, .str_ascii = 56, .str_compact = 72,
        .is_modules = 7592, .module_dict = 32, .module_name = 56, .function_name = 56,
        .set_used = 40, .set_mask = 48, .set_table = 56, .error_args = 40,
        .dict_keys = 48, .dict_values = 56, .type_basic_size = 48, .type_flags = 184,
        .type_base = 272, .type_dict_offset = 304, .type_keys = 904, .managed_dict = -8,
        .co_copies = 224, .f_copy = 72, .frame_size = 80,
    },
};

/* At which word of _Py_DebugOffsets each is published; 0: it is not. */
static const struct offsets offsets_words[] = {
    { /* 3.13 */
        .minor = 13,
        .rt_interpreters = 5, .is_next = 8, .is_threads = 9, .is_gil = 14,
        .ts_next = 21, .ts_interp = 22, .ts_thread_id = 24, .ts_native_id = 25,
        .ts_frame = 23, .f_code = 30, .f_back = 29, .f_instr = 31,
        .f_owner = 33, .f_locals = 32, .co_first_line = 39, .co_file = 35,
        .co_name = 36, .co_qualname = 37, .co_lines = 38, .co_bytecode = 43,
        .co_local_names = 41, .tuple_items = 51, .list_items = 54, .ob_type = 45,
        .ob_head = 44, .var_size = 52, .bytes_data = 66, .str_length = 69,
        .str_state = 68, .str_ascii = 70, .is_modules = 11, .dict_keys = 57,
        .dict_values = 58, .type_flags = 49, .frame_size = 32,
    },
    { /* 3.14 */
        .minor = 14,
        .rt_interpreters = 5, .is_next = 8, .is_threads = 9, .is_gil = 15,
        .ts_next = 24, .ts_interp = 25, .ts_thread_id = 27, .ts_native_id = 28,
        .ts_frame = 26, .f_code = 33, .f_back = 32, .f_instr = 34,
        .f_owner = 36, .f_locals = 35, .co_first_line = 44, .co_file = 40,
        .co_name = 41, .co_qualname = 42, .co_lines = 43, .co_bytecode = 48,
        .co_local_names = 46, .tuple_items = 57, .list_items = 60, .ob_type = 51,
        .ob_head = 50, .var_size = 58, .bytes_data = 76, .str_length = 79,
        .str_state = 78, .str_ascii = 80, .is_modules = 12, .set_used = 63,
        .set_mask = 65, .set_table = 64, .dict_keys = 67, .dict_values = 68,
        .type_flags = 55, .frame_size = 35,
    },
    { /* 3.15 */
        .minor = 15,
        .rt_interpreters = 5, .is_next = 8, .is_threads = 9, .is_gil = 15,
        .ts_next = 24, .ts_interp = 25, .ts_thread_id = 30, .ts_native_id = 31,
        .ts_frame = 26, .ts_base = 27, .f_code = 41, .f_back = 40,
        .f_instr = 42, .f_owner = 44, .f_locals = 43, .co_first_line = 52,
        .co_file = 48, .co_name = 49, .co_qualname = 50, .co_lines = 51,
        .co_bytecode = 56, .co_local_names = 54, .tuple_items = 69, .list_items = 72,
        .ob_type = 59, .ob_head = 58, .var_size = 70, .bytes_data = 88,
        .str_length = 91, .str_state = 90, .str_ascii = 92, .str_compact = 93,
        .is_modules = 12, .set_used = 75, .set_mask = 77, .set_table = 76,
        .dict_keys = 79, .dict_values = 80, .type_basic_size = 64, .type_flags = 63,
        .type_dict_offset = 65, .type_keys = 67, .frame_size = 43,
    },
};
/* clang-format on */
