/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to python*.c. Reader's thread; all memory is hostile.
 * - python.c: finds the interpreter of a process.
 * - python_layout.c: offsets in CPython's structures.
 * - python_code.c: facts from its machine code.
 * - python_names.c: names of frames.
 * - python_objects.c: strings and dictionaries.
 * - python_lines.c: line tables.
 */
#pragma once

#include "node/runtime/internal.h"

#include <uthash.h>

#define PYTHON_THREAD_IDS 4

/* Offsets in bytes. */
struct python_layout {
	struct pf_python kernel; /* without addresses */
	unsigned minor;		 /* 3.minor */
	/* In _PyRuntime: pointers to the first interpreter and, after it, to the main one. */
	uint32_t runtime_interpreters;
	uint32_t runtime_holder; /* up to 3.11: gilstate.tstate_current */
	/* Since 3.12: the pointer to an interpreter's GIL, and its last_holder. */
	uint32_t interpreter_gil, gil_holder;
	/* Where thread_id may be; of several, the live process shows which is kernel.thread_id. */
	uint16_t thread_ids[PYTHON_THREAD_IDS];
	size_t n_thread_ids;
	uint16_t code_file, code_qualname; /* 0: none */
	uint16_t code_first_line, code_lines;
	uint16_t string_ascii, string_compact; /* sizes of PyASCIIObject, PyCompactUnicodeObject */
	bool checked; /* of a known version; otherwise only a live frame can prove it */
};

/* Addresses in the process. */
struct python_places {
	uint64_t runtime;   /* _PyRuntime */
	uint64_t code_type; /* PyCode_Type, PyDict_Type; 0: not known */
	uint64_t dict_type;
};

/* ---- python_layout.c ---- */
/* hexversion: PY_VERSION_HEX. -ENOENT: the version is not known. */
int runtime_python_layout_of(uint32_t hexversion, struct python_layout *ret);
#define PYTHON_OFFSETS_BYTES 1024 /* of _Py_DebugOffsets, more than any version has */
/* Since 3.13. -ENOTSUP: it is a free-threaded build. -EBADMSG: the offsets have another form. */
int runtime_python_layout_read(const uint8_t *offsets, size_t n, struct python_layout *ret);
/*
 * Checks the layout on a live process, and fills in the addresses for the kernel's part. -EAGAIN:
 * the interpreter has not started yet. -EBADMSG: the process has another layout.
 */
int runtime_python_layout_check(const struct python_layout *l, const struct python_places *at,
				struct memory *m, struct pf_python *ret);

/* ---- python_code.c ---- */
#define PYTHON_CODE_BYTES (1u << 20) /* of an evaluation loop; debug builds have 200 kB */
/* The text of the version, "3.8.18", to which the code of Py_GetVersion refers. */
int runtime_python_code_version(struct memory *m, uint64_t function, size_t n, char ret[static 48]);
/* Up to 3.10: code of the loop in which tstate->frame is not its frame; see struct pf_python. */
void runtime_python_code_outside(const uint8_t *code, size_t n, unsigned thread_frame,
			 struct pf_python *ret);
/*
 * Finds the cold part of the function at an address without symbols. limit: its mapping's end.
 * false: it has none.
 */
bool runtime_python_code_cold(struct memory *m, const uint8_t *code, size_t n, uint64_t address,
		      uint64_t limit, uint64_t *ret_start, uint64_t *ret_end);

/* ---- python_objects.c ---- */
#define PYTHON_STRING_MAX 4096 /* characters; longer ones are cut */
/* A str as UTF-8. -EBADMSG: it is not a str. */
int runtime_python_string(struct memory *m, const struct python_layout *l, uint64_t at, char **ret);
/* A dictionary's "__name__". -ENOENT: it has none, or it is not a str. */
int runtime_python_module(struct memory *m, const struct python_layout *l,
			  const struct python_places *p, uint64_t dict, char **ret);

/* ---- python_lines.c ---- */
/*
 * The line of a code unit; 0: it has none. unit: -1 is before the first. table: co_lnotab; since
 * 3.10 co_linetable.
 */
uint32_t runtime_python_line(unsigned minor, const uint8_t *table, size_t n, uint32_t first_line,
			     int unit);

/* ---- python_names.c ---- */
struct python_state;
struct python_state *runtime_python_state_new(void);
struct python_state *runtime_python_state_free(struct python_state *s);
void runtime_python_state_set(struct python_state *s, const struct python_layout *l,
		      const struct python_places *at);
int runtime_python_resolve(void *state, struct memory *m, const struct runtime_words *frame,
		   const struct runtime_words *caller, struct runtime_names *ret);
