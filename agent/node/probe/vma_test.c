// SPDX-License-Identifier: Apache-2.0
/*
 * A sample has the file that was mapped when it was taken. At a page of a process, one file,
 * another file, or none is mapped in turn. Each runs code at another offset in the page, which
 * shows which one it is. So the right answer is known for each sample.
 */
#include "node/probe/workload_test.h"

#include <sys/syscall.h>

#include "lib/base/testdir.h"

#include "node/probe/rows_test.h"

#define PAGE 4096ul

/* What is mapped at the page. PLACE: the offset of its code in the page. */
enum kind { FIRST, SECOND, ANONYMOUS, MOVED, RENAMED, _KINDS };
#define PLACE(kind) (64 * ((kind) + 1))

static char dir[TESTDIR_BYTES];
static char *page; /* the address is the same in parent and child */
static int first_fd, second_fd;

/* dec %rdi; jne; ret */
static const uint8_t code[] = {0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3};

static void put_code(char *to, enum kind kind)
{
	memset(to, 0xcc, PAGE);
	memcpy(to + PLACE(kind), code, sizeof(code));
}

/* The file has two pages. The second is for MOVED. */
static int make_file(const char *name, enum kind kind)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);
	char bytes[2 * PAGE];

	put_code(bytes, kind);
	put_code(bytes + PAGE, MOVED);
	assert_int_equal(file_write_atomic(path, bytes, sizeof(bytes), 0755), 0);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static bool map_file(int fd)
{
	return mmap(page, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0) == page;
}

static bool map_anonymous(void)
{
	if (mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1,
		 0) != page)
		return false;
	put_code(page, ANONYMOUS);
	return mprotect(page, PAGE, PROT_READ | PROT_EXEC) == 0;
}

static bool map_moved(void)
{
	void *at = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, first_fd, PAGE);

	return at != MAP_FAILED &&
	       mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page;
}

/*
 * Maps another file that has the name of the first one. The list still has this name for the first
 * file.
 */
static bool map_renamed(void)
{
	_cleanup_free_ char *path = xasprintf("%s/first", dir);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd >= 0 && map_file(fd);
}

static bool map_kind(enum kind kind)
{
	switch (kind) {
	case FIRST:
		return map_file(first_fd);
	case SECOND:
		return map_file(second_fd);
	case ANONYMOUS:
		return map_anonymous();
	case MOVED:
		return map_moved();
	default:
		return map_renamed();
	}
}

static void body_maps(struct truth *t)
{
	for (enum kind k = FIRST;; k = (k + 1) % _KINDS) {
		void (*run)(unsigned long) = (void (*)(unsigned long))(page + PLACE(k));

		if (!map_kind(k))
			_exit(1);
		t->ready = 1;
		run(5000000);
	}
}

/* ---- what the samples contain ---- */

struct seen {
	unsigned n, changed; /* number of samples; how many of them ended with "mapping_changed" */
	uint64_t tag, offset;
	bool no_file;
};
struct looker {
	struct probes *p;
	struct child c;
	struct raw_proc proc;
	struct seen seen[_KINDS];
};

static void take_stack(struct looker *l, const struct raw_stack *stack)
{
	const struct raw_frame *leaf = &stack->frames[0];
	uint64_t place = leaf->address - (uintptr_t)page;
	struct seen *x = place < PAGE ? &l->seen[place / 64 - 1] : NULL;
	bool changed = stack->end_reason && streq(stack->end_reason, "mapping_changed");

	if (!x)
		return;
	assert_in_range(place, PLACE(0), PLACE(_KINDS) - 1);
	if (x->n++) { /* samples of one kind always have the same tag */
		assert_int_equal(x->tag, leaf->tag);
		assert_int_equal(x->no_file, leaf->no_file);
	}
	*x = (struct seen){x->n, x->changed + changed, leaf->tag, leaf->file_offset - place,
			   leaf->no_file};
}

static void take(struct looker *l)
{
	struct drain *d;

	assert_int_equal(probes_drain(l->p, true, &d), 0);
	for (size_t i = 0; i < d->n_procs; i++)
		if (d->procs[i].what != RAW_PROC_EXIT)
			l->proc = d->procs[i];
	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_stack *stack = sample_drain_stack(d, d->samples[i].ustack);

		if (stack && stack->n)
			take_stack(l, stack);
	}
	sample_drain_free(d);
}

static bool has_all(const struct looker *l)
{
	for (enum kind k = FIRST; k < _KINDS; k++)
		if (l->seen[k].n < 5)
			return false;
	return true;
}

static void look(struct looker *l)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;

	take(l); /* drops earlier samples */
	take(l);
	memset(l->seen, 0, sizeof(l->seen));
	while (!has_all(l)) {
		if (now_mono_ns() > deadline)
			fail_msg("too few samples in 60 s");
		nap(50);
		take(l);
	}
}

/* Gives the kernel a list of mappings, as user space does. The list always has the first file. */
static void give_first(struct looker *l, uint64_t tag)
{
	struct pf_process_key key = {l->proc.start_boottime_ns, l->proc.tgid, l->proc.exec_id};
	struct pf_mapping m = {
		.start = (uintptr_t)page,
		.end = (uintptr_t)page + PAGE,
		.load = (uintptr_t)page,
		.tag = tag,
		.file = PF_SLOT_EMPTY,
		.verified = PF_UNVERIFIED,
	};
	struct pf_process v = {.n_parts = 1, .parts = {{m.start, PF_REF(ROWS_CHUNK + 3, 0), 1}}};

	assert_int_equal(probes_chunk_write(l->p, ROWS_CHUNK + 3, 0, &m, sizeof(m)), 0);
	assert_int_equal(probes_chunk_flush(l->p), 0);
	assert_int_equal(probes_process_set(l->p, &key, &v), 0);
}

static void give_image(struct looker *l, uint64_t tag, uint64_t says)
{
	const struct pf_image image = {
		.tag = says,
		.n_pieces = 1,
		.pieces = {{.end = UINT64_MAX, .file = PF_SLOT_EMPTY}},
	};

	assert_int_equal(probes_image_set(l->p, tag, &image), 0);
}

static uint64_t tag_of(int fd)
{
	uint64_t tag = PF_TAG_NONE;

	assert_int_equal(probes_file_tag(fd, &tag), 0);
	assert_true(tag >= PF_TAG_FIRST);
	return tag;
}

static void check_tags(const struct looker *l, const uint64_t *tags)
{
	for (enum kind k = FIRST; k < _KINDS; k++) {
		assert_int_equal(l->seen[k].tag, tags[k]);
		assert_int_equal(l->seen[k].no_file, k == ANONYMOUS);
		if (k != ANONYMOUS)
			assert_int_equal(l->seen[k].offset, k == MOVED ? PAGE : 0);
	}
}

static void samples_say_what_was_mapped(void **state)
{
	_cleanup_free_ char *named = xasprintf("%s/first", dir);
	struct looker l = {.c = child_start(body_maps, NULL)};
	int renamed_fd = open(named, O_RDONLY | O_CLOEXEC);
	uint64_t tags[_KINDS];

	(void)state;
	l.p = open_probes((struct probe_config){.use_list = true, .max_sample_hz = 999});
	tags[FIRST] = tags[MOVED] = tag_of(first_fd);
	tags[SECOND] = tag_of(second_fd);
	tags[ANONYMOUS] = PF_TAG_NONE;
	tags[RENAMED] = tag_of(renamed_fd);
	assert_int_not_equal(tags[FIRST], tags[SECOND]);
	assert_int_not_equal(tags[FIRST], tags[RENAMED]);
	list_pids(l.p, 1, &l.c, (unsigned[]){999});

	/* The kernel has no table of the file. */
	look(&l);
	check_tags(&l, tags);
	for (enum kind k = FIRST; k < _KINDS; k++)
		assert_int_equal(l.seen[k].changed, 0);

	/* The list has only the first file. Anonymous code has no rules in any case. */
	rows_images(l.p);
	give_first(&l, tags[FIRST]);
	look(&l);
	check_tags(&l, tags);
	assert_int_equal(l.seen[FIRST].changed, 0);
	assert_int_equal(l.seen[SECOND].changed, l.seen[SECOND].n);
	assert_int_equal(l.seen[ANONYMOUS].changed, 0);
	assert_int_equal(l.seen[MOVED].changed, l.seen[MOVED].n);
	assert_int_equal(l.seen[RENAMED].changed, l.seen[RENAMED].n);

	/*
	 * The list has the tag of a file that the agent could not open, so the walk takes no mapped
	 * file for it.
	 */
	give_first(&l, PF_TAG_UNKNOWN);
	look(&l);
	check_tags(&l, tags);
	for (enum kind k = FIRST; k < _KINDS; k++)
		assert_int_equal(l.seen[k].changed, k == ANONYMOUS ? 0 : l.seen[k].n);
	give_first(&l, tags[FIRST]);

	/*
	 * Known files are found wherever they are mapped. An entry that has the tag of another
	 * file, as that of RENAMED, is not used.
	 */
	give_image(&l, tags[FIRST], tags[FIRST]);
	give_image(&l, tags[SECOND], tags[SECOND]);
	give_image(&l, tags[RENAMED], tags[SECOND]);
	look(&l);
	check_tags(&l, tags);
	assert_int_equal(l.seen[SECOND].changed, 0);
	assert_int_equal(l.seen[MOVED].changed, 0);
	assert_int_equal(l.seen[RENAMED].changed, l.seen[RENAMED].n);

	probes_free(l.p);
	child_stop(&l.c);
	close(renamed_fd);
}

/* ---- while the mappings are being changed ---- */

/* Inlined, so that the leaf is in this program's own code, not in the C library. */
static inline long change(long number, uint64_t at, uint64_t bytes, long protection)
{
	register long flags __asm__("r10") = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	register long fd __asm__("r8") = -1;
	register long offset __asm__("r9") = 0;

	__asm__ volatile("syscall"
			 : "+a"(number)
			 : "D"(at), "S"(bytes), "d"(protection), "r"(flags), "r"(fd), "r"(offset)
			 : "rcx", "r11", "memory");
	return number;
}

/* Gives every second page other rights, and then makes all pages one mapping again. */
static void body_changes(struct truth *t)
{
	const size_t n = 64;
	void *all = mmap(NULL, n * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t at = (uintptr_t)all;

	for (size_t i = 1;; i = (i + 2) % n) {
		if (change(SYS_mmap, at + i * PAGE, PAGE, PROT_READ) < 0 ||
		    (i + 2 > n && change(SYS_mmap, at, n * PAGE, PROT_NONE) < 0))
			_exit(1);
		t->ready = 1;
	}
}

extern const char __executable_start[], etext[];

/*
 * Number of frames in this program's own code, which is always mapped; how many of them are marked
 * as not mapped; how many have an unknown file.
 */
struct own {
	unsigned n, denied, unseen;
};

static void take_own(struct own *own, const struct raw_stack *stack, unsigned n)
{
	for (size_t i = 0; i < stack->n; i++) {
		const struct raw_frame *f = &stack->frames[i];

		if (f->address < (uintptr_t)__executable_start || f->address >= (uintptr_t)etext)
			continue;
		own->n += n;
		own->denied += f->no_file ? n : 0;
		own->unseen += f->tag == PF_TAG_UNKNOWN ? n : 0;
	}
}

/*
 * If a tick comes while the kernel changes its tree of mappings, the walk may find no mapping. Then
 * it must not report that none exists.
 */
static void a_change_hides_no_code(void **state)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;
	struct child c = child_start(body_changes, NULL);
	struct probes *p;
	struct own own = {0};

	(void)state;
	p = open_probes((struct probe_config){.use_list = true, .max_sample_hz = 999});
	rows_images(p);
	list_pids(p, 1, &c, (unsigned[]){999});
	while (own.n < 4000 && now_mono_ns() < deadline) {
		struct drain *d;

		nap(50);
		assert_int_equal(probes_drain(p, true, &d), 0);
		for (size_t i = 0; i < d->n_samples; i++) {
			const struct raw_stack *stack = sample_drain_stack(d, d->samples[i].ustack);

			if (stack)
				take_own(&own, stack, d->samples[i].n);
		}
		sample_drain_free(d);
	}
	probes_free(p);
	child_stop(&c);
	print_message("%u frames, %u not seen, %u denied\n", own.n, own.unseen, own.denied);
	assert_true(own.n > 100);
	assert_int_equal(own.denied, 0);
}

/* If a file is written to, its tag changes. */
static void what_is_in_a_file_is_a_part_of_its_tag(void **state)
{
	struct probes *p =
		open_probes((struct probe_config){.use_list = true, .max_sample_hz = 99});
	_cleanup_free_ char *path = xasprintf("%s/second", dir);
	_cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC);
	uint64_t before = tag_of(fd), tag;

	(void)state;
	assert_int_equal(tag_of(fd), before);
	nap(20); /* longer than a tick of the clock that ctime uses */
	assert_int_equal(pwrite(fd, "x", 1, 0), 1);
	assert_int_not_equal(tag_of(fd), before);
	probes_free(p);
	assert_int_equal(probes_file_tag(fd, &tag), -EOPNOTSUPP);
}

/* A file in memory keeps its tag if it is written to. The agent compares the code of such files. */
static void files_in_memory_keep_their_tags(void **state)
{
	struct probes *p =
		open_probes((struct probe_config){.use_list = true, .max_sample_hz = 99});
	_cleanup_close_ int fd = memfd_create("a", MFD_CLOEXEC);
	_cleanup_close_ int other = memfd_create("a", MFD_CLOEXEC);
	uint64_t tag = tag_of(fd);

	(void)state;
	assert_int_not_equal(tag_of(other), tag);
	nap(20);
	assert_int_equal(pwrite(fd, "x", 1, 0), 1);
	assert_int_equal(tag_of(fd), tag);
	probes_free(p);
}

static bool is_mapped_here(const char *name)
{
	_cleanup_free_ char *maps = NULL;
	size_t n;

	assert_int_equal(file_read(AT_FDCWD, "/proc/self/maps", 16 << 20, &maps, &n), 0);
	return strstr(maps, name) != NULL;
}

/* Tags of files in huge pages. This also works if the machine has no free huge page. */
static void huge_pages_are_looked_at_and_left_alone(void **state)
{
	struct probes *p =
		open_probes((struct probe_config){.use_list = true, .max_sample_hz = 99});
	_cleanup_close_ int fd = memfd_create("huge-text", MFD_CLOEXEC | MFD_HUGETLB);

	(void)state;
	if (fd < 0)
		print_message("skipped: this kernel has no huge pages: %s\n", strerror(errno));
	else
		assert_int_equal(tag_of(fd), tag_of(fd));
	assert_false(is_mapped_here("huge-text"));
	probes_free(p);
}

static int begin(void **state)
{
	_cleanup_free_ char *path = NULL;

	(void)state;
	assert_int_equal(testdir_make(dir), 0);
	page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	first_fd = make_file("first", FIRST);
	second_fd = make_file("second", SECOND);
	path = xasprintf("%s/first", dir);
	/* replaces the file that has the name of the first one */
	close(make_file("first", RENAMED));
	return first_fd < 0 || second_fd < 0;
}

static int end(void **state)
{
	(void)state;
	return testdir_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples_say_what_was_mapped),
		cmocka_unit_test(a_change_hides_no_code),
		cmocka_unit_test(what_is_in_a_file_is_a_part_of_its_tag),
		cmocka_unit_test(files_in_memory_keep_their_tags),
		cmocka_unit_test(huge_pages_are_looked_at_and_left_alone),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
