/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of alloc share. A finder is one file and one row of ALLOC_FINDERS: it looks for
 * one way to allocate in the process, and adds its sites; alloc.c joins them. A mark is a symbol or
 * text that the parser was asked to find in each file (parser_config.marks). Reader's thread.
 */
#pragma once

#include "node/alloc/alloc.h"

/* X(name): each is a variable alloc_name_finder. alloc.c calls them in this order. */
#define ALLOC_FINDERS(X)                                                                           \
	X(native)	/* C, C++, Rust */                                                         \
	X(python)	/* CPython's allocator of small objects */                                 \
	X(go)		/* Go: its own heap profile, or its allocator */                           \
	X(jvm)		/* Java's heap */                                                          \
	X(hidden)	/* allocators that the finders above cannot find */                        \
	X(cuda)		/* memory of GPUs */                                                       \
	X(pytorch)	/* objects in it; after cuda */                                            \
	X(cuda_library) /* work of GPUs */                                                         \
	X(verbs)	/* RDMA */

#define ALLOC_MEMORY_EVENTS (1u << PF_EVENT_MEM_ALLOC | 1u << PF_EVENT_MEM_INUSE)

struct alloc_finder {
	const char *name;	  /* "python" */
	unsigned events;	  /* 1 << enum pf_event: the events for which the finder is used */
	const char *const *marks; /* what the parser must look for; NULL at the end */
	/*
	 * Adds sites, inner ranges and a problem to ret, by the functions below. -ENOENT: the
	 * process does not allocate in this way. -EAGAIN: the process is just starting. Other
	 * errors: none of these functions are probed; a problem may say why.
	 */
	int (*find)(const struct runtime_look *look, unsigned event_mask, struct alloc_sites *ret);
};
#define X(name) extern const struct alloc_finder alloc_##name##_finder;
ALLOC_FINDERS(X)
#undef X

/*
 * Adds a site. address: where the function begins in the process. Returns 0 without a new site if
 * the address has a site already, or if alloc_is_copied(). -EFAULT: the address is not in an
 * executable mapping of a file. -E2BIG: there are ALLOC_SITES_MAX already.
 */
int alloc_add_site(const struct runtime_look *look, uint64_t address, const char *symbol,
		   struct pf_site site, struct alloc_sites *ret);
/* The same for a site with a semaphore: alloc_site.semaphore. */
int alloc_add_usdt_site(const struct runtime_look *look, uint64_t address, uint64_t semaphore,
			const char *symbol, struct pf_site site, struct alloc_sites *ret);
/*
 * Returns true if the code runs from a copy in anonymous memory, where no probe can be set; then
 * adds a problem to ret.
 */
bool alloc_is_copied(const struct runtime_look *look, uint64_t address, struct alloc_sites *ret);
/*
 * Adds an inner range: if a probed function returns into this range, the hit is part of another
 * call. If there are too many ranges, the two closest ones become one.
 */
void alloc_add_inner(struct alloc_sites *s, uint64_t start, uint64_t end);
/*
 * Adds the problem that alloc_code_ways() reached a limit, so the agent does not know to which
 * other sites this one leads.
 */
void alloc_add_not_followed(struct alloc_sites *s, const char *symbol);
/*
 * entry.c: whether a function begins at an address of the process, so that probes of the entry and
 * of the return cannot harm the process.
 */
bool alloc_begins_function(const struct runtime_look *look, uint64_t address);
/* ---- file.c: about the file of a mapping ---- */
/* Whether the file has an index, and the mapping before this one is not of the same file. */
bool alloc_is_first(const struct runtime_look *look, size_t mapping);
/* Finds where the process has a mark of the file. false: the mark lies in no code of this file. */
bool alloc_mark_address(const struct runtime_look *look, size_t mapping,
			const struct elf_mark *mark, uint64_t *ret);
/* Whether a file that has an index defines a function. The parser must have looked for the name. */
bool alloc_file_defines(const struct runtime_look *look, size_t mapping, const char *name);
/* Returns the file's name without its directory, as the process wrote it: any bytes. */
const char *alloc_file_name(const struct mapping *m);
/* Adds the sentence "NAME text" to s->problem. */
void alloc_add_file_problem(struct alloc_sites *s, const struct mapping *m, const char *text);
#define ALLOC_UNREAD "has not been read yet, or cannot be read"

/* Adds a sentence to s->problem, unless it is there already. */
void alloc_add_problem(struct alloc_sites *s, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
