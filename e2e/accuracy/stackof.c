/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stackof PID: prints the stacks of all threads of a process that does not run at the moment, for
 * comparison with other unwinders. The code that walks them is the kernel's (bpf/unwind.h), and the
 * tables are made as the agent makes them. Prints "TID n" with the thread pointer, then a line
 * "0x... name" for each frame, or "python NAME FILE:LINE" for a frame of a runtime, then "end:
 * REASON".
 */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare" /* written for clang's BPF target */
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "bpf/unwind.h" /* first: runtime.h includes a part of it */
#pragma GCC diagnostic pop

#include "node/files/files.h"
#include "node/unwind/unwind.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

/* ---- what the kernel has: chunks, files, one process ---- */

static uint8_t *chunk[PF_CHUNKS_MAX];
static struct pf_file file[PF_FILES_MAX];
static struct pf_process process;
static int memory_fd = -1;
static struct mappings *maps;
static struct files *files;
static struct runtime_process *runtimes;

static int write_chunk(void *arg, uint32_t n, uint32_t offset, const void *bytes, size_t size)
{
	(void)arg;
	if (!chunk[n])
		chunk[n] = xcalloc(1, PF_CHUNK_BYTES);
	memcpy(chunk[n] + offset, bytes, size);
	return 0;
}

static int nothing(void *arg)
{
	(void)arg;
	return 0;
}

static int drop_chunk(void *arg, uint32_t n)
{
	(void)arg;
	free(chunk[n]);
	chunk[n] = NULL;
	return 0;
}

static int set_file(void *arg, uint32_t slot, const struct pf_file *f)
{
	(void)arg;
	file[slot] = *f;
	return 0;
}

static int set_process(void *arg, const struct pf_process_key *k, const struct pf_process *p)
{
	(void)arg;
	(void)k;
	process = *p;
	return 0;
}

static int remove_process(void *arg, const struct pf_process_key *k)
{
	(void)arg;
	(void)k;
	return 0;
}

/* Does nothing: a process that does not run is walked by its own mappings alone. */
static int set_image(void *arg, uint64_t tag, const struct pf_image *i)
{
	(void)arg;
	(void)tag;
	(void)i;
	return 0;
}

static int remove_image(void *arg, uint64_t tag)
{
	(void)arg;
	(void)tag;
	return 0;
}

static void *bpf_map_lookup_elem(void *map, const void *key)
{
	uint32_t k = *(const uint32_t *)key;

	if (map == &chunks)
		return k < PF_CHUNKS_MAX ? chunk[k] : NULL;
	if (map == &unwind_files)
		return k < PF_FILES_MAX ? &file[k] : NULL;
	return map; /* `map` is a chunk, an array of one value */
}

/*
 * noinline: a call may fill several members of a struct, and gcc would report an overflow of the
 * first one.
 */
__attribute__((noinline)) static long bpf_probe_read_user(void *to, uint32_t n, const void *address)
{
	return pread(memory_fd, to, n, (off_t)(uintptr_t)address) == n ? 0 : -EFAULT;
}

/* ---- its tables ---- */

static int load_tables(uint32_t pid)
{
	static const struct unwind_ops ops = {
		.write = write_chunk,
		.flush = nothing,
		.drop_chunk = drop_chunk,
		.set_file = set_file,
		.set_process = set_process,
		.remove_process = remove_process,
		.set_image = set_image,
		.remove_image = remove_image,
		.grace = nothing,
	};
	struct files_config config = {.parser.marks = runtime_marks()};
	struct unwind *u = NULL;
	struct elf_index **indexes;
	bool again;
	struct process_id id = {.tgid = pid};
	bool *pending;
	int e = proc_start_boottime(pid, &id.start_boottime_ns);

	if (!e)
		e = proc_mappings_read(id, 0, &maps);
	if (!e)
		e = files_new(&config, &files);
	if (!e)
		e = unwind_new(&ops, NULL, (size_t)PF_CHUNKS_MAX * PF_CHUNK_BYTES, &u);
	if (e)
		return e;
	indexes = xcalloc(maps->n + 1, sizeof(*indexes));
	pending = xcalloc(maps->n + 1, sizeof(*pending));
	for (size_t i = 0; i < maps->n; i++)
		if (files_index(files, &maps->items[i], &indexes[i]))
			indexes[i] = NULL;
	e = runtime_learn(NULL, maps, indexes, NULL, &runtimes, &again);
	return e ? e : unwind_process(u, maps, 0, indexes, pending, runtimes);
}

/* ---- a thread ---- */

static void registers(const struct user_regs_struct *r, struct pf_walk *w)
{
	const uint64_t by_number[PF_REGS] = {r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi,
					     r->rbp, r->rsp, r->r8,  r->r9,  r->r10, r->r11,
					     r->r12, r->r13, r->r14, r->r15};

	memcpy(w->regs, by_number, sizeof(by_number));
	w->ip = r->rip;
}

static const char *end_name(uint32_t end)
{
	static const char *const names[] = {
#define X(name, text) #name,
		PF_STACK_ENDS(X)
#undef X
	};

	return end < ARRAY_SIZE(names) ? names[end] : "?";
}

/*
 * Prints the function around an address. A return address may be behind the end of the function, so
 * the byte before it counts, which belongs to the call.
 */
static void print_frame(uint64_t address, bool leaf)
{
	const struct mapping *m = proc_mappings_find(maps, leaf ? address : address - 1);
	struct file_names names = {0};

	if (!m) {
		printf("0x%016" PRIx64 "\n", address);
		return;
	}
	files_names(files, m, files_root(maps->root_fd), leaf ? address : address - 1, &names);
	printf("0x%016" PRIx64 " %s\n", address, names.n ? names.names[names.n - 1].name : "");
	files_names_done(files, &names);
}

static bool is_runtime(const uint64_t *word)
{
	return (word[0] & 0xff) == PF_FRAME_RUNTIME;
}

static size_t n_words(const uint64_t *word)
{
	return 1 + (word[0] >> 8 & 0xff);
}

static struct runtime_words words_of(const uint64_t *word)
{
	return (struct runtime_words){word[0] >> 24 & 0xff, word[1], word[2]};
}

/*
 * Prints a frame of a runtime. word: the frame's header, a, b. end: behind the stack's last word.
 */
static void print_runtime_frame(const uint64_t *word, const uint64_t *end)
{
	struct runtime_ask ask = {.kind = word[0] >> 16 & 0xff, .frame = words_of(word)};
	const uint64_t *next = word + n_words(word);
	const char *name = runtime_ops(ask.kind)->name;
	_cleanup_free_ char *trouble = NULL;

	if (ask.frame.type == PF_TYPE_TROUBLE) {
		trouble = runtime_trouble_text(ask.kind, ask.frame.a);
		printf("%s %s\n", name, trouble);
		return;
	}
	while (next < end && (!is_runtime(next) || (next[0] >> 16 & 0xff) != ask.kind))
		next += n_words(next);
	ask.has_caller = next < end;
	if (ask.has_caller)
		ask.caller = words_of(next);
	runtime_resolve(runtimes, NULL, &ask, 1);
	if (ask.error)
		printf("%s [%s]\n", name, strerror(-ask.error));
	for (size_t i = ask.names.n; i-- > 0;)
		printf("%s %s %s:%u\n", name, ask.names.items[i].name,
		       ask.names.items[i].file ? ask.names.items[i].file : "",
		       ask.names.items[i].line);
	runtime_names_done(&ask.names);
}

static void print_frames(const struct pf_scratch *s)
{
	const uint64_t *word = s->stack.words, *end = word + s->walk.n_words;

	for (; word < end; word += n_words(word))
		if (is_runtime(word))
			print_runtime_frame(word, end);
		else
			print_frame(word[1], word == s->stack.words);
}

static void print_stack(pid_t tid, const struct user_regs_struct *r)
{
	static struct pf_scratch s;

	memset(&s, 0, sizeof(s));
	registers(r, &s.walk);
	s.walk.known = true;
	s.walk.process = process;
	s.walk.thread_pointer = r->fs_base;
	pf_walk_user(&s, 0, pf_hash_start(1, 1), false, r->cs != 0x33);
	printf("TID %d %#llx\n", tid, r->fs_base);
	print_frames(&s);
	printf("end: %s\n", end_name(s.walk.end));
}

/* Prints the stack of one thread. If a signal has stopped the process, it stays stopped. */
static int thread(pid_t tid)
{
	struct user_regs_struct r;
	struct iovec v = {&r, sizeof(r)};
	int status;

	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) || ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) ||
	    waitpid(tid, &status, __WALL) != tid)
		return -errno;
	if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &v))
		return -errno;
	print_stack(tid, &r);
	return ptrace(PTRACE_DETACH, tid, NULL, NULL) ? -errno : 0;
}

static int threads(uint32_t pid)
{
	_cleanup_free_ char *dir = xasprintf("/proc/%u/task", pid);
	_cleanup_free_ char *mem = xasprintf("/proc/%u/mem", pid);
	DIR *d = opendir(dir);
	struct dirent *entry;
	int e = 0;

	memory_fd = open(mem, O_RDONLY | O_CLOEXEC);
	if (!d || memory_fd < 0)
		return -errno;
	while (!e && (entry = readdir(d)))
		if (atoi(entry->d_name) > 0)
			e = thread(atoi(entry->d_name));
	closedir(d);
	return e;
}

int main(int argc, char **argv)
{
	uint32_t pid;
	int e;

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	if (argc != 2 || (pid = (uint32_t)atoi(argv[1])) == 0) {
		fprintf(stderr, "usage: stackof PID\n");
		return 2;
	}
	e = load_tables(pid);
	if (!e)
		e = threads(pid);
	if (e)
		fprintf(stderr, "stackof: %u: %s\n", pid, strerror(-e));
	return e != 0;
}
