/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mangled names -> what programmers wrote, by libiberty. Names come from hostile files: a
 * short one may stand for gigabytes, so the output has a limit at which the work stops.
 */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

/* Its libiberty.h has an xmemdup of another shape and an ARRAY_SIZE; ours come after. */
#define xmemdup libiberty_xmemdup
#include <libiberty/demangle.h>
#undef xmemdup
#undef ARRAY_SIZE

#include "lib/symbols/symbols.h"

#define MANGLED_MAX   4096
#define DEMANGLED_MAX 16384

struct output {
	jmp_buf too_long;
	struct buf text;
};

static void append(const char *s, size_t n, void *arg)
{
	struct output *o = arg;

	if (buf_add(&o->text, s, n) < 0)
		longjmp(o->too_long, 1);
}

typedef int demangle_fn(const char *mangled, int options, demangle_callbackref callback, void *arg);

/* The demanglers below keep their state on the stack: leaving them by longjmp leaks nothing
 * but, inside a punycode identifier, that identifier. */
static char *run(demangle_fn *fn, const char *mangled, int options)
{
	struct output *o = xcalloc(1, sizeof(*o));
	char *volatile text = NULL;

	buf_init(&o->text, DEMANGLED_MAX);
	if (setjmp(o->too_long) == 0 && fn(mangled, options, append, o) && o->text.len)
		text = buf_steal(&o->text);
	buf_done(&o->text);
	free(o);
	return text;
}

/* Rust's legacy form: _ZN...17h<16 hex>E. */
static bool is_rust_legacy(const char *name)
{
	size_t n = strlen(name);

	return n > 20 && str_has_prefix(name, "_ZN") && name[n - 1] == 'E' &&
	       strncmp(name + n - 20, "17h", 3) == 0 &&
	       strspn(name + n - 17, "0123456789abcdef") == 16;
}

/* LLVM marks copies of a function: name.llvm.1234. */
static char *without_llvm_suffix(const char *name)
{
	const char *at = strstr(name, ".llvm.");

	return at ? xstrndup(name, at - name) : xstrdup(name);
}

char *demangle(const char *name)
{
	_cleanup_free_ char *plain = NULL;
	char *text;

	if (name[0] != '_' || strnlen(name, MANGLED_MAX + 1) > MANGLED_MAX)
		return NULL;
	if (!str_has_prefix(name, "_Z") && !str_has_prefix(name, "_R"))
		return NULL;
	plain = without_llvm_suffix(name);
	/* DMGL_VERBOSE keeps the hash, as DeepFlow shows it; in v0 names it would add crate hashes. */
	if (is_rust_legacy(plain)) {
		text = run(rust_demangle_callback, plain, DMGL_VERBOSE);
		if (text)
			return text;
	}
	if (str_has_prefix(plain, "_R"))
		return run(rust_demangle_callback, plain, DMGL_NO_OPTS);
	return run(cplus_demangle_v3_callback, plain, DMGL_PARAMS | DMGL_ANSI);
}
