/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file is the cache of mapped files: it keeps the index of each file, or the time at which the
 * file may be parsed again. The first thread that asks for a file parses the file, and other
 * threads that ask for it wait until then. No thread waits for another file. See internal.h for the
 * lock.
 */
#include "node/files/internal.h"

#include <fcntl.h>
#include <stdlib.h>

#define DEFAULT_CACHE_BYTES (256u << 20)
#define DEFAULT_DEBUG_NS    (10 * NSEC_PER_SEC)
#define DEFAULT_DEBUG_BYTES ((size_t)2 << 30)
#define RETRY_NS	    (60 * NSEC_PER_SEC)
/* A vdso below this address is that of a 32-bit process. The agent has no copy of it. */
#define ADDRESS_32BIT (1ULL << 32)

/* ---- parsers ---- */

int files_slow_parser_lock(struct slow_parser *p)
{
	pthread_mutex_lock(&p->lock);
	return p->parser ? 0 : parse_new(&p->config, &p->parser);
}

static void slow_parser_done(struct slow_parser *p)
{
	parse_free(p->parser);
	pthread_mutex_destroy(&p->lock);
}

/* ---- entries ---- */

struct file_id files_id_of(const struct mapping *m)
{
	struct file_id id = {0};

	/* of an unsure mapping, the tag does not tell the bytes */
	if (m->tag >= PF_TAG_FIRST && !mapping_is_unsure(m)) {
		id.tag = m->tag;
		return id;
	}
	id.inode = m->inode;
	id.ctime_ns = m->ctime_ns;
	id.dev_major = m->dev_major;
	id.dev_minor = m->dev_minor;
	return id;
}

struct file_key files_file_key_of(const struct mapping *m, enum file_kind kind, uint64_t root)
{
	struct file_key key = {0};

	key.kind = kind == FILE_MAIN && m->memory_file ? FILE_MEMORY : kind;
	key.root = root;
	if (kind != FILE_VDSO)
		key.file = files_id_of(m);
	return key;
}

/* Finds an entry and moves it to the end, because entries are in the order of use. */
static struct file *find(struct files *f, const struct file_key *key, unsigned hash)
{
	struct file *x;

	HASH_FIND_BYHASHVALUE(hh, f->by_key, key, sizeof(*key), hash, x);
	if (x)
		x->used_ns = now_mono_ns();
	if (x && x->hh.next) {
		HASH_DEL(f->by_key, x);
		HASH_ADD_BYHASHVALUE(hh, f->by_key, key, sizeof(x->key), hash, x);
	}
	return x;
}

struct file *files_file_find(struct files *f, const struct file_key *key)
{
	return find(f, key, hash_bytes(key, sizeof(*key), f->seed));
}

struct file *files_file_get(struct files *f, const struct file_key *key)
{
	unsigned hash = hash_bytes(key, sizeof(*key), f->seed);
	struct file *x = find(f, key, hash);

	if (!x) {
		x = xcalloc(1, sizeof(*x));
		x->key = *key;
		x->copy_fd = -1;
		x->used_ns = now_mono_ns();
		HASH_ADD_BYHASHVALUE(hh, f->by_key, key, sizeof(x->key), hash, x);
	}
	return x;
}

static void file_drop(struct files *f, struct file *x)
{
	HASH_DEL(f->by_key, x);
	files_image_unref(f, x->image);
	files_memory_file_drop(f, x);
	free(x);
}

void files_file_evict(struct files *f, struct file *x)
{
	file_drop(f, x);
	counter_add(counter("podflame_symbol_files_evicted_total", NULL, NULL), 1);
}

/* ---- parsing ---- */

static void count_failure(const char *reason)
{
	counter_add(counter("podflame_symbol_files_failed_total", "reason", reason), 1);
}

void files_count_incomplete(const struct elf_index *index)
{
	static const char name[] = "podflame_symbol_files_incomplete_total";
	struct elf_lack lacks[ELF_LACKS_MAX];
	size_t n = elf_index_lacks(index, lacks);

	for (size_t i = 0; i < n; i++)
		counter_add(counter(name, "reason", lacks[i].word), 1);
	counter_add(counter("podflame_unwind_rows_unsupported_total", NULL, NULL),
		    elf_index_unsupported_rows(index));
}

static const char *open_reason(int error)
{
	switch (error) {
	case -ENOENT:
		return "gone";
	case -EACCES:
	case -EPERM:
		return "not_permitted";
	case -ENOTSUP:
		return "not_a_file";
	case -ESTALE:
	case -EXDEV:
		return "replaced";
	case -EMFILE:
	case -ENFILE:
		return "too_many_files";
	default:
		return "open";
	}
}

static int parse(struct files *f, int fd, struct elf_index **ret)
{
	int r = files_slow_parser_lock(&f->main);

	if (r < 0) {
		count_failure("no_parser");
	} else {
		r = parse_elf(f->main.parser, fd, ret);
		if (r < 0) {
			const char *reason = parse_reason(f->main.parser);

			count_failure(*reason ? reason : "parse");
		}
	}
	pthread_mutex_unlock(&f->main.lock);
	return r;
}

static int parse_copy(struct files *f, int fd, struct elf_index **ret, int *ret_copy,
		      size_t *ret_bytes, uint64_t *ret_copied_ns)
{
	int r = files_memory_file_copy(fd, ret_copy, ret_bytes);

	*ret_copied_ns = now_boot_ns();
	if (r < 0)
		count_failure(r == -E2BIG ? "memory_file_too_large" : "memory_file");
	return r < 0 ? r : parse(f, *ret_copy >= 0 ? *ret_copy : fd, ret);
}

static bool is_rewritten(const struct files *f, const struct mapping *m, int fd)
{
	return fd != f->vdso_fd && !proc_mapping_file_is_unchanged(m);
}

/*
 * Parses a file. Fails if the file was rewritten before or during the parse: then it is not the
 * file with the mapping's ctime.
 */
static int parse_as_mapped(struct files *f, const struct mapping *m, int fd, struct elf_index **ret)
{
	int r = is_rewritten(f, m, fd) ? -ESTALE : parse(f, fd, ret);

	if (r != -ESTALE && !is_rewritten(f, m, fd))
		return r;
	if (r == 0)
		*ret = elf_index_unref(*ret);
	count_failure(open_reason(-ESTALE));
	return -ESTALE;
}

/*
 * Returns whether the file may be parsed. Where another container has not rewritten it, the file
 * with this tag can still be read.
 */
static bool may_try(const struct file *x, const struct mapping *m)
{
	return now_mono_ns() >= x->retry_ns ||
	       (x->error == -ESTALE && x->key.file.tag && m->file_dev != x->tried_dev);
}

static void load(struct files *f, const struct mapping *m, struct file *x)
{
	bool vdso = x->key.kind == FILE_VDSO;
	int fd = vdso ? f->vdso_fd : m->fd, copy = -1;
	struct elf_index *index;
	size_t copy_bytes = 0;
	uint64_t hash = 0, copied_ns = 0;

	x->error = vdso ? -ENODATA : m->open_error ? m->open_error : -EBADF;
	x->retry_ns = now_mono_ns() + RETRY_NS;
	x->tried_dev = m->file_dev;
	if (fd < 0) {
		x->expected = false;
		count_failure(open_reason(x->error));
		return;
	}
	x->busy = true;
	x->parsed_ns = now_mono_ns();
	pthread_mutex_unlock(&f->lock);
	x->error = m->memory_file ? parse_copy(f, fd, &index, &copy, &copy_bytes, &copied_ns)
				  : parse_as_mapped(f, m, fd, &index);
	if (x->error == 0) {
		files_count_incomplete(index);
		hash = files_image_hash(f, index);
	}
	pthread_mutex_lock(&f->lock);
	x->no_program = x->error == -ENOEXEC;
	if (x->error == 0) {
		x->image = files_image_of(f, index, hash);
		files_memory_file_keep(f, x, copy, copy_bytes);
		x->copied_ns = copied_ns;
	} else {
		closep(&copy);
	}
	x->busy = x->expected = false;
	pthread_cond_broadcast(&f->changed);
}

static int key_of(const struct mapping *m, struct file_key *ret)
{
	bool vdso = streq(m->path, "[vdso]");

	if (vdso ? m->start < ADDRESS_32BIT : !m->path[0] || (m->fd < 0 && m->inode == 0))
		return -ENOENT;
	*ret = files_file_key_of(m, vdso ? FILE_VDSO : FILE_MAIN, 0);
	return 0;
}

int files_file_of(struct files *f, const struct mapping *m, struct file **ret)
{
	struct file_key key;
	struct file *x;
	int r = key_of(m, &key);

	if (r < 0)
		return r;
	for (x = files_file_get(f, &key); x->busy; x = files_file_get(f, &key))
		pthread_cond_wait(&f->changed, &f->lock);
	if (!x->image && may_try(x, m))
		load(f, m, x);
	if (x->image)
		*ret = x;
	return x->image ? 0 : x->error;
}

int files_index(struct files *f, const struct mapping *m, struct elf_index **ret)
{
	struct file *x;
	int r;

	pthread_mutex_lock(&f->lock);
	r = files_file_of(f, m, &x);
	if (r == 0)
		*ret = elf_index_ref(x->image->index);
	files_trim(f);
	pthread_mutex_unlock(&f->lock);
	return r;
}

void files_expect(struct files *f, const struct mapping *m, uint64_t owner)
{
	struct file_key key;
	struct file *x;

	if (key_of(m, &key) < 0)
		return;
	pthread_mutex_lock(&f->lock);
	x = files_file_get(f, &key);
	x->expected = !x->image && may_try(x, m);
	if (x->expected)
		x->owner = owner;
	pthread_mutex_unlock(&f->lock);
}

int files_file_for_names(struct files *f, const struct mapping *m, struct file **ret,
			 bool *ret_unparsed)
{
	struct file_key key;
	struct file *x;
	int r = key_of(m, &key);

	*ret_unparsed = false;
	if (r < 0)
		return r;
	x = files_file_find(f, &key);
	if (x && x->image) {
		*ret = x;
		return 0;
	}
	if (x && x->expected)
		return -EAGAIN;
	if (!f->queued)
		return files_file_of(f, m, ret);
	*ret_unparsed = !x || (!x->busy && may_try(x, m));
	return -EAGAIN;
}

int files_index_known(struct files *f, const struct mapping *m, struct elf_index **ret)
{
	struct file_key key;
	struct file *x;
	int r = key_of(m, &key);

	if (r < 0)
		return r;
	pthread_mutex_lock(&f->lock);
	x = files_file_find(f, &key);
	if (x && x->image)
		*ret = elf_index_ref(x->image->index);
	else if (!x || x->busy || may_try(x, m))
		r = -EAGAIN;
	else
		r = x->error;
	pthread_mutex_unlock(&f->lock);
	return r;
}

bool files_no_program(struct files *f, const struct mapping *m)
{
	struct file_key key;
	struct file *x;
	bool no = false;

	if (key_of(m, &key) < 0)
		return false;
	pthread_mutex_lock(&f->lock);
	x = files_file_find(f, &key);
	no = x && !x->image && x->no_program;
	pthread_mutex_unlock(&f->lock);
	return no;
}

/* ---- life ---- */

static uint64_t own_root(void)
{
	_cleanup_close_ int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return files_root(fd);
}

int files_new(const struct files_config *c, struct files **ret)
{
	struct files *f = xcalloc(1, sizeof(*f));
	int r;

	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->changed, NULL);
	pthread_mutex_init(&f->main.lock, NULL);
	pthread_mutex_init(&f->debug.lock, NULL);
	random_bytes(&f->seed, sizeof(f->seed));
	f->main.config = f->debug.config = c->parser;
	f->debug.config.marks = NULL;
	f->self_exe = xstrdup(c->parser.self_exe);
	f->main.config.self_exe = f->debug.config.self_exe = f->self_exe;
	f->demangler = elf_demangler_new(f->self_exe, !c->patient);
	f->cache_bytes = c->cache_bytes ? c->cache_bytes : DEFAULT_CACHE_BYTES;
	f->debug_timeout_ns = c->debug_timeout_ns ? c->debug_timeout_ns : DEFAULT_DEBUG_NS;
	f->debug_max_bytes = c->debug_max_bytes ? c->debug_max_bytes : DEFAULT_DEBUG_BYTES;
	f->debug.config.timeout_ns = f->debug_timeout_ns;
	f->own_root = own_root();
	f->queued = c->queued;
	f->host_debug_dir = xstrdup(c->host_debug_dir);
	f->vdso_fd = files_vdso_copy();
	f->bytes_gauge = counter("podflame_symbol_cache_bytes", NULL, NULL);
	r = parse_new(&f->main.config, &f->main.parser);
	if (r == 0 && c->debuginfod_url && *c->debuginfod_url)
		r = files_debuginfod_new(f, c, files_debug_fetched, &f->debuginfod);
	if (r < 0) {
		files_free(f);
		return r;
	}
	*ret = f;
	return 0;
}

struct files *files_free(struct files *f)
{
	if (!f)
		return NULL;
	files_debuginfod_free(f->debuginfod);
	files_forget_tags(f);
	while (f->by_key)
		file_drop(f, f->by_key);
	slow_parser_done(&f->main);
	slow_parser_done(&f->debug);
	elf_demangler_free(f->demangler);
	closep(&f->vdso_fd);
	free(f->host_debug_dir);
	free(f->self_exe);
	pthread_cond_destroy(&f->changed);
	pthread_mutex_destroy(&f->lock);
	free(f);
	return NULL;
}

struct demangler *files_demangler(struct files *f)
{
	return f->demangler;
}

size_t files_bytes(struct files *f)
{
	size_t n;

	pthread_mutex_lock(&f->lock);
	n = f->bytes;
	pthread_mutex_unlock(&f->lock);
	return n;
}

size_t files_count(struct files *f)
{
	size_t n;

	pthread_mutex_lock(&f->lock);
	n = HASH_COUNT(f->by_key);
	pthread_mutex_unlock(&f->lock);
	return n;
}
