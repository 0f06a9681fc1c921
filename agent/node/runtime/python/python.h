/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to python*.c. Runs on the reader's thread; all memory is hostile.
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

/* All offsets are in bytes. */
struct python_layout {
	struct pf_python kernel; /* the part for the kernel, without addresses */
	unsigned minor;		 /* x of version 3.x */
	/*
	 * In _PyRuntime: offset of the pointer to the first interpreter; the next word points to
	 * the main one.
	 */
	uint32_t runtime_interpreters;
	uint32_t runtime_holder; /* offset of gilstate.tstate_current, which exists up to 3.11 */
	/*
	 * Since 3.12: offset of an interpreter's pointer to its GIL, and of last_holder in the GIL.
	 */
	uint32_t interpreter_gil, gil_holder;
	/*
	 * Offsets at which thread_id may be. If there are several, the live process shows which one
	 * is kernel.thread_id.
	 */
	uint16_t thread_ids[PYTHON_THREAD_IDS];
	size_t n_thread_ids;
	uint16_t code_file, code_qualname; /* 0: this version does not have the member */
	uint16_t code_first_line, code_lines;
	uint16_t string_ascii, string_compact; /* sizes of PyASCIIObject, PyCompactUnicodeObject */
	bool checked; /* the version was tested; else only a live frame can prove the layout */
};

/* Addresses in the process. */
struct python_places {
	uint64_t runtime;   /* address of _PyRuntime */
	uint64_t code_type; /* addresses of PyCode_Type and PyDict_Type; 0: not known */
	uint64_t dict_type;
};

/* ---- python_layout.c ---- */
/*
 * Finds the layout of a version. hexversion: PY_VERSION_HEX. -ENOENT: podflame does not know the
 * version.
 */
int runtime_python_layout_of(uint32_t hexversion, struct python_layout *ret);
#define PYTHON_OFFSETS_BYTES 1024 /* size of _Py_DebugOffsets; no version has more */
/*
 * Reads the layout of a version since 3.13 from its _Py_DebugOffsets. -ENOTSUP: a free-threaded
 * build. -EBADMSG: the offsets have another form.
 */
int runtime_python_layout_read(const uint8_t *offsets, size_t n, struct python_layout *ret);
/*
 * Checks the layout in a live process, and fills in the addresses for the kernel's part. -EAGAIN:
 * the interpreter has not started yet. -EBADMSG: the process has another layout.
 */
int runtime_python_layout_check(const struct python_layout *l, const struct python_places *at,
				struct memory *m, struct pf_python *ret);

/* ---- python_code.c ---- */
/* limit for an evaluation loop; those of debug builds have 200 kB */
#define PYTHON_CODE_BYTES (1u << 20)
/* Finds the text of the version, such as "3.8.18". The code of Py_GetVersion refers to it. */
int runtime_python_code_version(struct memory *m, uint64_t function, size_t n, char ret[static 48]);
/*
 * For versions up to 3.10: finds the loop's code in which tstate->frame is not the loop's own
 * frame; see struct pf_python.
 */
void runtime_python_code_outside(const uint8_t *code, size_t n, unsigned thread_frame,
				 struct pf_python *ret);
/*
 * Finds the cold part of the function at an address, without symbols. limit: the end of the
 * function's mapping. false: the function has no cold part.
 */
bool runtime_python_code_cold(struct memory *m, const uint8_t *code, size_t n, uint64_t address,
		      uint64_t limit, uint64_t *ret_start, uint64_t *ret_end);

/* ---- python_objects.c ---- */
#define PYTHON_STRING_MAX 4096 /* characters; longer strings are cut */
/* Reads a str as UTF-8. -EBADMSG: the object is not a str. */
int runtime_python_string(struct memory *m, const struct python_layout *l, uint64_t at, char **ret);
/* Reads a dictionary's "__name__". -ENOENT: the dictionary has none, or it is not a str. */
int runtime_python_module(struct memory *m, const struct python_layout *l,
			  const struct python_places *p, uint64_t dict, char **ret);

/* ---- python_lines.c ---- */
/*
 * Returns the line of a code unit; 0: the unit has no line. unit: the index of the code unit; -1:
 * before the first. table: co_lnotab; since 3.10 co_linetable.
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
