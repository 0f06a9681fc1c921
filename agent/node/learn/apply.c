/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives the kernel the unwind tables of those files of a process that are parsed, and makes the
 * text about a file that has no tables. Gives each mapping its tag: the number by which frames name
 * a file. It owns nothing. It parses no files and reads no memory of the process. learn.h names the
 * thread of each function.
 */
#include "node/learn/learn.h"

#include <stdlib.h>
#include <uthash.h>

#define PATH_SHOWN 200

/* ---- writing into the maps of the kernel ---- */

static int op_write(void *p, uint32_t chunk, uint32_t offset, const void *bytes, size_t n)
{
	return probes_chunk_write(p, chunk, offset, bytes, n);
}

static int op_flush(void *p)
{
	return probes_chunk_flush(p);
}

static int op_drop_chunk(void *p, uint32_t chunk)
{
	return probes_chunk_drop(p, chunk);
}

static int op_set_file(void *p, uint32_t slot, const struct pf_file *f)
{
	return probes_file_set(p, slot, f);
}

static int op_set_process(void *p, const struct pf_process_key *k, const struct pf_process *v)
{
	return probes_process_set(p, k, v);
}

static int op_remove_process(void *p, const struct pf_process_key *k)
{
	return probes_process_remove(p, k);
}

static int op_set_image(void *p, uint64_t tag, const struct pf_image *i)
{
	return probes_image_set(p, tag, i);
}

static int op_remove_image(void *p, uint64_t tag)
{
	return probes_image_remove(p, tag);
}

static int op_grace(void *p)
{
	return probes_grace(p);
}

int learn_unwind_new(struct probes *p, size_t budget_bytes, struct unwind **ret)
{
	static const struct unwind_ops ops = {
		.write = op_write,
		.flush = op_flush,
		.drop_chunk = op_drop_chunk,
		.set_file = op_set_file,
		.set_process = op_set_process,
		.remove_process = op_remove_process,
		.set_image = op_set_image,
		.remove_image = op_remove_image,
		.grace = op_grace,
	};

	return unwind_new(&ops, p, budget_bytes, ret);
}

/* ---- tags ---- */

#define ADDRESS_32BIT (1ULL << 32)

/* A file of the process whose tag was found already. Mappings of one file share its descriptor. */
struct looked {
	struct looked_key {
		int fd;
		int unsure; /* the result of mapping_is_unsure() */
	} key;
	uint64_t tag;
	UT_hash_handle hh;
};

static int descriptor_of(const struct mapping *m)
{
	return m->copy ? m->backing_fd : m->fd;
}

static uint64_t tag_of(const struct mapping *m)
{
	int r, fd = descriptor_of(m);
	uint64_t tag;

	/* a 32-bit process has another vdso, for which there are no tables */
	if (streq(m->path, "[vdso]"))
		return m->start < ADDRESS_32BIT ? PF_TAG_NONE : PF_TAG_VDSO;
	if (m->path[0] != '/' || (m->copy && fd < 0))
		return PF_TAG_NONE;
	if (fd < 0)
		return PF_TAG_UNKNOWN;
	r = probes_file_tag(fd, &tag);
	if (r == -EOPNOTSUPP)
		return PF_TAG_NONE;
	/*
	 * if the file was rewritten after the mappings were read, the tag would belong to the new
	 * bytes, and m->ctime_ns to the old ones
	 */
	if (r < 0 || (!mapping_is_unsure(m) && !proc_mapping_file_is_unchanged(m)))
		return PF_TAG_UNKNOWN;
	return tag;
}

/*
 * Sets the tag of the mapping. x is an unused entry. It is added to `all` if the file of the
 * mapping is not in it yet.
 */
static void tag_mapping(struct files *f, struct mapping *m, struct looked **all, struct looked *x)
{
	struct looked *old = NULL;

	x->key = (struct looked_key){descriptor_of(m), mapping_is_unsure(m)};
	if (x->key.fd >= 0)
		HASH_FIND(hh, *all, &x->key, sizeof(x->key), old);
	m->tag = old ? old->tag : tag_of(m);
	if (old)
		return;
	x->tag = m->tag;
	if (x->key.fd >= 0)
		HASH_ADD(hh, *all, key, sizeof(x->key), x);
	if ((m->tag == PF_TAG_VDSO || m->tag >= PF_TAG_FIRST) && !mapping_is_unsure(m))
		files_tagged(f, m);
}

void learn_tags(struct files *f, struct mappings *m)
{
	_cleanup_free_ struct looked *places = xcalloc(m->n + 1, sizeof(*places));
	uint64_t began_ns = thread_cpu_ns();
	struct looked *all = NULL;

	for (size_t i = 0; i < m->n; i++)
		tag_mapping(f, &m->items[i], &all, &places[i]);
	HASH_CLEAR(hh, all);
	m->cost_ns += thread_cpu_ns() - began_ns;
}

/* ---- the text about a file without tables ---- */

static const char *why_text(const char *why)
{
	static const struct {
		const char *why, *text;
	} texts[] = {
		{"budget", "the tables of all files do not fit into unwind.table_bytes"},
		{"too_large", "its table is larger than a quarter of unwind.table_bytes"},
		{"too_spread", "its code is spread over too many addresses for a table"},
		{"slots", "the kernel holds the tables of too many files"},
		{"kernel", "the kernel had no memory for its table"},
		{"memory", "the names of all files take more than three times unwind.table_bytes"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (streq(texts[i].why, why))
			return texts[i].text;
	return why;
}

static void note_missing(struct applied *a, const struct mapping *m, const char *why)
{
	_cleanup_free_ char *path = NULL;
	size_t n = strlen(m->path);

	if (a->missing)
		return;
	path = elf_text_clean(n > PATH_SHOWN ? m->path + n - PATH_SHOWN : m->path);
	a->missing = xasprintf("%s%s: %s", n > PATH_SHOWN ? "..." : "", path, why);
}

/*
 * Notes why a file could not be parsed. A file that is neither a program nor a library (-ENOEXEC)
 * never has tables, so it is not noted.
 */
static void note_error(struct applied *a, const struct mapping *m, int error)
{
	if (m->path[0] != '/' || error == -ENOEXEC || error == -ENOENT)
		return;
	note_missing(a, m,
		     error == -ETIMEDOUT ? "reading it took too long"
		     : error == -EPIPE	 ? "reading it ended the parser"
		     : error == -EBADMSG ? "it is damaged"
		     : error == -E2BIG	 ? "it is over a limit"
					 : strerror(-error));
}

/* Notes which limit the file exceeds, or that it is damaged. */
static void note_lack(struct applied *a, const struct mapping *m, const struct elf_index *index)
{
	struct elf_lack lacks[ELF_LACKS_MAX];
	size_t n = elf_index_lacks(index, lacks);

	for (size_t i = 0; i < n; i++)
		if (streq(lacks[i].word, "unwind_cut") || streq(lacks[i].word, "code_cut")) {
			note_missing(a, m, lacks[i].text);
			return;
		}
}

static void note_tables(struct applied *a, const struct unwind *u, const struct mapping *m,
			const struct elf_index *index)
{
	const char *why = unwind_why_not(u, index);

	if (why)
		note_missing(a, m, why_text(why));
	else if (elf_index_flags(index) & (ELF_INDEX_UNWIND_CUT | ELF_INDEX_CODE_CUT))
		note_lack(a, m, index);
}

/* ---- a process ---- */

static bool same_file(const struct mapping *a, const struct mapping *b)
{
	return a->inode == b->inode && a->dev_major == b->dev_major &&
	       a->dev_minor == b->dev_minor && a->fd == b->fd && streq(a->path, b->path);
}

static void add_unknown(struct applied *a, const struct mappings *m, size_t k)
{
	for (size_t i = 0; i < a->n_unknown; i++)
		if (same_file(&m->items[a->unknown[i]], &m->items[k]))
			return;
	a->unknown[a->n_unknown++] = k;
}

static void note_taken(struct applied *a, struct unwind *u)
{
	size_t cap = 0;

	for (uint64_t ns = unwind_taken_from(u); ns; ns = unwind_taken_from(u)) {
		GROW(a->taken_from, a->n_taken_from, cap);
		a->taken_from[a->n_taken_from++] = ns;
	}
}

int learn_apply(struct unwind *u, struct files *f, const struct mappings *m, uint64_t charged_ns,
		const struct runtime_process *runtimes, struct applied *ret)
{
	_cleanup_free_ struct elf_index **indexes = xcalloc(m->n + 1, sizeof(struct elf_index *));
	_cleanup_free_ bool *pending = xcalloc(m->n + 1, sizeof(*pending));
	struct applied a = {.unknown = xcalloc(m->n + 1, sizeof(*a.unknown))};
	int r;

	for (size_t i = 0; i < m->n; i++) {
		r = files_index_known(f, &m->items[i], &indexes[i]);
		pending[i] = r == -EAGAIN;
		if (pending[i])
			add_unknown(&a, m, i);
		else if (r < 0)
			note_error(&a, &m->items[i], r);
	}
	a.runs = runtime_likely(m, indexes);
	r = unwind_process(u, m, charged_ns, indexes, pending, runtimes);
	note_taken(&a, u);
	a.crowded_ns = unwind_crowded(u);
	for (size_t i = 0; i < m->n; i++) {
		if (indexes[i]) {
			note_tables(&a, u, &m->items[i], indexes[i]);
			a.go |= elf_index_flags(indexes[i]) & ELF_INDEX_GO;
		}
		elf_index_unref(indexes[i]);
	}
	if (r == -ENOSPC && m->n)
		note_missing(&a, &m->items[0], "the process has too many mappings of code");
	*ret = a;
	return r;
}

void learn_applied_done(struct applied *a)
{
	free(a->unknown);
	free(a->taken_from);
	free(a->missing);
	*a = (struct applied){0};
}
