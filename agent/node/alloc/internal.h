/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of alloc share. A way to allocate is one file and one row of ALLOC_FINDERS: it looks for itself in the
 * process and adds its sites; alloc.c joins them.
 */
#pragma once

#include "node/alloc/alloc.h"

/* X(name): a variable alloc_name_finder each; asked in this order. */
#define ALLOC_FINDERS(X)                                                                           \
	X(native) /* C, C++, Rust */                                                               \
	X(python) /* CPython's allocator of small objects */                                       \
	X(go)	  /* Go: its own heap profile, or its allocator */                                 \
	X(jvm)	  /* Java's heap */                                                                \
	X(hidden) /* what none of these can find */

struct alloc_finder {
	const char *name;	  /* "python" */
	const char *const *marks; /* as parser_config.marks, NULL at the end */
	/*
	 * Adds sites, inner ranges and a problem to ret, by the functions below. -ENOENT: not in this process. -EAGAIN: the
	 * process is just starting. Other errors: nothing of it is probed; a problem may say why.
	 */
	int (*find)(const struct runtime_look *look, unsigned event_mask, struct alloc_sites *ret);
};
#define X(name) extern const struct alloc_finder alloc_##name##_finder;
ALLOC_FINDERS(X)
#undef X

/*
 * address: where a function begins in the process. 0 also when the place has a site already (the first one stays), and when
 * alloc_is_copied. -EFAULT: it is
 * not in an executable mapping of a file. -E2BIG: ALLOC_SITES_MAX.
 */
int alloc_add_site(const struct runtime_look *look, uint64_t address, const char *symbol,
		   struct pf_site site, struct alloc_sites *ret);
/* No probe can be set there, and that is told: the code runs from a copy in anonymous memory. */
bool alloc_is_copied(const struct runtime_look *look, uint64_t address, struct alloc_sites *ret);
/* A hit that returns to there is part of another call. Of too many ranges the closest ones become one. */
void alloc_add_inner(struct alloc_sites *s, uint64_t start, uint64_t end);
/* alloc_code_ways() was cut: which other sites the code of this one leads to is not known. */
void alloc_add_not_followed(struct alloc_sites *s, const char *symbol);
/* Each is told once. */
void alloc_add_problem(struct alloc_sites *s, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
