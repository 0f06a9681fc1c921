/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file finds debug indexes: a debug index has the names, lines and inlined functions that a
 * file's DWARF or separate debug file adds to the file's own index. If an index was made from the
 * file's own DWARF, from the host's debug files or from debuginfod, it is used for every process
 * with that file. An index of a container's debug file is used only for the processes of that
 * container. The search may block its thread.
 */
#include "node/files/internal.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <unistd.h>

/* a new search begins after this time, because packages with debug files may be installed later */
#define RETRY_NS (3600 * NSEC_PER_SEC)
#define DWOS_MAX (PARSE_FDS_MAX - 2) /* .dwo files of one file; further ones are counted */

/* The search for the debug index of one file. */
struct debug_search {
	struct files *f;
	const struct mapping *m;
	struct elf_index *main;
	struct place root; /* the container's root; dir_fd -1: none */
};

void files_debug_count(const char *result)
{
	counter_add(counter("podflame_debug_files_total", "result", result), 1);
}

static const char *find_reason(int error)
{
	switch (error) {
	case -EBADMSG:
		return "wrong_crc";
	case -E2BIG:
		return "too_big";
	case -ENOTSUP:
		return "not_a_file";
	case -EXDEV:
		return "other_file_system";
	case -ETIMEDOUT:
		return "timeout";
	default:
		return "open";
	}
}

static void count_find(int error)
{
	if (error != -ENOENT && error != -ENOTDIR)
		files_debug_count(find_reason(error));
}

/* ---- entries ---- */

/*
 * Returns whether the caller must fill the entry: no other thread is filling it, it has no index,
 * and the time for a new try has come. The entry gets the same owner as the entry of the file
 * itself.
 */
static bool claim(struct files *f, const struct file_key *key)
{
	struct file_key own = *key;
	struct file *x, *program;
	bool mine;

	own.kind = FILE_MAIN;
	own.root = 0;
	pthread_mutex_lock(&f->lock);
	program = files_file_find(f, &own);
	x = files_file_get(f, key);
	mine = !x->busy && !x->image && now_mono_ns() >= x->retry_ns;
	x->busy |= mine;
	if (mine && program)
		x->owner = program->owner;
	files_trim(f);
	pthread_mutex_unlock(&f->lock);
	return mine;
}

/* Ends a search that began with a claim. Takes ownership of the index; NULL: none was found. */
static void settle(struct files *f, const struct file_key *key, struct elf_index *index)
{
	uint64_t hash = index ? files_image_hash(f, index) : 0;
	struct file *x;

	if (index)
		files_count_incomplete(index);
	pthread_mutex_lock(&f->lock);
	x = files_file_get(f, key);
	x->busy = false;
	x->retry_ns = now_mono_ns() + RETRY_NS;
	if (index && !x->image)
		x->image = files_image_of(f, index, hash);
	else
		elf_index_unref(index);
	files_trim(f);
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
}

/* Returns a new reference to the index of an entry, or NULL if there is none. */
static struct elf_index *known(struct files *f, const struct file_key *key)
{
	struct elf_index *index = NULL;
	struct file *x;

	pthread_mutex_lock(&f->lock);
	x = files_file_find(f, key);
	if (x && x->image)
		index = elf_index_ref(x->image->index);
	pthread_mutex_unlock(&f->lock);
	return index;
}

/* ---- parsing ---- */

static int parse_found(struct files *f, const struct parse_debug_files *p, struct elf_index **ret)
{
	int r = files_slow_parser_lock(&f->debug);

	if (r < 0) {
		files_debug_count("no_parser");
	} else {
		r = parse_debug(f->debug.parser, p, ret);
		if (r < 0)
			files_debug_count(parse_reason(f->debug.parser));
	}
	pthread_mutex_unlock(&f->debug.lock);
	return r;
}

/* Parses a debug file. It must have this build id, unless build_id is "". */
static int parse_one(struct files *f, int main_fd, int debug_fd, const char *build_id,
		     struct elf_index **ret)
{
	struct parse_debug_files p = {.main_fd = main_fd, .debug_fd = debug_fd};
	struct elf_index *index;
	int r = parse_found(f, &p, &index);

	if (r < 0)
		return r;
	if (*build_id && !streq(elf_index_build_id(index), build_id)) {
		elf_index_unref(index);
		files_debug_count("wrong_build_id");
		return -EBADMSG;
	}
	*ret = index;
	return 0;
}

int files_debug_fetched(struct files *f, const struct file_key *key, const char *build_id,
			int main_fd, int debug_fd)
{
	struct elf_index *index = NULL;
	int r = -ENOENT;

	if (debug_fd >= 0) {
		r = parse_one(f, main_fd, debug_fd, build_id, &index);
		files_debug_count(r < 0 ? "debuginfod_refused" : "debuginfod");
	}
	settle(f, key, index);
	return r;
}

/* ---- split DWARF, dwz ---- */

/*
 * Opens a file that a debug file names. A file of dwz is looked up in .dwz below the directory of
 * debug files; the part of its path before /.dwz/ is ignored. A .dwo file is looked up where the
 * compiler has put it.
 */
static int open_wanted(const struct debug_search *s, const struct place *p,
		       const struct elf_wanted *w, int *ret_fd)
{
	const char *dwz = w->dwo_id ? NULL : strstr(w->path, "/.dwz/");
	const char *slash = strrchr(s->m->path, '/');
	_cleanup_free_ char *path = NULL;

	if (dwz)
		path = xasprintf("%s%s", p->debug_dir, dwz);
	else if (*w->path == '/')
		path = xstrdup(w->path);
	else
		path = xasprintf("%.*s/%s", (int)(slash ? slash - s->m->path : 0), s->m->path,
				 w->path);
	return files_find_open(p, path, ret_fd);
}

static size_t open_all_wanted(const struct debug_search *s, const struct place *p,
			      const struct elf_index *index, int fds[DWOS_MAX])
{
	size_t n = elf_index_n_wanted(index), n_open = 0;

	for (size_t i = 0; i < MIN(n, (size_t)DWOS_MAX); i++) {
		struct elf_wanted w = elf_index_wanted(index, i);

		fds[i] = -1;
		if (open_wanted(s, p, &w, &fds[i]) == 0)
			n_open++;
		else
			files_debug_count(w.dwo_id ? "dwo_missing" : "dwz_missing");
	}
	for (size_t i = DWOS_MAX; i < n; i++)
		files_debug_count("dwo_too_many");
	return n_open;
}

/*
 * The agent cannot read DWP packages. It counts them, so that users of such packages can see why
 * names are missing.
 */
static void count_dwp(const struct debug_search *s)
{
	_cleanup_free_ char *path = xasprintf("%s.dwp", s->m->path);
	_cleanup_close_ int fd = -1;

	if (files_find_open(&s->root, path, &fd) == 0)
		files_debug_count("dwp_unsupported");
}

/*
 * Parses the file again, together with the .dwo files and the file of dwz that are found below p,
 * and replaces *index. Returns false if none is found or the parse fails.
 */
static bool add_wanted(const struct debug_search *s, const struct place *p, int debug_fd,
		       struct elf_index **index)
{
	struct parse_debug_files files = {.main_fd = s->m->fd, .debug_fd = debug_fd};
	struct elf_index *more;
	int fds[DWOS_MAX], r = -ENOENT;

	if (!(elf_index_flags(*index) & ELF_INDEX_DWO) || p->dir_fd < 0)
		return false;
	files.dwo_fds = fds;
	files.n_dwo_fds = MIN(elf_index_n_wanted(*index), (size_t)DWOS_MAX);
	if (open_all_wanted(s, p, *index, fds) > 0)
		r = parse_found(s->f, &files, &more);
	else
		count_dwp(s);
	for (size_t i = 0; i < files.n_dwo_fds; i++)
		closep(&fds[i]);
	if (r < 0)
		return false;
	files_debug_count("dwo");
	elf_index_unref(*index);
	*index = more;
	return true;
}

/* ---- where ---- */

static void try_own(const struct debug_search *s, uint64_t root)
{
	struct file_key everyone = files_file_key_of(s->m, FILE_DEBUG, 0);
	struct file_key container = files_file_key_of(s->m, FILE_DEBUG, root);
	struct elf_index *index = NULL;

	if (claim(s->f, &everyone)) {
		if (parse_one(s->f, s->m->fd, -1, "", &index) == 0)
			files_debug_count("own");
		settle(s->f, &everyone, index);
	}
	index = known(s->f, &everyone);
	if (index && elf_index_flags(index) & ELF_INDEX_DWO && root && claim(s->f, &container)) {
		if (!add_wanted(s, &s->root, -1, &index))
			index = elf_index_unref(index);
		settle(s->f, &container, TAKE_PTR(index));
	}
	elf_index_unref(index);
}

static int try_place(const struct debug_search *s, const struct place *p, struct elf_index **ret)
{
	const char *build_id = elf_index_build_id(s->main), *link;
	_cleanup_close_ int fd = -1;
	uint32_t crc;
	int r = files_find_build_id(p, build_id, &fd);

	if (r == 0)
		r = parse_one(s->f, s->m->fd, fd, build_id, ret);
	else
		count_find(r);
	if (r == 0) {
		files_debug_count(p == &s->root ? "build_id" : "host_build_id");
	} else {
		closep(&fd);
		fd = -1;
		link = elf_index_debuglink(s->main, &crc);
		r = files_find_debuglink(p, s->m->path, link, crc, &fd);
		count_find(r);
		if (r == 0)
			r = parse_one(s->f, s->m->fd, fd, "", ret);
		if (r == 0)
			files_debug_count(p == &s->root ? "debuglink" : "host_debuglink");
	}
	if (r == 0)
		add_wanted(s, p, fd, ret);
	return r;
}

static bool try_container(const struct debug_search *s, uint64_t root)
{
	struct file_key key = files_file_key_of(s->m, FILE_DEBUG, root);
	struct elf_index *index = NULL;
	bool found;

	if (!root)
		return false;
	if (claim(s->f, &key)) {
		try_place(s, &s->root, &index);
		settle(s->f, &key, TAKE_PTR(index));
	}
	index = known(s->f, &key);
	found = index != NULL;
	elf_index_unref(index);
	return found;
}

/* Searches in the host's directory of debug files, which an administrator has installed. */
static void try_host(const struct debug_search *s, struct elf_index **ret)
{
	const char *path = s->f->host_debug_dir;
	struct place p = s->root;
	_cleanup_close_ int fd = -1;

	if (!path || !*path)
		return;
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	p.dir_fd = fd;
	p.debug_dir = "";
	p.beside = false;
	p.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
	try_place(s, &p, ret);
}

static void try_everyones(const struct debug_search *s)
{
	struct file_key key = files_file_key_of(s->m, FILE_DEBUG, 0);
	const char *build_id = elf_index_build_id(s->main);
	struct elf_index *index = NULL;

	if (!claim(s->f, &key))
		return;
	try_host(s, &index);
	if (!index && s->f->debuginfod && *build_id &&
	    files_debuginfod_ask(s->f->debuginfod, &key, build_id, s->m->fd) == 0)
		return;
	if (!index)
		files_debug_count("none");
	settle(s->f, &key, index);
}

static void find_debug(struct files *f, const struct mapping *m, struct elf_index *main,
		       int root_fd)
{
	struct debug_search s = {.f = f, .m = m, .main = main};
	uint64_t root = files_root(root_fd);
	unsigned flags;

	s.root = (struct place){
		.dir_fd = root_fd,
		.debug_dir = "/usr/lib/debug",
		.beside = true,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS |
			   (root == f->own_root ? 0 : RESOLVE_NO_XDEV),
		.max_bytes = f->debug_max_bytes,
		.timeout_ns = f->debug_timeout_ns,
	};
	flags = elf_index_flags(s.main);
	/*
	 * A Go program needs no debug index: Go's own tables have as much information as its DWARF.
	 */
	if (flags & ELF_INDEX_HAS_DWARF && !(flags & ELF_INDEX_GO))
		try_own(&s, root);
	else if (!(flags & ELF_INDEX_GO) && !try_container(&s, root))
		try_everyones(&s);
}

void files_debug(struct files *f, const struct mapping *m, int root_fd)
{
	struct elf_index *main;
	struct mapping seen;

	if (m->fd < 0 || files_index(f, m, &main) < 0)
		return;
	if (!m->memory_file) {
		find_debug(f, m, main, root_fd);
	} else if (files_memory_file_seen(f, m, &seen) == 0) {
		find_debug(f, &seen, main, root_fd);
		close(seen.fd);
	}
	elf_index_unref(main);
}
