/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests names in real JVMs. runtime_jvm_names() gets every address with debug information in all
 * code that a JVM has compiled. All must have names, and the inlined methods of a known program
 * must be on the lines of its source. The test uses Java of this machine and of .ci/deps.
 */
#include "node/runtime/jvm/jvm.h"

#include <elf.h>
#include <fcntl.h>
#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_NS (300 * NSEC_PER_SEC)

/* The test checks these lines: outer calls middle on line 4, and middle calls inner on line 3. */
static const char source[] =
	"public class Live {\n"
	"    static int inner(int[] a, int i) { return a[i % a.length] * 31 + i; }\n"
	"    static int middle(int[] a, int i) { return inner(a, i) ^ 7; }\n"
	"    static int outer(int[] a, int n) { int s = 0; for (int i = 0; i < n; i++) s += "
	"middle(a, i); return s; }\n"
	"    public static void main(String[] x) { int[] a = new int[64]; int s = 0; while (true) "
	"s += outer(a, 1000 + (s & 1)); }\n"
	"}\n";

static char folder[64];

/* ---- a process ---- */

struct live {
	pid_t pid;
	int mem;
	struct memory memory;
	struct jvm jvm;
	char *elf; /* the file libjvm */
	const Elf64_Sym *symbols;
	size_t n_symbols;
	const char *strings;
	uint64_t base;
};

static int read_live(void *arg, uint64_t address, void *to, size_t n)
{
	const struct live *l = arg;

	return pread64(l->mem, to, n, (off64_t)address) == (ssize_t)n ? 0 : -EFAULT;
}

static int symbol(void *arg, const char *name, uint64_t *ret)
{
	struct live *l = arg;

	for (size_t i = 0; i < l->n_symbols; i++)
		if (l->symbols[i].st_value && streq(l->strings + l->symbols[i].st_name, name)) {
			*ret = l->base + l->symbols[i].st_value;
			return 0;
		}
	return -ENOENT;
}

/* Finds the process's libjvm, once it is loaded. */
static bool find_library(struct live *l, char path[512])
{
	_cleanup_free_ char *file = xasprintf("/proc/%d/maps", l->pid);
	_cleanup_free_ char *maps = NULL;
	char *at, *line;

	if (file_read(AT_FDCWD, file, 1 << 22, &maps, NULL) < 0)
		return false;
	at = strstr(maps, "/libjvm.so\n");
	if (!at)
		return false;
	for (line = at; line > maps && line[-1] != '\n'; line--)
		;
	l->base = strtoull(line, NULL, 16);
	at += strlen("/libjvm.so");
	line = memchr(line, '/', (size_t)(at - line));
	snprintf(path, 512, "%.*s", (int)(at - line), line);
	return true;
}

static void open_symbols(struct live *l, const char *path)
{
	const Elf64_Ehdr *h;
	const Elf64_Shdr *sections;

	assert_int_equal(file_read(AT_FDCWD, path, 256u << 20, &l->elf, NULL), 0);
	h = (const Elf64_Ehdr *)l->elf;
	sections = (const Elf64_Shdr *)(l->elf + h->e_shoff);
	for (size_t i = 0; i < h->e_shnum; i++)
		if (sections[i].sh_type == SHT_DYNSYM) {
			l->symbols = (const Elf64_Sym *)(l->elf + sections[i].sh_offset);
			l->n_symbols = sections[i].sh_size / sizeof(*l->symbols);
			l->strings = l->elf + sections[sections[i].sh_link].sh_offset;
		}
	assert_non_null(l->symbols);
}

static void start(struct live *l, const char *java)
{
	l->pid = fork();
	assert_true(l->pid >= 0);
	if (l->pid == 0) {
		execl(java, java, "-XX:-UsePerfData", "-cp", folder, "Live", NULL);
		_exit(127);
	}
}

/*
 * Opens the memory of the process. This must be after its exec, because a descriptor keeps the
 * memory that the process had when it was opened.
 */
static void open_memory(struct live *l)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/mem", l->pid);

	l->mem = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(l->mem >= 0);
	l->memory = (struct memory){.read = read_live, .arg = l, .budget_bytes = SIZE_MAX};
}

static void stop(struct live *l)
{
	kill(l->pid, SIGKILL);
	waitpid(l->pid, NULL, 0);
	close(l->mem);
	free(l->elf);
	runtime_jvm_names_forget(&l->jvm);
	runtime_jvm_structs_done(&l->jvm.structs);
}

/* ---- the JVM's code cache ---- */

struct seen {
	size_t places, unnamed, chains;
	int error;
};

static uint64_t u64_at(struct live *l, uint64_t address)
{
	uint64_t v = 0;

	(void)runtime_memory_u64(&l->memory, address, &v);
	return v;
}

static uint32_t u32_at(struct live *l, uint64_t address)
{
	return (uint32_t)u64_at(l, address);
}

static bool is(const struct runtime_name *n, const char *name, uint32_t line, bool inlined)
{
	return streq(n->name, name) && str_equal(n->file, "Live.java") && n->line == line &&
	       n->inlined == inlined;
}

static void look_at_place(struct live *l, const struct runtime_words *w, struct seen *seen)
{
	struct runtime_names n = {0};
	int r = runtime_jvm_names(&l->jvm, &l->memory, w, &n);

	seen->places++;
	if (r < 0 || n.n == 0) {
		seen->unnamed++;
		seen->error = r;
	} else if (n.n == 3 && is(&n.items[0], "Live::outer", 4, false) &&
		   is(&n.items[1], "Live::middle", 3, true) &&
		   is(&n.items[2], "Live::inner", 2, true)) {
		seen->chains++;
	}
	runtime_names_done(&n);
}

static void look_at_blob(struct live *l, uint64_t blob, struct seen *seen)
{
	const struct jvm_structs *s = &l->jvm.structs;
	_cleanup_free_ char *name = NULL;
	uint32_t id = u32_at(l, blob + s->nmethod_compile_id);
	uint64_t end = blob + u32_at(l, blob + s->blob_size), code;

	if (runtime_memory_string(&l->memory, u64_at(l, blob + s->blob_name), 64, &name) < 0)
		return;
	if (!streq(name, "nmethod") && !streq(name, "native nmethod")) {
		look_at_place(l, &(struct runtime_words){JVM_FRAME_STUB, blob, blob}, seen);
		return;
	}
	code = s->blob_code_begin != JVM_NONE ? u64_at(l, blob + s->blob_code_begin)
					      : blob + u32_at(l, blob + s->blob_code_offset);
	for (; code < end; code += 8) {
		struct runtime_words w = {JVM_FRAME_COMPILED, blob | (uint64_t)(id & 0xffff) << 48,
					  code | (uint64_t)(id >> 16) << 48};

		look_at_place(l, &w, seen);
		w.type = JVM_FRAME_INTERRUPTED;
		w.b++;
		look_at_place(l, &w, seen);
	}
}

static void look_at_heap(struct live *l, uint64_t heap, struct seen *seen)
{
	const struct jvm_structs *s = &l->jvm.structs;
	uint64_t at = u64_at(l, heap + s->heap_memory + s->space_low);
	uint64_t end = u64_at(l, heap + s->heap_memory + s->space_committed);
	uint32_t shift = u32_at(l, heap + s->heap_log2_segment);
	uint64_t head = s->bytes.heap_block;

	while (at < end) {
		uint64_t length = head == 8 ? u32_at(l, at) : u64_at(l, at);

		if (length == 0)
			return;
		if (u64_at(l, at + head / 2) & 0xff)
			look_at_blob(l, at + head, seen);
		at += length << shift;
	}
}

static void look(struct live *l, struct seen *seen)
{
	const struct jvm_structs *s = &l->jvm.structs;
	uint64_t heaps;

	if (s->cache_heap != JVM_NONE) {
		look_at_heap(l, u64_at(l, s->cache_heap), seen);
		return;
	}
	heaps = u64_at(l, s->cache_heaps);
	for (uint32_t i = 0; i < u32_at(l, heaps + s->array_len); i++)
		look_at_heap(l, u64_at(l, u64_at(l, heaps + s->array_data) + 8ull * i), seen);
}

/* ---- the test ---- */

static void check(const char *java)
{
	struct live l = {0};
	struct seen seen = {0};
	uint64_t end = now_mono_ns() + WAIT_NS;
	char path[512];
	int r = -EAGAIN;

	start(&l, java);
	while (now_mono_ns() < end && !find_library(&l, path))
		usleep(10000);
	open_memory(&l);
	open_symbols(&l, path);
	/* libjvm fills its tables while it is being loaded. */
	while (now_mono_ns() < end && r < 0) {
		usleep(10000);
		r = runtime_jvm_structs_read(&l.memory, symbol, &l, &l.jvm.structs);
	}
	assert_int_equal(r, 0);
	l.jvm.major = u32_at(&l, l.jvm.structs.version_major);
	if (l.jvm.structs.cache_heap != JVM_NONE)
		l.jvm.major = 8; /* JDK 8, whose HotSpot has the version 25 */
	/* Waits until the JVM has compiled outer() with the other methods inlined. */
	while (now_mono_ns() < end && !seen.chains) {
		seen = (struct seen){0};
		usleep(200000);
		kill(l.pid, SIGSTOP);
		assert_int_equal(waitpid(l.pid, NULL, WUNTRACED), l.pid);
		look(&l, &seen);
		kill(l.pid, SIGCONT);
	}
	print_message("%s: JDK %u, %zu places, %zu of the known chain\n", java, l.jvm.major,
		      seen.places, seen.chains);
	stop(&l);
	assert_true(seen.chains > 0);
	if (seen.unnamed)
		fail_msg("%zu of %zu places without a name (%d)", seen.unnamed, seen.places,
			 seen.error);
}

static bool compiled(void)
{
	_cleanup_free_ char *file = xasprintf("%s/Live.java", folder);
	_cleanup_free_ char *command =
		xasprintf("javac --release 8 -g -d %s %s >/dev/null 2>&1", folder, file);
	int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(fd_write_all(fd, source, sizeof(source) - 1), 0);
	close(fd);
	return system(command) == 0;
}

static void check_all(const char *pattern)
{
	glob_t g = {0};

	(void)glob(pattern, 0, NULL, &g);
	for (size_t i = 0; i < g.gl_pathc; i++) {
		struct stat s, other;
		bool again = false;

		assert_int_equal(stat(g.gl_pathv[i], &s), 0);
		for (size_t k = 0; k < i && !again; k++)
			again = stat(g.gl_pathv[k], &other) == 0 && other.st_ino == s.st_ino;
		if (!again)
			check(g.gl_pathv[i]);
	}
	globfree(&g);
}

static void every_place_has_a_name(void **state)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	_cleanup_free_ char *fetched = xasprintf("%s%s/podflame/jdk-*/bin/java",
						 cache ? cache : home, cache ? "" : "/.cache");

	(void)state;
	if (!compiled()) {
		print_message("no javac on this machine\n");
		skip();
	}
	check_all("/usr/lib/jvm/*-amd64/bin/java");
	check_all(fetched);
}

static int setup(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/jvm-live-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
	_cleanup_free_ char *command = xasprintf("rm -r %s", folder);

	(void)state;
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_place_has_a_name)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
