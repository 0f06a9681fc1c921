/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent keeps of files, and for how long. The test program is its own parse child. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>

#include <cmocka.h>

#include "node/files/internal.h"
#include "node/files/testfiles.h"
#include "node/parse/testelf.h"

static struct files *make(size_t cache_bytes)
{
	struct files_config c = {.cache_bytes = cache_bytes};
	struct files *f;

	assert_int_equal(files_new(&c, &f), 0);
	return f;
}

static struct mapping copy_of_program(const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);

	run("cp /proc/%d/exe %s", getpid(), path);
	return map_of(path);
}

static void ask(struct files *f, const struct mapping *m)
{
	struct file_names names;

	files_names(f, m, 0, m->file_offset, &names);
	files_names_done(f, &names);
}

static void indexes_are_kept_under_the_limit(void **state)
{
	struct counter *evicted = counter("podflame_symbol_files_evicted_total", NULL, NULL);
	struct files *f = make(4096); /* the cache is smaller than one index */
	struct mapping a = copy_of_program("a"), b = map_of("/bin/sh");
	uint64_t before = counter_get(evicted);
	size_t bytes;

	(void)state;
	ask(f, &a);
	bytes = files_bytes(f);
	assert_true(bytes > 4096);
	ask(f, &b);
	assert_int_equal(files_count(f), 1);
	assert_int_equal(counter_get(evicted), before + 1);
	ask(f, &a);
	assert_int_equal(files_bytes(f), bytes);
	close(a.fd);
	close(b.fd);
	files_free(f);
}

static void tags_have_a_limit(void **state)
{
	struct counter *evicted = counter("podflame_file_tags_evicted_total", NULL, NULL);
	_cleanup_free_ char *path = xcalloc(1, 1 << 20);
	struct mapping m = {.path = path, .fd = -1, .inode = 7}, found;
	struct files *f = make(0);
	uint64_t before = counter_get(evicted);

	(void)state;
	memset(path, 'a', (1 << 20) - 1);
	for (m.tag = 100; m.tag < 107; m.tag++)
		files_tagged(f, &m);
	m.tag = 100;
	files_tagged(f, &m); /* tag 100 is seen again, so it is not the oldest any more */
	assert_int_equal(counter_get(evicted), before);
	m.tag = 107;
	/* each tag also needs some memory besides its path, so the eighth does not fit */
	files_tagged(f, &m);
	assert_int_equal(counter_get(evicted), before + 1);
	assert_false(files_knows_tag(f, 101));
	assert_true(files_of_tag(f, 100, &found));
	assert_int_equal(found.inode, 7);
	assert_string_equal(found.path, path);
	free(found.path);
	assert_false(files_of_tag(f, 101, &found));
	files_free(f);
}

/* Parses the file for an owner, as the agent's queue does for a cgroup. */
static void parse_for(struct files *f, const struct mapping *m, uint64_t owner)
{
	struct elf_index *index;

	files_expect(f, m, owner);
	assert_int_equal(files_index(f, m, &index), 0);
	elf_index_unref(index);
}

static bool is_kept(struct files *f, const struct mapping *m)
{
	struct elf_index *index;
	bool kept = files_index_known(f, m, &index) == 0;

	if (kept)
		elf_index_unref(index);
	return kept;
}

/* Returns the file as another container of the same image maps it. */
static struct mapping on_other_device(const struct mapping *m)
{
	struct mapping other = *m;

	other.dev_minor++;
	other.file_dev++;
	return other;
}

/*
 * A second pod of an image needs no parse: its samples have names as soon as the first pod's have
 * them, also those of a process that is gone before it was read.
 */
static void a_file_of_several_containers_is_parsed_once(void **state)
{
	struct files *f = make(0);
	struct mapping first = copy_of_program("a"), second, found;
	struct file_names names;

	(void)state;
	first.tag = PF_TAG_FIRST;
	second = on_other_device(&first);
	files_tagged(f, &first);
	parse_for(f, &first, 1);
	files_tagged(f, &second);
	assert_true(is_kept(f, &second));
	assert_true(files_of_tag(f, second.tag, &found));
	files_names(f, &found, 0, 0, &names);
	assert_int_not_equal(names.build_id[0], '\0');
	files_names_done(f, &names);
	free(found.path);
	second.tag++; /* other bytes */
	assert_false(is_kept(f, &second));
	second.tag = PF_TAG_UNKNOWN;
	assert_false(is_kept(f, &second));
	close(first.fd);
	files_free(f);
}

/* One container rewrites its copy of the file. That does not keep the file from the others. */
static void a_file_that_one_container_rewrites_is_parsed_for_others(void **state)
{
	struct files *f = make(0);
	struct mapping rewritten = copy_of_program("a"), other;
	struct elf_index *index;

	(void)state;
	rewritten.tag = PF_TAG_FIRST;
	other = on_other_device(&rewritten);
	rewritten.ctime_ns--; /* it was mapped before that */
	assert_int_equal(files_index(f, &rewritten, &index), -ESTALE);
	assert_int_equal(files_index_known(f, &other, &index), -EAGAIN);
	parse_for(f, &other, 1);
	assert_true(is_kept(f, &rewritten));
	close(other.fd);
	files_free(f);
}

/* The container that has rewritten its file cannot make the agent parse it again and again. */
static void a_rewritten_file_of_a_container_is_tried_once(void **state)
{
	struct counter *replaced =
		counter("podflame_symbol_files_failed_total", "reason", "replaced");
	uint64_t before = counter_get(replaced);
	struct mapping rewritten = copy_of_program("a");
	struct files *f = make(0);
	struct elf_index *index;

	(void)state;
	rewritten.tag = PF_TAG_FIRST;
	rewritten.ctime_ns--; /* it was mapped before that */
	assert_int_equal(files_index_known(f, &rewritten, &index), -EAGAIN);
	for (int i = 0; i < 2; i++) {
		files_expect(f, &rewritten, 1);
		assert_int_equal(files_index(f, &rewritten, &index), -ESTALE);
		assert_int_equal(files_index_known(f, &rewritten, &index), -ESTALE);
		ask(f, &rewritten);
	}
	assert_int_equal(counter_get(replaced), before + 1);
	f->queued = true;
	assert_false(files_unparsed(f, &rewritten));
	close(rewritten.fd);
	files_free(f);
}

/* The tag of a memory file stays when its bytes change, so it does not tell the bytes. */
static void a_memory_file_is_not_known_by_its_tag(void **state)
{
	struct mapping m = {.inode = 7, .tag = PF_TAG_FIRST};

	(void)state;
	assert_int_equal(files_id_of(&m).tag, PF_TAG_FIRST);
	m.memory_file = true;
	assert_int_equal(files_id_of(&m).tag, 0);
	assert_int_equal(files_id_of(&m).inode, 7);
}

enum { N_CACHED = 6 };
struct cached {
	struct mapping maps[N_CACHED];
	struct files *files; /* with a cache that is one byte too small for all files */
};

static struct cached cached_new(void)
{
	static const char *const paths[N_CACHED] = {"/bin/cat", "/bin/ls", "/bin/dd",
						    "/bin/mv",	"/bin/cp", "/bin/sh"};
	struct files *f = make(0);
	struct cached c;

	for (size_t i = 0; i < N_CACHED; i++) {
		c.maps[i] = map_of(paths[i]);
		parse_for(f, &c.maps[i], 0);
	}
	c.files = make(files_bytes(f) - 1);
	files_free(f);
	return c;
}

static void cached_done(struct cached *c)
{
	for (size_t i = 0; i < N_CACHED; i++)
		close(c->maps[i].fd);
	files_free(c->files);
}

static void who_has_much_pushes_out_his_own(void **state)
{
	struct cached c = cached_new();

	(void)state;
	for (size_t i = 0; i < N_CACHED; i++)
		parse_for(c.files, &c.maps[i], i == 0 ? 1 : 2);
	assert_true(is_kept(c.files, &c.maps[0])); /* kept, although it was used least recently */
	assert_false(is_kept(c.files, &c.maps[1]));
	assert_true(is_kept(c.files, &c.maps[N_CACHED - 1]));
	cached_done(&c);
}

/*
 * The cache is full of files of containers that have ended. Each of them had only a small share,
 * but a new container must be able to evict these files.
 */
static void who_is_gone_leaves_room(void **state)
{
	struct cached c = cached_new();

	(void)state;
	for (size_t i = 0; i < 4; i++)
		parse_for(c.files, &c.maps[i], 2 + i);
	for (struct file *x = c.files->by_key; x; x = x->hh.next)
		x->used_ns -= 3600 * NSEC_PER_SEC;
	parse_for(c.files, &c.maps[4], 1);
	parse_for(c.files, &c.maps[5], 1);
	assert_false(is_kept(c.files, &c.maps[0]));
	assert_true(is_kept(c.files, &c.maps[4]));
	assert_true(is_kept(c.files, &c.maps[5]));
	cached_done(&c);
}

static void equal_files_share_one_index(void **state)
{
	struct mapping a = copy_of_program("a"), b = copy_of_program("b");
	struct elf_index *index_a, *index_b;
	struct files *f = make(0);

	(void)state;
	assert_int_equal(files_index(f, &a, &index_a), 0);
	assert_int_equal(files_index(f, &b, &index_b), 0);
	assert_ptr_equal(index_a, index_b);
	assert_int_equal(files_count(f), 2);
	assert_int_equal(files_bytes(f), elf_index_bytes(index_a));
	elf_index_unref(index_a);
	files_free(f);
	/* an index is valid as long as the test has a reference */
	assert_true(elf_index_n_symbols(index_b) > 0);
	elf_index_unref(index_b);
	close(a.fd);
	close(b.fd);
}

static void failed_files_are_counted_once(void **state)
{
	struct counter *gone = counter("podflame_symbol_files_failed_total", "reason", "gone");
	struct mapping m = {.start = 4096,
			    .end = 8192,
			    .path = "/gone.so",
			    .fd = -1,
			    .open_error = -ENOENT,
			    .inode = 5};
	struct files *f = make(0);
	uint64_t before = counter_get(gone);
	struct file_names names;
	struct elf_index *index;

	(void)state;
	files_names(f, &m, 0, 5000, &names);
	assert_int_equal(names.n, 0);
	assert_string_equal(names.build_id, "");
	assert_int_equal(names.address, 0);
	files_names_done(f, &names);
	assert_int_equal(files_index(f, &m, &index), -ENOENT);
	assert_int_equal(counter_get(gone), before + 1);
	files_free(f);
}

/*
 * The file's bytes have changed since the mapping was read, so the agent must not use their rows or
 * names.
 */
static void a_file_that_was_rewritten_since_is_not_parsed(void **state)
{
	struct counter *replaced =
		counter("podflame_symbol_files_failed_total", "reason", "replaced");
	struct mapping m = copy_of_program("rewritten"), now;
	_cleanup_free_ char *path = xasprintf("%s/rewritten", dir);
	uint64_t before = counter_get(replaced);
	struct files *f = make(0);
	struct elf_index *index;

	(void)state;
	do {
		run("cp /bin/sh %s", path);
		now = map_of(path);
		close(m.fd);
		m.fd = now.fd;
		/* tries again, if both changes were within one tick of the clock for ctime */
	} while (now.ctime_ns == m.ctime_ns);
	assert_int_equal(now.inode, m.inode);
	assert_int_equal(files_index(f, &m, &index), -ESTALE);
	assert_int_equal(counter_get(replaced), before + 1);
	assert_int_equal(files_index(f, &now, &index), 0);
	elf_index_unref(index);
	close(now.fd);
	files_free(f);
}

static void what_a_file_lacks_is_counted(void **state)
{
	static const char name[] = "podflame_symbol_files_incomplete_total";
	const struct test_section s[] = {
		TESTELF_TEXT, {".gnu_debugdata", "?", 1, 0, 0}, {NULL, NULL, 0, 0, 0}};
	_cleanup_close_ int fd = testelf_memfd(s, ET_DYN);
	_cleanup_free_ char *path = xasprintf("/proc/self/fd/%d", fd);
	struct mapping m = map_of(path);
	uint64_t names_cut = counter_get(counter(name, "reason", "names_cut"));
	uint64_t no_unwind = counter_get(counter(name, "reason", "no_unwind"));
	struct files *f = make(0);
	struct elf_index *index;

	(void)state;
	for (int times = 0; times < 2; times++) {
		assert_int_equal(files_index(f, &m, &index), 0);
		elf_index_unref(index);
	}
	assert_int_equal(counter_get(counter(name, "reason", "names_cut")), names_cut + 1);
	assert_int_equal(counter_get(counter(name, "reason", "no_unwind")), no_unwind + 1);
	close(m.fd);
	files_free(f);
}

static void what_is_no_file_is_no_failure(void **state)
{
	struct mapping jit = {.start = 4096, .end = 8192, .path = "", .fd = -1};
	struct mapping vdso32 = {.start = 4096, .end = 8192, .path = "[vdso]", .fd = -1};
	struct files *f = make(0);
	struct elf_index *index;

	(void)state;
	assert_int_equal(files_index(f, &jit, &index), -ENOENT);
	assert_int_equal(files_index(f, &vdso32, &index), -ENOENT);
	assert_int_equal(files_count(f), 0);
	files_free(f);
}

struct asker {
	struct files *f;
	const struct mapping *m;
	struct elf_index *index;
};

static void what_is_known_needs_no_parser(void **state)
{
	struct files *f = make(0);
	struct mapping good = copy_of_program("known"), bad, jit = {.path = ""};
	struct elf_index *one, *two;
	_cleanup_free_ char *path = xasprintf("%s/unknown", dir);

	(void)state;
	assert_int_equal(file_write_atomic(path, "no ELF", 6, 0644), 0);
	bad = map_of(path);
	assert_int_equal(files_index_known(f, &good, &one), -EAGAIN);
	assert_int_equal(files_index(f, &good, &one), 0);
	assert_int_equal(files_index_known(f, &good, &two), 0);
	assert_ptr_equal(one, two);
	elf_index_unref(one);
	elf_index_unref(two);
	assert_int_equal(files_index_known(f, &bad, &one), -EAGAIN);
	assert_int_equal(files_index(f, &bad, &one), -ENOEXEC);
	assert_int_equal(files_index_known(f, &bad, &one), -ENOEXEC);
	assert_int_equal(files_index_known(f, &jit, &one), -ENOENT);
	close(good.fd);
	close(bad.fd);
	files_free(f);
}

/* Names do not wait for a file that another thread will parse. */
static void what_is_expected_is_not_waited_for(void **state)
{
	struct files *f = make(0);
	struct mapping m = copy_of_program("expected"), jit = {.path = ""};
	struct file_names names;
	struct elf_index *index;

	(void)state;
	files_expect(f, &jit, 0);
	files_expect(f, &m, 0);
	files_names(f, &m, 0, m.file_offset, &names);
	assert_string_equal(names.build_id, "");
	files_names_done(f, &names);
	assert_int_equal(files_index_known(f, &m, &index), -EAGAIN);
	assert_int_equal(files_index(f, &m, &index), 0);
	files_names(f, &m, 0, m.file_offset, &names);
	assert_string_equal(names.build_id, elf_index_build_id(index));
	files_names_done(f, &names);
	files_expect(f, &m, 0); /* the file is parsed already, so this has no effect */
	files_names(f, &m, 0, m.file_offset, &names);
	assert_string_equal(names.build_id, elf_index_build_id(index));
	files_names_done(f, &names);
	elf_index_unref(index);
	close(m.fd);
	files_free(f);
}

static void *ask_for_index(void *arg)
{
	struct asker *a = arg;

	if (files_index(a->f, a->m, &a->index) < 0)
		a->index = NULL;
	return NULL;
}

static void many_threads_parse_a_file_once(void **state)
{
	struct mapping m = copy_of_program("a");
	struct files *f = make(0);
	struct asker askers[8];
	pthread_t threads[8];

	(void)state;
	for (size_t i = 0; i < 8; i++) {
		askers[i] = (struct asker){f, &m, NULL};
		assert_int_equal(pthread_create(&threads[i], NULL, ask_for_index, &askers[i]), 0);
	}
	for (size_t i = 0; i < 8; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	for (size_t i = 0; i < 8; i++) {
		assert_non_null(askers[i].index);
		assert_ptr_equal(askers[i].index, askers[0].index);
	}
	for (size_t i = 0; i < 8; i++)
		elf_index_unref(askers[i].index);
	assert_int_equal(files_count(f), 1);
	files_free(f);
	close(m.fd);
}

/*
 * This program has only one child: the parser of main indexes. The test stops this child, as if a
 * hostile file took very long.
 */
static void others_do_not_wait_for_a_parse(void **state)
{
	struct mapping known = copy_of_program("a"), slow = map_of("/bin/sh");
	struct asker asker = {.m = &slow};
	_cleanup_free_ char *child = NULL;
	struct elf_index *index;
	struct files *f = make(0);
	pthread_t thread;

	(void)state;
	assert_int_equal(files_index(f, &known, &index), 0);
	elf_index_unref(index);
	child = line_of("pgrep -P %d -f %s", getpid(), PARSE_CHILD_VERB);
	assert_int_equal(kill(atoi(child), SIGSTOP), 0);
	asker.f = f;
	assert_int_equal(pthread_create(&thread, NULL, ask_for_index, &asker), 0);
	while (files_count(f) < 2)
		sched_yield();
	ask(f, &known); /* the caller's file is answered while the other thread waits */
	assert_int_equal(files_count(f), 2);
	assert_int_equal(kill(atoi(child), SIGCONT), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_non_null(asker.index);
	elf_index_unref(asker.index);
	files_free(f);
	close(known.fd);
	close(slow.fd);
}

/* ---- debug files ---- */

/*
 * Searches for the debug file of a container with an empty cache. The result must be counted as
 * `word`, and give the name.
 */
static void assert_search(const struct container *c, const char *word, const char *name)
{
	struct files *f = make(0);
	uint64_t before = result(word);

	assert_name(f, c, "(none)");
	files_debug(f, &c->m, c->root_fd);
	assert_int_equal(result(word), before + 1);
	assert_name(f, c, name);
	files_debug(f, &c->m, c->root_fd); /* a file is searched for only once */
	assert_int_equal(result(word), before + 1);
	files_free(f);
}

static void debug_files_are_found(void **state)
{
	_cleanup_free_ char *debug_dir = NULL;
	struct container c;

	(void)state;
	compile("");
	c = make_container("a", "prog");
	assert_search(&c, "none", "(none)");
	run("cp %s/prog.debug %s/app/", dir, c.root);
	assert_search(&c, "debuglink", "hidden_function");
	run("mkdir %s/app/.debug && mv %s/app/prog.debug %s/app/.debug/", c.root, c.root, c.root);
	assert_search(&c, "debuglink", "hidden_function");
	run("mkdir %s/usr/lib/debug/app && mv %s/app/.debug/prog.debug %s/usr/lib/debug/app/",
	    c.root, c.root, c.root);
	assert_search(&c, "debuglink", "hidden_function");
	run("rm %s/usr/lib/debug/app/prog.debug", c.root);
	debug_dir = xasprintf("%s/usr/lib/debug", c.root);
	put_by_build_id(&c, debug_dir, "cp prog.debug");
	assert_search(&c, "build_id", "hidden_function");
	/* A link is followed within the container's root. */
	run("mkdir %s/opt && cp %s/prog.debug %s/opt/", c.root, dir, c.root);
	put_by_build_id(&c, debug_dir, "ln -sf /opt/prog.debug");
	assert_search(&c, "build_id", "hidden_function");
	container_done(&c);
}

static void debug_files_that_do_not_belong_are_refused(void **state)
{
	_cleanup_free_ char *debug_dir = NULL, *out = NULL;
	struct container c;

	(void)state;
	compile("");
	c = make_container("a", "prog");
	debug_dir = xasprintf("%s/usr/lib/debug", c.root);
	out = xasprintf("ln -sf %s/prog.debug", dir);
	run("cp %s/prog.debug %s/app/ && echo >>%s/app/prog.debug", dir, c.root, c.root);
	assert_search(&c, "wrong_crc", "(none)");
	run("rm %s/app/prog.debug", c.root);
	put_by_build_id(&c, debug_dir, out);
	/* the link leads out of the root, so nothing is found */
	assert_search(&c, "none", "(none)");
	put_by_build_id(&c, debug_dir, "rm");
	put_by_build_id(&c, debug_dir, "mkfifo");
	assert_search(&c, "not_a_file", "(none)");
	put_by_build_id(&c, debug_dir, "rm");
	put_by_build_id(&c, debug_dir, "cp /bin/sh");
	assert_search(&c, "wrong_build_id", "(none)");
	put_by_build_id(&c, debug_dir, "cp prog.c");
	assert_search(&c, "not_elf", "(none)");
	put_by_build_id(&c, debug_dir, "truncate -s 3G");
	assert_search(&c, "too_big", "(none)");
	container_done(&c);
}

static void a_containers_debug_file_names_its_own_processes(void **state)
{
	_cleanup_free_ char *debug_dir = NULL;
	struct container a, b;
	struct files *f;

	(void)state;
	compile("");
	a = make_container("a", "prog");
	b = make_container("b", "prog");
	debug_dir = xasprintf("%s/usr/lib/debug", a.root);
	put_by_build_id(&a, debug_dir, "cp prog.debug");
	f = make(0);
	close(b.m.fd);
	b.m = a.m; /* both containers have the same file, of one container image */
	files_debug(f, &a.m, a.root_fd);
	files_debug(f, &b.m, b.root_fd);
	assert_name(f, &a, "hidden_function");
	assert_name(f, &b, "(none)");
	files_free(f);
	close(b.root_fd);
	container_done(&a);
}

static void the_hosts_debug_files_name_everyones_processes(void **state)
{
	_cleanup_free_ char *host = xasprintf("%s/host", dir);
	struct files_config config = {.host_debug_dir = host};
	uint64_t before = result("host_build_id");
	struct container a, b;
	struct files *f;

	(void)state;
	compile("");
	a = make_container("a", "prog");
	b = make_container("b", "prog");
	put_by_build_id(&a, host, "cp prog.debug");
	assert_int_equal(files_new(&config, &f), 0);
	files_debug(f, &a.m, a.root_fd);
	files_debug(f, &b.m, b.root_fd);
	assert_name(f, &a, "hidden_function");
	assert_name(f, &b, "hidden_function");
	/* two copies of the program are two files */
	assert_int_equal(result("host_build_id"), before + 2);
	files_free(f);
	container_done(&a);
	container_done(&b);
}

/*
 * Whether the module files knows that inner is inlined, somewhere near the start of
 * hidden_function.
 */
static bool knows_inlined(struct files *f, const struct container *c)
{
	bool found = false;

	for (uint64_t i = 0; i < 32 && !found; i++) {
		struct file_names names;

		files_names(f, &c->m, files_root(c->root_fd), c->hidden + i, &names);
		found = names.n == 3 && streq(names.names[0].name, "inner") &&
			names.names[0].inlined && streq(names.names[1].name, "outer") &&
			names.names[1].inlined && streq(names.names[2].name, "hidden_function") &&
			!names.names[2].inlined;
		files_names_done(f, &names);
	}
	return found;
}

static void the_files_own_dwarf_is_used(void **state)
{
	uint64_t before = result("own");
	struct container c;
	struct files *f;

	(void)state;
	compile("");
	c = make_container("a", "prog.full");
	f = make(0);
	assert_name(f, &c, "hidden_function");
	assert_false(knows_inlined(f, &c));
	files_debug(f, &c.m, c.root_fd);
	assert_int_equal(result("own"), before + 1);
	assert_true(knows_inlined(f, &c));
	files_free(f);
	container_done(&c);
}

static void dwo_files_come_from_the_container(void **state)
{
	uint64_t missing = result("dwo_missing"), used = result("dwo");
	uint64_t packages = result("dwp_unsupported");
	struct container a, b;
	struct files *f;

	(void)state;
	compile("-gsplit-dwarf");
	a = make_container("a", "prog.full");
	b = make_container("b", "prog.full");
	run("mkdir -p %s/%s && cp %s/*.dwo %s/%s/ && touch %s/app/prog.dwp", a.root, dir, dir,
	    a.root, dir, b.root);
	f = make(0);
	close(b.m.fd);
	b.m = a.m;
	files_debug(f, &a.m, a.root_fd);
	files_debug(f, &b.m, b.root_fd);
	assert_int_equal(result("dwo"), used + 1);
	assert_int_equal(result("dwo_missing"), missing + 1);
	assert_int_equal(result("dwp_unsupported"), packages + 1);
	assert_true(knows_inlined(f, &a));
	assert_false(knows_inlined(f, &b));
	assert_name(f, &b, "hidden_function");
	files_free(f);
	close(b.root_fd);
	container_done(&a);
}

/*
 * dwz moves names out of many debug files into one file. This file is looked up where the debug
 * file was found.
 */
static void dwz_files_come_from_where_the_debug_file_is(void **state)
{
	_cleanup_free_ char *debug_dir = NULL, *host = xasprintf("%s/dwz-host", dir);
	uint64_t missing = result("dwz_missing");
	struct files_config config = {.host_debug_dir = host};
	struct container a, b;
	struct files *f;

	(void)state;
	if (access("/usr/bin/dwz", X_OK) < 0) {
		print_message("skipped: no dwz\n");
		skip();
	}
	compile("");
	run("cd %s && gcc -g -O1 -o second prog.c && "
	    "dwz -m shared -M /usr/lib/debug/.dwz/shared prog.full second && "
	    "objcopy --only-keep-debug prog.full prog.debug && mkdir -p %s/.dwz",
	    dir, host);
	a = make_container("a", "prog");
	b = make_container("b", "prog");
	debug_dir = xasprintf("%s/usr/lib/debug", a.root);
	put_by_build_id(&a, debug_dir, "cp prog.debug");
	put_by_build_id(&b, host, "cp prog.debug");
	run("cp %s/shared %s/.dwz/", dir, host);
	assert_int_equal(files_new(&config, &f), 0);
	files_debug(f, &a.m, a.root_fd);
	files_debug(f, &b.m, b.root_fd);
	assert_int_equal(result("dwz_missing"), missing + 1);
	assert_false(knows_inlined(f, &a));
	assert_true(knows_inlined(f, &b));
	files_free(f);
	run("mkdir %s/.dwz && cp %s/shared %s/.dwz/", debug_dir, dir, debug_dir);
	f = make(0);
	files_debug(f, &a.m, a.root_fd);
	assert_true(knows_inlined(f, &a));
	files_free(f);
	container_done(&a);
	container_done(&b);
}

/* The last test: from here on, this process has mounts of its own. */
static void other_file_systems_are_not_entered(void **state)
{
	_cleanup_free_ char *debug_dir = NULL;
	struct container c;

	(void)state;
	if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		print_message("skipped: no mounts of our own: %s\n", strerror(errno));
		skip();
	}
	compile("");
	c = make_container("a", "prog");
	debug_dir = xasprintf("%s/usr/lib/debug", c.root);
	assert_int_equal(mount("none", debug_dir, "tmpfs", 0, NULL), 0);
	put_by_build_id(&c, debug_dir, "cp prog.debug");
	assert_search(&c, "none", "(none)");
	assert_int_equal(umount2(debug_dir, MNT_DETACH), 0);
	put_by_build_id(&c, debug_dir, "cp prog.debug");
	assert_search(&c, "build_id", "hidden_function");
	container_done(&c);
}

/* Makes a memfd of this size: a program, and zeros behind it. */
static struct mapping memory_file(off_t bytes)
{
	struct mapping m = copy_of_program("in_memory");
	int fd = memfd_create("program", MFD_CLOEXEC);
	struct stat st;

	assert_int_equal(fstat(m.fd, &st), 0);
	assert_int_equal(sendfile(fd, m.fd, NULL, (size_t)st.st_size), st.st_size);
	assert_int_equal(ftruncate(fd, bytes), 0);
	close(m.fd);
	assert_int_equal(fstat(fd, &st), 0);
	m.fd = fd;
	m.inode = st.st_ino;
	m.memory_file = true;
	return m;
}

static int bytes_known(struct files *f, const struct mapping *m)
{
	char magic[4];
	size_t n = 0;
	int r = files_code(f, m, 0, magic, sizeof(magic), &n);

	if (r == 0) {
		assert_int_equal(n, sizeof(magic));
		assert_memory_equal(magic, "\177ELF", sizeof(magic));
	}
	return r;
}

static void memory_files_are_kept_under_their_limit(void **state)
{
	static const char failed[] = "podflame_symbol_files_failed_total";
	struct counter *too_large = counter(failed, "reason", "memory_file_too_large");
	struct files *f = make(1u << 30);
	struct mapping a = memory_file(40 << 20), b = memory_file(40 << 20); /* limit: 64 MiB */
	struct mapping large = memory_file((64 << 20) + 1);
	uint64_t before = counter_get(too_large);
	struct elf_index *index;

	(void)state;
	assert_int_equal(bytes_known(f, &a), -ENOENT);
	ask(f, &a);
	assert_int_equal(bytes_known(f, &a), 0);
	ask(f, &b);
	assert_int_equal(bytes_known(f, &b), 0);
	assert_int_equal(bytes_known(f, &a), -ENOENT);
	assert_int_equal(files_index(f, &large, &index), -E2BIG);
	assert_int_equal(counter_get(too_large), before + 1);
	assert_int_equal(bytes_known(f, &b), 0);
	close(a.fd);
	close(b.fd);
	close(large.fd);
	files_free(f);
}

static void who_has_many_memory_files_pushes_out_his_own(void **state)
{
	struct files *f = make(1u << 30);
	struct mapping other = memory_file(8 << 20), his[4];

	(void)state;
	parse_for(f, &other, 1);
	for (size_t i = 0; i < ARRAY_SIZE(his); i++) {
		his[i] = memory_file(20 << 20); /* the limit is 64 MiB */
		parse_for(f, &his[i], 2);
	}
	assert_int_equal(bytes_known(f, &other), 0); /* kept, although it was used least recently */
	assert_int_equal(bytes_known(f, &his[0]), -ENOENT);
	assert_int_equal(bytes_known(f, &his[3]), 0);
	close(other.fd);
	for (size_t i = 0; i < ARRAY_SIZE(his); i++)
		close(his[i].fd);
	files_free(f);
}

/* files_code() gives the bytes that were parsed, not those that the file has now. */
static void memory_files_have_the_bytes_that_were_parsed(void **state)
{
	struct files *f = make(0);
	struct mapping m = memory_file(8 << 20);

	(void)state;
	ask(f, &m);
	assert_int_equal(pwrite(m.fd, "other", 5, 0), 5);
	assert_int_equal(bytes_known(f, &m), 0);
	close(m.fd);
	files_free(f);
}

/*
 * Another process has mapped the file as loaders do, so it was first parsed without a copy. For a
 * process that may rewrite the file, the agent makes a copy then.
 */
static void a_memory_file_to_some_has_a_copy(void **state)
{
	struct files *f = make(0);
	struct mapping m = memory_file(8 << 20), private = m;

	(void)state;
	private.memory_file = false;
	ask(f, &private);
	assert_int_equal(bytes_known(f, &m), -ENOENT);
	ask(f, &m);
	assert_int_equal(bytes_known(f, &m), 0);
	close(m.fd);
	files_free(f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(indexes_are_kept_under_the_limit),
		cmocka_unit_test(memory_files_are_kept_under_their_limit),
		cmocka_unit_test(who_has_many_memory_files_pushes_out_his_own),
		cmocka_unit_test(a_memory_file_to_some_has_a_copy),
		cmocka_unit_test(memory_files_have_the_bytes_that_were_parsed),
		cmocka_unit_test(tags_have_a_limit),
		cmocka_unit_test(a_file_of_several_containers_is_parsed_once),
		cmocka_unit_test(a_file_that_one_container_rewrites_is_parsed_for_others),
		cmocka_unit_test(a_rewritten_file_of_a_container_is_tried_once),
		cmocka_unit_test(a_memory_file_is_not_known_by_its_tag),
		cmocka_unit_test(who_has_much_pushes_out_his_own),
		cmocka_unit_test(who_is_gone_leaves_room),
		cmocka_unit_test(equal_files_share_one_index),
		cmocka_unit_test(failed_files_are_counted_once),
		cmocka_unit_test(a_file_that_was_rewritten_since_is_not_parsed),
		cmocka_unit_test(what_a_file_lacks_is_counted),
		cmocka_unit_test(what_is_no_file_is_no_failure),
		cmocka_unit_test(what_is_known_needs_no_parser),
		cmocka_unit_test(what_is_expected_is_not_waited_for),
		cmocka_unit_test(many_threads_parse_a_file_once),
		cmocka_unit_test(others_do_not_wait_for_a_parse),
		cmocka_unit_test(debug_files_are_found),
		cmocka_unit_test(debug_files_that_do_not_belong_are_refused),
		cmocka_unit_test(a_containers_debug_file_names_its_own_processes),
		cmocka_unit_test(the_hosts_debug_files_name_everyones_processes),
		cmocka_unit_test(the_files_own_dwarf_is_used),
		cmocka_unit_test(dwo_files_come_from_the_container),
		cmocka_unit_test(dwz_files_come_from_where_the_debug_file_is),
		cmocka_unit_test(other_file_systems_are_not_entered),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
