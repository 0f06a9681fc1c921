/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to symbols: demangles one name at a time, within limits. Also the messages between the
 * child process that demangles and its owner, demangler.c.
 */
#pragma once

#include "lib/symbols/symbols.h"

#define MANGLED_MAX   4096
#define DEMANGLED_MAX 16384

/* The result for a name. X(enum, reason in podflame_names_mangled_total) */
#define DEMANGLE_RESULTS(X)                                                                        \
	X(OK, NULL)                                                                                \
	X(UNKNOWN, "unknown")                                                                      \
	X(TOO_LONG, "too_long")                                                                    \
	X(TOO_SLOW, "too_slow")                                                                    \
	X(TOO_DEEP, "too_deep")                                                                    \
	X(TOO_BIG, "too_big")
enum demangle_result {
#define X(name, reason) DEMANGLE_##name,
	DEMANGLE_RESULTS(X)
#undef X
		_DEMANGLE_RESULT_MAX,
};

/* Whether a name may be mangled, by its beginning. In Rust's v0 a capital letter follows "_R". */
static inline bool is_mangled(const char *name)
{
	return str_has_prefix(name, "_Z") ||
	       (str_has_prefix(name, "_R") && name[2] >= 'A' && name[2] <= 'Z');
}

/* ---- demangle.c: for the child, and for tests; call it in a program's first thread ---- */
/*
 * Called once, before the first name. Sets the stack's limit, the timer, and the handlers of their
 * signals.
 */
int elf_demangle_begin(void);
/*
 * name: at most MANGLED_MAX bytes. *ret_text is set only with DEMANGLE_OK. It has at most
 * DEMANGLED_MAX bytes, and is valid until the next call.
 */
enum demangle_result elf_demangle(const char *name, const char **ret_text);

/* ---- demangle_child.c ---- */
/*
 * argv[1] of the child. A program that uses this variable is linked with demangle_child.c. Code in
 * that file reads the arguments before main(), and becomes the child if it finds this one. So
 * main() need not handle it, and a program cannot start itself over and over.
 */
extern const char elf_demangle_child_verb[];
/*
 * The child gives up its rights: as child_begin(). Also for tests, which then try what is left.
 */
int elf_demangle_child_begin(void);

/* ---- messages ---- */
struct demangle_request {
	uint64_t sequence;
	char name[MANGLED_MAX]; /* a message has only the bytes of the name */
};
struct demangle_reply {
	uint64_t sequence;
	uint64_t cpu_ns; /* CPU time that the name took */
	uint32_t result; /* enum demangle_result */
	uint32_t n;	 /* number of bytes of the text */
	char text[DEMANGLED_MAX];
};
