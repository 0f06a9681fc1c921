/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to python*.c. python.c: what a process runs. python_layout.c: where things are in its
 * structures. python_code.c: what its machine code tells. python_names.c: names of frames;
 * python_objects.c: strings and dictionaries; python_lines.c: line tables.
 */
#pragma once

#include "node/runtime/internal.h"

#include <uthash.h>

#define PYTHON_THREAD_IDS 4

/* Offsets in bytes. */
struct python_layout {
	struct pf_python kernel; /* without addresses */
	unsigned minor;		 /* 3.minor */
	/* _PyRuntime: pointers to the first interpreter and, behind it, the main one. */
	uint32_t runtime_interpreters;
	uint32_t runtime_holder; /* up to 3.11: gilstate.tstate_current */
	/* From 3.12 on: the pointer to an interpreter's GIL, and its last_holder. */
	uint32_t interpreter_gil, gil_holder;
	/* Where thread_id may be; when there are several, kernel.thread_id is told by the live process. */
	uint16_t thread_ids[PYTHON_THREAD_IDS];
	size_t n_thread_ids;
	uint16_t code_file, code_qualname; /* 0: none */
	uint16_t code_first_line, code_lines;
	uint16_t string_ascii, string_compact; /* sizes of PyASCIIObject, PyCompactUnicodeObject */
	bool checked; /* of a version that is known; else only a live frame can prove it */
};

/* Addresses in the process. */
struct python_places {
	uint64_t runtime;   /* _PyRuntime */
	uint64_t code_type; /* PyCode_Type, PyDict_Type; 0: not known */
	uint64_t dict_type;
};

/* ---- python_layout.c ---- */
/* -ENOENT: not a version that is known (hexversion: PY_VERSION_HEX). */
int runtime_python_layout_of(uint32_t hexversion, struct python_layout *ret);
#define PYTHON_OFFSETS_BYTES 1024 /* of _Py_DebugOffsets, more than any version has */
/* From 3.13 on; -ENOTSUP: free-threaded. -EBADMSG: not what it should be. */
int runtime_python_layout_read(const uint8_t *offsets, size_t n, struct python_layout *ret);
/*
 * Whether a live process is as the layout says, and the kernel's addresses. -EAGAIN: it is not that
 * far yet; -EBADMSG: it is not.
 */
int runtime_python_layout_check(const struct python_layout *l, const struct python_places *at,
			struct memory *m, struct pf_python *ret);

/* ---- python_code.c ---- */
#define PYTHON_CODE_BYTES (1u << 20) /* of an evaluation loop; debug builds have 200 kB */
/* The version text that Py_GetVersion's code refers to: "3.8.18". */
int runtime_python_code_version(struct memory *m, uint64_t function, size_t n, char ret[static 48]);
/* Up to 3.10: where the loop's frame is not the thread's (tstate->frame), see struct pf_python. */
void runtime_python_code_outside(const uint8_t *code, size_t n, unsigned thread_frame,
			 struct pf_python *ret);
/* The cold part of a function at an address, without symbols: limit is its mapping's end. false: none. */
bool runtime_python_code_cold(struct memory *m, const uint8_t *code, size_t n, uint64_t address,
		      uint64_t limit, uint64_t *ret_start, uint64_t *ret_end);

/* ---- python_objects.c ---- */
#define PYTHON_STRING_MAX 4096 /* characters; longer ones are cut */
/* A str as UTF-8. -EBADMSG: it is none. */
int runtime_python_string(struct memory *m, const struct python_layout *l, uint64_t at, char **ret);
/* A dictionary's "__name__". -ENOENT: it has none, or no str. */
int runtime_python_module(struct memory *m, const struct python_layout *l, const struct python_places *p,
		  uint64_t dict, char **ret);

/* ---- python_lines.c ---- */
/* unit: -1 before the first. 0: no line. table: co_lnotab, or co_linetable from 3.10 on. */
uint32_t runtime_python_line(unsigned minor, const uint8_t *table, size_t n, uint32_t first_line, int unit);

/* ---- python_names.c ---- */
struct python_state;
struct python_state *runtime_python_state_new(void);
struct python_state *runtime_python_state_free(struct python_state *s);
void runtime_python_state_set(struct python_state *s, const struct python_layout *l,
		      const struct python_places *at);
int runtime_python_resolve(void *state, struct memory *m, const struct runtime_words *frame,
		   const struct runtime_words *caller, struct runtime_names *ret);
