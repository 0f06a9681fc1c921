/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry points of C's, C++'s and Rust's allocators: the symbol, what the function does, and
 * which arguments give the size. native_sites.c finds out which of them call each other.
 */
#include "node/alloc/allocators.h"

#define SITE(kind_, size, count, ptr)                                                              \
	((struct pf_site){.kind = PF_SITE_##kind_,                                                 \
			  .size_arg = (size),                                                      \
			  .count_arg = (count),                                                    \
			  .ptr_arg = (ptr)})
#define ALLOC(size) SITE(ALLOC, size, 0, 0)
/* C++'s operator new, under any name, fails with an exception */
#define NEW(size)                                                                                  \
	((struct pf_site){.kind = PF_SITE_ALLOC, .size_arg = (size), .flags = PF_SITE_THROWS})
#define NEW2(n, size)                                                                              \
	((struct pf_site){.kind = PF_SITE_ALLOC,                                                   \
			  .size_arg = (size),                                                      \
			  .count_arg = (n),                                                        \
			  .flags = PF_SITE_THROWS})
#define RENEW(p, size)                                                                             \
	((struct pf_site){.kind = PF_SITE_REALLOC,                                                 \
			  .size_arg = (size),                                                      \
			  .ptr_arg = (p),                                                          \
			  .flags = PF_SITE_THROWS})
#define RENEW2(p, n, size)                                                                         \
	((struct pf_site){.kind = PF_SITE_REALLOC,                                                 \
			  .size_arg = (size),                                                      \
			  .count_arg = (n),                                                        \
			  .ptr_arg = (p),                                                          \
			  .flags = PF_SITE_THROWS})
#define ALLOC2(n, size)	     SITE(ALLOC, size, n, 0)
#define REALLOC(p, size)     SITE(REALLOC, size, 0, p)
#define REALLOC2(p, n, size) SITE(REALLOC, size, n, p)
#define OUT(p, size)	     SITE(OUT, size, 0, p)
#define FREE(p)		     SITE(FREE, 0, 0, p)

/* The rows: X(name, site, family, align, wraps) */

/* ISO C, POSIX and glibc: stdlib.h, malloc.h */
#define C_ROWS(X, prefix, f)                                                                       \
	X(prefix "malloc", ALLOC(1), f, ANY, 0)                                                    \
	X(prefix "free", FREE(1), f, ANY, 0)                                                       \
	X(prefix "calloc", ALLOC2(1, 2), f, ANY, 0)                                                \
	X(prefix "realloc", REALLOC(1, 2), f, ANY, 0)                                              \
	X(prefix "reallocarray", REALLOC2(1, 2, 3), f, ANY, 1)                                     \
	X(prefix "memalign", ALLOC(2), f, ALIGNED, 0)                                              \
	X(prefix "aligned_alloc", ALLOC(2), f, ALIGNED, 0)                                         \
	X(prefix "posix_memalign", OUT(1, 3), f, ALIGNED, 0)                                       \
	X(prefix "valloc", ALLOC(1), f, PAGE, 1)                                                   \
	X(prefix "pvalloc", ALLOC(1), f, PAGE, 1)                                                  \
	X(prefix "cfree", FREE(1), f, ANY, 0)

/* jemalloc(3). xallocx, which grows memory in place, has no row: what it adds is not seen. */
#define JEMALLOC_ROWS(X, prefix, f)                                                                \
	X(prefix "mallocx", ALLOC(1), f, ANY, 0)                                                   \
	X(prefix "rallocx", REALLOC(1, 2), f, ANY, 0)                                              \
	X(prefix "dallocx", FREE(1), f, ANY, 0)                                                    \
	X(prefix "sdallocx", FREE(1), f, ANY, 0)

/* gperftools/tcmalloc.h */
#define TCMALLOC_ROWS(X)                                                                           \
	X("tc_malloc_skip_new_handler", ALLOC(1), TC, ANY, 0)                                      \
	X("tc_new", NEW(1), TC, ANY, 0)                                                            \
	X("tc_new_nothrow", ALLOC(1), TC, ANY, 0)                                                  \
	X("tc_newarray", NEW(1), TC, ANY, 0)                                                       \
	X("tc_newarray_nothrow", ALLOC(1), TC, ANY, 0)                                             \
	X("tc_new_aligned", NEW(1), TC, ALIGNED, 0)                                                \
	X("tc_new_aligned_nothrow", ALLOC(1), TC, ALIGNED, 0)                                      \
	X("tc_newarray_aligned", NEW(1), TC, ALIGNED, 0)                                           \
	X("tc_newarray_aligned_nothrow", ALLOC(1), TC, ALIGNED, 0)                                 \
	X("tc_free_sized", FREE(1), TC, ANY, 0)                                                    \
	X("tc_delete", FREE(1), TC, ANY, 0)                                                        \
	X("tc_delete_sized", FREE(1), TC, ANY, 0)                                                  \
	X("tc_delete_nothrow", FREE(1), TC, ANY, 0)                                                \
	X("tc_delete_aligned", FREE(1), TC, ANY, 0)                                                \
	X("tc_delete_sized_aligned", FREE(1), TC, ANY, 0)                                          \
	X("tc_deletearray", FREE(1), TC, ANY, 0)                                                   \
	X("tc_deletearray_sized", FREE(1), TC, ANY, 0)                                             \
	X("tc_deletearray_nothrow", FREE(1), TC, ANY, 0)                                           \
	X("tc_deletearray_aligned", FREE(1), TC, ANY, 0)                                           \
	X("tc_deletearray_sized_aligned", FREE(1), TC, ANY, 0)

/*
 * mimalloc.h. Its mi_heap_... functions call each other under conditions that a probe does not see,
 * so they have no rows. Memory of a program's own heaps is not seen, memory of the default heap is.
 */
#define MIMALLOC_ROWS(X)                                                                           \
	X("mi_malloc_small", ALLOC(1), MI, ANY, 0)                                                 \
	X("mi_mallocn", ALLOC2(1, 2), MI, ANY, 0)                                                  \
	X("mi_zalloc", ALLOC(1), MI, ANY, 0)                                                       \
	X("mi_zalloc_small", ALLOC(1), MI, ANY, 0)                                                 \
	X("mi_reallocn", REALLOC2(1, 2, 3), MI, ANY, 0)                                            \
	X("mi_reallocf", REALLOC(1, 2), MI, ANY, 0)                                                \
	X("mi_rezalloc", REALLOC(1, 2), MI, ANY, 0)                                                \
	X("mi_recalloc", REALLOC2(1, 2, 3), MI, ANY, 0)                                            \
	X("mi_malloc_aligned", ALLOC(1), MI, ALIGNED, 0)                                           \
	X("mi_malloc_aligned_at", ALLOC(1), MI, ALIGNED, 0)                                        \
	X("mi_zalloc_aligned", ALLOC(1), MI, ALIGNED, 0)                                           \
	X("mi_zalloc_aligned_at", ALLOC(1), MI, ALIGNED, 0)                                        \
	X("mi_calloc_aligned", ALLOC2(1, 2), MI, ALIGNED, 0)                                       \
	X("mi_calloc_aligned_at", ALLOC2(1, 2), MI, ALIGNED, 0)                                    \
	X("mi_realloc_aligned", REALLOC(1, 2), MI, ALIGNED, 0)                                     \
	X("mi_realloc_aligned_at", REALLOC(1, 2), MI, ALIGNED, 0)                                  \
	X("mi_rezalloc_aligned", REALLOC(1, 2), MI, ALIGNED, 0)                                    \
	X("mi_rezalloc_aligned_at", REALLOC(1, 2), MI, ALIGNED, 0)                                 \
	X("mi_recalloc_aligned", REALLOC2(1, 2, 3), MI, ALIGNED, 0)                                \
	X("mi_recalloc_aligned_at", REALLOC2(1, 2, 3), MI, ALIGNED, 0)                             \
	X("mi_new", NEW(1), MI, ANY, 0)                                                            \
	X("mi_new_n", NEW2(1, 2), MI, ANY, 0)                                                      \
	X("mi_new_nothrow", ALLOC(1), MI, ANY, 0)                                                  \
	X("mi_new_aligned", NEW(1), MI, ALIGNED, 0)                                                \
	X("mi_new_aligned_nothrow", ALLOC(1), MI, ALIGNED, 0)                                      \
	X("mi_new_realloc", RENEW(1, 2), MI, ANY, 0)                                               \
	X("mi_new_reallocn", RENEW2(1, 2, 3), MI, ANY, 0)                                          \
	X("mi_free_size", FREE(1), MI, ANY, 0)                                                     \
	X("mi_free_aligned", FREE(1), MI, ANY, 0)                                                  \
	X("mi_free_size_aligned", FREE(1), MI, ANY, 0)

/* oneapi/tbb/scalable_allocator.h */
#define TBB_ROWS(X)                                                                                \
	X("scalable_malloc", ALLOC(1), TBB, ANY, 0)                                                \
	X("scalable_free", FREE(1), TBB, ANY, 0)                                                   \
	X("scalable_calloc", ALLOC2(1, 2), TBB, ANY, 0)                                            \
	X("scalable_realloc", REALLOC(1, 2), TBB, ANY, 0)                                          \
	X("scalable_posix_memalign", OUT(1, 3), TBB, ALIGNED, 0)                                   \
	X("scalable_aligned_malloc", ALLOC(1), TBB, ALIGNED, 0)                                    \
	X("scalable_aligned_realloc", REALLOC(1, 2), TBB, ALIGNED, 0)                              \
	X("scalable_aligned_free", FREE(1), TBB, ANY, 0)

/* operator new, new[], delete, delete[]: C++17, Itanium ABI */
#define NEW_ROWS(X, operator)                                                                      \
	X(operator"m", NEW(1), CXX, ANY, 0)                                                        \
	X(operator"mRKSt9nothrow_t", ALLOC(1), CXX, ANY, 0)                                        \
	X(operator"mSt11align_val_t", NEW(1), CXX, ALIGNED, 0)                                     \
	X(operator"mSt11align_val_tRKSt9nothrow_t", ALLOC(1), CXX, ALIGNED, 0)
#define DELETE_ROWS(X, operator)                                                                   \
	X(operator"Pv", FREE(1), CXX, ANY, 0)                                                      \
	X(operator"Pvm", FREE(1), CXX, ANY, 0)                                                     \
	X(operator"PvRKSt9nothrow_t", FREE(1), CXX, ANY, 0)                                        \
	X(operator"PvSt11align_val_t", FREE(1), CXX, ANY, 0)                                       \
	X(operator"PvmSt11align_val_t", FREE(1), CXX, ANY, 0)                                      \
	X(operator"PvSt11align_val_tRKSt9nothrow_t", FREE(1), CXX, ANY, 0)

/*
 * rustc's shims for the #[global_allocator]: plain names, and since 1.89 mangled by v0 (with
 * lengths)
 */
#define RUST_ROWS(X, prefix, n12, n14, n19)                                                        \
	X(prefix n12 "__rust_alloc", ALLOC(1), RUST, ALIGNED, 0)                                   \
	X(prefix n14 "__rust_dealloc", FREE(1), RUST, ANY, 0)                                      \
	X(prefix n14 "__rust_realloc", REALLOC(1, 4), RUST, ALIGNED, 0)                            \
	X(prefix n19 "__rust_alloc_zeroed", ALLOC(1), RUST, ALIGNED, 0)

#define ROWS(X)                                                                                    \
	C_ROWS(X, "", C)                                                                           \
	JEMALLOC_ROWS(X, "", C)                                                                    \
	C_ROWS(X, "je_", JE)                                                                       \
	JEMALLOC_ROWS(X, "je_", JE)                                                                \
	C_ROWS(X, "_rjem_", RJEM)                                                                  \
	JEMALLOC_ROWS(X, "_rjem_", RJEM)                                                           \
	C_ROWS(X, "tc_", TC)                                                                       \
	TCMALLOC_ROWS(X)                                                                           \
	C_ROWS(X, "mi_", MI)                                                                       \
	MIMALLOC_ROWS(X)                                                                           \
	TBB_ROWS(X)                                                                                \
	NEW_ROWS(X, "_Znw")                                                                        \
	NEW_ROWS(X, "_Zna")                                                                        \
	DELETE_ROWS(X, "_Zdl")                                                                     \
	DELETE_ROWS(X, "_Zda")                                                                     \
	RUST_ROWS(X, "", "", "", "")                                                               \
	RUST_ROWS(X, "_RNvC*_7___rustc", "12_", "14_", "19_")

static const struct table_row rows[] = {
#define X(name, site, family, align, wraps) {name, site, TABLE_##family, TABLE_##align, wraps},
	ROWS(X)
#undef X
};

const char *const alloc_table_marks[] = {
#define X(name, ...) name,
	ROWS(X)
#undef X
		TABLE_GLIBC_LOADER,
	NULL,
};

static bool matches(const char *name, const char *symbol)
{
	const char *star = strchr(name, '*');

	if (!star)
		return streq(name, symbol);
	return strncmp(name, symbol, (size_t)(star - name)) == 0 &&
	       strlen(symbol) >= strlen(name) - 1 && str_has_suffix(symbol, star + 1);
}

const struct table_row *alloc_table_find(const char *symbol)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (matches(rows[i].name, symbol))
			return &rows[i];
	return NULL;
}
