/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For OpenTelemetry's thread context (OTEP 4947), finds the thread-local pointer otel_thread_ctx_v1
 * in the file of the process that exports it. That is enough: the process context (OTEP 4719) is
 * not read. Runs on the reader's thread.
 */
#include "node/runtime/context/context.h"

#include <stdlib.h>

#define SYMBOL "otel_thread_ctx_v1"

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/*
 * Returns whether the process uses musl. The file of musl is ld-musl-x86_64.so.1 in Alpine, and
 * libc.so in Debian. The name of glibc's file has a version.
 */
static bool is_musl(const struct mappings *maps)
{
	for (size_t i = 0; i < maps->n; i++) {
		const char *name = base_name(maps->items[i].path);

		if (str_has_prefix(name, "ld-musl-") || streq(name, "libc.so"))
			return true;
	}
	return false;
}

static int learn(const struct runtime_look *look, struct runtime_learnt *old,
		 struct runtime_learnt *ret)
{
	_cleanup_free_ struct loaded_elf *e = xcalloc(1, sizeof(*e));
	uint64_t offset, size;
	const struct mapping *m;
	struct tls_place place;
	struct pf_otel *d;
	int r = runtime_find_mark(look, SYMBOL, &m, &offset, &size);

	(void)old;
	if (r == 0)
		r = runtime_loaded_elf_read(look, m, e);
	if (r == 0)
		r = runtime_tls_find(e, SYMBOL, offset, &place);
	if (r < 0)
		return r;
	d = ret->data = xcalloc(1, sizeof(*d));
	ret->data_bytes = sizeof(*d);
	*d = (struct pf_otel){.offset = place.offset,
			      .module = place.module,
			      .entry_bytes = is_musl(look->maps) ? 8 : 16};
	return 0;
}

static const char *const marks[] = {SYMBOL, NULL};

const struct runtime_ops runtime_otel_runtime = {
	.name = "otel",
	.title = "OpenTelemetry's thread context",
	.frame_kind = FRAME_APP,
	.marks = marks,
	.learn = learn,
};
